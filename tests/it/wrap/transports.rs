//! A wrapped server on the transports of the bus: the endpoint and the stdio pump give it what they give the
//! bus's own server.

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use reqwest::{Response, StatusCode};

use super::*;
use crate::wrap::client::{endpoint, serve};

#[tokio::test]
async fn new_session_gets_each_list_once_over_stdio() {
    new_session_gets_each_list_once(Over::Stdio).await;
}

#[tokio::test]
async fn new_session_gets_each_list_once_over_endpoint() {
    new_session_gets_each_list_once(Over::Endpoint).await;
}

#[tokio::test]
async fn change_is_sent_with_next_etag_over_stdio() {
    change_is_sent_with_next_etag(Over::Stdio).await;
}

#[tokio::test]
async fn change_is_sent_with_next_etag_over_endpoint() {
    change_is_sent_with_next_etag(Over::Endpoint).await;
}

#[tokio::test]
async fn panicking_tool_is_answered_over_stdio() {
    panicking_tool_is_answered(Over::Stdio).await;
}

#[tokio::test]
async fn panicking_tool_is_answered_over_endpoint() {
    panicking_tool_is_answered(Over::Endpoint).await;
}

#[tokio::test]
async fn other_requests_reach_wrapped_server_over_stdio() {
    other_requests_reach_wrapped_server(Over::Stdio).await;
}

#[tokio::test]
async fn other_requests_reach_wrapped_server_over_endpoint() {
    other_requests_reach_wrapped_server(Over::Endpoint).await;
}

#[tokio::test]
async fn listen_gets_requested_changes_over_stdio() {
    listen_gets_requested_changes(Over::Stdio).await;
}

#[tokio::test]
async fn listen_gets_requested_changes_over_endpoint() {
    listen_gets_requested_changes(Over::Endpoint).await;
}

#[tokio::test]
async fn ended_session_leaves_nothing_on_stdio() {
    ended_session_leaves_nothing(Over::Stdio).await;
}

#[tokio::test]
async fn ended_session_leaves_nothing_on_endpoint() {
    ended_session_leaves_nothing(Over::Endpoint).await;
}

async fn acknowledgement_names_only_what_is_sent(over: Over) {
    let (wrap, notes) = wrap().await;
    let client = Client::discover(over, &wrap, &notes).await;
    let filter = SubscriptionFilter::builder()
        .tools_list_changed()
        .resource_subscription("note://nowhere")
        .resource_subscription("note://a")
        .build();
    let mut stream = client.listen(filter).await;
    let expected = SubscriptionFilter::builder()
        .tools_list_changed()
        .resource_subscription("note://a")
        .build();
    assert_eq!(*stream.acknowledged(), expected);
    // From the acknowledgement on every change is sent.
    notes.write("note://a", "two");
    wrap.notify_resource_changed("note://a").await.unwrap();
    let received = client::next(&mut stream).await;
    assert_eq!(version(&client::etag_in(&received).unwrap()), 2);
    // The wrapper asks the server in the name of a client that only listens. The first read has the content
    // that was announced.
    wrap.refresh_subscribed().await.unwrap();
    notes.write("note://a", "three");
    wrap.refresh_subscribed().await.unwrap();
    let received = client::next(&mut stream).await;
    assert_eq!(version(&client::etag_in(&received).unwrap()), 3);
}

#[tokio::test]
async fn acknowledgement_names_only_what_is_sent_over_stdio() {
    acknowledgement_names_only_what_is_sent(Over::Stdio).await;
}

#[tokio::test]
async fn endpoint_acknowledges_existing_resources_alone() {
    acknowledgement_names_only_what_is_sent(Over::Endpoint).await;
}

async fn call_reports_progress_and_is_cancelled(over: Over) {
    let (wrap, notes) = wrap().await;
    let client = Client::connect(over, &wrap, &notes).await;
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(CallToolRequestParams::new("endless")));
    let options = rmcp::service::PeerRequestOptions::no_options();
    let call = client.peer().send_cancellable_request(request, options).await;
    let call = call.unwrap();
    client.until(|log| log.contains(&Received::Progress(1))).await;
    assert_eq!(notes.cancelled(), 0);
    call.cancel(None).await.unwrap();
    eventually(async || notes.cancelled() == 1).await;
}

#[tokio::test]
async fn call_reports_progress_and_is_cancelled_over_stdio() {
    call_reports_progress_and_is_cancelled(Over::Stdio).await;
}

#[tokio::test]
async fn endpoint_call_reports_progress_and_is_cancelled() {
    call_reports_progress_and_is_cancelled(Over::Endpoint).await;
}

/// Sends `initialize` as the bytes that a client sends.
async fn initialize(url: &str, host: Option<&str>) -> Response {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"},
    }});
    post(url, host.map(|host| ("host", host)), &body).await
}

async fn post(url: &str, header: Option<(&str, &str)>, body: &Value) -> Response {
    let mut request = reqwest::Client::new()
        .post(url)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    request.body(body.to_string()).send().await.unwrap()
}

#[tokio::test]
async fn endpoint_refuses_foreign_host_and_excess_session() {
    let mut limits = Limits::default();
    limits.sessions_max = 1;
    let bus = Bus::builder().limits(limits).start().unwrap();
    let wrap = Wrap::new(bus, McpOptions::default()).await.unwrap();
    let notes = Notes::new();
    let app = axum::Router::new().route_service("/mcp", endpoint(&wrap, &notes));
    let (url, server) = serve(app).await;

    let refused = initialize(&url, Some("elsewhere.example")).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert_eq!(notes.servers(), 0);

    let opened = initialize(&url, None).await;
    assert_eq!(opened.status(), StatusCode::OK);
    let key = opened.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let answer: Value = serde_json::from_str(&opened.text().await.unwrap()).unwrap();
    assert_eq!(answer["result"]["capabilities"]["resources"]["subscribe"], true);

    // A session that is not ready makes place for others.
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let ready = post(&url, Some(("mcp-session-id", &key)), &ready).await;
    assert_eq!(ready.status(), StatusCode::ACCEPTED);
    let stream = reqwest::Client::new().get(&url).header("mcp-session-id", &key);
    let mut stream = stream.header("accept", "text/event-stream").send().await.unwrap();
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains("tools/list_changed") {
        received.extend(stream.chunk().await.unwrap().unwrap());
    }
    let refused = initialize(&url, None).await;
    let status = refused.status();
    let headers = refused.headers().clone();
    let text = refused.text().await.unwrap();
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{headers:?} {text}");
    assert!(!headers.contains_key("mcp-session-id"));
    // The handler of the client that was refused is gone.
    eventually(async || notes.servers() == 1).await;

    // A session that its client ended is unknown to the endpoint and to rmcp.
    let ended = reqwest::Client::new().delete(&url).header("mcp-session-id", &key);
    assert_eq!(ended.send().await.unwrap().status(), StatusCode::NO_CONTENT);
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    let unknown = post(&url, Some(("mcp-session-id", &key)), &ping).await;
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
    eventually(async || notes.servers() == 0).await;
    server.abort();
}

#[tokio::test]
async fn calls_of_wrapped_tools_are_counted() {
    let (wrap, notes) = wrap().await;
    notes.add_tool("brew");
    let recorder = DebuggingRecorder::new();
    let served = metrics::with_local_recorder(&recorder, || endpoint(&wrap, &notes));
    let (url, server) = serve(axum::Router::new().route_service("/mcp", served)).await;
    let opened = initialize(&url, None).await;
    let key = opened.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    for (id, tool) in [(2, "brew"), (3, "panics")] {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
            "name": tool, "arguments": {},
        }});
        let answer = post(&url, Some(("mcp-session-id", &key)), &call).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert!(answer.text().await.unwrap().starts_with('{'));
    }
    let mut counted = Vec::new();
    for (key, _, _, value) in recorder.snapshotter().snapshot().into_vec() {
        if let DebugValue::Counter(count) = value
            && count > 0
        {
            let labels: Vec<&str> = key.key().labels().map(|label| label.value()).collect();
            counted.push((labels.join(" "), count));
        }
    }
    counted.sort();
    assert_eq!(counted, [("error".to_owned(), 1), ("ok".to_owned(), 1)]);
    server.abort();
}
