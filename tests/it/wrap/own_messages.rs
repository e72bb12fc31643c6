//! The GET streams of a wrapped server's sessions: notices of the bus and messages of the server itself.

use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use super::*;
use crate::mcp::client::Client as SessionClient;
use crate::mcp::events::{Events, updated_etag, updated_uri};
use crate::mcp::http::Request;
use crate::wrap::client::serve_endpoint;

const REVISION: &str = "2025-11-25";

/// Has the server send the numbers of `from` to `to` as messages of its own.
async fn shout(client: &SessionClient, from: u64, to: u64, padding: usize) {
    let arguments = json!({"from": from, "to": to, "padding": padding});
    client.tool("shout", arguments).await;
}

/// Returns the number in the next message of the server itself.
async fn heard(stream: &mut Events) -> u64 {
    loop {
        let message = stream.message().await;
        if message["method"] == "notifications/message" {
            let text = message["params"]["data"].as_str().unwrap();
            return text.trim().parse().unwrap();
        }
    }
}

/// Waits until a session has this number of streams.
async fn streams(wrap: &Wrap, count: usize) {
    eventually(async || wrap.bus().sessions().await.unwrap()[0].pending.streams == count).await;
}

#[tokio::test]
async fn resumed_stream_repeats_only_later_events() {
    let (wrap, notes) = wrap().await;
    let client = SessionClient::open(serve_endpoint(&wrap, &notes).await, REVISION).await;
    client.subscribe("note://a").await;
    client.subscribe("note://b").await;
    let mut stream = client.stream().await;
    for _ in ListKind::ALL {
        assert_eq!(updated_uri(&stream.message().await), None);
    }
    wrap.notify_resource_changed("note://a").await.unwrap();
    let first = stream.next().await;
    assert_eq!(updated_uri(first.message.as_ref().unwrap()), Some("note://a"));
    shout(&client, 1, 1, 0).await;
    assert_eq!(heard(&mut stream).await, 1);
    wrap.notify_resource_changed("note://b").await.unwrap();
    assert_eq!(stream.updated().await, "note://b");
    drop(stream);
    streams(&wrap, 0).await;

    wrap.notify_resource_changed("note://a").await.unwrap();
    let mut stream = client.stream_after(first.id.as_deref().unwrap()).await;
    assert_eq!(stream.updated().await, "note://b");
    let last = stream.message().await;
    assert_eq!(updated_uri(&last), Some("note://a"));
    assert_eq!(version(&updated_etag(&last)), 3);
    shout(&client, 2, 2, 0).await;
    assert_eq!(heard(&mut stream).await, 2, "no message is sent twice");
}

#[tokio::test]
async fn message_without_stream_waits_for_the_next() {
    let (wrap, notes) = wrap().await;
    let client = SessionClient::open(serve_endpoint(&wrap, &notes).await, REVISION).await;
    shout(&client, 1, 2, 0).await;
    let mut stream = client.stream().await;
    assert_eq!((heard(&mut stream).await, heard(&mut stream).await), (1, 2));
    drop(stream);
    streams(&wrap, 0).await;
    shout(&client, 3, 3, 0).await;
    let mut stream = client.stream().await;
    assert_eq!(heard(&mut stream).await, 3, "no message is sent twice");
}

#[tokio::test]
async fn newest_stream_gets_messages_of_the_server() {
    let (wrap, notes) = wrap().await;
    let client = SessionClient::open(serve_endpoint(&wrap, &notes).await, REVISION).await;
    let mut first = client.stream().await;
    let mut second = client.stream().await;
    shout(&client, 1, 1, 0).await;
    assert_eq!(heard(&mut second).await, 1);
    drop(second);
    streams(&wrap, 1).await;
    shout(&client, 2, 2, 0).await;
    assert_eq!(heard(&mut first).await, 2);
    let mut third = client.stream().await;
    drop(first);
    streams(&wrap, 1).await;
    shout(&client, 3, 3, 0).await;
    assert_eq!(heard(&mut third).await, 3);
}

#[tokio::test]
async fn unread_stream_holds_up_no_request() {
    let (wrap, notes) = wrap().await;
    let client = SessionClient::open(serve_endpoint(&wrap, &notes).await, REVISION).await;
    let unread = client.open_stream(Request::stream().small_receive_buffer()).await;
    // Far more than the buffers of a connection hold.
    shout(&client, 1, 100, 200_000).await;
    client.call("ping", json!({})).await;
    drop(unread);
}

#[tokio::test]
async fn excess_messages_are_dropped_and_counted() {
    let recorder = DebuggingRecorder::new();
    // The endpoint takes the messages on the thread of this test.
    let _recording = metrics::set_default_local_recorder(&recorder);
    let (wrap, notes) = wrap().await;
    let client = SessionClient::open(serve_endpoint(&wrap, &notes).await, REVISION).await;
    shout(&client, 1, 300, 0).await;
    let mut stream = client.stream().await;
    for number in 45..=300 {
        assert_eq!(heard(&mut stream).await, number, "the newest 256 are kept");
    }
    let mut dropped = 0;
    for (key, _, _, value) in recorder.snapshotter().snapshot().into_vec() {
        let is_limit = key.key().name() == "tidings_limit_reached_total";
        let mut labels = key.key().labels();
        if is_limit
            && labels.any(|label| label.value() == "own messages of a wrapped server")
            && let DebugValue::Counter(count) = value
        {
            dropped += count;
        }
    }
    assert_eq!(dropped, 44);
}
