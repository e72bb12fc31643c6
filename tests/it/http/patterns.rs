//! URI patterns on `/v1/ws`: prefixes and templates, on the real binary.

use serde_json::{Value, json};

use super::ws::Client;
use crate::mcp::http::{Request, within};
use crate::mcp::server::Server;

const A: &str = "note://a";
const B: &str = "demo://b";

#[tokio::test]
async fn prefix_tells_of_present_and_later_resources() {
    let server = Server::start().await;
    server.put(A, "1").await;
    let mut client = Client::open(server.address, "", &[]).await;
    let request =
        json!({ "type": "subscribe", "id": 1, "patterns": ["note://*", "page://{name}", "no scheme"] });
    let ack = client.ask(request).await;
    assert_eq!(ack["patterns"], json!(["note://*", "page://{name}"]));
    let refused: Vec<_> = ack["refused"].as_object().unwrap().keys().collect();
    assert_eq!(refused, ["no scheme"]);
    server.put(B, "1").await;
    for (uri, text) in [(A, "2"), ("note://new", "1"), ("page://home", "1"), (A, "3")] {
        let etag = server.put(uri, text).await;
        let told = client.next().await;
        assert_eq!((&told["uri"], &told["etag"]), (&json!(uri), &json!(etag)));
    }
    server.api("DELETE", A, "").await;
    let told = client.next().await;
    assert_eq!((&told["type"], &told["uri"]), (&json!("removed"), &json!(A)));
}

#[tokio::test]
async fn pattern_that_ended_tells_of_nothing() {
    let server = Server::start().await;
    let mut client = Client::open(server.address, "", &[]).await;
    server.put(B, "1").await;
    let request = json!({ "type": "subscribe", "uris": [B], "patterns": ["note://*", "demo://*"] });
    client.ask(request).await;
    let request = json!({ "type": "unsubscribe", "patterns": ["note://*", "demo://*", "page://*"] });
    let ack = client.ask(request).await;
    assert_eq!(ack["patterns"], json!([]));
    assert_eq!(ack["refused"], json!({ "page://*": "not subscribed to" }));
    server.put(A, "1").await;
    server.put("demo://other", "1").await;
    // The subscription by name is another one.
    let etag = server.put(B, "2").await;
    assert_eq!(client.next().await["etag"], *etag);
    // Begun again, it tells of what changes from then on.
    client
        .ask(json!({ "type": "subscribe", "patterns": ["note://*"] }))
        .await;
    let etag = server.put(A, "2").await;
    assert_eq!(client.next().await["etag"], *etag);
}

#[tokio::test]
async fn patterns_of_a_connection_are_bounded() {
    let server = Server::start().await;
    let mut client = Client::open(server.address, "", &[]).await;
    let patterns: Vec<String> = (0..65).map(|number| format!("note://{number}*")).collect();
    let ack = client
        .ask(json!({ "type": "subscribe", "patterns": patterns }))
        .await;
    assert_eq!(ack["patterns"].as_array().unwrap().len(), 64);
    assert!(ack["refused"][&patterns[64]].as_str().unwrap().contains("64"));
}

/// Changes 50 resources at once.
fn batch(round: usize) -> Request {
    let mut lines = String::new();
    for name in 0..50 {
        let line = json!({ "put": format!("note://{name}"), "text": round.to_string() });
        lines.push_str(&format!("{line}\n"));
    }
    Request::new("POST", "/v1/resources")
        .header("content-type", "application/x-ndjson")
        .body(lines)
}

#[tokio::test]
async fn changes_beyond_the_limit_are_a_gap() {
    let server = Server::with("[session]\nsubscriptions_max = 2\n").await;
    let mut client = Client::open(server.address, "", &[]).await;
    client
        .ask(json!({ "type": "subscribe", "patterns": ["note://*"] }))
        .await;
    // Each batch is told of at once, so most of its changes meet a full outbox.
    within("a gap", async {
        for round in 0.. {
            batch(round).send(server.address).await;
            let mut accounted = 0;
            let mut missed = 0;
            while accounted < 50 {
                let told = client.next().await;
                match told["type"].as_str() {
                    Some("gap") => missed += told["missed"].as_u64().unwrap(),
                    _ => accounted += 1,
                }
                if accounted + missed >= 50 {
                    break;
                }
            }
            assert_eq!(accounted + missed, 50);
            if missed > 0 {
                return;
            }
        }
    })
    .await;
    let told: Value = client.ask(json!({ "type": "ping" })).await;
    assert_eq!(told["type"], "pong");
}
