//! HTTP/2 on the listener of the real binary: every path, streams and WebSockets, with prior knowledge and by
//! agreement under TLS.

pub(super) mod client;
mod bounds;

use bytes::Bytes;
use h2::Reason;
use h2::client::Builder;
use h2::ext::Protocol;
use serde_json::{Value, json};
use tidings::wire::http1::resource_path;

use super::tls::Secure;
use super::tls::authority::connect;
use crate::mcp::client::{LEGACY, initialize, listen_request, modern_post, updates};
use crate::mcp::events::{updated_etag, updated_uri, version};
use crate::mcp::http::{Request, within};
use crate::mcp::server::Server;
use client::{Answer, Http2Client, Http2Events};

const A: &str = "demo://a";
const B: &str = "demo://b";

fn put(uri: &str, text: &str) -> Request {
    Request::new("PUT", resource_path(uri))
        .header("content-type", "text/plain")
        .body(text)
}

/// Opens a listen stream and reads its acknowledgement.
async fn listen(client: &Http2Client, id: u64, uris: &[&str]) -> Http2Events {
    let mut events = client.events(&listen_request(&json!(id), updates(uris))).await;
    let first = events.message().await;
    assert_eq!(
        first["method"], "notifications/subscriptions/acknowledged",
        "{first}"
    );
    events
}

/// A session of an older revision, over one connection.
struct Session<'c> {
    client: &'c Http2Client,
    id: String,
}

impl Session<'_> {
    async fn open(client: &Http2Client) -> Session<'_> {
        let request = Request::post(initialize(LEGACY[3]).to_string());
        let answer = client.open(&request).await;
        assert_eq!(answer.status, 200);
        let id = answer.headers["mcp-session-id"].to_str().unwrap().to_owned();
        let session = Session { client, id };
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(session.post(&ready).await.0, 202);
        session
    }

    fn with_headers(&self, request: Request) -> Request {
        request
            .header("mcp-session-id", &self.id)
            .header("mcp-protocol-version", LEGACY[3])
    }

    async fn post(&self, message: &Value) -> (u16, String) {
        let request = self.with_headers(Request::post(message.to_string()));
        self.client.send(&request).await
    }
}

#[tokio::test]
async fn slow_requests_keep_no_other_waiting() {
    let server = Server::start().await;
    let etag = server.put(A, "1").await;
    let mut settings = Builder::new();
    // For all answers, in whatever order they come.
    settings.initial_connection_window_size(1 << 20);
    let client = Http2Client::with(server.address, &settings).await;
    let arguments = json!({ "items": [{ "uri": A, "client_etag": etag }], "timeout_ms": 25_000 });
    let params = json!({ "name": "wait_for_resource_change", "arguments": arguments });
    let wait = modern_post(&json!(1), "tools/call", params);
    let mut waiting = Vec::new();
    // More than begin at a time on one thread.
    for _ in 0..600 {
        let (head, body) = wait.for_http2(server.address);
        let mut sender = client.sender.clone().ready().await.unwrap();
        let (answer, mut sending) = sender.send_request(head, false).unwrap();
        sending.send_data(body.into(), true).unwrap();
        waiting.push(answer);
    }
    // Behind all of them, and they wait for it.
    assert_eq!(client.send(&put(A, "2")).await.0, 204);
    for answer in waiting {
        let mut body = within("an answer", answer).await.unwrap().into_body();
        let text = within("its body", body.data()).await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains("\"timed_out\":false"), "{text}");
    }
}

#[tokio::test]
async fn resources_are_written_and_read_over_http2() {
    let server = Server::start().await;
    let client = Http2Client::connect(server.address).await;
    assert_eq!(client.send(&put(A, "one")).await.0, 201);
    let long = "x".repeat(300_000);
    assert_eq!(client.send(&put(A, &long)).await.0, 204);
    let read = client.send(&Request::new("GET", resource_path(A))).await;
    assert_eq!(read, (200, long));
    let head = client.open(&Request::new("HEAD", resource_path(A))).await;
    assert_eq!(head.headers["content-length"], "300000");
    assert!(head.body.is_end_stream());
    let metrics = client.send(&Request::new("GET", "/metrics")).await.1;
    for line in [
        "tidings_http2_connections 1\n",
        "tidings_http2_streams 1\n",
        "tidings_http2_requests_total 5\n",
    ] {
        assert!(metrics.contains(line), "{line} {metrics}");
    }
    assert_eq!(client.send(&Request::new("GET", "/ui/")).await.0, 200);
}

#[tokio::test]
async fn session_is_told_over_http2() {
    let server = Server::start().await;
    server.put(A, "0").await;
    let client = Http2Client::connect(server.address).await;
    let session = Session::open(&client).await;
    let mut stream = client.events(&session.with_headers(Request::stream())).await;
    let subscribe = json!({
        "jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": { "uri": A },
    });
    assert_eq!(session.post(&subscribe).await.0, 200);
    client.send(&put(A, "1")).await;
    // The list may have changed for the client since it opened.
    while updated_uri(&stream.message().await) != Some(A) {}
    server
        .until("bytes of the stream", |sessions| {
            sessions[0]["progress"]["bytes"].as_u64() > Some(100)
        })
        .await;
    stream.reset();
    server
        .until("a session without a stream", |sessions| {
            sessions[0]["streams"] == 0
        })
        .await;
}

#[tokio::test]
async fn event_stream_is_served_over_http2() {
    let server = Server::start().await;
    let client = Http2Client::connect(server.address).await;
    let mut events = client.events(&Request::new("GET", "/v1/events")).await;
    assert_eq!(events.message().await["complete"], true);
    client.send(&put(A, "1")).await;
    let told = events.message().await;
    assert_eq!(told["uri"], A, "{told}");
}

#[tokio::test]
async fn each_stream_of_a_connection_is_told_once() {
    let server = Server::start().await;
    server.put(A, "0").await;
    server.put(B, "0").await;
    let client = Http2Client::connect(server.address).await;
    let mut streams = Vec::new();
    for id in 0..100 {
        streams.push(listen(&client, id, &[A, B]).await);
    }
    client.send(&put(A, "1")).await;
    client.send(&put(B, "1")).await;
    for stream in &mut streams {
        assert_eq!(stream.updated().await, A);
        assert_eq!(stream.updated().await, B);
    }
}

#[tokio::test]
async fn closed_window_conflates_and_delays_no_other() {
    let server = Server::start().await;
    server.put(A, "0").await;
    let mut settings = Builder::new();
    settings
        .initial_window_size(1_000)
        .initial_connection_window_size(1 << 20);
    let client = Http2Client::with(server.address, &settings).await;
    let mut open = listen(&client, 1, &[A]).await;
    // Its window has room for a few notices, and is not opened further.
    let mut shut = client.events(&listen_request(&json!(2), updates(&[A]))).await;
    for change in 1..=100 {
        client.send(&put(A, &change.to_string())).await;
        assert_eq!(version(&updated_etag(&open.message().await)), change + 1);
    }
    let mut told = Vec::new();
    while told.last() != Some(&101) {
        let message = shut.message().await;
        if updated_uri(&message).is_some() {
            told.push(version(&updated_etag(&message)));
        }
    }
    assert!(told.len() < 10 && told.is_sorted(), "{told:?}");
}

#[tokio::test]
async fn reset_stream_ends_its_subscription_alone() {
    let server = Server::start().await;
    server.put(A, "0").await;
    let client = Http2Client::connect(server.address).await;
    let first = listen(&client, 1, &[A]).await;
    let mut second = listen(&client, 2, &[A]).await;
    server.until("two streams", |sessions| sessions.len() == 2).await;
    first.reset();
    server.until("one stream", |sessions| sessions.len() == 1).await;
    client.send(&put(A, "1")).await;
    assert_eq!(second.updated().await, A);
    drop(client);
}

#[tokio::test]
async fn names_are_judged_by_one_rule() {
    let server = Server::start().await;
    let client = Http2Client::connect(server.address).await;
    let status = async |uri: String, header: Option<(&str, &str)>| {
        let mut head = http::Request::get(uri);
        if let Some((name, value)) = header {
            head = head.header(name, value);
        }
        let answer = client.send_with(head.body(()).unwrap(), Bytes::new()).await;
        answer.unwrap().status
    };
    let own = format!("http://{}/v1/resources", server.address);
    let host = server.address.to_string();
    assert_eq!(status(own.clone(), None).await, 200);
    assert_eq!(status(own.clone(), Some(("host", &host))).await, 200);
    assert_eq!(
        status(own.clone(), Some(("origin", "http://localhost"))).await,
        200
    );
    for (uri, header) in [
        ("http://evil.example/v1/resources", None),
        (&own, Some(("host", "evil.example"))),
        (&own, Some(("host", "localhost:1"))),
        (&own, Some(("origin", "http://evil.example"))),
    ] {
        assert_eq!(status(uri.to_owned(), header).await, 403, "{uri} {header:?}");
    }
    let mcp = format!("http://evil.example:{}/mcp", server.address.port());
    assert_eq!(status(mcp, None).await, 403);
}

#[tokio::test]
async fn drain_ends_streams_with_their_last_message() {
    let mut server = Server::start().await;
    server.put(A, "0").await;
    let client = Http2Client::connect(server.address).await;
    let mut listening = listen(&client, 7, &[A]).await;
    let mut events = client.events(&Request::new("GET", "/v1/events")).await;
    server.terminate();
    let last = listening.message().await;
    assert_eq!(
        (&last["id"], last["result"].is_object()),
        (&json!(7), true),
        "{last}"
    );
    assert_eq!(listening.try_message().await, Err(None));
    while let Ok(event) = events.try_message().await {
        assert!(event["uri"].is_null(), "{event}");
    }
    drop(client.sender);
    within("the end of the connection", client.connection)
        .await
        .unwrap()
        .unwrap();
    server.assert_ended().await;
}

#[tokio::test]
async fn protocol_is_agreed_on_under_tls() {
    let secure = Secure::with("", |_, _| {}).await;
    secure.server.put(A, "0").await;
    for (offered, agreed) in [
        (&["h2", "http/1.1"][..], Some(&b"h2"[..])),
        (&["http/1.1"], Some(b"http/1.1")),
        (&[], None),
    ] {
        let stream = connect(&secure.authority.client_of(None, offered), secure.address, false).await;
        let stream = stream.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), agreed);
        if agreed != Some(b"h2") {
            continue;
        }
        let mut settings = Builder::new();
        settings.initial_window_size(1 << 20);
        let client = Http2Client::over(stream, secure.address, &settings).await;
        let mut listening = listen(&client, 1, &[A]).await;
        let long = "x".repeat(300_000);
        assert_eq!(client.send(&put(A, &long)).await.0, 204);
        assert_eq!(listening.updated().await, A);
        let read = client.send(&Request::new("GET", resource_path(A))).await;
        assert_eq!(read.1.len(), long.len());
    }
}

/// A WebSocket on a stream of HTTP/2 (RFC 8441). Messages are short.
struct Socket {
    answer: Answer,
    read: Vec<u8>,
}

impl Socket {
    async fn open(client: &Http2Client) -> Socket {
        let mut head = http::Request::builder()
            .method("CONNECT")
            .uri(format!("http://{}/v1/ws", client.server))
            .header("sec-websocket-version", "13")
            .body(())
            .unwrap();
        head.extensions_mut().insert(Protocol::from_static("websocket"));
        let mut sender = client.sender.clone().ready().await.unwrap();
        let (answer, sending) = sender.send_request(head, false).unwrap();
        let (head, body) = within("an answer", answer).await.unwrap().into_parts();
        Socket {
            answer: Answer {
                status: head.status.as_u16(),
                headers: head.headers,
                body,
                sending,
            },
            read: Vec::new(),
        }
    }

    fn send(&mut self, message: &Value) {
        let text = message.to_string();
        // A whole message of text, with a mask of zeros.
        let mut bytes = vec![0x81, 0x80 | u8::try_from(text.len()).unwrap(), 0, 0, 0, 0];
        assert!(text.len() < 126);
        bytes.extend(text.as_bytes());
        self.answer.sending.send_data(bytes.into(), false).unwrap();
    }

    async fn message(&mut self) -> Value {
        loop {
            let (start, length) = match self.read[..] {
                [_, 126, high, low, ..] => (4, usize::from(u16::from_be_bytes([high, low]))),
                [_, length @ ..126, ..] => (2, usize::from(length)),
                _ => (2, usize::MAX - 2),
            };
            if self.read.len() >= start + length {
                let message = serde_json::from_slice(&self.read[start..start + length]).unwrap();
                self.read.drain(..start + length);
                return message;
            }
            self.read.extend(self.answer.data().await.unwrap().unwrap());
        }
    }
}

#[tokio::test]
async fn websocket_is_a_stream_of_http2() {
    let server = Server::start().await;
    server.put(A, "0").await;
    let client = Http2Client::connect(server.address).await;
    let mut socket = Socket::open(&client).await;
    assert_eq!(socket.answer.status, 200);
    socket.send(&json!({ "type": "subscribe", "id": 1, "uris": [A] }));
    let acknowledged = socket.message().await;
    assert_eq!(acknowledged["id"], 1, "{acknowledged}");
    client.send(&put(A, "1")).await;
    let told = socket.message().await;
    assert_eq!(told["uri"], A, "{told}");
    server.until("a session", |sessions| sessions.len() == 1).await;
    socket.answer.sending.send_reset(Reason::CANCEL);
    server.until("no session", <[Value]>::is_empty).await;
}
