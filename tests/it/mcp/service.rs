//! The service as a whole: one etag in every answer, and an end that each client can tell from a failure.

use serde_json::{Value, json};
use tidings::wire::http1::resource_path;

use super::client::{Client, LEGACY, SUBSCRIPTION_ID, listen, modern, updates};
use super::events::{updated_etag, updated_uri};
use super::http::Request;
use super::server::Server;

const A: &str = "demo://a";
const ETAG: &str = "io.github.tidings/etag";

/// The etag of the resource in each answer that a session can get.
async fn seen_by_session(client: &Client) -> Vec<Value> {
    let list = client.call("resources/list", json!({})).await;
    let read = client.call("resources/read", json!({ "uri": A })).await;
    let one = client.tool("get_resource_etag", json!({ "uri": A })).await;
    let many = client
        .tool("get_resource_etags", json!({ "items": [{ "uri": A }] }))
        .await;
    let body = client.tool("read_resource", json!({ "uri": A })).await;
    vec![
        list["resources"][0]["_meta"][ETAG].clone(),
        read["_meta"][ETAG].clone(),
        read["contents"][0]["_meta"][ETAG].clone(),
        one["structuredContent"]["etag_encoded"].clone(),
        many["structuredContent"]["items"][0]["etag_encoded"].clone(),
        body["structuredContent"]["etag_encoded"].clone(),
    ]
}

#[tokio::test]
async fn etag_is_same_in_every_answer() {
    let server = Server::start().await;
    server.put(A, "first").await;
    let client = Client::open(server.address, "2025-11-25").await;
    let mut stream = client.stream().await;
    client.subscribe(A).await;
    let (_, mut listening) = listen(server.address, &json!(1), updates(&[A])).await;

    // The publisher's answer and both notifications.
    let etag = server.put(A, "second").await;
    assert!(etag.starts_with("v2-"));
    let received = loop {
        let message = stream.message().await;
        if updated_uri(&message) == Some(A) {
            break updated_etag(&message);
        }
    };
    assert_eq!(received, etag);
    assert_eq!(updated_etag(&listening.message().await), etag);
    // Every answer of a session, of each revision.
    for revision in LEGACY {
        let client = Client::open(server.address, revision).await;
        for seen in seen_by_session(&client).await {
            assert_eq!(seen, *etag, "{revision}");
        }
    }
    // Requests without a session, and the HTTP API.
    let read = modern(server.address, "resources/read", json!({ "uri": A }))
        .await
        .json();
    assert_eq!(
        (
            &read["result"]["_meta"][ETAG],
            &read["result"]["contents"][0]["_meta"][ETAG]
        ),
        (&json!(etag), &json!(etag))
    );
    let list = modern(server.address, "resources/list", json!({})).await.json();
    assert_eq!(list["result"]["resources"][0]["_meta"][ETAG], *etag);
    let reply = Request::new("GET", resource_path(A)).send(server.address).await;
    assert_eq!(reply.header("etag"), Some(format!("\"{etag}\"").as_str()));
    assert_eq!(reply.text(), "second");
}

#[tokio::test]
async fn polling_client_is_stale_only_after_change() {
    let server = Server::start().await;
    let etag = server.put(A, "same").await;
    let client = Client::open(server.address, "2024-11-05").await;
    let ask = async |held: Value| {
        let answer = client
            .tool("get_resource_etag", json!({ "uri": A, "client_etag": held }))
            .await;
        answer["structuredContent"]["stale_for_client"].clone()
    };
    assert_eq!(ask(Value::Null).await, true);
    assert_eq!(ask(json!(etag)).await, false);
    assert_eq!(server.put(A, "same").await, etag, "the same bytes again");
    assert_eq!(ask(json!(etag)).await, false);
    server.put(A, "other").await;
    assert_eq!(ask(json!(etag)).await, true);
    let unknown = client
        .tool("get_resource_etag", json!({ "uri": "demo://nowhere" }))
        .await;
    assert_eq!(unknown["isError"], true);
    assert!(
        unknown["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("demo://nowhere")
    );
}

#[tokio::test]
async fn wait_returns_with_the_change() {
    let server = Server::start().await;
    let etag = server.put(A, "1").await;
    let client = Client::open(server.address, "2025-06-18").await;
    let arguments = json!({ "items": [{ "uri": A, "client_etag": etag }], "timeout_ms": 9_000 });
    let change = async {
        server
            .until("the tool waits", |all| {
                all.iter().any(|one| one["kind"] == "local")
            })
            .await;
        server.put(A, "2").await
    };
    let (answer, etag) = tokio::join!(client.tool("wait_for_resource_change", arguments), change);
    let answer = &answer["structuredContent"];
    assert_eq!(
        (&answer["timed_out"], &answer["items"][0]["etag_encoded"]),
        (&json!(false), &json!(etag))
    );
    assert_eq!(answer["items"][0]["stale_for_client"], true);
}

#[tokio::test]
async fn signal_ends_streams_gracefully_and_exits_0() {
    let mut server = Server::with("[session]\nannounce_on_connect = false\n").await;
    server.put(A, "1").await;
    let mut streams = Vec::new();
    let mut clients = Vec::new();
    for revision in LEGACY {
        let client = Client::open(server.address, revision).await;
        client.subscribe(A).await;
        streams.push(client.stream().await);
        clients.push(client);
    }
    let (_, mut first) = listen(server.address, &json!("first"), updates(&[A])).await;
    let (_, mut second) = listen(server.address, &json!(2), updates(&[A])).await;
    let etag = server.put(A, "last").await;
    server.terminate();
    for stream in &mut streams {
        assert_eq!(updated_etag(&stream.message().await), etag);
        stream.assert_end().await;
    }
    for (id, stream) in [(json!("first"), &mut first), (json!(2), &mut second)] {
        assert_eq!(updated_etag(&stream.message().await), etag);
        let result = stream.message().await;
        assert_eq!(
            (&result["id"], &result["result"]["resultType"]),
            (&id, &json!("complete"))
        );
        assert_eq!(result["result"]["_meta"][SUBSCRIPTION_ID], id);
        stream.assert_end().await;
    }
    server.assert_ended().await;
}

#[tokio::test]
async fn ended_session_is_not_listed() {
    let server = Server::start().await;
    server.put(A, "1").await;
    let client = Client::open(server.address, "2025-11-25").await;
    client.subscribe(A).await;
    let subscribers = Request::new("GET", format!("{}/subscribers", resource_path(A)));
    let found = subscribers.send(server.address).await.json();
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    assert!(
        found["items"][0]["label"]
            .as_str()
            .unwrap()
            .starts_with("2025-11-25")
    );
    client.delete().await;
    server.until("no session is left", <[_]>::is_empty).await;
    let found = subscribers.send(server.address).await.json();
    assert_eq!(found["items"], json!([]));
}
