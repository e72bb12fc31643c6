//! Messages that no client should send: they are refused quickly, and the service continues.

mod wrong_params;
mod table;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::{Client, modern, modern_post, stateless};
use super::http::{Request, within};
use super::server::Server;

fn request(id: &Value, method: &str, params: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

/// A value in 50,000 levels of arrays or objects.
fn deep(open: &str, close: &str) -> String {
    format!("{}1{}", open.repeat(50_000), close.repeat(50_000))
}

/// Bodies that are wrong in as many ways as possible.
fn bodies() -> Vec<String> {
    let huge = "9".repeat(400);
    let one = json!(1);
    let mut bodies: Vec<String> = [
        "",
        " ",
        "null",
        "true",
        "42",
        "\"text\"",
        "{}",
        "[]",
        "[[]]",
        "[null]",
        "{\"jsonrpc\":\"2.0\"}",
        "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":[1],\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":-1,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":[]}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":3}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\\u0000\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\\ud800\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{},\"error\":{}}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\"}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":{}}}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/none\",\"params\":null}",
        "\u{0}\u{0}\u{0}",
        "{\"a\":1}{\"b\":2}",
        "{'jsonrpc':'2.0'}",
        "nan",
    ]
    .map(str::to_owned)
    .to_vec();
    bodies.extend([deep("[", "]"), deep("{\"a\":", "}")]);
    bodies.push(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{huge},\"method\":\"ping\"}}"
    ));
    bodies.push(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1e{huge},\"method\":\"ping\"}}"
    ));
    bodies.push(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\"get_resource_etag\",\"arguments\":{{\"uri\":{}}}}}}}",
        deep("[", "]")
    ));
    bodies.push(request(&json!("i".repeat(100_000)), "ping", json!({})));
    for method in ["resources/read", "resources/subscribe", "resources/unsubscribe"] {
        for uri in [
            json!(null),
            json!(7),
            json!([]),
            json!({}),
            json!(""),
            json!("\u{0}"),
            json!("a b://\u{7}"),
        ] {
            bodies.push(request(&one, method, json!({ "uri": uri })));
        }
        bodies.push(request(
            &one,
            method,
            json!({ "uri": "demo://".to_owned() + &"u".repeat(100_000) }),
        ));
        bodies.push(request(&one, method, json!({})));
    }
    for params in [
        json!({}),
        json!({ "name": 7 }),
        json!({ "name": "no such" }),
        json!({ "name": "get_resource_etag" }),
    ] {
        bodies.push(request(&one, "tools/call", params.clone()));
        bodies.push(request(&one, "prompts/get", params));
    }
    for arguments in [
        json!([]),
        json!("x"),
        json!({ "uri": 7 }),
        json!({ "items": [] }),
        json!({ "items": [7] }),
        json!(null),
    ] {
        for tool in [
            "get_resource_etag",
            "get_resource_etags",
            "read_resource",
            "wait_for_resource_change",
        ] {
            bodies.push(request(
                &one,
                "tools/call",
                json!({ "name": tool, "arguments": arguments }),
            ));
        }
    }
    for notifications in [
        json!(null),
        json!([]),
        json!(7),
        json!({ "resourceSubscriptions": "demo://a" }),
        json!({ "resourceSubscriptions": [7] }),
        json!({ "toolsListChanged": "yes" }),
    ] {
        bodies.push(request(
            &one,
            "subscriptions/listen",
            json!({ "notifications": notifications }),
        ));
    }
    for version in [
        json!(null),
        json!(7),
        json!(""),
        json!("\u{0}"),
        json!("2025-11-25; drop"),
    ] {
        bodies.push(request(
            &one,
            "initialize",
            json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": {} }),
        ));
    }
    bodies.extend([
        request(&one, "initialize", json!({})),
        request(&one, "resources/list", json!({ "cursor": 7 })),
    ]);
    bodies
}

#[tokio::test]
async fn malformed_messages_are_refused() {
    let server = Server::start().await;
    server.put("demo://a", "1").await;
    let client = Client::open(server.address, "2025-11-25").await;
    let batches = Client::open(server.address, "2025-03-26").await;
    for body in bodies() {
        let short: String = body.chars().take(200).collect();
        let plain = Request::post(body.as_str());
        let mut modern = modern_post(&json!(1), "tools/list", json!({})).body(body.as_str());
        if let Ok(Value::Object(mut message)) = serde_json::from_str(&body)
            && let Some(Value::String(method)) = message.get("method").cloned()
            && !method.contains('\u{0}')
        {
            // The headers fit the body, so the body alone is refused.
            let params = message.get("params").filter(|params| params.is_object()).cloned();
            message.insert("params".into(), stateless(params.unwrap_or_else(|| json!({}))));
            modern = modern
                .header("mcp-method", method)
                .body(Value::Object(message).to_string());
        }
        for request in [
            client.with_headers(plain.clone()),
            batches.with_headers(plain.clone()),
            plain,
            modern,
        ] {
            let incoming = request.open(server.address).await;
            assert!(
                (200..500).contains(&incoming.status),
                "{} for {short}",
                incoming.status
            );
        }
        let reply = client.request("ping", json!({})).await;
        assert_eq!(reply.status, 200, "the session survives {short}");
    }
    server.assert_healthy().await;
    assert_eq!(
        modern(server.address, "resources/read", json!({ "uri": "demo://a" }))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn listen_to_20_000_uris_is_answered_quickly() {
    let uris: Vec<String> = (0..20_000).map(|number| format!("demo://{number}")).collect();
    let params = json!({ "notifications": { "resourceSubscriptions": uris } });
    let request = modern_post(&json!(1), "subscriptions/listen", params);
    for (config, status) in [("", 400), ("[session]\nsubscriptions_max = 100000\n", 200)] {
        let server = Server::with(config).await;
        let started = Instant::now();
        let reply = request.send(server.address).await;
        assert_eq!(reply.status, status, "{}", reply.text());
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "{:?}",
            started.elapsed()
        );
        server.assert_healthy().await;
    }
}

#[tokio::test]
async fn non_http_bytes_are_refused() {
    let server = Server::start().await;
    let endless = format!(
        "GET /mcp HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n",
        "x".repeat(1 << 20)
    );
    let many = format!(
        "GET /mcp HTTP/1.1\r\nhost: localhost\r\n{}\r\n",
        "x: y\r\n".repeat(1_000)
    );
    let wrong: [&[u8]; 8] = [
        b"\0\0\0\0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcde",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        endless.as_bytes(),
        many.as_bytes(),
    ];
    for bytes in wrong {
        let mut stream = within("a connection", TcpStream::connect(server.address))
            .await
            .expect("it listens");
        let mut answer = Vec::new();
        let (mut reading, mut writing) = stream.split();
        let write = async {
            writing.write_all(bytes).await?;
            writing.shutdown().await
        };
        let exchange = async { tokio::join!(write, reading.read_to_end(&mut answer)) };
        let (written, read) = within("the end of the connection", exchange).await;
        if let Err(error) = written.and(read) {
            // The server may close before it has read everything.
            eprintln!("the connection broke: {error}");
        }
        assert!(
            !answer.starts_with(b"HTTP/1.1 2"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
        server.assert_healthy().await;
    }
}

#[tokio::test]
async fn malformed_headers_are_refused() {
    let server = Server::start().await;
    let client = Client::open(server.address, "2025-11-25").await;
    let ping = request(&json!(1), "ping", json!({}));
    let long = "x".repeat(10_000);
    for (name, value) in [
        ("mcp-session-id", ""),
        ("mcp-session-id", long.as_str()),
        ("mcp-session-id", "../.."),
        ("mcp-session-id", "\u{e9}"),
        ("mcp-protocol-version", ""),
        ("mcp-protocol-version", long.as_str()),
        ("mcp-protocol-version", "\u{e9}"),
        ("last-event-id", long.as_str()),
        ("last-event-id", "\u{e9}"),
        ("last-event-id", "ffffffffffffffff-ffffffffffffffff"),
        ("origin", "\u{e9}"),
        ("accept", "\u{e9}"),
        ("host", ""),
    ] {
        let mut bases = vec![Request::post(ping.as_str()), Request::stream()];
        // A DELETE ignores these two, so it would end the session.
        if name != "last-event-id" && name != "accept" {
            bases.push(Request::new("DELETE", "/mcp"));
        }
        for base in bases {
            let incoming = client
                .with_headers(base)
                .header(name, value)
                .open(server.address)
                .await;
            assert!(incoming.status < 500, "{} for {name}: {value}", incoming.status);
        }
        assert_eq!(
            client.request("ping", json!({})).await.status,
            200,
            "{name}: {value}"
        );
    }
    server.assert_healthy().await;
}
