//! The notices that a reader is told after its right has ended: none from a second later on, on every
//! transport of the service.
//!
//! The right ends by new rules, by the time of its token, or by the removal of the token. stdio has no
//! principal: the client has started the process, and may do everything.
//!
//! A few hundred changes run with all tests, more by command:
//! `RIGHTS_CHANGES=10000 cargo test --all-features --test it after_end::long -- --ignored --nocapture`

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::{OTHER, RULES, Ruled};
use crate::mcp::client::{modern_post, updates};
use crate::mcp::events::Events;
use crate::mcp::http::{Request, within};
use crate::support::number;

/// The changes of the short form.
const CHANGES: usize = 300;
/// The resources that are changed in turn, and the changes in one batch.
const WATCHED: usize = 20;
const BATCH: usize = 200;
/// A resource that the reader may be told of as long as its token is good.
const LAST: &str = "note://last";
/// The time after which nothing may be told.
const GRACE: Duration = Duration::from_secs(1);
/// The time for which the token lives whose end is waited for: longer than it takes to open the streams.
const LIFE: Duration = Duration::from_secs(10);

/// The cause by which the right of the reader ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Reload,
    Expiry,
    Revocation,
}

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

/// Opens a stream of each transport with the token of the reader.
async fn open_streams(ruled: &Ruled) -> Vec<(&'static str, Reading)> {
    let watched = watched();
    let uris: Vec<&str> = watched.iter().map(String::as_str).chain([OTHER, LAST]).collect();
    let authorization = format!("Bearer {}", ruled.reader);
    let server = ruled.server.address;
    let (_, session) = ruled.session(&ruled.reader, &uris).await;
    let params = json!({ "notifications": updates(&uris) });
    let listen = modern_post(&json!("l"), "subscriptions/listen", params);
    let listen = listen.header("authorization", &authorization).open(server).await;
    let events = Request::new("GET", "/v1/events?kind=updated").header("authorization", &authorization);
    let events = events.open(server).await;
    let mut request = format!("ws://{server}/v1/ws").into_client_request().unwrap();
    request
        .headers_mut()
        .insert("authorization", authorization.parse().unwrap());
    let stream = TcpStream::connect(server).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    let subscribe = json!({ "type": "subscribe", "id": 1, "uris": uris });
    socket.send(Message::text(subscribe.to_string())).await.unwrap();
    within("the answer", socket.next()).await.unwrap().unwrap();
    let mut listening = Events::new(listen);
    let acknowledged = listening.message().await;
    assert_eq!(acknowledged["params"]["notifications"], updates(&uris));
    let mut streams = vec![
        ("session", Reading::Events(Box::new(session))),
        ("listen", Reading::Events(Box::new(listening))),
        ("/v1/events", Reading::Events(Box::new(Events::new(events)))),
        ("/v1/ws", Reading::Socket(Box::new(socket))),
    ];
    // Each of them is told while the right lasts.
    ruled.put(OTHER, "for all").await;
    for (transport, stream) in &mut streams {
        assert_eq!(stream.next().await.as_deref(), Some(OTHER), "{transport}");
    }
    streams
}

/// Changes the watched resources in turn.
async fn publish(ruled: &Ruled, changes: usize) {
    let watched = watched();
    let lines: Vec<String> = (0..changes)
        .map(|number| json!({ "put": watched[number % WATCHED], "text": format!("{number}") }).to_string())
        .collect();
    for lines in lines.chunks(BATCH) {
        let batch = Request::new("POST", "/v1/resources")
            .header("content-type", "application/x-ndjson")
            .body(lines.join("\n"));
        let answers = ruled.send(&ruled.ops, batch).await;
        let made = answers.text().matches("\"status\":204").count();
        assert_eq!(made, lines.len(), "{}", answers.text());
    }
}

/// Returns a time as RFC 3339 has it.
fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap().as_secs();
    let date = Command::new("date")
        .args(["-u", "-d", &format!("@{seconds}"), "+%FT%TZ"])
        .output()
        .unwrap();
    String::from_utf8(date.stdout).unwrap().trim_end().to_owned()
}

/// Ends the right of the reader; returns when it has none.
async fn end_right(ruled: &Ruled, cause: Cause, expiry: SystemTime) -> Instant {
    match cause {
        Cause::Reload => {
            let rest = "match = ['note://other', 'note://last']";
            ruled.replace_rules(&RULES.replace("match = ['note://*']", rest));
            Instant::now()
        }
        Cause::Revocation => {
            fs::write(ruled.server.folder().join("reader"), "# none\n").unwrap();
            Instant::now()
        }
        Cause::Expiry => {
            let rest = expiry.duration_since(SystemTime::now()).unwrap_or_default();
            Instant::now() + rest
        }
    }
}

/// Makes `changes` changes, from a second after the end of a right on; a reader whose right it was may be
/// told of none.
async fn nothing_is_told_after(cause: Cause, changes: usize) {
    let expiry = SystemTime::now() + LIFE;
    let until = match cause {
        Cause::Expiry => format!(" not-after={}", rfc3339(expiry)),
        Cause::Reload | Cause::Revocation => String::new(),
    };
    let ruled = Ruled::start_until(&until).await;
    let watched = watched();
    for uri in watched.iter().map(String::as_str).chain([LAST]) {
        ruled.put(uri, "first").await;
    }
    let mut streams = open_streams(&ruled).await;
    let uris: Vec<&str> = watched.iter().map(String::as_str).chain([LAST]).collect();
    let (_, witness) = ruled.session(&ruled.ops, &uris).await;
    let ended = end_right(&ruled, cause, expiry).await;
    // The promise holds from this moment on, so the changes begin at it.
    tokio::time::sleep_until((ended + GRACE).into()).await;
    publish(&ruled, changes).await;
    ruled.put(LAST, "the last change").await;
    for (transport, stream) in &mut streams {
        let rest = stream.rest().await;
        assert_eq!(rest.watched(), 0, "{transport} after {cause:?}, of {changes}");
        // A reader whose token is good keeps its streams.
        assert_eq!(
            rest.has_ended,
            cause != Cause::Reload,
            "{transport} after {cause:?}"
        );
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
async fn nothing_is_told_after_an_expiry() {
    nothing_is_told_after(Cause::Expiry, CHANGES).await;
}

#[tokio::test]
async fn nothing_is_told_after_a_revocation() {
    nothing_is_told_after(Cause::Revocation, CHANGES).await;
}

#[tokio::test]
#[ignore = "makes as many changes as RIGHTS_CHANGES says"]
async fn long() {
    let changes = number("RIGHTS_CHANGES", 10_000) as usize;
    for cause in [Cause::Reload, Cause::Expiry, Cause::Revocation] {
        nothing_is_told_after(cause, changes).await;
        println!("after {cause:?}: 0 of {changes} changes were told on any transport");
    }
}
