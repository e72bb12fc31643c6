//! The headers that MCP uses over HTTP, and how they are read.

use ::http::header::{ACCEPT, CONTENT_TYPE};
use ::http::{HeaderMap, HeaderName};

use crate::mcp::revision::Revision;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(super) const MCP_NAME: HeaderName = HeaderName::from_static("mcp-name");
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The headers that have one value.
static SINGLE: [HeaderName; 6] = [
    SESSION_ID,
    PROTOCOL_VERSION,
    MCP_METHOD,
    MCP_NAME,
    LAST_EVENT_ID,
    CONTENT_TYPE,
];

pub(super) const JSON: &str = "application/json";
pub(super) const EVENT_STREAM: &str = "text/event-stream";

/// Returns a header's text without the white space around it; of several, the first.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    Some(headers.get(name)?.to_str().ok()?.trim())
}

/// Returns the text of a header that is sent exactly once.
pub(super) fn sole<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Returns a header that is sent several times where that has no one meaning: two sessions, or two values
/// that differ. A proxy before this service may go by another of them.
pub(super) fn repeated(headers: &HeaderMap) -> Option<&'static HeaderName> {
    SINGLE.iter().find(|name| {
        let mut values = headers.get_all(*name).iter();
        let first = values.next();
        // Two equal session ids are refused too: no client sends them, and an id is all that names a session.
        values.any(|value| Some(value) != first || **name == SESSION_ID)
    })
}

/// Returns true for a body of JSON, by the same rule as rmcp's.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let Some(media_type) = text(headers, &CONTENT_TYPE) else {
        return false;
    };
    let essence = media_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case(JSON)
}

/// Returns true for a POST that belongs to a session by its headers: it names one, and no revision without
/// sessions. An unknown revision is rmcp's to refuse.
pub(super) fn names_session(headers: &HeaderMap) -> bool {
    let may_have_session = match text(headers, &PROTOCOL_VERSION).map(Revision::parse) {
        Some(Some(revision)) => !revision.is_stateless(),
        Some(None) => false,
        None => true,
    };
    may_have_session && headers.contains_key(&SESSION_ID)
}

/// Returns true for a POST of JSON whose client accepts both kinds of answers, written the usual way.
/// Anything else is for rmcp to judge.
pub(super) fn is_plain_post(headers: &HeaderMap) -> bool {
    match (sole(headers, &CONTENT_TYPE), sole(headers, &ACCEPT)) {
        (Some(JSON), Some(accept)) => accepts_both(accept),
        _ => false,
    }
}

/// Returns true when a client accepts JSON and event streams, without preferences between them.
fn accepts_both(accept: &str) -> bool {
    !accept.contains([';', '"']) && lists(accept, JSON) && lists(accept, EVENT_STREAM)
}

fn lists(accept: &str, media_type: &str) -> bool {
    accept
        .split(',')
        .any(|entry| entry.trim_matches(' ') == media_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::http::HeaderValue;

    fn repeats(sent: &[(&'static str, &'static str)]) -> Option<&'static str> {
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(*name, HeaderValue::from_static(value));
        }
        Some(repeated(&headers)?.as_str())
    }

    #[test]
    fn repeated_headers_without_one_meaning_are_found() {
        let session = ("mcp-session-id", "a");
        assert_eq!(repeats(&[session, ("mcp-method", "ping")]), None);
        assert_eq!(repeats(&[session, session]), Some("mcp-session-id"));
        for name in [
            "mcp-protocol-version",
            "mcp-method",
            "mcp-name",
            "last-event-id",
            "content-type",
        ] {
            assert_eq!(repeats(&[(name, "a"), (name, "a")]), None, "{name}");
            assert_eq!(repeats(&[(name, "a"), (name, "a"), (name, "b")]), Some(name));
        }
        assert_eq!(repeats(&[("accept", "a"), ("accept", "b")]), None);
    }
}
