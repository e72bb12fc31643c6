//! Subscriptions: the sessions that get an update, those that do not, and the refusals.

use serde_json::{Map, Value, json};
use tidings::mcp::{McpOptions, serve_stdio};
use tidings::{Resource, Tool, ToolOutput};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::client::{Client, LEGACY, MODERN, SUBSCRIPTION_ID, initialize, listen, modern, updates};
use super::events::{updated_etag, updated_uri, version};
use super::http::within;
use super::local::Local;

const A: &str = "demo://a";
const B: &str = "demo://b";

async fn with_two() -> Local {
    let local = Local::with(|options| options.session.announce_on_connect = false).await;
    local.put(A, "1").await;
    local.put(B, "1").await;
    local
}

#[tokio::test]
async fn only_subscribed_session_gets_update() {
    let local = with_two().await;
    for revision in LEGACY {
        let one = Client::open(local.server, revision).await;
        let mut one_stream = one.stream().await;
        let two = Client::open(local.server, revision).await;
        let mut two_stream = two.stream().await;
        one.subscribe(A).await;
        two.subscribe(B).await;
        local.bus.touch(A).await.unwrap();
        local.bus.touch(B).await.unwrap();
        assert_eq!(one_stream.updated().await, A, "{revision}");
        assert_eq!(
            two_stream.updated().await,
            B,
            "{revision}: it is not subscribed to A"
        );
        one.delete().await;
        two.delete().await;
    }
}

#[tokio::test]
async fn subscribing_twice_is_one_subscription() {
    let local = with_two().await;
    let client = Client::open(local.server, "2025-11-25").await;
    let mut stream = client.stream().await;
    client.subscribe(A).await;
    client.subscribe(A).await;
    client.subscribe(B).await;
    assert_eq!(local.sessions().await[0].pending.subscriptions, 2);
    local.bus.touch(A).await.unwrap();
    local.bus.touch(B).await.unwrap();
    assert_eq!(stream.updated().await, A);
    assert_eq!(stream.updated().await, B, "A came once");
    client.unsubscribe(A).await;
    local.bus.touch(A).await.unwrap();
    local.bus.touch(B).await.unwrap();
    assert_eq!(stream.updated().await, B, "one unsubscribe ends it");
}

#[tokio::test]
async fn unknown_or_unsubscribable_uri_is_named() {
    let local = with_two().await;
    let fixed = Resource::text("demo://fixed", "1").unwrap().subscribable(false);
    local.bus.register(fixed).await.unwrap();
    for revision in LEGACY {
        let client = Client::open(local.server, revision).await;
        for (uri, text) in [
            ("demo://nowhere", "Resource not found: demo://nowhere"),
            ("demo://fixed", "Resource not subscribable: demo://fixed"),
            ("no uri at all", "no uri at all"),
        ] {
            let refused = client.request("resources/subscribe", json!({ "uri": uri })).await;
            let (code, message) = refused.error();
            assert_eq!(code, -32602);
            assert!(message.contains(text), "{message}");
        }
        let read = client
            .request("resources/read", json!({ "uri": "demo://nowhere" }))
            .await;
        assert_eq!(
            read.error(),
            (-32002, "Resource not found: demo://nowhere".into()),
            "{revision}"
        );
        assert_eq!(read.json()["error"]["data"]["uri"], "demo://nowhere");
    }
    let read = modern(local.server, "resources/read", json!({ "uri": "demo://nowhere" })).await;
    assert_eq!(
        read.error(),
        (-32602, "Resource not found: demo://nowhere".into()),
        "{MODERN}"
    );
    assert_eq!(read.json()["error"]["data"]["uri"], "demo://nowhere");
}

#[tokio::test]
async fn unsubscribed_session_gets_no_update() {
    let local = with_two().await;
    let client = Client::open(local.server, "2025-06-18").await;
    let mut stream = client.stream().await;
    client.subscribe(A).await;
    client.subscribe(B).await;
    local.bus.touch(A).await.unwrap();
    assert_eq!(stream.updated().await, A);
    client.unsubscribe(A).await;
    client.unsubscribe("demo://never").await;
    local.bus.touch(A).await.unwrap();
    local.bus.touch(B).await.unwrap();
    assert_eq!(stream.updated().await, B);
}

#[tokio::test]
async fn delete_ends_session_and_subscriptions() {
    let local = with_two().await;
    for revision in LEGACY {
        let client = Client::open(local.server, revision).await;
        let mut stream = client.stream().await;
        client.subscribe(A).await;
        assert_eq!(client.delete().await.status, 204);
        stream.assert_end().await;
        assert_eq!(client.request("ping", json!({})).await.status, 404, "{revision}");
        assert_eq!(client.delete().await.status, 404);
        let request = client.with_headers(super::http::Request::stream());
        assert_eq!(request.send(local.server).await.status, 404);
        local.until("the session is gone", <[_]>::is_empty).await;
        assert_eq!(
            local.bus.touch(A).await.unwrap().notified,
            0,
            "it is skipped silently"
        );
    }
}

#[tokio::test]
async fn removed_resource_gets_one_last_update() {
    let local = with_two().await;
    let client = Client::open(local.server, "2025-11-25").await;
    let mut stream = client.stream().await;
    client.subscribe(A).await;
    client.subscribe(B).await;
    let (_, mut listening) = listen(local.server, &json!("gone"), updates(&[A, B])).await;
    local.bus.remove(A).await.unwrap();
    local.bus.touch(B).await.unwrap();
    let resource_list = "notifications/resources/list_changed";
    let mut received = Vec::new();
    while received.last().map(String::as_str) != Some(B) {
        let message = stream.message().await;
        let name = updated_uri(&message).or(message["method"].as_str()).unwrap();
        received.push(name.to_owned());
    }
    received.sort();
    assert_eq!(received, [A, B, resource_list]);
    assert_eq!(
        client
            .request("resources/read", json!({ "uri": A }))
            .await
            .error()
            .0,
        -32002
    );
    assert_eq!(listening.updated().await, A);
    assert_eq!(listening.updated().await, B);
}

#[tokio::test]
async fn tool_change_reaches_its_caller() {
    let local = with_two().await;
    let bus = local.bus.downgrade();
    let tool = Tool::new("change", move |_: Map<String, Value>| {
        let bus = bus.clone();
        async move {
            let outcome = bus
                .upgrade()?
                .update(Resource::text(A, "changed by a tool")?)
                .await?;
            Ok(ToolOutput::text(format!(
                "{} told {}",
                outcome.etag, outcome.notified
            )))
        }
    });
    local.bus.add_tool(tool).await.unwrap();
    let client = Client::open(local.server, "2025-11-25").await;
    let mut stream = client.stream().await;
    client.subscribe(A).await;
    let result = client.tool("change", json!({})).await;
    assert_eq!(result["content"][0]["text"], "v2-1700000000 told 1");
    let update = stream.message().await;
    assert_eq!(
        (updated_uri(&update), updated_etag(&update).as_str()),
        (Some(A), "v2-1700000000")
    );
}

#[tokio::test]
async fn publish_reaches_session_listen_and_stdio() {
    let local = with_two().await;
    let client = Client::open(local.server, "2025-11-25").await;
    let mut stream = client.stream().await;
    client.subscribe(A).await;
    let (_, mut listening) = listen(local.server, &json!(7), updates(&[A])).await;

    let (mut input, theirs) = tokio::io::duplex(1 << 16);
    let (ours, output) = tokio::io::duplex(1 << 16);
    let mut options = McpOptions::default();
    options.session.announce_on_connect = false;
    tokio::spawn(serve_stdio(local.bus.clone(), options, theirs, output));
    let mut lines = BufReader::new(ours).lines();
    let subscribe =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": { "uri": A } });
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    for message in [initialize("2025-06-18"), ready, subscribe] {
        input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }
    let mut line = async || {
        let line = within("a line", lines.next_line()).await.unwrap().unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    assert_eq!(line().await["id"], 0);
    assert_eq!(line().await["id"], 1);

    let outcome = local.put(A, "2").await;
    assert_eq!(outcome.notified, 3);
    for update in [stream.message().await, listening.message().await, line().await] {
        assert_eq!(updated_uri(&update), Some(A));
        assert_eq!(updated_etag(&update), outcome.etag.to_string(), "{update}");
    }
}

#[tokio::test]
async fn uri_versions_arrive_newest_and_never_backward() {
    let local = with_two().await;
    let client = Client::open(local.server, "2025-06-18").await;
    let mut stream = client.stream().await;
    client.subscribe(A).await;
    for number in 0..200 {
        local.put(A, &format!("body {number}")).await;
    }
    let mut last = 1;
    while last < 201 {
        let now = version(&updated_etag(&stream.message().await));
        assert!(now > last, "{now} after {last}");
        last = now;
    }
}

#[tokio::test]
async fn listen_streams_keep_ids_in_their_json_type() {
    let local = with_two().await;
    let ids = [
        json!("1"),
        json!(1),
        json!("a \"quoted\" id"),
        json!(9_007_199_254_740_991_u64),
    ];
    let mut streams = Vec::new();
    for id in &ids {
        let (_, stream) = listen(local.server, id, updates(&[A])).await;
        streams.push(stream);
    }
    let (_, mut other) = listen(local.server, &json!(2), updates(&[B])).await;
    assert_eq!(local.put(A, "2").await.notified, ids.len());
    for (index, stream) in streams.iter_mut().enumerate() {
        let update = stream.message().await;
        assert_eq!(updated_uri(&update), Some(A));
        assert_eq!(update["params"]["_meta"][SUBSCRIPTION_ID], ids[index]);
    }
    local.put(B, "2").await;
    assert_eq!(other.updated().await, B);
}

#[tokio::test]
async fn listen_acknowledges_only_accepted_part() {
    let local = with_two().await;
    let fixed = Resource::text("demo://fixed", "1").unwrap().subscribable(false);
    local.bus.register(fixed).await.unwrap();
    let asked = json!({
        "resourceSubscriptions": [A, "demo://nowhere", "demo://fixed", A, "no uri", B],
        "toolsListChanged": true,
        "promptsListChanged": false,
    });
    let (acknowledged, mut stream) = listen(local.server, &json!("x"), asked).await;
    let honoured = &acknowledged["params"]["notifications"];
    assert_eq!(honoured["resourceSubscriptions"], json!([A, B]));
    assert_eq!(honoured["toolsListChanged"], true);
    assert_eq!(honoured.get("resourcesListChanged"), None);
    assert_ne!(honoured["promptsListChanged"], true);
    local.bus.touch(B).await.unwrap();
    assert_eq!(stream.updated().await, B);
}

#[tokio::test]
async fn listen_without_accepted_part_ends_at_once() {
    let local = with_two().await;
    for filter in [
        json!({}),
        updates(&["demo://nowhere"]),
        json!({ "toolsListChanged": false }),
    ] {
        let (acknowledged, mut stream) = listen(local.server, &json!("none"), filter).await;
        let honoured = acknowledged["params"]["notifications"].as_object().unwrap();
        assert!(honoured.values().all(|value| *value == false), "{acknowledged}");
        let result = stream.message().await;
        assert_eq!(
            (&result["id"], &result["result"]["resultType"]),
            (&json!("none"), &json!("complete"))
        );
        stream.assert_end().await;
    }
    local.until("nothing is left", <[_]>::is_empty).await;
}

#[tokio::test]
async fn shutdown_delivers_then_ends_listen_gracefully() {
    let local = with_two().await;
    let client = Client::open(local.server, "2025-11-25").await;
    let mut stream = client.stream().await;
    client.subscribe(A).await;
    let (_, mut listening) = listen(local.server, &json!(5), updates(&[A])).await;
    local.put(A, "last").await;
    local.shutdown().await;
    assert_eq!(stream.updated().await, A);
    stream.assert_end().await;
    assert_eq!(listening.updated().await, A);
    let result = listening.message().await;
    assert_eq!(
        (&result["id"], &result["result"]["resultType"]),
        (&json!(5), &json!("complete"))
    );
    assert_eq!(result["result"]["_meta"][SUBSCRIPTION_ID], 5);
    listening.assert_end().await;
}
