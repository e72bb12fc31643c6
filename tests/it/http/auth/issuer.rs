//! Callers with tokens of an authorization server that is asked for them, and the answers of the service that
//! lead a client to one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tidings::wire::http1::resource_path;

use super::super::RawConnection;
use crate::mcp::client::{initialize, modern_post, updates};
use crate::mcp::events::{Events, updated_uri};
use crate::mcp::http::{Reply, Request, within};
use crate::mcp::server::Server;

pub(crate) const RESOURCE: &str = "https://bus.example/mcp";
const METADATA: &str = "https://bus.example/.well-known/oauth-protected-resource/mcp";
const A: &str = "note://a";

/// The longest time for which the service believes an answer.
const AGE: Duration = Duration::from_secs(3);

const RULES: &str = "[[auth.rule]]\nroles = ['agent']\nmay = ['list', 'read', 'subscribe']\nmatch = ['note://*']\n\
    [[auth.rule]]\nroles = ['agent']\nmay = ['publish', 'read']\nmatch = ['note://*', 'draft://*']\nscope = 'write'\n\
    [[auth.rule]]\nroles = ['agent']\nmay = ['list', 'call']\nmatch = ['tool:*', 'method:acme/*']\nscope = 'tools'\n\
    [[auth.rule]]\nroles = ['agent']\nmay = ['metrics']\n";

/// An authorization server with opaque tokens.
#[derive(Clone, Default)]
pub(crate) struct Issuer(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    url: String,
    /// The answers for tokens that are active.
    active: BTreeMap<String, Value>,
    /// The tokens that were asked for.
    asked: Vec<String>,
    is_down: bool,
}

impl Issuer {
    pub(crate) async fn start() -> Issuer {
        let issuer = Issuer::default();
        let router = Router::new()
            .route("/.well-known/oauth-authorization-server", get(metadata))
            .route("/introspect", post(introspect))
            .with_state(issuer.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        issuer.0.lock().unwrap().url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        issuer
    }

    /// Returns its address.
    pub(crate) fn url(&self) -> String {
        self.0.lock().unwrap().url.clone()
    }

    /// Makes a token with these scopes.
    fn grant(&self, token: &str, scope: &str) {
        self.grant_role(token, "agent", scope);
    }

    /// Makes a token with this role and these scopes.
    pub(crate) fn grant_role(&self, token: &str, role: &str, scope: &str) {
        let answer = json!({ "active": true, "aud": RESOURCE, "sub": token, "roles": role, "scope": scope });
        self.0.lock().unwrap().active.insert(token.to_owned(), answer);
    }

    pub(crate) fn revoke(&self, token: &str) {
        self.0.lock().unwrap().active.remove(token);
    }

    fn set_down(&self, is_down: bool) {
        self.0.lock().unwrap().is_down = is_down;
    }

    fn asked(&self, token: &str) -> usize {
        let book = self.0.lock().unwrap();
        book.asked.iter().filter(|asked| *asked == token).count()
    }
}

async fn metadata(State(issuer): State<Issuer>) -> Json<Value> {
    let url = issuer.0.lock().unwrap().url.clone();
    let endpoint = format!("{url}/introspect");
    Json(json!({ "issuer": url, "introspection_endpoint": endpoint }))
}

async fn introspect(State(issuer): State<Issuer>, headers: HeaderMap, body: String) -> Response {
    // `the-service:s3cr3t`
    assert_eq!(headers["authorization"], "Basic dGhlLXNlcnZpY2U6czNjcjN0");
    let token = url::form_urlencoded::parse(body.as_bytes())
        .find(|(name, _)| name == "token")
        .unwrap()
        .1
        .into_owned();
    let mut book = issuer.0.lock().unwrap();
    if book.is_down {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let answer = book.active.get(&token).cloned();
    book.asked.push(token);
    Json(answer.unwrap_or(json!({ "active": false }))).into_response()
}

/// A service whose callers have tokens of an issuer.
struct Guarded {
    issuer: Issuer,
    server: Server,
}

impl Guarded {
    async fn start() -> Guarded {
        let issuer = Issuer::start().await;
        let url = issuer.url();
        let config = format!(
            "[auth]\nanonymous = 'none'\nresource = '{RESOURCE}'\nscopes = ['read']\n\
             [[auth.issuer]]\nurl = '{url}'\nintrospect = 'client'\nintrospect_age = '{}s'\n{RULES}",
            AGE.as_secs()
        );
        let client = "client_id = the-service\nclient_secret = s3cr3t\n";
        let server = Server::with_files(&config, &[("client", client)]).await;
        Guarded { issuer, server }
    }

    async fn send(&self, token: &str, request: Request) -> Reply {
        with(token, request).send(self.server.address).await
    }

    async fn get(&self, token: &str) -> u16 {
        self.send(token, Request::new("GET", resource_path(A)))
            .await
            .status
    }

    async fn put(&self, token: &str, text: &str) -> Reply {
        let request = Request::new("PUT", resource_path(A)).header("content-type", "text/plain");
        self.send(token, request.body(text)).await
    }

    /// Opens an MCP session with a stream of updates.
    async fn session(&self, token: &str) -> Events {
        let opened = self
            .send(token, Request::post(initialize("2025-11-25").to_string()))
            .await;
        assert_eq!(opened.status, 200, "{}", opened.text());
        let id = opened.header("mcp-session-id").unwrap();
        let subscribe =
            json!({ "jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": { "uri": A } });
        for message in [
            json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
            subscribe,
        ] {
            let request = Request::post(message.to_string()).header("mcp-session-id", id);
            let reply = self.send(token, request).await;
            assert!(matches!(reply.status, 200 | 202), "{}", reply.text());
        }
        let stream = with(token, Request::stream().header("mcp-session-id", id));
        Events::new(stream.open(self.server.address).await)
    }

    async fn listen(&self, token: &str) -> Events {
        let params = json!({ "notifications": updates(&[A]) });
        let listen = with(token, modern_post(&json!("l"), "subscriptions/listen", params));
        let opened = listen.open(self.server.address).await;
        assert_eq!(opened.status, 200);
        Events::new(opened)
    }
}

/// Adds a token to a request.
fn with(token: &str, request: Request) -> Request {
    request.header("authorization", format!("Bearer {token}"))
}

/// Returns the URI of the next update.
async fn next_update(events: &mut Events) -> String {
    loop {
        if let Some(uri) = updated_uri(&events.message().await) {
            return uri.to_owned();
        }
    }
}

/// Reads to the end, and asserts that no update comes before it.
async fn assert_ends(events: &mut Events) {
    while let Ok(event) = events.event().await {
        assert_eq!(event.message.as_ref().and_then(updated_uri), None);
    }
}

#[tokio::test]
async fn revoked_opaque_token_loses_its_open_streams() {
    let guarded = Guarded::start().await;
    for token in ["writer", "reader", "other"] {
        guarded.issuer.grant(token, "read write");
    }
    assert_eq!(guarded.put("writer", "1").await.status, 201);
    assert_eq!(guarded.get("reader").await, 200);
    assert_eq!(guarded.get("unknown").await, 401);
    let mut session = guarded.session("reader").await;
    let mut listening = guarded.listen("reader").await;
    let events = with("reader", Request::new("GET", "/v1/events?kind=removed"));
    let events = events.open(guarded.server.address).await;
    assert_eq!(events.status, 200);
    let mut other = guarded.session("other").await;
    // They are kept open while the issuer goes on to confirm the token, which it is asked for now and then.
    within("several questions", async {
        while guarded.issuer.asked("reader") < 4 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(guarded.issuer.asked("reader") < 20);
    guarded.put("writer", "2").await;
    for stream in [&mut session, &mut listening, &mut other] {
        assert_eq!(next_update(stream).await, A);
    }
    guarded.issuer.revoke("reader");
    let revoked = Instant::now();
    assert_ends(&mut session).await;
    assert_ends(&mut listening).await;
    let ended = events.reply().await;
    let end = "event: end\ndata: {\"reason\":\"unauthorized\"}\n\n";
    assert!(ended.text().ends_with(end), "{}", ended.text());
    // A second more for a machine that is busy with other tests.
    assert!(
        revoked.elapsed() < AGE + Duration::from_secs(1),
        "{:?}",
        revoked.elapsed()
    );
    assert_eq!(guarded.get("reader").await, 401);
    guarded.put("writer", "3").await;
    assert_eq!(next_update(&mut other).await, A);
}

#[tokio::test]
async fn issuer_that_is_down_lets_no_opaque_token_in() {
    let guarded = Guarded::start().await;
    for (token, scope) in [("reader", "read"), ("late", "read"), ("writer", "write")] {
        guarded.issuer.grant(token, scope);
    }
    assert_eq!(guarded.put("writer", "1").await.status, 201);
    let mut listening = guarded.listen("reader").await;
    guarded.issuer.set_down(true);
    let refused = guarded.send("late", Request::new("GET", resource_path(A))).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    assert_eq!(refused.header("www-authenticate"), None);
    // What it said before holds for its time, and not longer.
    assert_ends(&mut listening).await;
    assert_eq!(guarded.get("reader").await, 503);
    guarded.issuer.set_down(false);
    within("the issuer", async {
        while guarded.get("reader").await != 200 {}
    })
    .await;
    let scrape = guarded.send("reader", Request::new("GET", "/metrics")).await;
    for row in [
        "tidings_introspections_total{outcome=\"active\"} ",
        "tidings_introspections_total{outcome=\"unavailable\"} ",
    ] {
        let counted = scrape.text().lines().find_map(|line| line.strip_prefix(row));
        assert!(counted.unwrap().parse::<u64>().unwrap() > 0, "{}", scrape.text());
    }
}

#[tokio::test]
async fn metadata_leads_to_the_issuer() {
    let guarded = Guarded::start().await;
    let address = guarded.server.address;
    let url = guarded.issuer.url();
    for path in ["", "/mcp"] {
        let path = format!("/.well-known/oauth-protected-resource{path}");
        let reply = Request::new("GET", path).send(address).await;
        assert_eq!(
            (reply.status, reply.header("content-type")),
            (200, Some("application/json"))
        );
        let expected = json!({
            "resource": RESOURCE, "authorization_servers": [url], "scopes_supported": ["read"],
            "bearer_methods_supported": ["header"],
        });
        assert_eq!(reply.json(), expected);
    }
    let other = Request::new("GET", "/.well-known/oauth-protected-resource/other");
    // Any other path is one that needs credentials.
    assert_eq!(other.send(address).await.status, 401);
}

#[tokio::test]
async fn every_refusal_names_the_metadata() {
    let guarded = Guarded::start().await;
    guarded.issuer.grant("reader", "read");
    guarded.issuer.grant("writer", "write");
    assert_eq!(guarded.put("writer", "1").await.status, 201);
    let challenged = |reply: &Reply, status: u16, challenge: &str| {
        assert_eq!(reply.status, status, "{}", reply.text());
        assert_eq!(
            reply.header("www-authenticate"),
            Some(format!("Bearer {challenge}, resource_metadata=\"{METADATA}\"").as_str())
        );
    };
    let read = || Request::new("GET", resource_path(A));
    let refused = read().send(guarded.server.address).await;
    challenged(&refused, 401, "scope=\"read\"");
    let refused = guarded.send("wrong", read()).await;
    challenged(&refused, 401, "error=\"invalid_token\", scope=\"read\"");
    let malformed = read().header("authorization", "Basic eDp5");
    let malformed = malformed.send(guarded.server.address).await;
    challenged(&malformed, 400, "error=\"invalid_request\", scope=\"read\"");
    let refused = guarded.put("reader", "2").await;
    challenged(&refused, 403, "error=\"insufficient_scope\", scope=\"write\"");
    let hidden = Request::new("GET", resource_path("draft://x"));
    let refused = guarded.send("reader", hidden).await;
    challenged(&refused, 403, "error=\"insufficient_scope\", scope=\"write\"");
    // On the MCP endpoint, before the method is looked at any further.
    let call = json!({ "name": "get_resource_etag", "arguments": { "uri": A } });
    let refused = guarded
        .send("reader", modern_post(&json!(1), "tools/call", call))
        .await;
    challenged(&refused, 403, "error=\"insufficient_scope\", scope=\"tools\"");
    let read = modern_post(&json!(1), "resources/read", json!({ "uri": "draft://x" }));
    let refused = guarded.send("reader", read).await;
    challenged(&refused, 403, "error=\"insufficient_scope\", scope=\"write\"");
    let custom = |method: &str| modern_post(&json!(1), method, json!({}));
    let refused = guarded.send("reader", custom("acme/reset")).await;
    challenged(&refused, 403, "error=\"insufficient_scope\", scope=\"tools\"");
    let unknown = guarded.send("reader", custom("other/reset")).await;
    assert_eq!((unknown.status, unknown.error().0), (404, -32601));
    // One that no scope would give is as if it were not there.
    let absent = Request::new("GET", resource_path("secret://x"));
    assert_eq!(guarded.send("reader", absent).await.status, 404);
    // The connection goes on after each refusal.
    let mut connection = RawConnection::open(guarded.server.address).await;
    for (credentials, status) in [("", 401), ("authorization: Bearer reader\r\n", 200)] {
        let path = resource_path(A);
        connection
            .send(&format!(
                "GET {path} HTTP/1.1\r\nhost: localhost\r\n{credentials}\r\n"
            ))
            .await;
        assert_eq!(connection.status().await, status);
    }
}
