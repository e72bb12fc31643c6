//! The bounds of HTTP/2: limits, time-outs, and floods, each of which ends one request or one connection.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::SendStream;
use h2::client::{Builder, ResponseFuture};
use serde_json::json;
use tidings::wire::http1::resource_path;
use tidings::wire::http2::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE,
};
use tokio::io::AsyncWriteExt;

use super::client::{Http2Client, RawFrames, frame, headers};
use super::{A, listen, put};
use crate::mcp::client::{listen_request, updates};
use crate::mcp::http::{Request, within};
use crate::mcp::server::Server;

/// Waits until a limit was reached this many times.
async fn until_counted(server: &Server, limit: &str, times: u32) {
    let line = format!("tidings_limit_reached_total{{limit=\"{limit}\"}} {times}\n");
    until_measured(server, &line).await;
}

/// Waits until the metrics have this line.
async fn until_measured(server: &Server, line: &str) {
    within(line, async {
        loop {
            let metrics = Request::new("GET", "/metrics").send(server.address).await;
            if metrics.text().contains(line) {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Returns the error with which the server ended a connection.
fn error_code(payload: &[u8]) -> u8 {
    payload[7]
}

/// Sends the head of a request, and perhaps a part of its body.
async fn half_open(client: &Http2Client, request: &Request, part: Option<&'static str>) -> HalfOpen {
    let (head, _) = request.for_http2(client.server);
    let mut sender = client.sender.clone().ready().await.unwrap();
    let (answer, mut sending) = sender.send_request(head, false).unwrap();
    if let Some(part) = part {
        sending.send_data(part.into(), false).unwrap();
    }
    HalfOpen { answer, sending }
}

/// A request whose body has not ended.
struct HalfOpen {
    answer: ResponseFuture,
    sending: SendStream<Bytes>,
}

impl HalfOpen {
    /// Waits for the status of the answer.
    async fn status(&mut self) -> u16 {
        let answer = within("an answer", &mut self.answer).await.unwrap();
        answer.status().as_u16()
    }
}

#[tokio::test]
async fn large_request_is_refused_and_its_connection_stays() {
    let server = Server::with("[http]\nbody_bytes_max = \"8KiB\"\n[bus]\nbody_bytes_max = \"8KiB\"\n").await;
    let client = Http2Client::connect(server.address).await;
    // More than the windows of the server have room for.
    for length in [9_000, 3_000_000] {
        assert_eq!(client.send(&put(A, &"x".repeat(length))).await.0, 413);
    }
    let post = Request::post("x".repeat(2_000_000));
    assert_eq!(client.send(&post).await.0, 413);
    let bomb = Request::new("GET", "/healthz").header("x", "y".repeat(20_000));
    assert_eq!(client.send(&bomb).await.0, 431);
    assert_eq!(client.send(&Request::new("GET", "/healthz")).await.0, 200);
}

#[tokio::test]
async fn half_open_request_ends_in_time() {
    let server = Server::with("[http]\nbody_timeout = \"1s\"\n").await;
    let client = Http2Client::connect(server.address).await;
    // The first one sends nothing but its head.
    for (times, part) in (1..).zip([None, Some("x")]) {
        let mut request = half_open(&client, &put(A, ""), part).await;
        assert_eq!(request.status().await, 408, "{part:?}");
        until_counted(&server, "http.body_timeout", times).await;
    }
    assert_eq!(client.send(&put(A, "1")).await.0, 201);
}

#[tokio::test]
async fn body_that_its_client_breaks_off_changes_nothing() {
    let server = Server::start().await;
    let mut raw = RawFrames::connect(server.address).await;
    let block = headers("PUT", &resource_path(A), &[("content-type", "text/plain")]);
    let reasons = [
        h2::Reason::NO_ERROR,
        h2::Reason::CANCEL,
        h2::Reason::INTERNAL_ERROR,
    ];
    for (stream, reason) in (1..).step_by(2).zip(reasons) {
        raw.write(&frame(HEADERS, END_HEADERS, stream, &block))
            .await
            .unwrap();
        raw.write(&frame(DATA, 0, stream, b"half")).await.unwrap();
        // The request is handed to the service before its client resets it.
        assert!(raw.is_answered().await);
        let reset = frame(RST_STREAM, 0, stream, &u32::from(reason).to_be_bytes());
        raw.write(&reset).await.unwrap();
        assert!(raw.is_answered().await);
    }
    let client = Http2Client::connect(server.address).await;
    until_measured(&server, "tidings_http2_streams 0\n").await;
    let read = Request::new("GET", resource_path(A));
    assert_eq!(client.send(&read).await.0, 404);
}

#[tokio::test]
async fn answer_whose_end_its_client_does_not_take_is_reset() {
    let server = Server::with("[http]\nwrite_timeout = \"1s\"\n").await;
    let mut closed = Builder::new();
    closed.initial_window_size(0);
    let client = Http2Client::with(server.address, &closed).await;
    let (head, _) = Request::new("GET", "/healthz").for_http2(server.address);
    let mut sender = client.sender.clone().ready().await.unwrap();
    let (answer, _) = sender.send_request(head, true).unwrap();
    let mut body = within("an answer", answer).await.unwrap().into_body();
    let ended = within("a reset", body.data()).await.unwrap();
    assert_eq!(ended.unwrap_err().reason(), Some(h2::Reason::CANCEL));
    until_counted(&server, "http.write_timeout", 1).await;
}

#[tokio::test]
async fn rest_of_a_refused_request_needs_a_place() {
    let server = Server::with("[http]\nh2_requests_max = 1\n").await;
    let client = Http2Client::connect(server.address).await;
    let mut halves = Vec::new();
    for status in [404, 503] {
        let mut request = half_open(&client, &Request::new("POST", "/nothing"), Some("x")).await;
        assert_eq!(request.status().await, status);
        halves.push(request.sending);
    }
    // The first one has its place until its client has sent the rest, and the other was reset at once.
    let reset = within("a reset", poll_fn(|cx| halves[1].poll_reset(cx))).await;
    assert_eq!(reset.unwrap(), h2::Reason::NO_ERROR);
    let get = Request::new("GET", "/healthz");
    assert_eq!(client.send(&get).await.0, 503);
    halves[0].send_data(Bytes::new(), true).unwrap();
    within("a place", async { while client.send(&get).await.0 == 503 {} }).await;
}

#[tokio::test]
async fn streams_of_a_connection_are_bounded() {
    let server = Server::with("[http]\nh2_streams_max = 2\n").await;
    let mut raw = RawFrames::connect(server.address).await;
    let block = headers("PUT", &resource_path(A), &[("content-type", "text/plain")]);
    for stream in [1, 3, 5] {
        raw.write(&frame(HEADERS, END_HEADERS, stream, &block))
            .await
            .unwrap();
    }
    let reset = raw.next_of(RST_STREAM).await.unwrap();
    // REFUSED_STREAM.
    assert_eq!((reset.stream, &reset.payload[..]), (5, &[0, 0, 0, 7][..]));
    raw.write(&frame(DATA, END_STREAM, 1, b"1")).await.unwrap();
    assert_eq!(raw.next_of(HEADERS).await.unwrap().stream, 1);
    until_counted(&server, "http.h2_streams_max", 1).await;
}

#[tokio::test]
async fn half_open_requests_are_bounded_together() {
    let server = Server::with("[http]\nh2_requests_max = 4\n").await;
    server.put(A, "0").await;
    let mut waiting = Vec::new();
    for part in [None, Some("x")] {
        let client = Http2Client::connect(server.address).await;
        // An answered stream takes no place.
        let events = listen(&client, 1, &[A]).await;
        let request = half_open(&client, &put(A, ""), part).await;
        waiting.push((request, events, client));
    }
    // Both have come: one that is still on its way could lose its place to the next request.
    until_measured(&server, "tidings_http2_streams 4\n").await;
    let other = Http2Client::connect(server.address).await;
    let mut refused = half_open(&other, &put(A, ""), None).await;
    assert_eq!(refused.status().await, 503);
    // Nothing more of it is read.
    let reset = within("a reset", poll_fn(|cx| refused.sending.poll_reset(cx))).await;
    assert_eq!(reset.unwrap(), h2::Reason::NO_ERROR);
    until_counted(&server, "http.h2_requests_max", 1).await;
    assert_eq!(other.send(&put(A, "1")).await.0, 204);
    drop(waiting);
    within("a place", async {
        loop {
            let mut request = half_open(&other, &put(A, ""), None).await;
            request.sending.send_data("2".into(), true).unwrap();
            if request.status().await == 204 {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn unanswered_requests_are_bounded_together() {
    let server = Server::with("[http]\nh2_requests_max = 1\n").await;
    let waiting = Http2Client::connect(server.address).await;
    let request = half_open(&waiting, &put(A, ""), None).await;
    until_measured(&server, "tidings_http2_streams 1\n").await;
    let other = Http2Client::connect(server.address).await;
    let (status, text) = other.send(&put(A, "1")).await;
    assert_eq!(status, 503);
    assert!(text.contains("http.h2_requests_max"), "{text}");
    until_counted(&server, "http.h2_requests_max", 1).await;
    drop((request, waiting));
    within("a place", async {
        while other.send(&put(A, "2")).await.0 == 503 {}
    })
    .await;
}

#[tokio::test]
async fn half_open_requests_leave_places_for_others() {
    let server = Server::with("[http]\nh2_requests_max = 60\n").await;
    let block = headers("PUT", &resource_path(A), &[("content-type", "text/plain")]);
    let expecting = headers("PUT", &resource_path(A), &[("expect", "100-continue")]);
    let get = headers("GET", "/v1/resources", &[]);
    let mut flooding = Vec::new();
    for (block, part) in [
        (&block, ""),
        (&block, "x"),
        (&expecting, ""),
        (&get, ""),
        (&block, ""),
    ] {
        let mut raw = RawFrames::connect(server.address).await;
        for stream in (1..200).step_by(2) {
            raw.write(&frame(HEADERS, END_HEADERS, stream, block))
                .await
                .unwrap();
            if !part.is_empty() {
                raw.write(&frame(DATA, 0, stream, part.as_bytes())).await.unwrap();
            }
        }
        // All before the last one have had their turn.
        while raw.next_of(HEADERS).await.unwrap().stream != 199 {}
        flooding.push(raw);
        let other = Http2Client::connect(server.address).await;
        assert!(other.send(&put(A, "1")).await.0 < 300);
        assert_eq!(other.send(&Request::new("GET", resource_path(A))).await.0, 200);
        drop(listen(&other, 1, &[A]).await);
    }
}

#[tokio::test]
async fn http2_is_turned_off_by_its_limit() {
    let server = Server::with("[http]\nh2_streams_max = 0\n").await;
    let mut raw = RawFrames::connect(server.address).await;
    assert!(raw.next_of(SETTINGS).await.is_none());
    server.assert_healthy().await;
}

#[tokio::test]
async fn idle_connection_is_told_to_go() {
    let server = Server::with("[http]\nheader_timeout = \"1s\"\n").await;
    // One that asks nothing, and one that has asked.
    let mut silent = RawFrames::connect(server.address).await;
    let client = Http2Client::connect(server.address).await;
    assert_eq!(client.send(&Request::new("GET", "/healthz")).await.0, 200);
    within("the end of a connection", client.connection)
        .await
        .unwrap()
        .unwrap();
    while silent.next().await.is_some() {}
    until_counted(&server, "http.header_timeout", 2).await;
}

#[tokio::test]
async fn open_stream_keeps_its_connection() {
    let server = Server::with("[http]\nheader_timeout = \"1s\"\n").await;
    server.put(A, "0").await;
    let client = Http2Client::connect(server.address).await;
    let mut listening = listen(&client, 1, &[A]).await;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(client.send(&put(A, "1")).await.0, 204);
    assert_eq!(listening.updated().await, A);
}

#[tokio::test]
async fn client_that_answers_no_ping_is_closed() {
    let server = Server::with("[http]\nkeep_alive = \"1s\"\nh2_ping_timeout = \"1s\"\n").await;
    let mut raw = RawFrames::connect(server.address).await;
    while raw.next().await.is_some() {}
    until_counted(&server, "http.h2_ping_timeout", 1).await;
}

/// Changes A until a listen stream whose window stays closed has notices that wait. Returns its client.
async fn stand_still(server: &Server) -> Http2Client {
    server.put(A, "0").await;
    let mut settings = Builder::new();
    settings
        .initial_window_size(1_000)
        .initial_connection_window_size(1 << 20);
    let client = Http2Client::with(server.address, &settings).await;
    let events = client.events(&listen_request(&json!(1), updates(&[A]))).await;
    for change in 1..=20 {
        client.send(&put(A, &change.to_string())).await;
    }
    // Neither read nor reset.
    std::mem::forget(events);
    client
}

#[tokio::test]
async fn stalled_stream_is_reset_and_its_connection_stays() {
    let server = Server::with("[session]\nstall_timeout = \"1s\"\n").await;
    let client = stand_still(&server).await;
    server.until("no session", <[_]>::is_empty).await;
    let ended = "tidings_sessions_ended_total{reason=\"stalled\"} 1\n";
    let metrics = client.send(&Request::new("GET", "/metrics")).await.1;
    assert!(metrics.contains(ended), "{metrics}");
    assert!(metrics.contains("tidings_http2_streams 1\n"), "{metrics}");
}

#[tokio::test]
async fn stream_that_takes_nothing_is_reset_in_time() {
    let server = Server::with("[http]\nwrite_timeout = \"1s\"\n").await;
    let client = stand_still(&server).await;
    server.until("no session", <[_]>::is_empty).await;
    until_counted(&server, "http.write_timeout", 1).await;
    assert_eq!(client.send(&Request::new("GET", "/healthz")).await.0, 200);
}

#[tokio::test]
async fn connection_that_reads_nothing_conflates() {
    let server = Server::start().await;
    server.put(A, "0").await;
    let mut raw = RawFrames::narrow(server.address).await;
    // Windows without bounds: nothing but the socket holds the notices back.
    let wide = (1_u32 << 30).to_be_bytes();
    let settings = [&[0, 4][..], &wide].concat();
    raw.write(&frame(SETTINGS, 0, 0, &settings)).await.unwrap();
    raw.write(&frame(WINDOW_UPDATE, 0, 0, &wide)).await.unwrap();
    let (head, body) = listen_request(&json!(1), updates(&[A])).for_http2(server.address);
    let sent = head.headers().iter();
    let sent: Vec<_> = sent
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    let block = headers("POST", "/mcp", &sent);
    raw.write(&frame(HEADERS, END_HEADERS, 1, &block)).await.unwrap();
    raw.write(&frame(DATA, END_STREAM, 1, &body)).await.unwrap();
    server.until("a stream", |sessions| sessions.len() == 1).await;
    let other = Http2Client::connect(server.address).await;
    let mut newest = String::new();
    within("conflation", async {
        while server.sessions().await[0]["progress"]["conflated"].as_u64() < Some(100) {
            for _ in 0..100 {
                // The etag before, so that each change differs.
                let answer = other.open(&put(A, &newest)).await;
                answer.headers["etag"]
                    .to_str()
                    .unwrap()
                    .trim_matches('"')
                    .clone_into(&mut newest);
            }
        }
    })
    .await;
    // What was held back comes when the client reads.
    loop {
        let data = raw.next_of(DATA).await.unwrap();
        if String::from_utf8_lossy(&data.payload).contains(&newest) {
            return;
        }
    }
}

#[tokio::test]
async fn rapid_resets_end_the_connection() {
    let server = Server::start().await;
    let mut raw = RawFrames::connect(server.address).await;
    let block = headers("GET", "/v1/resources", &[]);
    let mut flood = Vec::new();
    for stream in (1..=8_001).step_by(2) {
        flood.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &block));
        flood.extend(frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
    }
    // It may be cut before it is written.
    raw.write(&flood).await.ok();
    if let Some(goaway) = raw.next_of(GOAWAY).await {
        assert_eq!(error_code(&goaway.payload), 11, "ENHANCE_YOUR_CALM");
    }
    until_counted(&server, "HTTP/2 flood", 1).await;
    server.assert_healthy().await;
}

#[tokio::test]
async fn connection_ended_for_a_fault_is_closed_later() {
    let server = Server::start().await;
    let mut raw = RawFrames::connect(server.address).await;
    let wide = 0x7fff_ffff_u32.to_be_bytes();
    raw.write(&frame(WINDOW_UPDATE, 0, 0, &wide)).await.unwrap();
    let told = raw.next_of(GOAWAY).await.unwrap();
    assert_eq!(error_code(&told.payload), 3, "FLOW_CONTROL_ERROR");
    // It has ended, but keeps its place among the connections, so that its client is not at once back.
    until_measured(&server, "tidings_http2_connections 1\n").await;
    let begin = Instant::now();
    assert!(raw.next().await.is_none(), "no frame after it");
    assert!(
        begin.elapsed() > Duration::from_millis(250),
        "{:?}",
        begin.elapsed()
    );
    until_measured(&server, "tidings_http2_connections 0\n").await;
}

#[tokio::test]
async fn resets_before_the_answer_end_the_connection() {
    let server = Server::start().await;
    let mut raw = RawFrames::connect(server.address).await;
    let block = headers("PUT", &resource_path(A), &[("content-type", "text/plain")]);
    for batch in 0..11 {
        let streams = (0..100).map(|nth| 2 * (100 * batch + nth) + 1);
        let begun: Vec<u8> = streams
            .clone()
            .flat_map(|stream| frame(HEADERS, END_HEADERS, stream, &block))
            .collect();
        raw.write(&begun).await.unwrap();
        // The server takes each batch of requests before it is reset.
        assert!(raw.is_answered().await, "{batch}");
        let reset: Vec<u8> = streams
            .flat_map(|stream| frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]))
            .collect();
        raw.write(&reset).await.unwrap();
    }
    assert!(raw.next_of(GOAWAY).await.is_some(), "more than 1,000");
    assert!(
        raw.next_of(GOAWAY).await.is_none(),
        "it ends without another request"
    );
    until_counted(&server, "HTTP/2 flood", 1).await;
    server.assert_healthy().await;
}

#[tokio::test]
async fn requests_without_bodies_have_part_of_the_time() {
    let server = Server::start().await;
    let block = headers("PUT", &resource_path(A), &[("content-type", "text/plain")]);
    let streams = (1..200).step_by(2);
    let half_open: Vec<u8> = streams
        .flat_map(|stream| frame(HEADERS, END_HEADERS, stream, &block))
        .collect();
    let never = "tidings_limit_reached_total{limit=\"HTTP/2 requests that cannot be served\"} 0\n";
    let mut flood = Vec::new();
    within("a pause of their turns", async {
        while {
            let metrics = Request::new("GET", "/metrics").send(server.address).await;
            metrics.text().contains(never)
        } {
            let mut raw = RawFrames::connect(server.address).await;
            raw.write(&half_open).await.unwrap();
            flood.push(raw);
        }
    })
    .await;
    // A new client comes after them, and one that is served does not wait for its turn with them.
    let client = Http2Client::connect(server.address).await;
    for _ in 0..100 {
        assert_eq!(client.send(&Request::new("GET", "/healthz")).await.0, 200);
    }
    drop(flood);
    server.assert_healthy().await;
}

#[tokio::test]
async fn continuation_flood_ends_the_connection() {
    let server = Server::start().await;
    let mut raw = RawFrames::connect(server.address).await;
    let block = headers("GET", "/v1/resources", &[]);
    raw.write(&frame(HEADERS, END_STREAM, 1, &block)).await.unwrap();
    let one = frame(CONTINUATION, 0, 1, &headers("GET", "/", &[("x", "y")])[40..]);
    for _ in 0..1_000 {
        if raw.write(&one.repeat(100)).await.is_err() {
            break;
        }
    }
    while raw.next().await.is_some() {}
    until_counted(&server, "HTTP/2 flood", 1).await;
    server.assert_healthy().await;
}

#[tokio::test]
async fn pings_and_settings_are_answered_within_bounds() {
    let server = Server::start().await;
    let mut raw = RawFrames::connect(server.address).await;
    let other = Http2Client::connect(server.address).await;
    let mut flood = frame(PING, 0, 0, &[0; 8]);
    flood.extend(frame(SETTINGS, 0, 0, &[]));
    let flood = flood.repeat(1_000);
    let before = server.memory();
    // None of the answers is read, so the socket stops taking them.
    let flooding = async {
        for _ in 0..10_000 {
            if raw.stream.write_all(&flood).await.is_err() {
                return;
            }
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(2), flooding).await;
    assert_eq!(other.send(&put(A, "1")).await.0, 201);
    assert!(server.memory() < before + (16 << 20), "{ended:?}");
}
