//! What a client of `/v1/events` asks for.
//!
//! Owns: the parameters `uri`, `kind` and `last_event_id`, and the header `Last-Event-ID`. Never: opens a stream.

use axum::extract::Query;
use axum::http::{HeaderMap, HeaderName, Uri};

use crate::http::problem::{Problem, ProblemKind};
use crate::{Filter, NoticeKind, UriPattern};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What a client asks for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) filter: Filter,
    /// The id of the last event it has; none when it has none.
    pub(super) resume: Option<String>,
}

/// Reads the query and the headers of a request.
pub(super) fn parse(uri: &Uri, headers: &HeaderMap) -> Result<Asked, Problem> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(|error| {
        ProblemKind::BadRequest.because(format!("{}; see uri, kind and last_event_id", error.body_text()))
    })?;
    let (mut patterns, mut kinds, mut resume) = (Vec::new(), Vec::new(), None);
    for (name, value) in pairs {
        match name.as_str() {
            "uri" => patterns.push(pattern(&value)?),
            "kind" => kinds.push(kind(&value)?),
            "last_event_id" => resume = Some(value),
            _ => {
                let name: String = name.chars().take(40).collect();
                return Err(ProblemKind::BadRequest.because(format!(
                    "the query has {name:?}; it takes uri, kind and last_event_id"
                )));
            }
        }
    }
    let mut filter =
        Filter::of(patterns).map_err(|error| ProblemKind::BadRequest.because(error.to_string()))?;
    if !kinds.is_empty() {
        filter = filter.kinds(kinds);
    }
    // A browser that comes back repeats the address of its first visit, so what the header says is newer.
    let header = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    let resume = header.filter(|id| !id.is_empty()).map(str::to_owned).or(resume);
    Ok(Asked {
        filter,
        resume: resume.filter(|id| !id.is_empty()),
    })
}

fn pattern(text: &str) -> Result<UriPattern, Problem> {
    text.parse()
        .map_err(|error: crate::InvalidPattern| ProblemKind::BadRequest.because(error.to_string()))
}

fn kind(text: &str) -> Result<NoticeKind, Problem> {
    NoticeKind::from_name(text).ok_or_else(|| {
        let text: String = text.chars().take(40).collect();
        let all = NoticeKind::ALL.map(NoticeKind::name).join(", ");
        ProblemKind::BadRequest.because(format!("kind {text:?} is none; the kinds are {all}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn asked(query: &str, header: Option<&'static str>) -> Result<Asked, Problem> {
        let mut headers = HeaderMap::new();
        if let Some(id) = header {
            headers.insert(LAST_EVENT_ID, HeaderValue::from_static(id));
        }
        parse(&format!("/v1/events{query}").parse().unwrap(), &headers)
    }

    #[test]
    fn patterns_and_kinds_may_be_repeated() {
        let query =
            "?uri=demo%3A%2F%2Fa&uri=note%3A%2F%2F*&uri=page%3A%2F%2F%7Bname%7D&kind=updated&kind=removed";
        let filter = asked(query, None).unwrap().filter;
        let patterns: Vec<_> = filter.patterns().iter().map(ToString::to_string).collect();
        assert_eq!(patterns, ["demo://a", "note://*", "page://{name}"]);
        let wanted = NoticeKind::ALL.map(|kind| filter.wants_kind(kind));
        assert_eq!(wanted, [true, true, false, false, false]);
        assert_eq!(asked("", None).unwrap().filter, Filter::default());
    }

    #[test]
    fn the_header_is_newer_than_the_query() {
        assert_eq!(
            asked("?last_event_id=a-1", None).unwrap().resume.as_deref(),
            Some("a-1")
        );
        let both = asked("?last_event_id=a-1", Some("a-7")).unwrap();
        assert_eq!(both.resume.as_deref(), Some("a-7"));
        assert_eq!(asked("?last_event_id=", Some("")).unwrap().resume, None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for query in [
            "?uri=none",
            "?kind=changed",
            "?url=demo%3A%2F%2Fa",
            "?uri=a%3A%7B",
        ] {
            assert!(asked(query, None).is_err(), "{query}");
        }
    }
}
