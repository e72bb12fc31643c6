//! The parameters of queries. An unknown one is refused, and one that is empty counts as left out.

use ::http::request::Parts;
use axum::extract::Query;
use serde::de::DeserializeOwned;

use crate::http::problem::{Problem, ProblemKind};

/// The items of a page for which the query sets no limit.
const PAGE_LEN: usize = 100;
/// The largest limit that a query may set.
pub(super) const PAGE_LEN_MAX: usize = 1000;
/// The longest text to search for, in characters.
pub(super) const SEARCH_LEN_MAX: usize = 256;
/// The characters of a parameter that a refusal repeats.
const SHOWN_LEN_MAX: usize = 40;

/// Reads the query of a request; `takes` names its parameters.
pub(super) fn query<T: DeserializeOwned>(head: &Parts, takes: &str) -> Result<T, Problem> {
    match Query::try_from_uri(&head.uri) {
        Ok(Query(query)) => Ok(query),
        Err(error) => {
            let text = format!("{}; the query takes {takes}", error.body_text());
            Err(ProblemKind::BadRequest.because(text))
        }
    }
}

/// Returns a parameter; one that is empty counts as left out.
pub(super) fn given(parameter: Option<String>) -> Option<String> {
    parameter.filter(|text| !text.is_empty())
}

/// Reads the limit of a page.
pub(super) fn page_len(limit: Option<String>) -> Result<usize, Problem> {
    let Some(text) = given(limit) else {
        return Ok(PAGE_LEN);
    };
    match text.parse() {
        Ok(limit @ 1..=PAGE_LEN_MAX) => Ok(limit),
        _ => Err(refused(
            "limit",
            &text,
            &format!("a number from 1 to {PAGE_LEN_MAX}"),
        )),
    }
}

/// Reads a parameter that is true or false.
pub(super) fn flag(name: &str, parameter: Option<String>) -> Result<bool, Problem> {
    match given(parameter).as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(refused(name, other, "true or false")),
    }
}

/// Reads a text to search for; empty if there is none.
pub(super) fn search_text(parameter: Option<String>) -> Result<String, Problem> {
    let text = parameter.unwrap_or_default();
    let length = text.chars().count();
    if length > SEARCH_LEN_MAX {
        let detail = format!("q has {length} characters; search for at most {SEARCH_LEN_MAX}");
        return Err(ProblemKind::BadRequest.because(detail));
    }
    Ok(text)
}

/// Refuses the value of a parameter; `expected` says what it takes.
pub(super) fn refused(name: &str, value: &str, expected: &str) -> Problem {
    let shown: String = value.chars().take(SHOWN_LEN_MAX).collect();
    ProblemKind::BadRequest.because(format!("{name} {shown:?} is not {expected}"))
}
