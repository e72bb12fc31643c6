//! A first look at a POST body: enough to route it, nothing more.
//!
//! Owns: which kind of message it is. Never: validates; rmcp parses the whole again.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mcp::revision::Revision;

/// What routing needs to know of a message.
#[derive(Deserialize)]
pub(super) struct Peek<'a> {
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct PeekParams<'a> {
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<PeekMeta<'a>>,
}

#[derive(Deserialize)]
struct PeekMeta<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
}

impl<'a> Peek<'a> {
    pub(super) fn of(body: &'a [u8]) -> serde_json::Result<Peek<'a>> {
        serde_json::from_slice(body)
    }

    pub(super) fn id(&self) -> Option<&RawValue> {
        self.id
    }

    fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    pub(super) fn is_initialize(&self) -> bool {
        self.method() == Some("initialize")
    }

    pub(super) fn is_listen(&self) -> bool {
        self.method() == Some("subscriptions/listen") && self.id.is_some()
    }

    /// The method, if it is a notification.
    pub(super) fn notification(&self) -> Option<&str> {
        self.method().filter(|_| self.id.is_none())
    }

    /// Whether it answers a request.
    pub(super) fn is_response(&self) -> bool {
        self.method.is_none()
    }

    /// Whether the message stands for itself: it or its header names a version without sessions (or one that we do
    /// not know, which rmcp refuses), or it asks what the server is.
    pub(super) fn is_stateless(&self, version_header: Option<&str>) -> bool {
        let stateless = |version: &str| Revision::parse(version).is_none_or(Revision::is_stateless);
        version_header.is_some_and(stateless)
            || self.names_version()
            || self.method() == Some("server/discover")
    }

    fn names_version(&self) -> bool {
        let params = self
            .params
            .map(|params| serde_json::from_str::<PeekParams<'_>>(params.get()));
        params
            .and_then(Result::ok)
            .and_then(|params| params.meta)
            .is_some_and(|meta| meta.version.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stateless(body: &str, header: Option<&str>) -> bool {
        Peek::of(body.as_bytes()).unwrap().is_stateless(header)
    }

    #[test]
    fn a_version_in_header_or_body_tells_the_era() {
        let plain = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        let modern = r#"{"id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        assert!(!stateless(plain, None));
        assert!(!stateless(plain, Some("2025-11-25")));
        assert!(stateless(plain, Some("2026-07-28")));
        assert!(stateless(plain, Some("2099-01-01")));
        assert!(stateless(modern, None));
        assert!(stateless(r#"{"id":1,"method":"server/discover"}"#, None));
        assert!(!stateless(r#"{"id":1,"method":"x","params":[1]}"#, None));
    }

    #[test]
    fn kinds_of_messages_are_told_apart() {
        let peek = |body| Peek::of(body).unwrap();
        assert!(peek(br#"{"id":1,"method":"initialize"}"#).is_initialize());
        assert_eq!(
            peek(br#"{"method":"notifications/x"}"#).notification(),
            Some("notifications/x")
        );
        assert!(peek(br#"{"id":1,"result":{}}"#).is_response());
        assert!(peek(br#"{"id":"a","method":"subscriptions/listen"}"#).is_listen());
        assert_eq!(
            peek(br#"{"id":"a\u0062","method":"m"}"#).id().map(RawValue::get),
            Some(r#""a\u0062""#)
        );
        assert!(Peek::of(b"{").is_err());
    }
}
