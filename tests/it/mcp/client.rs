//! The two kinds of clients on HTTP: one with a session (the four older revisions), and one whose requests
//! stand alone (2026-07-28). They add headers and envelopes, and return the server's answers unchanged.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::events::Events;
use super::http::{Reply, Request};

pub(crate) const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
pub(crate) const MODERN: &str = "2026-07-28";

/// A client of an older revision, in its session.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) server: SocketAddr,
    pub(crate) revision: &'static str,
    pub(crate) id: String,
    pub(crate) initialized: Value,
    next: AtomicU64,
}

impl Client {
    /// Opens a session and reports that the client is ready.
    pub(crate) async fn open(server: SocketAddr, revision: &'static str) -> Client {
        let client = Client::initialize(server, revision).await;
        client.ready().await;
        client
    }

    /// Opens a session.
    pub(crate) async fn initialize(server: SocketAddr, revision: &'static str) -> Client {
        let reply = Request::post(initialize(revision).to_string()).send(server).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let id = reply.header("mcp-session-id").expect("a session id").to_owned();
        let initialized = reply.json();
        assert_eq!(initialized["result"]["protocolVersion"], revision);
        Client {
            server,
            revision,
            id,
            initialized,
            next: AtomicU64::new(1),
        }
    }

    /// Sends `notifications/initialized`.
    pub(crate) async fn ready(&self) {
        self.notify("notifications/initialized").await;
    }

    pub(crate) async fn notify(&self, method: &str) {
        let reply = self.post(&json!({ "jsonrpc": "2.0", "method": method })).await;
        assert_eq!((reply.status, reply.text()), (202, ""), "{method}");
    }

    /// A request with this session's headers.
    pub(crate) fn with_headers(&self, request: Request) -> Request {
        let request = request.header("mcp-session-id", &self.id);
        // The header came with 2025-06-18.
        if self.revision >= "2025-06-18" {
            return request.header("mcp-protocol-version", self.revision);
        }
        request
    }

    pub(crate) async fn post(&self, message: &Value) -> Reply {
        self.with_headers(Request::post(message.to_string()))
            .send(self.server)
            .await
    }

    pub(crate) fn message(&self, method: &str, params: Value) -> Value {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
    }

    pub(crate) async fn request(&self, method: &str, params: Value) -> Reply {
        self.post(&self.message(method, params)).await
    }

    /// The result of a request that must have one.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Value {
        let reply = self.request(method, params).await;
        let mut json = reply.json();
        assert!(json.get("result").is_some(), "{method}: {json}");
        json["result"].take()
    }

    pub(crate) async fn tool(&self, name: &str, arguments: Value) -> Value {
        self.call("tools/call", json!({ "name": name, "arguments": arguments }))
            .await
    }

    pub(crate) async fn subscribe(&self, uri: &str) {
        self.call("resources/subscribe", json!({ "uri": uri })).await;
    }

    pub(crate) async fn unsubscribe(&self, uri: &str) {
        self.call("resources/unsubscribe", json!({ "uri": uri })).await;
    }

    /// Opens the session's stream.
    pub(crate) async fn stream(&self) -> Events {
        self.open_stream(Request::stream()).await
    }

    /// Opens the session's stream after the event of that id.
    pub(crate) async fn stream_after(&self, id: &str) -> Events {
        self.open_stream(Request::stream().header("last-event-id", id))
            .await
    }

    pub(crate) async fn open_stream(&self, request: Request) -> Events {
        let incoming = self.with_headers(request).open(self.server).await;
        assert_eq!(incoming.status, 200, "{:?}", incoming.headers);
        Events::new(incoming)
    }

    pub(crate) async fn delete(&self) -> Reply {
        self.with_headers(Request::new("DELETE", "/mcp"))
            .send(self.server)
            .await
    }
}

/// The message that opens a session.
pub(crate) fn initialize(revision: &str) -> Value {
    json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {
            "protocolVersion": revision,
            "capabilities": {},
            "clientInfo": { "name": "it", "version": "1" },
        },
    })
}

/// Adds the `_meta` of every request of 2026-07-28 to `params`.
pub(crate) fn stateless(mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    params
}

/// A POST of 2026-07-28 with the headers that the revision requires.
pub(crate) fn modern_post(id: &Value, method: &str, params: Value) -> Request {
    let params = stateless(params);
    let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let request = Request::post(message.to_string())
        .header("mcp-protocol-version", MODERN)
        .header("mcp-method", method);
    match params.get("name").or(params.get("uri")) {
        Some(Value::String(name)) => request.header("mcp-name", name),
        _ => request,
    }
}

/// A request of 2026-07-28.
pub(crate) async fn modern(server: SocketAddr, method: &str, params: Value) -> Reply {
    modern_post(&json!(1), method, params).send(server).await
}

/// A request for a listen stream.
pub(crate) fn listen_request(id: &Value, filter: Value) -> Request {
    modern_post(id, "subscriptions/listen", json!({ "notifications": filter }))
}

/// Opens a listen stream; returns it with its acknowledgement.
pub(crate) async fn listen(server: SocketAddr, id: &Value, filter: Value) -> (Value, Events) {
    let incoming = listen_request(id, filter).open(server).await;
    assert_eq!(incoming.status, 200, "{:?}", incoming.headers);
    let mut events = Events::new(incoming);
    let acknowledged = events.message().await;
    assert_eq!(
        acknowledged["method"], "notifications/subscriptions/acknowledged",
        "the first message"
    );
    assert_eq!(
        &acknowledged["params"]["_meta"][SUBSCRIPTION_ID], id,
        "{acknowledged}"
    );
    (acknowledged, events)
}

pub(crate) const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// A filter of updates of these URIs.
pub(crate) fn updates(uris: &[&str]) -> Value {
    json!({ "resourceSubscriptions": uris })
}
