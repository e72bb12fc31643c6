//! The headers that MCP uses over HTTP, and how they are read.

use ::http::header::{ACCEPT, CONTENT_TYPE};
use ::http::{HeaderMap, HeaderName};

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(super) const MCP_NAME: HeaderName = HeaderName::from_static("mcp-name");
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
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
