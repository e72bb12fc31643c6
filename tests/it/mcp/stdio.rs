//! MCP on stdin and stdout of the real binary: nothing but messages, in both eras.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidings::mcp::serve_stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::client::{Client, SUBSCRIPTION_ID, initialize, stateless, updates};
use super::events::{updated_etag, updated_uri};
use super::http::within;
use super::server::StdioClient;

const A: &str = "workspace:///a.txt";
const B: &str = "workspace:///b.txt";

fn request(id: Value, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn listen(id: Value, filter: Value) -> Value {
    request(
        id,
        "subscriptions/listen",
        stateless(json!({ "notifications": filter })),
    )
}

/// Reads until the answer to `id`; notifications before it are dropped.
async fn answer(client: &mut StdioClient, id: Value) -> Value {
    loop {
        let message = client.message().await;
        if message["id"] == id && message.get("method").is_none() {
            return message;
        }
    }
}

/// Writes two files and waits until the service lists them.
async fn with_files(client: &mut StdioClient, params: fn(Value) -> Value) {
    client.write_file("a.txt", "1");
    client.write_file("b.txt", "1");
    let mut listed = 0;
    while listed < 2 {
        client
            .send(&request(json!("list"), "resources/list", params(json!({}))))
            .await;
        let answer = answer(client, json!("list")).await;
        listed = answer["result"]["resources"].as_array().expect("a list").len();
    }
}

async fn legacy(revision: &str, arguments: &[&str]) -> StdioClient {
    let mut client = StdioClient::start(arguments);
    client.send(&initialize(revision)).await;
    let initialized = client.message().await;
    assert_eq!(initialized["result"]["protocolVersion"], revision);
    client
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
        .await;
    with_files(&mut client, |params| params).await;
    client
}

async fn modern(arguments: &[&str]) -> StdioClient {
    let mut client = StdioClient::start(arguments);
    client
        .send(&request(json!(0), "server/discover", stateless(json!({}))))
        .await;
    let discovered = client.message().await;
    assert_eq!(discovered["result"]["resultType"], "complete", "{discovered}");
    with_files(&mut client, stateless).await;
    client
}

#[tokio::test]
async fn stdio_listen_is_acknowledged_tagged_and_ended() {
    let mut client = modern(&[]).await;
    // Two streams; the acknowledgement of the first leaves out an unknown resource.
    client
        .send(&listen(json!("1"), updates(&[A, "workspace:///nowhere"])))
        .await;
    let acknowledged = client.message().await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(
        acknowledged["params"]["notifications"]["resourceSubscriptions"],
        json!([A])
    );
    assert_eq!(acknowledged["params"]["_meta"][SUBSCRIPTION_ID], "1");
    client.send(&listen(json!(1), updates(&[B]))).await;
    assert_eq!(client.message().await["params"]["_meta"][SUBSCRIPTION_ID], 1);

    // An update is tagged with the id of its stream.
    client.write_file("a.txt", "2");
    let update = client.message().await;
    assert_eq!(
        (updated_uri(&update), &update["params"]["_meta"][SUBSCRIPTION_ID]),
        (Some(A), &json!("1"))
    );
    assert!(updated_etag(&update).starts_with("v2-"));

    // A cancelled stream gets no further update.
    let cancelled = stateless(json!({ "requestId": "1" }));
    client
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled }))
        .await;
    // An answer after the cancellation shows that it was taken in.
    client
        .send(&request(json!("after"), "server/discover", stateless(json!({}))))
        .await;
    assert_eq!(client.message().await["id"], "after");
    client.write_file("a.txt", "3");
    client.write_file("b.txt", "2");
    let update = client.message().await;
    assert_eq!(
        (updated_uri(&update), &update["params"]["_meta"][SUBSCRIPTION_ID]),
        (Some(B), &json!(1))
    );
    client.close_input();
    assert_eq!(
        client.message().await["id"],
        1,
        "the other stream's result; the cancelled one has none"
    );
    client.assert_ended().await;
}

#[tokio::test]
async fn stdio_session_subscribes_in_older_revisions() {
    for revision in super::client::LEGACY {
        let mut client = legacy(revision, &[]).await;
        for uri in [A, B] {
            client
                .send(&request(json!(uri), "resources/subscribe", json!({ "uri": uri })))
                .await;
            assert_eq!(
                answer(&mut client, json!(uri)).await["result"],
                json!({}),
                "{revision}"
            );
        }
        client.write_file("a.txt", "2");
        let mut update = client.message().await;
        // List changes of its first seconds may still come.
        while updated_uri(&update).is_none() {
            update = client.message().await;
        }
        assert_eq!(updated_uri(&update), Some(A), "{revision}");
        assert_eq!(update["params"]["_meta"].get(SUBSCRIPTION_ID), None);
        client
            .send(&request(
                json!("off"),
                "resources/unsubscribe",
                json!({ "uri": A }),
            ))
            .await;
        assert_eq!(answer(&mut client, json!("off")).await["result"], json!({}));
        client.write_file("a.txt", "3");
        client.write_file("b.txt", "2");
        assert_eq!(updated_uri(&client.message().await), Some(B), "{revision}");
        client.close_input();
        client.assert_ended().await;
    }
}

#[tokio::test]
async fn stdio_session_gets_each_list_once() {
    let mut client = legacy("2025-11-25", &[]).await;
    client
        .send(&request(json!(9), "resources/subscribe", json!({ "uri": B })))
        .await;
    answer(&mut client, json!(9)).await;
    for _ in 0..5 {
        client.send(&request(json!(10), "tools/list", json!({}))).await;
        assert_eq!(client.message().await["id"], 10, "nothing but the answer");
    }
    client.write_file("c.txt", "new");
    assert_eq!(
        client.message().await["method"],
        "notifications/resources/list_changed"
    );
    client.write_file("b.txt", "2");
    assert_eq!(updated_uri(&client.message().await), Some(B));
}

#[tokio::test]
async fn stdin_end_stops_unused_service() {
    let mut client = StdioClient::start(&[]);
    client.close_input();
    client.assert_ended().await;
}

#[tokio::test]
async fn stdin_end_ends_listen_streams() {
    let mut client = modern(&[]).await;
    client.send(&listen(json!("open"), updates(&[A]))).await;
    client.message().await;
    let closed = Instant::now();
    client.close_input();
    assert_eq!(client.message().await["id"], "open", "the result of the stream");
    client.assert_ended().await;
    // rmcp gives a handler that does not end 5 s.
    assert!(
        closed.elapsed() < Duration::from_secs(4),
        "{:?}",
        closed.elapsed()
    );
}

#[tokio::test]
async fn signal_ends_stdio_listen_with_result() {
    let mut client = modern(&[]).await;
    client.send(&listen(json!("end"), updates(&[A]))).await;
    client.message().await;
    client.terminate();
    let result = client.message().await;
    assert_eq!(
        (&result["id"], &result["result"]["resultType"]),
        (&json!("end"), &json!("complete"))
    );
    assert_eq!(result["result"]["_meta"][SUBSCRIPTION_ID], "end");
    client.assert_ended().await;
}

#[tokio::test]
async fn stdout_carries_only_mcp_beside_http() {
    let mut client = StdioClient::start(&["--listen", "127.0.0.1:0"]);
    let address = client.address().await;
    client.send(&initialize("2025-11-25")).await;
    assert_eq!(client.message().await["id"], 0, "the first line is the answer");
    let beside = Client::open(address, "2025-11-25").await;
    let mut stream = beside.stream().await;
    assert!(stream.message().await["method"].is_string());
    client.close_input();
    client.assert_ended().await;
}

#[tokio::test]
async fn stdio_session_survives_malformed_lines() {
    let mut client = legacy("2025-06-18", &[]).await;
    let deep = "[".repeat(100_000);
    for line in [
        "",
        "{",
        "null",
        "[]",
        "42",
        "\"text\"",
        "{\"jsonrpc\":\"2.0\"}",
        "\u{0}",
        &deep,
    ] {
        client.send_line(line).await;
    }
    client.send(&request(json!("alive"), "ping", json!({}))).await;
    assert_eq!(answer(&mut client, json!("alive")).await["result"], json!({}));
}

#[tokio::test]
async fn stdin_script_gets_everything_before_exit() {
    let mut client = StdioClient::start(&[]);
    // The etag tools fill the list of tools.
    client.send(&initialize("2025-11-25")).await;
    client
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
        .await;
    client.send(&request(json!(2), "tools/list", json!({}))).await;
    client.send(&request(json!(3), "tools/list", json!({}))).await;
    client.close_input();
    let mut answers = Vec::new();
    let mut lists = Vec::new();
    while answers.len() < 3 || lists.is_empty() {
        let message = client.message().await;
        match message["method"].as_str() {
            Some(method) => lists.push(method.to_owned()),
            None => answers.push(message["id"].clone()),
        }
    }
    answers.sort_by_key(ToString::to_string);
    assert_eq!(answers[1..], [json!(2), json!(3)]);
    assert_eq!(lists, ["notifications/tools/list_changed"]);
    client.assert_ended().await;
}

/// The stop may come while the send of the acknowledgement is still being reported back, so it is tried
/// often.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_right_after_listen_ends_it_gracefully() {
    for _ in 0..200 {
        let bus = tidings::Bus::builder().start().unwrap();
        let (mut to_server, input) = tokio::io::duplex(1 << 16);
        let (output, from_server) = tokio::io::duplex(1 << 16);
        let options = tidings::mcp::McpOptions::default();
        let serving = tokio::spawn(serve_stdio(bus.clone(), options, input, output));
        let request = listen(json!("l"), json!({ "toolsListChanged": true }));
        to_server
            .write_all(format!("{request}\n").as_bytes())
            .await
            .unwrap();
        let mut lines = BufReader::new(from_server).lines();
        let acknowledged = within("the acknowledgement", lines.next_line()).await;
        let acknowledged = acknowledged.unwrap().unwrap();
        assert!(acknowledged.contains("acknowledged"), "{acknowledged}");
        bus.shutdown(Duration::from_secs(5)).await;
        let result = within("the result", lines.next_line()).await.unwrap();
        let result = result.expect("a result before the end of the output");
        assert!(result.contains("\"resultType\":\"complete\""), "{result}");
        serving.await.unwrap().unwrap();
    }
}
