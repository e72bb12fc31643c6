//! Notices with content: `?body=1` on `/v1/events` and `/v1/ws`, on the real binary.

use serde_json::{Value, json};
use tidings::wire::http1::resource_path;

use super::events::Stream;
use super::ws::Client;
use crate::mcp::http::Request;
use crate::mcp::server::Server;

const A: &str = "demo://a";

/// The fields of a notice that are about its content.
fn content(notice: &Value) -> Value {
    let mut fields = json!({});
    for name in ["mediaType", "text", "base64", "omitted", "bytes"] {
        if let Some(value) = notice.get(name) {
            fields[name] = value.clone();
        }
    }
    fields
}

async fn metric(server: &Server, line: &str) -> f64 {
    let reply = Request::new("GET", "/metrics").send(server.address).await;
    let found = reply.text().lines().find_map(|text| text.strip_prefix(line));
    found
        .unwrap_or_else(|| panic!("no {line}"))
        .trim()
        .parse()
        .unwrap()
}

#[tokio::test]
async fn notices_carry_content_that_was_asked_for() {
    let server = Server::with("[http]\nnotice_body_max = \"16B\"\n").await;
    let (mut events, _) = Stream::open(server.address, "?body=1&kind=updated&kind=removed").await;
    let (mut plain, _) = Stream::open(server.address, "?body=0&kind=updated&kind=removed").await;
    let mut socket = Client::open(server.address, "?body=1", &[]).await;
    let ack = socket
        .ask(json!({ "type": "subscribe", "known": { A: null } }))
        .await;
    assert_eq!(ack["type"], "ack");
    let png = Request::new("PUT", resource_path(A)).header("content-type", "image/png");
    let long = "x".repeat(17);
    let changes = [
        (
            Request::new("PUT", resource_path(A))
                .header("content-type", "text/markdown")
                .body("# \"1\"\n"),
            json!({ "mediaType": "text/markdown", "text": "# \"1\"\n" }),
        ),
        (
            png.clone().body([0_u8, 255]),
            json!({ "mediaType": "image/png", "base64": "AP8=" }),
        ),
        (
            png.clone().body(long),
            json!({ "omitted": "too_large", "bytes": 17 }),
        ),
        (png.body(""), json!({ "mediaType": "image/png", "base64": "" })),
        (Request::new("DELETE", resource_path(A)), json!({})),
    ];
    for (request, expected) in changes {
        let reply = request.send(server.address).await;
        let etag = reply.header("etag").unwrap().trim_matches('"').to_owned();
        for told in [events.event().await.data, socket.next().await] {
            assert_eq!((&told["uri"], &told["etag"]), (&json!(A), &json!(etag)));
            assert_eq!(content(&told), expected);
        }
        assert_eq!(content(&plain.event().await.data), json!({}));
    }
    for (line, count) in [
        ("tidings_notice_bodies_total{outcome=\"sent\"}", 6.0),
        ("tidings_notice_bodies_total{outcome=\"too_large\"}", 2.0),
        ("tidings_limit_reached_total{limit=\"http.notice_body_max\"}", 2.0),
    ] {
        assert_eq!(metric(&server, line).await, count, "{line}");
    }
}

#[tokio::test]
async fn content_of_an_older_etag_is_left_out() {
    let server = Server::start().await;
    let (_, verdict) = Stream::open(server.address, "").await;
    let from = verdict["from"].as_str().unwrap();
    for text in ["1", "2", "3"] {
        server.put(A, text).await;
    }
    let (mut events, _) = Stream::resume(server.address, "?body=1&kind=updated", from).await;
    for expected in [
        json!({ "omitted": "superseded" }),
        json!({ "omitted": "superseded" }),
        json!({ "mediaType": "text/plain", "text": "3" }),
    ] {
        assert_eq!(content(&events.event().await.data), expected);
    }
}

/// Returns the text of a version: it begins with the number, and is as large as a notice carries.
fn large(version: usize) -> String {
    format!("{version:0>5}{}", "x".repeat(60 << 10))
}

/// Panics unless the content of a notice is the one of its etag. Returns the number of its version.
fn checked(notice: &Value) -> usize {
    let etag = notice["etag"].as_str().unwrap();
    let version: usize = etag[1..etag.find('-').unwrap()].parse().unwrap();
    match notice["text"].as_str() {
        Some(text) => assert_eq!(text[..5].parse(), Ok(version)),
        None => assert_eq!(notice["omitted"], "superseded"),
    }
    version
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_client_gets_the_last_content() {
    const VERSIONS: usize = 200;
    let server = Server::start().await;
    server.put(A, &large(1)).await;
    let mut socket = Client::narrow(server.address, "?body=1").await;
    socket.ask(json!({ "type": "subscribe", "uris": [A] })).await;
    let events = Request::new("GET", "/v1/events?body=1&kind=updated").small_receive_buffer();
    let (mut events, _) = Stream::of(events, server.address).await;
    for version in 2..=VERSIONS {
        server.put(A, &large(version)).await;
    }
    let mut messages = 0;
    loop {
        messages += 1;
        let told = socket.next().await;
        if checked(&told) == VERSIONS {
            assert!(told["text"].is_string());
            break;
        }
    }
    assert!(messages < VERSIONS - 1, "nothing was conflated");
    for version in 2..=VERSIONS {
        assert_eq!(checked(&events.event().await.data), version);
    }
}

#[tokio::test]
async fn unknown_parameter_of_the_socket_is_refused() {
    let server = Server::start().await;
    for query in ["?body=yes", "?bodies=1"] {
        let upgrade = Request::new("GET", format!("/v1/ws{query}"))
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let reply = upgrade.send(server.address).await;
        assert_eq!(reply.status, 400, "{query}");
    }
}

/// Panics if a value breaks a schema of the document.
fn check(document: &Value, schema: &Value, value: &Value) {
    assert!(schema.is_object(), "{value} is not described");
    let mut schema = schema.clone();
    schema["components"] = document["components"].clone();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let faults: Vec<_> = validator
        .iter_errors(value)
        .map(|fault| fault.to_string())
        .collect();
    assert_eq!(faults, [""; 0], "{value}");
}

#[tokio::test]
async fn events_and_messages_are_as_described() {
    let mut server = Server::with("[session]\nsubscriptions_max = 1\n").await;
    let reply = Request::new("GET", "/v1/openapi.json").send(server.address).await;
    let document = reply.json();
    let operation = &document["paths"]["/v1/events"]["get"]["responses"]["200"];
    let events = &operation["content"]["text/event-stream"]["x-event-data"];
    let messages = &document["paths"]["/v1/ws"]["get"]["x-messages"];
    let (mut stream, first) = Stream::open(server.address, "?body=1").await;
    check(&document, &events["resumed"], &first);
    let mut socket = Client::open(server.address, "?body=1", &[]).await;
    for request in [
        json!({ "type": "subscribe", "id": 1, "known": { A: null }, "patterns": ["demo://*"], "lists": ["resources"] }),
        json!({ "type": "unsubscribe", "id": "2", "patterns": ["demo://*"], "uris": ["demo://none"] }),
        json!({ "type": "ping" }),
        json!({ "type": "subscribe", "uris": 7 }),
    ] {
        let answer = socket.ask(request.clone()).await;
        check(&document, &messages["service"], &answer);
        if answer["type"] != "error" {
            check(&document, &messages["client"], &request);
        }
    }
    server.put(A, "1").await;
    server.api("DELETE", A, "").await;
    let mut seen = std::collections::BTreeSet::new();
    while !(seen.contains("updated") && seen.contains("removed") && seen.contains("list_changed")) {
        let message = socket.next().await;
        check(&document, &messages["service"], &message);
        seen.insert(message["type"].as_str().unwrap().to_owned());
        if seen.contains("removed") && !seen.contains("updated") {
            // Both changes were one to a client that was slow.
            server.put(A, "2").await;
        }
    }
    for _ in 0..4 {
        let event = stream.event().await;
        check(&document, &events[event.name.as_deref().unwrap()], &event.data);
    }
    server.terminate();
    let last = stream.last().await;
    assert_eq!(last.name.as_deref(), Some("end"));
    check(&document, &events["end"], &last.data);
    server.assert_ended().await;
}
