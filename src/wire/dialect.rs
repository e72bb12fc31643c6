//! The form of requests in each revision of MCP: within a session (2024-11-05 to 2025-11-25), or without one
//! (2026-07-28).

use serde_json::{Value, json};

use super::http1::HttpTarget;
use super::jsonrpc::{notification, request};

pub use super::protocol::{
    ACCEPT_BOTH, ACKNOWLEDGED, CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, ETAG_META_KEY, METHOD_HEADER,
    NAME_HEADER, RESOURCE_UPDATED, REVISION_HEADER, REVISION_META_KEY, Revision, SESSION_HEADER,
    SUBSCRIPTION_ID_META_KEY, header_value,
};

/// Returns the filter for the changes of these resources.
pub fn resource_filter(uris: &[impl AsRef<str>]) -> Value {
    let uris: Vec<&str> = uris.iter().map(AsRef::as_ref).collect();
    json!({ "resourceSubscriptions": uris })
}

/// The form of one client's requests: its revision, its name, and its session if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialect {
    /// The revision that its requests are written in.
    pub revision: Revision,
    /// The id of its session, once a server has given one.
    pub session: Option<String>,
    client: &'static str,
}

impl Dialect {
    /// Makes the dialect of a client of this name, without a session.
    pub fn new(revision: Revision, client: &'static str) -> Dialect {
        Dialect {
            revision,
            session: None,
            client,
        }
    }

    /// Returns the parameters of the request that opens a session.
    pub fn initialize_params(&self) -> Value {
        json!({
            "protocolVersion": self.revision.as_str(),
            "capabilities": {},
            "clientInfo": self.client_info(),
        })
    }

    /// Adds to `params` the `_meta` that this revision asks of every request.
    #[must_use]
    pub fn params(&self, mut params: Value) -> Value {
        if self.revision.is_stateless() {
            params["_meta"] = json!({
                REVISION_META_KEY: self.revision.as_str(),
                CAPABILITIES_META_KEY: {},
                CLIENT_INFO_META_KEY: self.client_info(),
            });
        }
        params
    }

    fn client_info(&self) -> Value {
        json!({ "name": self.client, "version": env!("CARGO_PKG_VERSION") })
    }

    /// Returns the headers of a request without a message: the GET of a session's stream, or the DELETE of a
    /// session.
    pub fn session_headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        if let Some(session) = &self.session {
            headers.push((SESSION_HEADER, session.clone()));
        }
        if self.revision.has_revision_header() {
            headers.push((REVISION_HEADER, self.revision.as_str().to_owned()));
        }
        headers
    }

    /// Returns the headers of a POST of `message`, except those of its body.
    pub fn message_headers(&self, message: &Value) -> Vec<(&'static str, String)> {
        let method = message["method"].as_str().unwrap_or_default();
        // The revision is negotiated by this request, and there is no session before its answer.
        if method == "initialize" {
            return Vec::new();
        }
        let mut headers = self.session_headers();
        if self.revision.is_stateless() && !method.is_empty() {
            headers.push((METHOD_HEADER, method.to_owned()));
            if let Some(name) = subject(method, &message["params"]) {
                headers.push((NAME_HEADER, header_value(name)));
            }
        }
        headers
    }

    /// Writes a POST of a message.
    pub fn post(&self, target: &HttpTarget, message: &Value) -> Vec<u8> {
        target
            .request("POST")
            .header("Accept", ACCEPT_BOTH)
            .headers(&self.message_headers(message))
            .body("application/json", message.to_string().as_bytes())
    }

    /// Writes the POST that opens a session.
    pub fn initialize(&self, target: &HttpTarget) -> Vec<u8> {
        self.post(target, &request(0, "initialize", self.initialize_params()))
    }

    /// Writes the POST that ends the opening of a session.
    pub fn initialized(&self, target: &HttpTarget) -> Vec<u8> {
        self.post(target, &notification("notifications/initialized"))
    }

    /// Writes the POST of a request.
    pub fn request(&self, target: &HttpTarget, id: u64, method: &str, params: Value) -> Vec<u8> {
        self.post(target, &request(id, method, self.params(params)))
    }

    /// Writes the request that opens the stream of notifications: a listen request for `uris`, or the GET of
    /// the session.
    pub fn stream(&self, target: &HttpTarget, uris: &[&str]) -> Vec<u8> {
        match self.revision.is_stateless() {
            true => self.listen(target, 1, uris),
            // A session subscribes by requests of its own, so its stream names no resource.
            false => self.session_stream(target, None),
        }
    }

    /// Writes the POST that opens a stream of the changes of `uris` (2026-07-28).
    pub fn listen(&self, target: &HttpTarget, id: u64, uris: &[&str]) -> Vec<u8> {
        self.post(target, &self.listen_message(id, uris))
    }

    /// Returns the message of that POST.
    pub fn listen_message(&self, id: u64, uris: &[&str]) -> Value {
        let params = json!({ "notifications": resource_filter(uris) });
        request(id, "subscriptions/listen", self.params(params))
    }

    /// Writes the GET of the session's stream, resumed after the event with this id.
    pub fn session_stream(&self, target: &HttpTarget, last_id: Option<&str>) -> Vec<u8> {
        let request = target
            .request("GET")
            .header("Accept", "text/event-stream")
            .headers(&self.session_headers());
        match last_id {
            Some(id) => request.header("Last-Event-ID", id).finish(),
            None => request.finish(),
        }
    }

    /// Writes the request that ends the session; none if there is no session.
    pub fn delete(&self, target: &HttpTarget) -> Option<Vec<u8>> {
        self.session.as_ref()?;
        let request = target.request("DELETE").headers(&self.session_headers());
        Some(request.finish())
    }
}

/// Returns the tool, prompt or resource of a request, if the newest revision requires it in a header.
fn subject<'p>(method: &str, params: &'p Value) -> Option<&'p str> {
    match method {
        "tools/call" | "prompts/get" => params["name"].as_str(),
        "resources/read" => params["uri"].as_str(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> HttpTarget {
        HttpTarget::mcp("127.0.0.1:9".parse().unwrap())
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn each_era_opens_its_stream() {
        let mut old = Dialect::new(Revision::R2025_11_25, "test");
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
        let resumed = text(old.session_stream(&target(), Some("7")));
        assert!(resumed.ends_with("Last-Event-ID: 7\r\n\r\n"), "{resumed}");
        let new = Dialect::new(Revision::R2026_07_28, "test");
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
        assert_eq!(body["params"]["_meta"][REVISION_META_KEY], "2026-07-28");
        assert_eq!(
            (new.delete(&target()), old.delete(&target()).is_some()),
            (None, true)
        );
    }

    #[test]
    fn names_travel_encoded_in_headers() {
        let new = Dialect::new(Revision::R2026_07_28, "test");
        let call = text(new.request(&target(), 7, "tools/call", json!({ "name": "ändern" })));
        assert!(call.contains("Mcp-Name: =?base64?w6RuZGVybg==?=\r\n"), "{call}");
        assert_eq!(header_value("demo://a"), "demo://a");
        assert_eq!(header_value("demo://ä"), "=?base64?ZGVtbzovL8Ok?=");
        assert!(header_value("=?base64?x?=").starts_with("=?base64?PT9"));
    }

    #[test]
    fn revision_header_came_with_2025_06_18() {
        for revision in Revision::ALL {
            let initialized = Dialect::new(revision, "test").initialized(&target());
            let expected = format!("MCP-Protocol-Version: {}\r\n", revision.as_str());
            assert_eq!(
                text(initialized).contains(&expected),
                revision >= Revision::R2025_06_18,
                "{revision:?}"
            );
            let initialize = text(Dialect::new(revision, "test").initialize(&target()));
            assert!(!initialize.contains("MCP-Protocol-Version"), "{initialize}");
        }
    }
}
