//! A table of requests that no client should send, over HTTP and stdio: each is answered, with the code that
//! fits, and leaves nothing behind.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::wrong_params::{self, WrongParams};
use crate::mcp::client::{Client, MODERN, initialize, stateless};
use crate::mcp::http::{Reply, Request, within};
use crate::mcp::server::{Server, StdioClient};

const INVALID_REQUEST: i64 = -32600;
const INVALID_PARAMS: i64 = -32602;
const PARSE_ERROR: i64 = -32700;

/// Checks an answer that refuses the parameters of a request.
#[track_caller]
fn assert_names_field(wrong: &WrongParams, id: u64, answer: &Value) {
    let sent = wrong.message(id);
    assert_eq!(answer["id"], id, "{sent}: {answer}");
    assert_eq!(answer["error"]["code"], INVALID_PARAMS, "{sent}: {answer}");
    let text = answer["error"]["message"].as_str().unwrap_or_default();
    let named = text.split(' ').next().unwrap_or_default();
    assert_eq!(named, wrong.field, "{sent}: {answer}");
}

/// Returns a POST of a message of 2026-07-28, with the headers that fit it.
fn modern_request(wrong: &WrongParams, id: u64) -> Request {
    let mut message = wrong.message(id);
    match message.get("params") {
        Some(Value::Object(_)) => message["params"] = stateless(message["params"].clone()),
        None | Some(Value::Null) => message["params"] = stateless(json!({})),
        Some(_) => {}
    }
    let mut request = Request::post(message.to_string())
        .header("mcp-protocol-version", MODERN)
        .header("mcp-method", wrong.method);
    for field in ["name", "uri"] {
        if let Some(name) = message["params"][field].as_str() {
            request = request.header("mcp-name", name);
        }
    }
    request
}

#[tokio::test]
async fn wrong_parameters_are_named_over_http() {
    let server = Server::start().await;
    server.put("demo://a", "1").await;
    let client = Client::open(server.address, "2025-11-25").await;
    let before = server.sessions().await.len();
    let mut sent = 0;
    for (id, wrong) in (1_u64..).zip(wrong_params::initialize()) {
        let message = wrong.message(id).to_string();
        let plain = Request::post(message.as_str());
        let modern = plain.clone().header("mcp-protocol-version", MODERN);
        for request in [modern, plain] {
            let reply = request.send(server.address).await;
            assert_eq!(
                (reply.status, reply.header("mcp-session-id")),
                (200, None),
                "{message}"
            );
            assert_names_field(&wrong, id, &reply.json());
            sent += 1;
        }
    }
    for (id, wrong) in (1_u64..).zip(wrong_params::of_session()) {
        let reply = client.post(&wrong.message(id)).await;
        assert_eq!(reply.status, 200, "{}", wrong.message(id));
        assert_names_field(&wrong, id, &reply.json());
        sent += 1;
    }
    for (id, wrong) in (1_u64..).zip(wrong_params::without_session()) {
        let reply = modern_request(&wrong, id).send(server.address).await;
        assert_eq!(reply.status, 400, "{}", wrong.message(id));
        assert_names_field(&wrong, id, &reply.json());
        sent += 1;
    }
    assert!(sent > 350, "{sent}");
    assert_still_serves(&server, &client, before).await;
}

#[tokio::test]
async fn wrong_parameters_in_batch_are_named() {
    let server = Server::start().await;
    let client = Client::open(server.address, "2025-03-26").await;
    let wrong = wrong_params::of_session();
    // As many as a batch may have.
    for chunk in wrong.chunks(50) {
        let batch: Vec<Value> = (1_u64..)
            .zip(chunk)
            .map(|(id, wrong)| wrong.message(id))
            .collect();
        let reply = client.post(&Value::Array(batch)).await;
        assert_eq!(reply.status, 200);
        let answers = reply.json();
        assert_eq!(answers.as_array().expect("an array").len(), chunk.len());
        for (id, wrong) in (1_u64..).zip(chunk) {
            let index = usize::try_from(id).expect("a small number") - 1;
            assert_names_field(wrong, id, &answers[index]);
        }
    }
    assert_still_serves(&server, &client, 1).await;
}

/// Checks that nothing is left of the requests before, and that the service works.
async fn assert_still_serves(server: &Server, client: &Client, sessions: usize) {
    assert_eq!(
        server.sessions().await.len(),
        sessions,
        "sessions that nobody opened"
    );
    let reply = client.request("ping", json!({})).await;
    assert_eq!(reply.json()["result"], json!({}));
    server.assert_healthy().await;
}

/// Bodies that are no message, with the code of their refusal.
fn odd_bodies() -> Vec<(String, i64)> {
    let ping = |id: &str, more: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"{more}}}"#);
    let deep = |depth: usize| format!(r#","params":{{"x":{}1{}}}"#, "[".repeat(depth), "]".repeat(depth));
    let mut bodies = vec![
        (ping("1", &deep(127)), PARSE_ERROR),
        (ping("1", &deep(50_000)), PARSE_ERROR),
        (ping("1", r#","params":{"x":1e999}"#), PARSE_ERROR),
        (ping("1", "}"), PARSE_ERROR),
        (ping("1", r#","result":{}"#), INVALID_REQUEST),
        (ping("1", r#","id":2"#), INVALID_REQUEST),
        (ping("1", r#","method":"ping""#), INVALID_REQUEST),
        (ping(&"9".repeat(400), ""), PARSE_ERROR),
    ];
    for id in ["{}", "[1]", "1.5", "true", "null"] {
        bodies.push((ping(id, ""), INVALID_REQUEST));
    }
    for body in [
        "",
        " ",
        "{",
        "nan",
        "{'a':1}",
        "\u{0}",
        "{\"a\":1}{}",
        "\"\\ud800\"x",
        "\u{feff}{}",
    ] {
        bodies.push((body.to_owned(), PARSE_ERROR));
    }
    for body in [
        "null",
        "true",
        "42",
        "\"text\"",
        "{}",
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
        r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#,
        r#"{"id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
    ] {
        bodies.push((body.to_owned(), INVALID_REQUEST));
    }
    bodies
}

#[tokio::test]
async fn odd_bodies_are_refused_as_json_rpc() {
    let server = Server::start().await;
    let client = Client::open(server.address, "2025-11-25").await;
    for (body, code) in odd_bodies() {
        let short: String = body.chars().take(80).collect();
        let post = Request::post(body);
        let modern = post
            .clone()
            .header("mcp-protocol-version", MODERN)
            .header("mcp-method", "ping");
        for request in [client.with_headers(post), modern] {
            let reply = request.send(server.address).await;
            assert_eq!(reply.status, 400, "{short}: {}", reply.text());
            assert_eq!(reply.header("content-type"), Some("application/json"), "{short}");
            assert_eq!(reply.error().0, code, "{short}: {}", reply.text());
            assert_eq!(reply.json()["jsonrpc"], "2.0", "{short}");
        }
    }
    assert_still_serves(&server, &client, 1).await;
}

/// Sends bytes and reads the answer to its end; its status, and its text.
async fn raw(server: &Server, bytes: &str) -> (u16, String) {
    let mut stream = within("a connection", TcpStream::connect(server.address))
        .await
        .expect("it listens");
    let mut answer = Vec::new();
    let exchange = async {
        stream.write_all(bytes.as_bytes()).await.expect("it reads");
        let read = stream.read_to_end(&mut answer).await;
        // A connection that is closed before all of a request was read may be reset after the answer.
        drop(read);
    };
    within("the end of an answer", exchange).await;
    let answer = String::from_utf8(answer).expect("the answer is text");
    let short: String = bytes.chars().take(200).collect();
    let status = answer
        .strip_prefix("HTTP/1.1 ")
        .unwrap_or_else(|| panic!("{short:?}: {answer:?}"));
    let status = status[..3].parse().expect("a status");
    assert!(answer.contains("\r\n\r\n"), "{short:?}: {answer:?}");
    (status, answer)
}

/// Headers of a POST to `/mcp`, and the status of its refusal. `SESSION` stands for a session's id.
const ODD_HEADERS: &[(&str, u16)] = &[
    ("mcp-session-id: SESSION\r\nmcp-session-id: SESSION\r\n", 400),
    ("mcp-session-id: SESSION\r\nmcp-session-id: other\r\n", 400),
    ("mcp-session-id: other\r\nmcp-session-id: SESSION\r\n", 400),
    ("mcp-session-id: SESSION, SESSION\r\n", 404),
    ("mcp-session-id: \r\n", 404),
    ("mcp-session-id: ../SESSION\r\n", 404),
    ("", 400),
    (
        "mcp-session-id: SESSION\r\nmcp-protocol-version: 2025-11-25\r\nmcp-protocol-version: 2025-06-18\r\n",
        400,
    ),
    (
        "mcp-session-id: SESSION\r\nmcp-protocol-version: 2026-07-28\r\nmcp-protocol-version: 2025-11-25\r\n",
        400,
    ),
    (
        "mcp-session-id: SESSION\r\nmcp-protocol-version: 2025-11-25, 2025-11-25\r\n",
        400,
    ),
    ("mcp-session-id: SESSION\r\nmcp-protocol-version: 1\r\n", 400),
    ("mcp-session-id: SESSION\r\nmcp-protocol-version: \r\n", 400),
    (
        "mcp-session-id: SESSION\r\nmcp-method: ping\r\nmcp-method: tools/call\r\n",
        400,
    ),
    ("mcp-session-id: SESSION\r\nmcp-name: a\r\nmcp-name: b\r\n", 400),
    (
        "mcp-session-id: SESSION\r\nlast-event-id: a-1\r\nlast-event-id: a-2\r\n",
        400,
    ),
    ("mcp-session-id: SESSION\r\ncontent-type: text/plain\r\n", 400),
    ("mcp-session-id: SESSION\r\nhost: localhost\r\n", 403),
    ("mcp-session-id: SESSION\r\nhost: evil.example\r\n", 403),
    (
        "mcp-session-id: SESSION\r\norigin: http://localhost\r\norigin: http://evil.example\r\n",
        403,
    ),
    (
        "mcp-session-id: SESSION\r\norigin: http://127.0.0.1:8808.evil.example\r\n",
        403,
    ),
    ("mcp-session-id: SESSION\r\norigin: null\r\n", 403),
    ("mcp-session-id: SESSION\r\nsec-fetch-site: cross-site\r\n", 403),
    (
        "mcp-session-id: SESSION\r\nsec-fetch-site: same-site\r\norigin: http://localhost:3000\r\n",
        403,
    ),
    ("mcp-session-id: SESSION\r\ncontent-length: 3\r\n", 400),
    ("mcp-session-id: SESSION\r\ncontent-length: +40\r\n", 400),
    ("mcp-session-id: SESSION\r\ntransfer-encoding: xchunked\r\n", 400),
    ("mcp-session-id : SESSION\r\n", 400),
    ("mcp-session-id: SESSION\r\n folded\r\n", 400),
    ("mcp-session-id: SESSION\r\nx: a\0b\r\n", 400),
];

#[tokio::test]
async fn odd_headers_are_refused() {
    let server = Server::start().await;
    let client = Client::open(server.address, "2025-11-25").await;
    let body = client.message("ping", json!({})).to_string();
    let usual = format!(
        "host: localhost\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         content-length: {}\r\nconnection: close\r\n",
        body.len()
    );
    let post = async |headers: &str| {
        let headers = headers.replace("SESSION", &client.id);
        raw(
            &server,
            &format!("POST /mcp HTTP/1.1\r\n{usual}{headers}\r\n{body}"),
        )
        .await
    };
    assert_eq!(post("mcp-session-id: SESSION\r\n").await.0, 200);
    for (headers, expected) in ODD_HEADERS {
        let (status, answer) = post(headers).await;
        assert_eq!(status, *expected, "{headers:?}: {answer}");
    }
    assert_still_serves(&server, &client, 1).await;
}

/// Request lines, and the status of their refusal.
const ODD_TARGETS: &[(&str, u16)] = &[
    ("POST http://evil.example/mcp HTTP/1.1", 403),
    ("POST http://evil.example:80/mcp HTTP/1.1", 403),
    ("POST http://localhost@evil.example/mcp HTTP/1.1", 403),
    ("POST http://localhost:x/mcp HTTP/1.1", 403),
    ("GET http://evil.example/v1/resources HTTP/1.1", 403),
    ("GET http://evil.example/v1/events HTTP/1.1", 403),
    ("GET http://evil.example/v1/ws HTTP/1.1", 403),
    ("GET http://evil.example/metrics HTTP/1.1", 403),
    ("POST /mcp/ HTTP/1.1", 404),
    ("POST /MCP HTTP/1.1", 404),
    ("POST //mcp HTTP/1.1", 404),
    ("POST /./mcp HTTP/1.1", 404),
    ("POST /%6dcp HTTP/1.1", 404),
    ("POST mcp HTTP/1.1", 403),
    ("PUT /mcp HTTP/1.1", 405),
    ("PATCH /mcp HTTP/1.1", 405),
    ("OPTIONS /mcp HTTP/1.1", 405),
    ("TRACE /mcp HTTP/1.1", 405),
    ("BREW /mcp HTTP/1.1", 405),
    ("post /mcp HTTP/1.1", 405),
    ("CONNECT evil.example:80 HTTP/1.1", 403),
    ("GET /v1/resources/..%2f..%2fetc%2fpasswd HTTP/1.1", 400),
    ("GET /v1/resources/%00 HTTP/1.1", 400),
    ("GET /v1/resources/%ff HTTP/1.1", 400),
    ("GET /v1/resources/demo%3A%2F%2Fnone HTTP/1.1", 404),
    ("GET /v1/resources?cursor=%00 HTTP/1.1", 400),
    ("GET /v1/sessions/../resources HTTP/1.1", 404),
    ("GET /v1/events?kind=none HTTP/1.1", 400),
    ("GET /v1/ws HTTP/1.1", 426),
    ("GET /mcp HTTP/2.0", 400),
    ("GET  /mcp HTTP/1.1", 400),
    ("GET /mcp\u{0} HTTP/1.1", 400),
];

#[tokio::test]
async fn odd_targets_are_refused() {
    let server = Server::start().await;
    let client = Client::open(server.address, "2025-11-25").await;
    for (line, expected) in ODD_TARGETS {
        let request = format!("{line}\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        let (status, answer) = raw(&server, &request).await;
        assert_eq!(status, *expected, "{line:?}: {answer}");
    }
    assert_still_serves(&server, &client, 1).await;
}

#[tokio::test]
async fn bare_refusals_of_post_are_json_rpc() {
    let server = Server::start().await;
    let client = Client::open(server.address, "2025-11-25").await;
    let ping = client.with_headers(Request::post(client.message("ping", json!({})).to_string()));
    for (request, status) in [
        (ping.clone().header("content-type", "text/plain"), 415),
        (ping.clone().without("content-type"), 415),
        (ping.clone().header("accept", "text/html"), 406),
        (ping.clone().without("accept"), 406),
        (ping.clone().header("mcp-protocol-version", "1"), 400),
    ] {
        let reply: Reply = request.send(server.address).await;
        assert_eq!(reply.status, status, "{}", reply.text());
        assert_eq!(reply.error().0, INVALID_REQUEST, "{}", reply.text());
    }
    assert_still_serves(&server, &client, 1).await;
}

/// Reads the next answer of a connection; notifications before it are passed over.
async fn next_answer(client: &mut StdioClient) -> Value {
    loop {
        let message = client.message().await;
        if message.get("method").is_none() {
            return message;
        }
    }
}

#[tokio::test]
async fn wrong_parameters_are_named_on_stdio() {
    let mut client = StdioClient::start(&[]);
    for (id, wrong) in (1_u64..).zip(wrong_params::initialize()) {
        client.send(&wrong.message(id)).await;
        assert_names_field(&wrong, id, &next_answer(&mut client).await);
    }
    // Neither asks for an answer, and the connection survives both.
    client
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
        .await;
    client
        .send(&json!({ "jsonrpc": "2.0", "id": 7, "result": {} }))
        .await;
    client.send(&initialize("2025-11-25")).await;
    assert_eq!(
        next_answer(&mut client).await["result"]["protocolVersion"],
        "2025-11-25"
    );
    for (id, wrong) in (1_u64..).zip(wrong_params::of_session()) {
        client.send(&wrong.message(id)).await;
        assert_names_field(&wrong, id, &next_answer(&mut client).await);
    }
    client
        .send(&json!({ "jsonrpc": "2.0", "id": "last", "method": "ping" }))
        .await;
    assert_eq!(next_answer(&mut client).await["result"], json!({}));
    client.close_input();
    client.assert_ended().await;
}

#[tokio::test]
async fn wrong_modern_parameters_are_named_on_stdio() {
    let mut client = StdioClient::start(&[]);
    for round in 0..2 {
        for (id, wrong) in (1_u64..).zip(wrong_params::without_session()) {
            let mut message = wrong.message(id);
            if !matches!(message.get("params"), None | Some(Value::Null | Value::Object(_))) {
                // The revision stands in the parameters, so these belong to none.
                continue;
            }
            let params = message.get("params").filter(|params| params.is_object()).cloned();
            message["params"] = stateless(params.unwrap_or_else(|| json!({})));
            client.send(&message).await;
            assert_names_field(&wrong, id, &next_answer(&mut client).await);
        }
        // The second round comes after a request that is answered.
        let tools =
            json!({ "jsonrpc": "2.0", "id": round, "method": "tools/list", "params": stateless(json!({})) });
        client.send(&tools).await;
        assert!(next_answer(&mut client).await["result"]["tools"].is_array());
    }
    client.close_input();
    client.assert_ended().await;
}

#[tokio::test]
async fn odd_lines_are_refused_or_passed_over() {
    let mut client = StdioClient::start(&[]);
    for before in [true, false] {
        for (body, _) in odd_bodies() {
            let short: String = body.chars().take(80).collect();
            client.send_line(&body).await;
            let json = body.trim_start_matches('\u{feff}');
            if serde_json::from_str::<serde::de::IgnoredAny>(json).is_ok() {
                let answer = next_answer(&mut client).await;
                assert_eq!(answer["error"]["code"], INVALID_REQUEST, "{short}: {answer}");
            }
        }
        if before {
            client.send(&initialize("2025-11-25")).await;
            assert!(next_answer(&mut client).await["result"].is_object());
        }
    }
    let long = "x".repeat(5 << 20);
    client.send_line(&long).await;
    assert_eq!(next_answer(&mut client).await["error"]["code"], INVALID_REQUEST);
    client
        .send(&json!({ "jsonrpc": "2.0", "id": "last", "method": "ping" }))
        .await;
    let answer = next_answer(&mut client).await;
    assert_eq!((&answer["id"], &answer["result"]), (&json!("last"), &json!({})));
    client.close_input();
    client.assert_ended().await;
}
