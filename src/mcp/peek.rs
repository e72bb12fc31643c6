//! A first look at a message: enough to route it. rmcp parses and validates the whole again.

use std::borrow::Cow;

use rmcp::model::RequestId;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny};
use serde_json::value::RawValue;

use super::params;
use super::revision::Revision;

/// The characters of a client's name that are read.
const CLIENT_LEN_MAX: usize = 200;

/// The fields of a message that decide its route.
#[derive(serde::Deserialize)]
pub(super) struct Peek<'a> {
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "as_written")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "is_there")]
    result: bool,
    #[serde(default, deserialize_with = "is_there")]
    error: bool,
}

/// Reads an id; null is a wrong one, and none is left out.
fn as_written<'de: 'a, 'a, D: Deserializer<'de>>(id: D) -> Result<Option<&'a RawValue>, D::Error> {
    Deserialize::deserialize(id).map(Some)
}

/// Reads a value of any kind; null is one too.
fn is_there<'de, D: Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(value).map(|_| true)
}

#[derive(serde::Deserialize, Default)]
struct PeekParams<'a> {
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<PeekMeta<'a>>,
}

#[derive(serde::Deserialize)]
struct PeekMeta<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct PeekCancelled {
    request_id: RequestId,
}

#[derive(serde::Deserialize)]
struct PeekObject {
    #[serde(default)]
    uri: Option<String>,
    #[serde(default)]
    name: Option<String>,
}

/// The right that a request uses over the one object that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UsedRight {
    Read,
    Subscribe,
    Call,
    Prompt,
    /// That to a method that the protocol does not define.
    Method,
}

impl<'a> Peek<'a> {
    /// Looks at a message.
    ///
    /// # Errors
    /// One of the category [`Data`](serde_json::error::Category::Data) for JSON that is no message.
    pub(super) fn of(message: &'a [u8]) -> serde_json::Result<Peek<'a>> {
        let peek = serde_json::from_slice(message)?;
        // The derived reader takes an array for an object without names.
        if message.trim_ascii_start().starts_with(b"[") {
            return Err(serde_json::Error::custom("a message is an object"));
        }
        Ok(peek)
    }

    pub(super) fn id(&self) -> Option<&'a RawValue> {
        self.id
    }

    /// Returns the parameters as they were written.
    pub(super) fn params(&self) -> Option<&'a RawValue> {
        self.params
    }

    fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    pub(super) fn is_initialize(&self) -> bool {
        self.method() == Some("initialize")
    }

    /// Returns the id of a listen request; none for every other message.
    pub(super) fn listen_id(&self) -> Option<&'a RawValue> {
        self.id.filter(|_| self.method() == Some("subscriptions/listen"))
    }

    /// Returns the id of a `resources/subscribe` request; none for every other message.
    pub(super) fn subscribe_id(&self) -> Option<&'a RawValue> {
        self.id.filter(|_| self.method() == Some("resources/subscribe"))
    }

    /// Returns the right that a request uses over one object, and the URI or name of that. A request with
    /// other parameters is refused where it is read.
    pub(super) fn used_right(&self) -> Option<(UsedRight, String)> {
        let (_, method) = self.request()?;
        let right = match method {
            "resources/read" => UsedRight::Read,
            "resources/subscribe" => UsedRight::Subscribe,
            "tools/call" => UsedRight::Call,
            "prompts/get" => UsedRight::Prompt,
            defined if params::is_defined(defined) => return None,
            custom => return Some((UsedRight::Method, custom.to_owned())),
        };
        let object: PeekObject = serde_json::from_str(self.params?.get()).ok()?;
        let named = match right {
            UsedRight::Read | UsedRight::Subscribe => object.uri,
            UsedRight::Call | UsedRight::Prompt => object.name,
            UsedRight::Method => None,
        };
        Some((right, named?))
    }

    /// Returns true for a request that may change the subscriptions of a session.
    pub(super) fn changes_subscriptions(&self) -> bool {
        matches!(
            self.request(),
            Some((_, "resources/subscribe" | "resources/unsubscribe"))
        )
    }

    /// Returns the name that the client of an `initialize` gives itself; empty if it gives none.
    pub(super) fn client_name(&self) -> String {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Initialize {
            client_info: ClientInfo,
        }
        #[derive(serde::Deserialize)]
        struct ClientInfo {
            name: String,
        }
        let params = self.params().map(RawValue::get).unwrap_or_default();
        match serde_json::from_str::<Initialize>(params) {
            Ok(initialize) => initialize.client_info.name.chars().take(CLIENT_LEN_MAX).collect(),
            Err(_) => String::new(),
        }
    }

    /// Returns true for a request that calls a tool.
    pub(super) fn is_tool_call(&self) -> bool {
        self.id.is_some() && self.method() == Some("tools/call")
    }

    /// Returns the id of the request that a `notifications/cancelled` names; none for every other message.
    pub(super) fn cancelled_id(&self) -> Option<RequestId> {
        if self.notification() != Some("notifications/cancelled") {
            return None;
        }
        let params: PeekCancelled = serde_json::from_str(self.params?.get()).ok()?;
        Some(params.request_id)
    }

    /// Returns the id and the method of a request; none for every other message.
    pub(super) fn request(&self) -> Option<(&'a RawValue, &str)> {
        Some((self.id?, self.method()?))
    }

    /// Returns the method of a notification; none for every other message.
    pub(super) fn notification(&self) -> Option<&str> {
        self.method().filter(|_| self.id.is_none())
    }

    /// Returns true when the message answers a request.
    pub(super) fn is_response(&self) -> bool {
        self.method.is_none() && self.result != self.error
    }

    /// Returns true when the message belongs to no session: it or its header names a version without
    /// sessions, or an unknown one, which rmcp refuses; or it asks for the server's description.
    pub(super) fn is_stateless(&self, version_header: Option<&str>) -> bool {
        // rmcp refuses an unknown version with the list of those it knows, so that one is left to it too.
        let by_header = match version_header.map(Revision::parse) {
            Some(Some(revision)) => revision.is_stateless(),
            Some(None) => true,
            None => false,
        };
        by_header || self.names_version() || self.method() == Some("server/discover")
    }

    fn names_version(&self) -> bool {
        let Some(params) = self.params else {
            return false;
        };
        matches!(
            serde_json::from_str(params.get()),
            Ok(PeekParams {
                meta: Some(PeekMeta { version: Some(_) })
            })
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stateless(body: &str, header: Option<&str>) -> bool {
        Peek::of(body.as_bytes()).unwrap().is_stateless(header)
    }

    #[test]
    fn version_in_header_or_body_decides_statelessness() {
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

    fn peek(body: &[u8]) -> Peek<'_> {
        Peek::of(body).unwrap()
    }

    #[test]
    fn message_kinds_are_recognised() {
        assert!(peek(br#"{"id":1,"method":"initialize"}"#).is_initialize());
        assert_eq!(
            peek(br#"{"method":"notifications/x"}"#).notification(),
            Some("notifications/x")
        );
        assert!(peek(br#"{"id":1,"result":{}}"#).is_response());
        assert!(
            peek(br#"{"id":"a","method":"subscriptions/listen"}"#)
                .listen_id()
                .is_some()
        );
        assert_eq!(
            peek(br#"{"id":"a\u0062","method":"m"}"#).id().map(RawValue::get),
            Some(r#""a\u0062""#)
        );
        assert!(!peek(b"{}").is_response());
        assert!(!peek(br#"{"id":1,"result":{},"error":{}}"#).is_response());
        assert!(peek(br#"{"id":1,"result":null}"#).is_response());
        assert!(Peek::of(b"{").is_err_and(|error| error.is_eof()));
        for wrong in [&b"[]"[..], b"7", br#"{"method":7}"#, br#"{"id":1,"id":2}"#] {
            assert!(Peek::of(wrong).is_err_and(|error| error.is_data()));
        }
    }
}
