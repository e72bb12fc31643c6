//! Batches (2025-03-26) at the endpoint of a wrapped server.

use super::*;
use crate::mcp::client::{Client as SessionClient, initialize};
use crate::mcp::http::Request;
use crate::wrap::client::serve_endpoint;

fn request(id: Value, method: &str, params: Value) -> Value {
    let mut request = json!({"jsonrpc": "2.0", "method": method});
    request["id"] = id;
    request["params"] = params;
    request
}

#[tokio::test]
async fn batch_is_answered_message_by_message() {
    let (wrap, notes) = wrap().await;
    notes.add_tool("brew");
    let address = serve_endpoint(&wrap, &notes).await;
    let client = SessionClient::initialize(address, "2025-03-26").await;
    let poll = json!({"name": "get_resource_etag", "arguments": {"uri": "note://a"}});
    let batch = json!([
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request(json!(1), "ping", json!({})),
        request(json!("two"), "resources/subscribe", json!({"uri": "note://a"})),
        request(json!(3), "notes/count", json!({})),
        request(json!(4), "tools/call", json!({"name": "brew", "arguments": {}})),
        request(json!(5), "tools/call", poll),
        request(json!(6), "resources/read", json!({"uri": "note://nowhere"})),
        request(json!(7), "initialize", initialize("2025-03-26")["params"].clone()),
    ]);
    let reply = client.post(&batch).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let answers = reply.json();
    let answers = answers.as_array().unwrap();
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(json!(ids), json!([1, "two", 3, 4, 5, 6, 7]));
    assert_eq!(answers[0]["result"], json!({}));
    assert_eq!(answers[1]["result"], json!({}));
    assert_eq!(answers[2]["result"], json!(2));
    let brewed = &answers[3]["result"]["content"][0]["text"];
    assert_eq!(*brewed, json!("the server's own tool"));
    let etag = &answers[4]["result"]["structuredContent"]["etag_encoded"];
    assert_eq!(version(etag.as_str().unwrap()), 1);
    assert_eq!(answers[5]["error"]["code"], json!(-32002));
    assert_eq!(answers[6]["error"]["code"], json!(-32600));
    // initialize opened nothing, and the client is subscribed and ready.
    assert_eq!(wrap.bus().sessions().await.unwrap().len(), 1);
    let mut stream = client.stream().await;
    wrap.notify_resource_changed("note://a").await.unwrap();
    assert_eq!(stream.updated().await, "note://a");
}

#[tokio::test]
async fn notification_batch_has_no_answer() {
    let (wrap, notes) = wrap().await;
    let address = serve_endpoint(&wrap, &notes).await;
    let client = SessionClient::initialize(address, "2025-03-26").await;
    let batch = json!([
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
    ]);
    let reply = client.post(&batch).await;
    assert_eq!((reply.status, reply.text()), (202, ""));
}

#[tokio::test]
async fn tool_that_asks_within_a_batch_is_refused() {
    let (wrap, notes) = wrap().await;
    let address = serve_endpoint(&wrap, &notes).await;
    let mut opening = initialize("2025-03-26");
    opening["params"]["capabilities"] = json!({"sampling": {}});
    let opened = Request::post(opening.to_string()).send(address).await;
    let key = opened.header("mcp-session-id").unwrap().to_owned();
    let batch = json!([
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request(json!(1), "tools/call", json!({"name": "summarize", "arguments": {}})),
        request(json!(2), "ping", json!({})),
    ]);
    let post = Request::post(batch.to_string()).header("mcp-session-id", key);
    let answers = post.send(address).await.json();
    let asked = answers[0].to_string();
    assert!(asked.contains("error") && asked.contains("batch"), "{asked}");
    assert_eq!(answers[1]["result"], json!({}));
}

#[tokio::test]
async fn batch_of_another_revision_is_refused() {
    let (wrap, notes) = wrap().await;
    let address = serve_endpoint(&wrap, &notes).await;
    for (revision, batch) in [
        ("2025-11-25", json!([request(json!(1), "ping", json!({}))])),
        ("2025-03-26", json!([])),
    ] {
        let client = SessionClient::open(address, revision).await;
        let reply = client.post(&batch).await;
        assert_eq!((reply.status, reply.error().0), (400, -32600), "{revision}");
    }
}
