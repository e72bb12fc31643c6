//! A client on stdio whose principal is given: it has the rights that the principal has over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use tidings::auth::{AuditEntry, Border, Policy, RecordAudit};
use tidings::http::Access;
use tidings::mcp::{Endpoint, McpOptions, serve_stdio_as};
use tidings::{Bus, Resource};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines};
use tokio::net::TcpListener;

use super::client::{initialize, modern, stateless, updates};
use super::events::updated_uri;
use super::http::within;
use super::local::{prompt, tool};
use crate::one_principal::{OnePrincipal, reader, rules};

const NOTE: &str = "note://a";
const SECRET: &str = "secret://a";

/// The numbers of the requests that the audit was told of.
#[derive(Default)]
struct Audited(std::sync::Mutex<Vec<(String, u64)>>);

impl RecordAudit for Audited {
    fn record(&self, entry: &AuditEntry<'_>) {
        let principal = entry.principal.map(|principal| principal.id().to_owned());
        self.0
            .lock()
            .unwrap()
            .push((principal.unwrap_or_default(), entry.request));
    }
}

struct Scene {
    bus: Bus,
    authenticate: Arc<OnePrincipal>,
    audit: Arc<Audited>,
    policy: Policy,
    border: Arc<Border>,
}

impl Scene {
    async fn start() -> Scene {
        let bus = Bus::builder().start().unwrap();
        for name in ["get_note", "get_secret"] {
            bus.add_tool(tool(name)).await.unwrap();
        }
        for name in ["note", "secret"] {
            bus.add_prompt(prompt(name)).await.unwrap();
        }
        let authenticate = Arc::<OnePrincipal>::default();
        let policy = Policy::new(&rules(&[
            "note://*",
            "tool:get_note",
            "tool:get_resource_etag",
            "prompt:note",
        ]));
        let policy = policy.unwrap();
        let audit = Arc::<Audited>::default();
        let border = Border::new(authenticate.clone(), Arc::new(policy.clone())).with_audit(audit.clone());
        let scene = Scene {
            bus,
            authenticate,
            audit,
            policy,
            border: Arc::new(border),
        };
        scene.put(NOTE, "1").await;
        scene.put(SECRET, "1").await;
        scene
    }

    async fn put(&self, uri: &str, text: &str) {
        self.bus.upsert(Resource::text(uri, text).unwrap()).await.unwrap();
    }

    fn client(&self) -> StdioConnection {
        let (input, theirs) = tokio::io::duplex(1 << 16);
        let (ours, output) = tokio::io::duplex(1 << 16);
        let mut options = McpOptions::default();
        options.session.announce_on_connect = false;
        let caller = self.border.caller(reader());
        tokio::spawn(serve_stdio_as(self.bus.clone(), options, caller, theirs, output));
        let lines = BufReader::new(ours).lines();
        StdioConnection { input, lines }
    }

    /// Serves the same bus over HTTP behind the same border.
    async fn http(&self) -> SocketAddr {
        let access = Access {
            border: Some(self.border.clone()),
            ..Access::default()
        };
        let endpoint = Endpoint::with_access(self.bus.clone(), McpOptions::default(), access);
        let app = axum::Router::new().route_service("/mcp", endpoint);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        address
    }
}

struct StdioConnection {
    input: DuplexStream,
    lines: Lines<BufReader<DuplexStream>>,
}

impl StdioConnection {
    async fn send(&mut self, message: &Value) {
        self.input
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }

    async fn message(&mut self) -> Value {
        let line = within("a message", self.lines.next_line()).await.unwrap();
        serde_json::from_str(&line.unwrap()).unwrap()
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.send(&request).await;
        self.message().await
    }
}

#[tokio::test]
async fn given_principal_gets_the_answers_of_http() {
    let scene = Scene::start().await;
    let address = scene.http().await;
    let mut client = scene.client();
    let named = |name: &str| json!({ "name": name });
    let etag = |uri: &str| json!({ "name": "get_resource_etag", "arguments": { "uri": uri } });
    let mut shown = Vec::new();
    for (method, params) in [
        ("resources/list", json!({})),
        ("tools/list", json!({})),
        ("prompts/list", json!({})),
        ("resources/read", json!({ "uri": NOTE })),
        ("resources/read", json!({ "uri": SECRET })),
        ("resources/read", json!({ "uri": "secret://not-there" })),
        ("tools/call", named("get_note")),
        ("tools/call", named("get_secret")),
        ("tools/call", named("get_nothing")),
        ("tools/call", etag(NOTE)),
        ("tools/call", etag(SECRET)),
        ("prompts/get", named("note")),
        ("prompts/get", named("secret")),
    ] {
        let over_http = modern(address, method, params.clone()).await.json();
        let over_stdio = client.call(method, stateless(params)).await;
        assert_eq!(over_stdio, over_http, "{method}");
        shown.push(over_stdio.to_string());
    }
    for list in &shown[..3] {
        assert!(list.contains("note") && !list.contains("secret"), "{list}");
    }
    assert!(
        shown[3].contains("\"result\"") && shown[6].contains("\"result\""),
        "{shown:?}"
    );
    // A hidden resource is answered like one that does not exist.
    assert_eq!(
        shown[4].replace(SECRET, ""),
        shown[5].replace("secret://not-there", "")
    );

    let audited = scene.audit.0.lock().unwrap().clone();
    assert!(audited.iter().all(|(principal, _)| principal == "local:reader"));
    let mut numbers: Vec<u64> = audited.iter().map(|(_, request)| *request).collect();
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert!(
        count > 1 && numbers.len() == count,
        "each request has its number: {audited:?}"
    );
}

#[tokio::test]
async fn given_principal_is_told_what_it_may() {
    let scene = Scene::start().await;
    let mut modern = scene.client();
    let filter = json!({ "notifications": updates(&[NOTE, SECRET]) });
    let acknowledged = modern.call("subscriptions/listen", stateless(filter)).await;
    let granted = &acknowledged["params"]["notifications"]["resourceSubscriptions"];
    assert_eq!(granted, &json!([NOTE]), "{acknowledged}");

    let mut legacy = scene.client();
    legacy.send(&initialize("2025-11-25")).await;
    assert_eq!(legacy.message().await["id"], 0);
    legacy
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
        .await;
    let refused = legacy.call("resources/subscribe", json!({ "uri": SECRET })).await;
    assert_eq!(
        refused["error"]["message"],
        format!("Resource not found: {SECRET}")
    );
    let subscribed = legacy.call("resources/subscribe", json!({ "uri": NOTE })).await;
    assert!(subscribed.get("result").is_some(), "{subscribed}");

    scene.put(SECRET, "2").await;
    scene.put(NOTE, "2").await;
    for client in [&mut modern, &mut legacy] {
        assert_eq!(updated_uri(&client.message().await), Some(NOTE));
    }

    // A right that ends, ends on open streams.
    scene.policy.replace(&rules(&["other://*"])).unwrap();
    scene.bus.rights_changed().await.unwrap();
    scene.put(NOTE, "3").await;
    let mut read = legacy.call("resources/read", json!({ "uri": NOTE })).await;
    // Its lists are empty now, of which it is told.
    while read["id"] != 1 {
        assert_eq!(updated_uri(&read), None, "{read}");
        read = legacy.message().await;
    }
    assert!(
        read["error"]["message"].as_str().unwrap().contains(NOTE),
        "{read}"
    );
}

#[tokio::test]
async fn ended_credential_ends_the_streams_on_stdio() {
    let scene = Scene::start().await;
    let mut client = scene.client();
    let filter = json!({ "notifications": updates(&[NOTE]) });
    let acknowledged = client.call("subscriptions/listen", stateless(filter)).await;
    assert!(acknowledged["method"].as_str().unwrap().ends_with("acknowledged"));
    scene.authenticate.take_back();
    scene.bus.rights_changed().await.unwrap();
    scene.put(NOTE, "2").await;
    let end = client.message().await;
    assert_eq!(end["id"], 1, "the result of the stream: {end}");
    let read = client
        .call("resources/read", stateless(json!({ "uri": NOTE })))
        .await;
    assert!(
        read["error"]["message"].as_str().unwrap().contains(NOTE),
        "{read}"
    );
}
