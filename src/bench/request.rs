//! The requests that are sent, as bytes.
//!
//! Owns the headers and bodies of each era and of the HTTP API. It sends nothing.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::bench::target::Target;
use crate::wire::dialect::{Revision, header_value};

/// What a client says to be understood: its revision, and its session where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dialect {
    pub(crate) revision: Revision,
    pub(crate) session: Option<String>,
}

impl Dialect {
    pub(crate) fn new(revision: Revision) -> Dialect {
        Dialect {
            revision,
            session: None,
        }
    }

    fn headers(&self, initialized: bool) -> String {
        let mut headers = String::new();
        if let Some(session) = &self.session {
            headers += &format!("Mcp-Session-Id: {session}\r\n");
        }
        if initialized {
            headers += &format!("MCP-Protocol-Version: {}\r\n", self.revision.as_str());
        }
        headers
    }

    fn post(&self, target: &Target, headers: &str, message: &Value) -> Vec<u8> {
        let body = message.to_string();
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n{headers}\r\n",
            target.path,
            target.authority,
            body.len()
        );
        (head + &body).into_bytes()
    }

    pub(crate) fn initialize(&self, target: &Target) -> Vec<u8> {
        let params = json!({
            "protocolVersion": self.revision.as_str(), "capabilities": {},
            "clientInfo": { "name": "tidings-bench", "version": env!("CARGO_PKG_VERSION") },
        });
        let message = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        self.post(target, "", &message)
    }

    pub(crate) fn initialized(&self, target: &Target) -> Vec<u8> {
        let message = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        self.post(target, &self.headers(true), &message)
    }

    /// A request of this era; `name` is what it is about, where the newest revision wants it in a header.
    pub(crate) fn request(
        &self,
        target: &Target,
        id: u64,
        method: &str,
        mut params: Value,
        name: Option<&str>,
    ) -> Vec<u8> {
        let mut headers = self.headers(true);
        if self.revision.is_stateless() {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": self.revision.as_str(),
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo":
                    { "name": "tidings-bench", "version": env!("CARGO_PKG_VERSION") },
            });
            headers += &format!("Mcp-Method: {method}\r\n");
            if let Some(name) = name {
                headers += &format!("Mcp-Name: {}\r\n", header_value(name));
            }
        }
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.post(target, &headers, &message)
    }

    /// Opens the stream of notifications: a listen request for `uris`, or the session's GET.
    pub(crate) fn stream(&self, target: &Target, uris: &[&str]) -> Vec<u8> {
        if self.revision.is_stateless() {
            let params = json!({ "notifications": { "resourceSubscriptions": uris } });
            return self.request(target, 1, "subscriptions/listen", params, None);
        }
        format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\n{}\r\n",
            target.path,
            target.authority,
            self.headers(true)
        )
        .into_bytes()
    }

    /// Ends the session; none where there is none.
    pub(crate) fn delete(&self, target: &Target) -> Option<Vec<u8>> {
        self.session.as_ref()?;
        let head = format!(
            "DELETE {} HTTP/1.1\r\nHost: {}\r\n",
            target.path, target.authority
        );
        Some(format!("{head}{}\r\n", self.headers(true)).into_bytes())
    }
}

/// A request without a body to the server's origin.
pub(crate) fn plain(target: &Target, method: &str, path: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n\r\n", target.authority).into_bytes()
}

/// Writes a resource through the HTTP API.
pub(crate) fn put(target: &Target, path: &str, body: &str) -> Vec<u8> {
    format!(
        "PUT {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
        target.authority,
        body.len()
    )
    .into_bytes()
}

/// Where a resource lives in the HTTP API.
pub(crate) fn resource_path(uri: &str) -> String {
    format!("/v1/resources/{}", utf8_percent_encode(uri, NON_ALPHANUMERIC))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target::resolve("http://127.0.0.1:9/mcp", false).unwrap()
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn each_era_opens_its_stream() {
        let mut old = Dialect::new(Revision::R2025_11_25);
        old.session = Some("abc".to_owned());
        let stream = text(old.stream(&target(), &["demo://a"]));
        assert!(
            stream.starts_with("GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:9\r\n"),
            "{stream}"
        );
        assert!(
            stream.contains("Mcp-Session-Id: abc\r\nMCP-Protocol-Version: 2025-11-25\r\n"),
            "{stream}"
        );
        let new = Dialect::new(Revision::R2026_07_28);
        let stream = text(new.stream(&target(), &["demo://a"]));
        assert!(
            stream.contains("Mcp-Method: subscriptions/listen\r\n"),
            "{stream}"
        );
        let (_, body) = stream.split_once("\r\n\r\n").unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(
            body["params"]["notifications"],
            json!({ "resourceSubscriptions": ["demo://a"] })
        );
        assert_eq!(
            body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"],
            "2026-07-28"
        );
        assert_eq!(
            (new.delete(&target()), old.delete(&target()).is_some()),
            (None, true)
        );
    }

    #[test]
    fn names_travel_in_headers_and_uris_in_paths() {
        let new = Dialect::new(Revision::R2026_07_28);
        let call = text(new.request(
            &target(),
            7,
            "tools/call",
            json!({ "name": "ändern" }),
            Some("ändern"),
        ));
        assert!(call.contains("Mcp-Name: =?base64?w6RuZGVybg==?=\r\n"), "{call}");
        assert_eq!(resource_path("demo://a/1"), "/v1/resources/demo%3A%2F%2Fa%2F1");
        assert!(text(put(&target(), "/x", "né")).ends_with("Content-Length: 3\r\n\r\nné"));
    }
}
