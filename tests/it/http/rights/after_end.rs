//! The notices that a reader is told after its right has ended: none from a second later on, on every
//! transport of the service and by every cause.
//!
//! Each test is one cause, over all transports: a session's stream, a listen stream, `/v1/events`, `/v1/ws`
//! by URI and by pattern, and a tool call that waits. stdio has no principal: the client has started the
//! process, and may do everything.
//!
//! One cause makes 10,000 changes, the others a few hundred; all make more by command:
//! `RIGHTS_CHANGES=10000 cargo test --all-features --test it after_end::long -- --ignored --nocapture`

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::scene::{Cause, Scene};
use super::{OTHER, Way};
use crate::mcp::client::{modern_post, updates};
use crate::mcp::events::Events;
use crate::mcp::http::{Reply, Request, within};
use crate::support::number;

/// The changes of most tests, and those of one.
const CHANGES: usize = 300;
const MANY_CHANGES: usize = 10_000;
/// The resources that are changed in turn, and the changes in one batch.
const WATCHED: usize = 20;
const BATCH: usize = 200;
/// A resource that the reader may be told of as long as its credential is good.
const LAST: &str = "note://last";
/// The time after which nothing may be told.
const GRACE: Duration = Duration::from_secs(1);

/// An open stream of a reader.
enum Reading {
    /// A session, a listen stream or `/v1/events`.
    Events(Box<Events>),
    /// `/v1/ws`.
    Socket(Box<WebSocketStream<TcpStream>>),
}

impl Reading {
    /// Returns the URI of the next update; none at the end of the stream.
    async fn next(&mut self) -> Option<String> {
        loop {
            let message = match self {
                Reading::Events(events) => match events.event().await {
                    Ok(event) => event.message.unwrap_or_default(),
                    Err(_end) => return None,
                },
                Reading::Socket(socket) => match within("a message", socket.next()).await {
                    Some(Ok(Message::Text(text))) => serde_json::from_str(&text).unwrap(),
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                    Some(Ok(_)) => Value::Null,
                },
            };
            for uri in [&message["params"]["uri"], &message["uri"]] {
                if let Some(uri) = uri.as_str() {
                    return Some(uri.to_owned());
                }
            }
        }
    }

    /// Reads until the last notice, or to the end of the stream.
    async fn rest(&mut self) -> Rest {
        let mut told = Vec::new();
        while let Some(next) = self.next().await {
            if next == LAST {
                let has_ended = false;
                return Rest { told, has_ended };
            }
            told.push(next);
        }
        let has_ended = true;
        Rest { told, has_ended }
    }
}

/// The notices of a stream up to the last one.
struct Rest {
    told: Vec<String>,
    has_ended: bool,
}

impl Rest {
    /// Counts those of the resources that were changed.
    fn watched(&self) -> usize {
        self.told.iter().filter(|uri| uri.contains("watched")).count()
    }
}

fn watched() -> Vec<String> {
    (0..WATCHED)
        .map(|number| format!("note://watched/{number}"))
        .collect()
}

/// Opens `/v1/ws`, and subscribes with these members of a request.
async fn open_socket(reader: &Way, names: Value) -> WebSocketStream<TcpStream> {
    let address = reader.address;
    let mut request = format!("ws://{address}/v1/ws").into_client_request().unwrap();
    if let Some(token) = &reader.token {
        let authorization = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("authorization", authorization);
    }
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    let mut subscribe = json!({ "type": "subscribe", "id": 1 });
    subscribe
        .as_object_mut()
        .unwrap()
        .extend(names.as_object().unwrap().clone());
    socket.send(Message::text(subscribe.to_string())).await.unwrap();
    let answer = within("the answer", socket.next()).await.unwrap().unwrap();
    assert!(answer.to_text().unwrap().contains("\"refused\":{}"), "{answer}");
    socket
}

/// Opens a stream of each transport as the reader.
async fn open_streams(scene: &Scene) -> Vec<(&'static str, Reading)> {
    let reader = &scene.reader;
    let watched = watched();
    let uris: Vec<&str> = watched.iter().map(String::as_str).chain([OTHER, LAST]).collect();
    let (_, session) = reader.session(&uris).await;
    let params = json!({ "notifications": updates(&uris) });
    let listen = modern_post(&json!("l"), "subscriptions/listen", params);
    let mut listening = Events::new(reader.with(listen).open(reader.address).await);
    let acknowledged = listening.message().await;
    assert_eq!(acknowledged["params"]["notifications"], updates(&uris));
    let events = reader.with(Request::new("GET", "/v1/events?kind=updated"));
    let events = Events::new(events.open(reader.address).await);
    let socket = open_socket(reader, json!({ "uris": uris })).await;
    let patterns = open_socket(reader, json!({ "patterns": ["note://*"] })).await;
    let mut streams = vec![
        ("session", Reading::Events(Box::new(session))),
        ("listen", Reading::Events(Box::new(listening))),
        ("/v1/events", Reading::Events(Box::new(events))),
        ("/v1/ws", Reading::Socket(Box::new(socket))),
        ("/v1/ws by pattern", Reading::Socket(Box::new(patterns))),
    ];
    // Each of them is told while the right lasts.
    scene.ops.put(OTHER, "for all").await;
    for (transport, stream) in &mut streams {
        assert_eq!(stream.next().await.as_deref(), Some(OTHER), "{transport}");
    }
    streams
}

/// Calls the tool that waits for a change of the watched resources or of the last one.
async fn begin_wait(reader: &Way) -> JoinHandle<Reply> {
    let mut items = Vec::new();
    for uri in watched().iter().map(String::as_str).chain([LAST]) {
        let params = json!({ "name": "get_resource_etag", "arguments": { "uri": uri } });
        let answer = reader
            .send(modern_post(&json!(1), "tools/call", params))
            .await
            .json();
        let etag = &answer["result"]["structuredContent"]["etag_encoded"];
        assert!(etag.is_string(), "{answer}");
        items.push(json!({ "uri": uri, "client_etag": etag }));
    }
    let params = json!({ "name": "wait_for_resource_change", "arguments": { "items": items } });
    let reader = reader.clone();
    tokio::spawn(async move { reader.send(modern_post(&json!(2), "tools/call", params)).await })
}

/// Changes the watched resources in turn.
async fn publish(scene: &Scene, changes: usize) {
    let watched = watched();
    let lines: Vec<String> = (0..changes)
        .map(|number| json!({ "put": watched[number % WATCHED], "text": format!("{number}") }).to_string())
        .collect();
    for lines in lines.chunks(BATCH) {
        let batch = Request::new("POST", "/v1/resources")
            .header("content-type", "application/x-ndjson")
            .body(lines.join("\n"));
        let answers = scene.ops.send(batch).await;
        let made = answers.text().matches("\"status\":204").count();
        assert_eq!(made, lines.len(), "{}", answers.text());
    }
}

/// Makes `changes` changes, from a second after the end of a right on; a reader whose right it was may be
/// told of none.
async fn nothing_is_told_after(cause: Cause, changes: usize) {
    let scene = Scene::start(cause).await;
    let watched = watched();
    for uri in watched.iter().map(String::as_str).chain([OTHER, LAST]) {
        scene.ops.put(uri, "first").await;
    }
    let mut streams = open_streams(&scene).await;
    let wait = begin_wait(&scene.reader).await;
    let uris: Vec<&str> = watched.iter().map(String::as_str).chain([LAST]).collect();
    let (_, witness) = scene.ops.session(&uris).await;
    assert!(!wait.is_finished(), "nothing has changed yet");
    let ended = scene.end_right();
    // The promise holds from this moment on, so the changes begin at it.
    tokio::time::sleep_until((ended + GRACE).into()).await;
    if !cause.keeps_credential() {
        // That it returns would tell of a change.
        assert!(wait.is_finished(), "the wait goes on after {cause:?}");
    }
    publish(&scene, changes).await;
    scene.ops.put(LAST, "the last change").await;
    for (transport, stream) in &mut streams {
        let rest = stream.rest().await;
        assert_eq!(rest.watched(), 0, "{transport} after {cause:?}, of {changes}");
        // A reader whose credential is good keeps its streams.
        assert_eq!(
            rest.has_ended,
            !cause.keeps_credential(),
            "{transport} after {cause:?}"
        );
    }
    let waited = within("the end of the wait", wait).await.unwrap().json();
    let items = waited["result"]["structuredContent"]["items"].as_array();
    for item in items.into_iter().flatten() {
        let is_hidden = item["version"] == 0 || item["uri"] == LAST;
        assert!(is_hidden, "a wait after {cause:?}: {waited}");
    }
    // The notices were there: one with the right was told of each resource.
    let told = Reading::Events(Box::new(witness)).rest().await;
    assert!(!told.has_ended && told.watched() >= WATCHED, "{:?}", told.told);
}

#[tokio::test]
async fn nothing_is_told_after_a_reload() {
    nothing_is_told_after(Cause::Reload, CHANGES).await;
}

#[tokio::test]
async fn nothing_is_told_after_the_end_of_a_token() {
    nothing_is_told_after(Cause::TokenEnds, CHANGES).await;
}

#[tokio::test]
async fn nothing_is_told_after_a_token_is_removed() {
    nothing_is_told_after(Cause::TokenRemoved, MANY_CHANGES).await;
}

#[tokio::test]
async fn nothing_is_told_after_the_end_of_a_jwt() {
    nothing_is_told_after(Cause::SignedTokenEnds, CHANGES).await;
}

#[tokio::test]
async fn nothing_is_told_after_an_issuer_revokes() {
    nothing_is_told_after(Cause::OpaqueTokenRevoked, CHANGES).await;
}

#[tokio::test]
async fn nothing_is_told_after_a_certificate_ends() {
    nothing_is_told_after(Cause::CertificateEnds, CHANGES).await;
}

#[tokio::test]
async fn nothing_is_told_after_a_new_list() {
    nothing_is_told_after(Cause::CertificateRevoked, CHANGES).await;
}

#[tokio::test]
async fn nothing_is_told_after_the_end_of_a_list() {
    nothing_is_told_after(Cause::ListEnds, CHANGES).await;
}

#[tokio::test]
#[ignore = "makes as many changes as RIGHTS_CHANGES says"]
async fn long() {
    let changes = number("RIGHTS_CHANGES", MANY_CHANGES as u64) as usize;
    for cause in Cause::ALL {
        nothing_is_told_after(cause, changes).await;
        println!("after {cause:?}: 0 of {changes} changes were told on any transport");
    }
}
