//! The query of `/v1/events`: the parameters `uri`, `kind`, `last_event_id` and `body`, and the header
//! `Last-Event-ID`.

use axum::extract::Query;
use axum::http::{HeaderMap, HeaderName, Uri};

use crate::http::notice_body::wants_bodies;
use crate::http::problem::{Problem, ProblemKind};
use crate::{Filter, NoticeKind, UriPattern};

/// The parameters, for refusals.
const PARAMETERS: &str = "uri, kind, last_event_id and body";

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The events that a client wants.
#[derive(Debug)]
pub(super) struct EventsQuery {
    pub(super) filter: Filter,
    /// The id of the client's last event; none when it begins.
    pub(super) resume: Option<String>,
    /// True if notices are to carry the content.
    pub(super) bodies: bool,
}

impl EventsQuery {
    /// Reads the query and the headers of a request.
    pub(super) fn parse(uri: &Uri, headers: &HeaderMap) -> Result<EventsQuery, Problem> {
        let Query(pairs) = match Query::<Vec<(String, String)>>::try_from_uri(uri) {
            Ok(pairs) => pairs,
            Err(error) => {
                let text = format!("{}; see {PARAMETERS}", error.body_text());
                return Err(ProblemKind::BadRequest.because(text));
            }
        };
        let mut patterns = Vec::new();
        let mut kinds = Vec::new();
        let mut resume = None;
        let mut bodies = false;
        for (name, value) in pairs {
            match name.as_str() {
                "uri" => patterns.push(pattern(&value)?),
                "kind" => kinds.push(kind(&value)?),
                "last_event_id" => resume = Some(value),
                "body" => bodies = wants_bodies(&value)?,
                _ => {
                    let text = format!("the query has {:?}; it takes {PARAMETERS}", shorten(&name));
                    return Err(ProblemKind::BadRequest.because(text));
                }
            }
        }
        let mut filter = match Filter::of(patterns) {
            Ok(filter) => filter,
            Err(error) => return Err(ProblemKind::BadRequest.because(error.to_string())),
        };
        if !kinds.is_empty() {
            filter = filter.kinds(kinds);
        }
        // A browser that reconnects repeats the address of its first visit, so the header is newer.
        if let Some(value) = headers.get(LAST_EVENT_ID)
            && let Ok(id) = value.to_str()
            && !id.is_empty()
        {
            resume = Some(id.to_owned());
        }
        Ok(EventsQuery {
            filter,
            resume: resume.filter(|id| !id.is_empty()),
            bodies,
        })
    }
}

fn pattern(text: &str) -> Result<UriPattern, Problem> {
    match text.parse::<UriPattern>() {
        Ok(pattern) => Ok(pattern),
        Err(error) => Err(ProblemKind::BadRequest.because(error.to_string())),
    }
}

fn kind(text: &str) -> Result<NoticeKind, Problem> {
    match NoticeKind::from_name(text) {
        Some(kind) => Ok(kind),
        None => {
            let known = NoticeKind::ALL.map(NoticeKind::name).join(", ");
            let text = format!("kind {:?} is none; the kinds are {known}", shorten(text));
            Err(ProblemKind::BadRequest.because(text))
        }
    }
}

/// Returns the begin of a text that a refusal repeats.
fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn parse(query: &str, header: Option<&'static str>) -> Result<EventsQuery, Problem> {
        let mut headers = HeaderMap::new();
        if let Some(id) = header {
            headers.insert(LAST_EVENT_ID, HeaderValue::from_static(id));
        }
        EventsQuery::parse(&format!("/v1/events{query}").parse().unwrap(), &headers)
    }

    #[test]
    fn patterns_and_kinds_may_be_repeated() {
        let query =
            "?uri=demo%3A%2F%2Fa&uri=note%3A%2F%2F*&uri=page%3A%2F%2F%7Bname%7D&kind=updated&kind=removed";
        let filter = parse(query, None).unwrap().filter;
        let patterns: Vec<_> = filter.patterns().iter().map(ToString::to_string).collect();
        assert_eq!(patterns, ["demo://a", "note://*", "page://{name}"]);
        let wanted = NoticeKind::ALL.map(|kind| filter.wants_kind(kind));
        assert_eq!(wanted, [true, true, false, false, false]);
        assert_eq!(parse("", None).unwrap().filter, Filter::default());
    }

    #[test]
    fn content_is_sent_if_asked_for() {
        for (query, wanted) in [
            ("", false),
            ("?body=0", false),
            ("?body=", false),
            ("?body=1", true),
        ] {
            assert_eq!(parse(query, None).unwrap().bodies, wanted, "{query}");
        }
    }

    #[test]
    fn header_is_newer_than_query() {
        assert_eq!(
            parse("?last_event_id=a-1", None).unwrap().resume.as_deref(),
            Some("a-1")
        );
        let both = parse("?last_event_id=a-1", Some("a-7")).unwrap();
        assert_eq!(both.resume.as_deref(), Some("a-7"));
        assert_eq!(parse("?last_event_id=", Some("")).unwrap().resume, None);
    }

    #[test]
    fn wrong_parameter_is_refused() {
        for query in [
            "?uri=none",
            "?kind=changed",
            "?url=demo%3A%2F%2Fa",
            "?uri=a%3A%7B",
            "?body=yes",
        ] {
            assert!(parse(query, None).is_err(), "{query}");
        }
    }
}
