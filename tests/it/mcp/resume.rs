//! The streams of a session: several at once, lost ones, resumed ones, idle ones.

use std::time::Duration;

use serde_json::json;

use super::client::{Client, LEGACY, listen, updates};
use super::events::{Events, updated_etag, updated_uri};
use super::http::Request;
use super::local::Local;
use super::server::Server;

const A: &str = "demo://a";
const B: &str = "demo://b";
const SENTINEL: &str = "demo://sentinel";

async fn session(revision: &'static str) -> (Local, Client) {
    let local = Local::with(|options| options.session.announce_on_connect = false).await;
    let client = Client::open(local.server, revision).await;
    for uri in [A, B, SENTINEL] {
        local.put(uri, "1").await;
        client.subscribe(uri).await;
    }
    if revision != "2025-03-26" {
        // The list changed while it was filled. That is sent once and does not matter afterwards.
        let mut stream = client.stream().await;
        assert_eq!(
            stream.message().await["method"],
            "notifications/resources/list_changed"
        );
        drop(stream);
        no_streams(&local).await;
    }
    (local, client)
}

async fn no_streams(local: &Local) {
    local
        .until("no stream is open", |all| {
            all.iter().all(|info| info.pending.streams == 0)
        })
        .await;
}

/// Changes the sentinel; returns the updates that come before it, with their versions.
async fn updates_sent(local: &Local, stream: &mut Events) -> Vec<(String, String)> {
    local.bus.touch(SENTINEL).await.expect("it is there");
    let mut updates = Vec::new();
    loop {
        let message = stream.message().await;
        let uri = updated_uri(&message).unwrap_or_else(|| panic!("{message}"));
        if uri == SENTINEL {
            updates.sort();
            return updates;
        }
        let etag = updated_etag(&message);
        let version = etag.split('-').next().expect("a version");
        updates.push((uri.to_owned(), version.to_owned()));
    }
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected
        .iter()
        .map(|(uri, version)| ((*uri).to_owned(), (*version).to_owned()))
        .collect()
}

#[tokio::test]
async fn session_streams_take_over_from_each_other() {
    let (local, client) = session("2025-11-25").await;
    let mut first = client.stream().await;
    let mut second = client.stream().await;
    local.bus.touch(A).await.unwrap();
    assert_eq!(second.updated().await, A, "each message goes to one stream");
    drop(second);
    local
        .until("one stream is left", |all| all[0].pending.streams == 1)
        .await;
    local.bus.touch(B).await.unwrap();
    assert_eq!(first.updated().await, B, "A was not for it");
}

#[tokio::test]
async fn change_without_stream_arrives_once_and_newest() {
    for revision in LEGACY {
        let (local, client) = session(revision).await;
        local.put(A, "2").await;
        local.put(A, "3").await;
        local.put(B, "2").await;
        let mut stream = client.stream().await;
        assert_eq!(
            updates_sent(&local, &mut stream).await,
            pairs(&[(A, "v3"), (B, "v2")]),
            "{revision}"
        );
    }
}

#[tokio::test]
async fn resume_sends_later_events_once() {
    for revision in LEGACY {
        let (local, client) = session(revision).await;
        let mut stream = client.stream().await;
        local.put(A, "2").await;
        let first = stream.next().await;
        assert_eq!(updated_uri(first.message.as_ref().unwrap()), Some(A));
        local.put(B, "2").await;
        let second = stream.next().await;
        drop(stream);
        no_streams(&local).await;

        // After the last event nothing is sent again.
        let mut stream = client.stream_after(second.id.as_deref().expect("an id")).await;
        assert_eq!(
            updates_sent(&local, &mut stream).await,
            pairs(&[]),
            "{revision}: it had everything"
        );
        drop(stream);
        no_streams(&local).await;

        // After the first event everything later is sent once, a change without a stream included.
        local.put(A, "3").await;
        let id = first.id.as_deref().expect("an id");
        let mut stream = client.stream_after(id).await;
        let mut again = Vec::new();
        for _ in 0..3 {
            again.push(stream.updated().await);
        }
        assert_eq!(
            again,
            [B, SENTINEL, A],
            "{revision}: all events after the first one, oldest first"
        );
        assert_eq!(
            updates_sent(&local, &mut stream).await,
            pairs(&[]),
            "{revision}: each once"
        );
    }
}

#[tokio::test]
async fn unknown_event_id_resends_everything() {
    let (local, client) = session("2025-11-25").await;
    let mut stream = client.stream().await;
    local.put(A, "2").await;
    local.put(B, "2").await;
    assert_eq!(updates_sent(&local, &mut stream).await.len(), 2);
    for unknown in ["nonsense", "ffffffff-9", "0", ""] {
        drop(stream);
        no_streams(&local).await;
        let request = Request::stream().header("last-event-id", unknown);
        stream = client.open_stream(request).await;
        let mut uris = Vec::new();
        while !uris.contains(&B.to_owned()) || !uris.contains(&A.to_owned()) {
            let message = stream.message().await;
            uris.extend(updated_uri(&message).map(str::to_owned));
        }
        updates_sent(&local, &mut stream).await;
    }
}

#[tokio::test]
async fn only_2025_11_25_primes_its_streams() {
    for revision in LEGACY {
        let (local, client) = session(revision).await;
        let mut stream = client.stream().await;
        let hello = stream.event().await.unwrap();
        assert_eq!(hello.message, None);
        assert_eq!(hello.comment.is_some(), revision != "2025-11-25", "{hello:?}");
        if let Some(id) = hello.id {
            drop(stream);
            no_streams(&local).await;
            local.put(A, "2").await;
            let mut stream = client.stream_after(&id).await;
            assert_eq!(updates_sent(&local, &mut stream).await, pairs(&[(A, "v2")]));
        }
    }
}

#[tokio::test]
async fn streams_per_session_are_limited() {
    let (local, client) = session("2025-11-25").await;
    let mut streams = Vec::new();
    for _ in 0..4 {
        streams.push(client.stream().await);
    }
    let refused = client.with_headers(Request::stream()).send(local.server).await;
    assert_eq!(refused.status, 409);
    streams.pop();
    local
        .until("three are left", |all| all[0].pending.streams == 3)
        .await;
    client.stream().await;
}

#[tokio::test]
async fn silent_stream_carries_comments() {
    let server = Server::with("[http]\nkeep_alive = \"1s\"\n[session]\nannounce_on_connect = false\n").await;
    server.put(A, "1").await;
    let client = Client::open(server.address, "2025-06-18").await;
    let mut session = client.stream().await;
    let (_, mut listening) = listen(server.address, &json!(1), updates(&[A])).await;
    for stream in [&mut session, &mut listening] {
        for _ in 0..2 {
            let event = stream.event().await.unwrap();
            assert!(event.comment.is_some(), "{event:?}");
        }
    }
    server.put(A, "2").await;
    assert_eq!(listening.updated().await, A);
}

#[tokio::test]
async fn idle_session_ends_unless_streaming() {
    let local = Local::with(|options| options.session.idle_timeout = Duration::from_millis(300)).await;
    local.put(A, "1").await;
    let reading = Client::open(local.server, "2025-11-25").await;
    let mut stream = reading.stream().await;
    reading.subscribe(A).await;
    // Opened later, so idle for a shorter time than the one with a stream.
    let idle = Client::open(local.server, "2025-11-25").await;
    assert_eq!(local.sessions().await.len(), 2);
    local
        .until("the idle session is gone", |all| all.len() == 1)
        .await;
    assert_eq!(idle.request("ping", json!({})).await.status, 404);
    local.bus.touch(A).await.unwrap();
    while updated_uri(&stream.message().await) != Some(A) {}
    assert_eq!(reading.request("ping", json!({})).await.status, 200);
    drop(stream);
    local
        .until("without its stream it is idle too", <[_]>::is_empty)
        .await;
}
