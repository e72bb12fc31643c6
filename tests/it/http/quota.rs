//! The share of one client, on the real binary: sessions, subscriptions, requests, bytes and tool calls.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tidings::Bus;
use tidings::auth::NewToken;
use tidings::config::{EventsConfig, HttpConfig, QuotaConfig, SessionConfig, WsConfig};
use tidings::http::api::{self, Api};
use tidings::http::events::{self, Hub};
use tidings::http::{Access, SharedLimits, ws};
use tidings::mcp::{Endpoint, McpOptions};
use tidings::wire::http1::resource_path;
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;

use super::RawConnection;
use crate::mcp::client::{Client, initialize, listen_request, updates};
use crate::mcp::http::{Reply, Request, within};
use crate::mcp::server::Server;

const A: &str = "demo://a";
const B: &str = "demo://b";
const C: &str = "demo://c";

/// Asserts that `reply` refuses for a limit of this key.
fn assert_refused(reply: &Reply, status: u16, key: &str) {
    assert_eq!(reply.status, status, "{}", reply.text());
    assert!(reply.text().contains(key), "{}", reply.text());
}

/// Asserts that the limit of this key was counted so many times.
async fn assert_counted(server: &Server, key: &str, times: usize) {
    let scrape = Request::new("GET", "/metrics").send(server.address).await;
    let counted = format!("tidings_limit_reached_total{{limit=\"{key}\"}} {times}\n");
    assert!(scrape.text().contains(&counted), "{}", scrape.text());
}

#[tokio::test]
async fn sessions_of_a_client_have_a_quota() {
    let server = Server::with("[quota]\nsessions_max = 2\n[session]\nper_peer_max = 9\n").await;
    let one = Client::open(server.address, "2025-11-25").await;
    let _two = Client::open(server.address, "2025-06-18").await;
    let opening = Request::post(initialize("2025-11-25").to_string());
    let refused = opening.send(server.address).await;
    assert_refused(&refused, 429, "quota.sessions_max");
    assert_eq!(refused.header("retry-after"), Some("5"));
    assert_counted(&server, "quota.sessions_max", 1).await;
    one.delete().await;
    assert_eq!(opening.send(server.address).await.status, 200);
}

#[tokio::test]
async fn session_that_an_operator_ends_frees_its_place() {
    let server = Server::with("[quota]\nsessions_max = 1\n").await;
    let opening = Request::post(initialize("2025-11-25").to_string());
    for _ in 0..3 {
        assert_eq!(opening.send(server.address).await.status, 200);
        assert_eq!(opening.send(server.address).await.status, 429);
        let listed = Request::new("GET", "/v1/sessions").send(server.address).await;
        let id = listed.json()["items"][0]["id"].as_str().unwrap().to_owned();
        let end = Request::new("DELETE", format!("/v1/sessions/{id}"));
        assert_eq!(end.send(server.address).await.status, 204);
    }
}

#[tokio::test]
async fn subscriptions_of_a_client_have_a_quota() {
    let server = Server::with("[quota]\nsubscriptions_max = 2\n").await;
    for uri in [A, B, C] {
        server.put(uri, "1").await;
    }
    let one = Client::open(server.address, "2025-11-25").await;
    let other = Client::open(server.address, "2025-06-18").await;
    one.subscribe(A).await;
    other.subscribe(B).await;
    // The same one again takes nothing.
    other.subscribe(B).await;
    let refused = other.request("resources/subscribe", json!({ "uri": C })).await;
    let (code, text) = refused.error();
    assert_eq!(code, -32602, "{text}");
    assert!(
        text.contains("one client may have 2 over all its sessions and streams (quota.subscriptions_max)"),
        "{text}"
    );
    assert_counted(&server, "quota.subscriptions_max", 1).await;
    // A listen request is refused too: without an error its client would take the resource for a missing one.
    let listening = listen_request(&json!(1), updates(&[C]));
    let refused = listening.send(server.address).await;
    assert_eq!((refused.status, refused.error().0), (400, -32602));
    assert!(
        refused.text().contains("(quota.subscriptions_max)"),
        "{}",
        refused.text()
    );
    // What ends is given back: one by one, and with its session.
    one.unsubscribe(A).await;
    other.subscribe(C).await;
    other.delete().await;
    within("the quota of a session that ended", async {
        // None of it is honoured while one of them is too many.
        while listen_request(&json!(2), updates(&[A, B]))
            .open(server.address)
            .await
            .status
            == 400
        {}
    })
    .await;
}

#[tokio::test]
async fn requests_of_a_client_have_a_rate() {
    let server = Server::with("[quota]\nrequests_per_second = 4\n").await;
    let mut connection = RawConnection::open(server.address).await;
    let get = "GET /v1/resources HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut statuses = Vec::new();
    for _ in 0..40 {
        connection.send(get).await;
        statuses.push(connection.status().await);
    }
    assert_eq!(statuses[..4], [200; 4]);
    // However slow this test is, a request in 40 is one too many.
    assert!(statuses.contains(&429), "{statuses:?}");
    connection
        .send("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    assert_eq!(connection.status().await, 200);
    let mut refused = Vec::new();
    for _ in 0..40 {
        refused.push(Request::post("{}").send(server.address).await);
    }
    let refused = refused.iter().find(|reply| reply.status == 429);
    let refused = refused.expect("MCP has the same limit");
    assert!(
        refused.text().contains("quota.requests_per_second"),
        "{}",
        refused.text()
    );
    assert_eq!(refused.header("retry-after"), Some("1"));
    // It passes.
    within("a request that is let in", async {
        while Request::new("GET", "/v1/resources")
            .send(server.address)
            .await
            .status
            != 200
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn messages_of_a_batch_count_one_by_one() {
    let server = Server::with("[quota]\nrequests_per_second = 20\n").await;
    let client = Client::open(server.address, "2025-03-26").await;
    let pings: Vec<_> = (0..15).map(|_| client.message("ping", json!({}))).collect();
    let batch = Value::from(pings);
    let mut statuses = Vec::new();
    for _ in 0..20 {
        statuses.push(client.post(&batch).await.status);
    }
    assert_eq!(statuses[0], 200);
    assert!(statuses.contains(&429), "{statuses:?}");
}

#[tokio::test]
async fn lines_of_a_batch_count_one_by_one() {
    let server = Server::with("[quota]\nrequests_per_second = 20\n").await;
    let line = json!({ "put": A, "text": "1" }).to_string() + "\n";
    let batch = Request::new("POST", "/v1/resources")
        .header("content-type", "application/x-ndjson")
        .body(line.repeat(15));
    let mut statuses = Vec::new();
    for _ in 0..20 {
        statuses.push(batch.send(server.address).await.status);
    }
    assert_eq!(statuses[0], 200);
    assert!(statuses.contains(&429), "{statuses:?}");
}

#[tokio::test]
async fn messages_of_a_socket_count_one_by_one() {
    let server = Server::with("[quota]\nrequests_per_second = 20\n").await;
    let address = format!("ws://{}/v1/ws", server.address);
    let (mut socket, _) = tokio_tungstenite::connect_async(address).await.unwrap();
    let subscribe = json!({ "type": "subscribe", "id": 7, "patterns": ["demo://*"] }).to_string();
    for _ in 0..60 {
        socket.send(Message::text(&subscribe)).await.unwrap();
    }
    let mut answers = Vec::new();
    for _ in 0..60 {
        let answer = within("an answer", socket.next()).await.unwrap().unwrap();
        answers.push(serde_json::from_str::<Value>(answer.to_text().unwrap()).unwrap());
    }
    assert_eq!(answers[0]["type"], "ack", "{answers:?}");
    let refused = answers.iter().find(|answer| answer["type"] == "error");
    let refused = refused.expect("one of sixty at once is too many");
    assert_eq!(refused["id"], 7);
    let text = refused["message"].as_str().unwrap();
    assert!(text.contains("quota.requests_per_second"), "{text}");
}

/// Answers as the endpoint at `path` does when it is mounted in the server of another library.
async fn statuses_when_mounted(path: &'static str) -> Vec<u16> {
    let bus = Bus::builder().start().unwrap();
    let quota = QuotaConfig {
        requests_per_second: Some(4),
        ..QuotaConfig::default()
    };
    let limits = SharedLimits::new(&HttpConfig::default(), &SessionConfig::default(), &quota);
    let access = Access::default();
    let router = match path {
        "/mcp" => {
            let endpoint = Endpoint::with_limits(bus.clone(), McpOptions::default(), access, limits);
            Router::new().route_service(path, endpoint)
        }
        "/v1/events" => {
            let hub = Hub::start(&bus, &EventsConfig::default(), Duration::ZERO).await;
            events::router(hub.unwrap(), access, limits)
        }
        "/v1/ws" => ws::router(
            bus.clone(),
            WsConfig::default(),
            Duration::from_secs(1),
            access,
            limits,
        ),
        "/metrics" => api::metrics_router(Arc::new(String::new), access, limits),
        "/v1/store/backup" => api::backup_router(Arc::new(|_| Ok(())), access, limits),
        _ => {
            let api = Api::new(bus.clone(), access, Arc::default()).limits(limits);
            Router::new().route_service(path, api)
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let mut statuses = Vec::new();
    for _ in 0..40 {
        statuses.push(Request::new("GET", path).open(address).await.status);
    }
    statuses
}

#[tokio::test]
async fn mounted_endpoints_have_the_rate_too() {
    for path in [
        "/mcp",
        "/v1/events",
        "/v1/ws",
        "/v1/resources",
        "/metrics",
        "/v1/store/backup",
    ] {
        let statuses = statuses_when_mounted(path).await;
        assert!(!statuses[..4].contains(&429), "{path}: {statuses:?}");
        assert!(statuses.contains(&429), "{path}: {statuses:?}");
    }
}

#[tokio::test]
async fn published_bytes_of_a_client_have_a_quota() {
    let server = Server::with("[quota]\nbytes_max = '10KiB'\n").await;
    let long = "x".repeat(6_000);
    server.put(A, &long).await;
    let refused = server.api("PUT", B, &long).await;
    assert_refused(&refused, 507, "quota.bytes_max");
    assert_eq!(server.api("GET", B, "").await.status, 404);
    // The same resource anew replaces its bytes.
    server.put(A, &"y".repeat(9_000)).await;
    assert_refused(
        &server.api("PUT", A, &"y".repeat(11_000)).await,
        507,
        "quota.bytes_max",
    );
    let line = |uri: &str, len: usize| json!({ "put": uri, "text": "z".repeat(len) }).to_string();
    let batch = [line(B, 500), line(C, 2_000)].join("\n");
    let batch = Request::new("POST", "/v1/resources")
        .header("content-type", "application/x-ndjson")
        .body(batch);
    let answers = batch.send(server.address).await;
    let statuses: Vec<_> = answers
        .text()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["status"].clone())
        .collect();
    assert_eq!(statuses, [201, 507]);
    assert_counted(&server, "quota.bytes_max", 3).await;
    // A write that the bus refuses counts for nothing, and what is removed is given back.
    assert_eq!(server.api("POST", B, &"z".repeat(400)).await.status, 409);
    assert_eq!(server.api("DELETE", A, "").await.status, 204);
    server.put(C, &"z".repeat(9_000)).await;
}

#[tokio::test]
async fn tool_calls_of_a_client_have_places() {
    let server = Server::with("[quota]\ntool_places = 1\n").await;
    let etag = server.put(A, "1").await;
    let client = Client::open(server.address, "2025-11-25").await;
    let arguments = json!({ "items": [{ "uri": A, "client_etag": etag }], "timeout_ms": 20_000 });
    let wait = json!({ "name": "wait_for_resource_change", "arguments": arguments });
    let read = json!({ "name": "read_resource", "arguments": { "uri": A } });
    let waiting = async {
        // Refused itself if a call below has the place.
        loop {
            let reply = client.request("tools/call", wait.clone()).await;
            if reply.json().get("result").is_some() {
                return reply;
            }
        }
    };
    let refused = async {
        let refused = within("the limit", async {
            loop {
                let reply = client.request("tools/call", read.clone()).await;
                if reply.json().get("error").is_some() {
                    return reply;
                }
            }
        })
        .await;
        server.put(A, "2").await;
        refused
    };
    let (_waited, refused) = tokio::join!(waiting, refused);
    assert!(
        refused.error().1.contains("quota.tool_places"),
        "{}",
        refused.text()
    );
    // The place is free again.
    let again = client.request("tools/call", read).await;
    assert!(again.json().get("result").is_some(), "{}", again.text());
}

/// A principal with two tokens.
struct TwoTokens {
    server: Server,
    /// Its tokens, and that of another principal.
    tokens: [String; 3],
}

impl TwoTokens {
    async fn start(quota: &str) -> TwoTokens {
        let [one, other] = [(); 2].map(|()| NewToken::make("ci", None).unwrap());
        let config = format!(
            "[auth]\nanonymous = 'none'\n[[auth.token]]\nname = 'ci'\nfile = 'ci'\nroles = ['all']\n\
             [[auth.token]]\nname = 'other'\nfile = 'other'\nroles = ['all']\n\
             [[auth.rule]]\nroles = ['all']\nmay = ['list', 'read', 'publish', 'metrics']\nmatch = ['*']\n\
             [quota]\n{quota}\n"
        );
        let third = NewToken::make("other", None).unwrap();
        let lines = format!("{}\n{}\n", one.line, other.line);
        let server = Server::with_files(&config, &[("ci", &lines), ("other", &third.line)]).await;
        TwoTokens {
            server,
            tokens: [one.token, other.token, third.token],
        }
    }

    async fn send(&self, token: usize, request: Request) -> Reply {
        let token = format!("Bearer {}", self.tokens[token]);
        request
            .header("authorization", token)
            .send(self.server.address)
            .await
    }

    async fn put(&self, token: usize, uri: &str, text: &str) -> Reply {
        let request = Request::new("PUT", resource_path(uri)).header("content-type", "text/plain");
        self.send(token, request.body(text)).await
    }
}

#[tokio::test]
async fn tokens_of_a_principal_share_its_rate() {
    let ci = TwoTokens::start("requests_per_second = 5").await;
    let mut statuses = Vec::new();
    for number in 0..60 {
        let reply = ci.send(number % 2, Request::new("GET", "/v1/resources")).await;
        statuses.push((number % 2, reply.status));
    }
    assert_eq!(statuses[0], (0, 200));
    // However slow this test is, sixty requests are more than the rate lets in, with either token.
    assert!(
        statuses.contains(&(0, 429)) && statuses.contains(&(1, 429)),
        "{statuses:?}"
    );
    // Another principal has a share of its own, although its address is the same.
    let other = ci.send(2, Request::new("GET", "/v1/resources")).await;
    assert_eq!(other.status, 200);
}

#[tokio::test]
async fn tokens_of_a_principal_share_its_bytes() {
    let ci = TwoTokens::start("bytes_max = '10KiB'").await;
    let long = "x".repeat(6_000);
    assert_eq!(ci.put(0, A, &long).await.status, 201);
    assert_refused(&ci.put(1, B, &long).await, 507, "quota.bytes_max");
    // What one token has published the other replaces.
    assert_eq!(ci.put(1, A, &"y".repeat(9_000)).await.status, 204);
    assert_refused(&ci.put(0, B, &"z".repeat(2_000)).await, 507, "quota.bytes_max");
    // Another principal has a share of its own, although its address is the same.
    assert_eq!(ci.put(2, C, &long).await.status, 201);
    let delete = Request::new("DELETE", resource_path(A));
    assert_eq!(ci.send(0, delete).await.status, 204);
    assert_eq!(ci.put(1, B, &long).await.status, 201);
}

#[tokio::test]
async fn bytes_of_a_life_before_count_for_no_client() {
    let data = tempfile::tempdir().unwrap();
    let config = format!(
        "[store]\ndir = '{}'\n[quota]\nbytes_max = '10KiB'\n",
        data.path().display()
    );
    let long = "x".repeat(9_000);
    let mut server = Server::with(&config).await;
    server.put(A, &long).await;
    assert_refused(&server.api("PUT", B, &long).await, 507, "quota.bytes_max");
    server.terminate();
    server.assert_ended().await;
    let server = Server::with(&config).await;
    assert_eq!(server.api("GET", A, "").await.text(), long);
    // The store does not know who wrote it.
    server.put(B, &long).await;
    // One who writes it again has it from then on.
    assert_refused(&server.api("PUT", A, &long).await, 507, "quota.bytes_max");
}
