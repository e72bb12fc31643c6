//! The messages of a stream are byte for byte the messages that rmcp makes.

use ::http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::super::Endpoint;
use super::*;
use crate::mcp::McpOptions;
use crate::{Bus, Limits, Resource};

async fn endpoint() -> (Bus, Endpoint) {
    let mut limits = Limits::default();
    limits.shards = 1;
    let bus = Bus::builder().limits(limits).start().unwrap();
    for uri in ["demo://a", "demo://ä"] {
        bus.register(Resource::text(uri, "one").unwrap()).await.unwrap();
    }
    let endpoint = Endpoint::new(bus.clone(), McpOptions::default());
    (bus, endpoint)
}

fn request(id: &str, notifications: &Value, more: &str) -> Request<Full<Bytes>> {
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{METHOD}","params":{{"notifications":{notifications},"_meta":{meta}{more}}}}}"#
    );
    Request::post("http://localhost/mcp")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header(PROTOCOL_VERSION, "2026-07-28")
        .header(MCP_METHOD, METHOD)
        .body(Full::new(Bytes::from(body)))
        .unwrap()
}

async fn text(answer: Answer) -> String {
    let Ok(body) = answer.into_body().collect().await;
    String::from_utf8(body.to_bytes().into()).unwrap()
}

/// The messages of rmcp for the same request, whose handler returns at once.
async fn text_of_rmcp(endpoint: &Endpoint, request: Request<Full<Bytes>>) -> String {
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(ListenCheck);
    let Ok(body) = body.collect().await;
    let answer = endpoint.state.forward(parts, body.to_bytes()).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let text = text(answer).await;
    // Comments that keep the connection open are no messages.
    let events = text
        .split_inclusive("\n\n")
        .filter(|event| event.contains("data:"));
    events.collect()
}

#[tokio::test]
async fn first_and_last_message_are_those_of_rmcp() {
    let (bus, endpoint) = endpoint().await;
    let filters = [
        json!({}),
        json!({ "resourceSubscriptions": ["demo://a", "demo://ä"] }),
        json!({ "resourceSubscriptions": ["demo://a"], "toolsListChanged": false, "promptsListChanged": true }),
        json!({ "resourcesListChanged": true, "toolsListChanged": true, "promptsListChanged": true }),
    ];
    for id in ["1", "\"listen-1\"", "\"quo\\\"te\"", "-7", "\"\\u00e9\""] {
        for filter in &filters {
            let expected = text_of_rmcp(&endpoint, request(id, filter, "")).await;
            let answer = endpoint.handle(request(id, filter, "")).await;
            let mut messages = answer.into_body();
            let first = messages.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(expected.as_bytes().starts_with(&first), "{expected}");
        }
    }
    // The last message comes when the server stops.
    let filter = &filters[1];
    let expected = text_of_rmcp(&endpoint, request("7", filter, "")).await;
    let answer = endpoint.handle(request("7", filter, "")).await;
    // The shutdown waits for the stream, so the stream is read meanwhile.
    let shutdown = bus.shutdown(std::time::Duration::from_secs(30));
    let (received, report) = tokio::join!(text(answer), shutdown);
    assert_eq!(received, expected);
    assert_eq!(report.streams_cut, 0);
}

#[tokio::test]
async fn request_without_accepted_part_ends_at_once() {
    let (_bus, endpoint) = endpoint().await;
    let filter = json!({ "resourceSubscriptions": ["demo://none", "no uri"] });
    let expected = text_of_rmcp(&endpoint, request("7", &json!({}), "")).await;
    let answer = endpoint.handle(request("7", &filter, "")).await;
    assert_eq!(text(answer).await, expected);
}

#[tokio::test]
async fn unusual_request_is_judged_by_rmcp() {
    let (_bus, endpoint) = endpoint().await;
    let filter = json!({ "toolsListChanged": true });
    // A field that is unknown here does not make a request wrong.
    let answer = endpoint.handle(request("7", &filter, r#","x":1"#)).await;
    assert_eq!(answer.status(), StatusCode::OK);
    // Headers that contradict the body do, in rmcp's words.
    for (name, value) in [
        (MCP_METHOD, "tools/call"),
        (PROTOCOL_VERSION, "2025-11-25"),
        (CONTENT_TYPE, "text/plain"),
    ] {
        let mut wrong = request("7", &filter, "");
        wrong.headers_mut().insert(name.clone(), value.parse().unwrap());
        let (parts, body) = wrong.into_parts();
        let Ok(body) = body.collect().await;
        let body = body.to_bytes();
        let refused = endpoint.state.forward(parts.clone(), body.clone()).await;
        let refused = reply::with_message(refused, None, &body).await;
        let wrong = Request::from_parts(parts, Full::new(body));
        let answer = endpoint.handle(wrong).await;
        assert!(answer.status().is_client_error(), "{name}");
        assert_eq!(answer.status(), refused.status(), "{name}");
        assert_eq!(text(answer).await, text(refused).await, "{name}");
    }
}
