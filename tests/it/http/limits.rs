//! The limits of one caller and of all request bodies, over real connections.

use serde_json::json;

use super::RawConnection;
use crate::mcp::client::{Client, initialize, listen, listen_request, updates};
use crate::mcp::http::{Request, within};
use crate::mcp::server::Server;

const A: &str = "demo://a";

const UPGRADE: &str = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Returns the head of a request whose body has this framing.
fn head(line: &str, headers: &str) -> String {
    format!("{line} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n")
}

/// Returns a POST of `body` to the MCP endpoint.
fn post(body: &str) -> String {
    let length = body.len();
    let headers = format!(
        "content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         content-length: {length}\r\n"
    );
    head("POST /mcp", &headers) + body
}

/// Sends `request` on a connection of its own, which stays open, and returns the head of the answer.
async fn opened(server: &Server, request: &str) -> (RawConnection, String) {
    let mut connection = RawConnection::open(server.address).await;
    connection.send(request).await;
    let head = connection.head().await;
    (connection, head)
}

/// Asserts that the server closes the connection.
async fn assert_closed(mut connection: RawConnection) {
    let mut rest = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut connection.stream, &mut rest);
    within("the end of the connection", read).await.unwrap();
}

#[tokio::test]
async fn path_like_a_websocket_evades_no_limit() {
    let server = Server::with("[session]\nper_peer_max = 2\n").await;
    let mut connection = RawConnection::open(server.address).await;
    connection.send(&head("GET /v1/wsX", UPGRADE)).await;
    assert_eq!(connection.status().await, 404);
    let opening = post(&initialize("2025-11-25").to_string());
    let mut statuses = Vec::new();
    for _ in 0..3 {
        connection.send(&opening).await;
        statuses.push(connection.status().await);
    }
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn sessions_and_streams_of_every_kind_count_together() {
    let server = Server::with("[session]\nper_peer_max = 4\n").await;
    server.put(A, "1").await;
    let session = Client::open(server.address, "2025-11-25").await;
    let _listening = listen(server.address, &json!(1), updates(&[A])).await;
    let events = opened(&server, &head("GET /v1/events", "")).await;
    assert!(events.1.starts_with("HTTP/1.1 200 "), "{}", events.1);
    let socket = opened(&server, &head("GET /v1/ws", UPGRADE)).await;
    assert!(socket.1.starts_with("HTTP/1.1 101 "), "{}", socket.1);
    // A stream of a session is part of it.
    let _stream = session.stream().await;

    for path in ["GET /v1/events", "GET /v1/ws"] {
        let refused = opened(&server, &head(path, UPGRADE)).await.1.to_lowercase();
        assert!(refused.starts_with("http/1.1 429 "), "{refused}");
        assert!(refused.contains("retry-after: 5\r\n"), "{refused}");
    }
    let opening = Request::post(initialize("2025-11-25").to_string());
    assert_eq!(opening.send(server.address).await.status, 429);
    let another = listen_request(&json!("x"), updates(&[A]));
    assert_eq!(another.send(server.address).await.status, 429);
    let scrape = Request::new("GET", "/metrics").send(server.address).await;
    let counted = "tidings_limit_reached_total{limit=\"session.per_peer_max\"} 4";
    assert!(scrape.text().contains(counted), "{}", scrape.text());

    // Each kind gives its place back when it ends.
    drop(events);
    within("a place", async {
        while !opened(&server, &head("GET /v1/events", ""))
            .await
            .1
            .contains(" 200 ")
        {}
    })
    .await;
    drop(socket);
    within("a place", async {
        while !opened(&server, &head("GET /v1/ws", UPGRADE))
            .await
            .1
            .contains(" 101 ")
        {}
    })
    .await;
}

/// A pool that takes the connection for reusable would lose the request that it sends next.
#[tokio::test]
async fn stream_says_that_its_connection_ends_with_it() {
    let server = Server::start().await;
    let session = Client::open(server.address, "2025-11-25").await;
    let headers = format!("accept: text/event-stream\r\nmcp-session-id: {}\r\n", session.id);
    let (stream, answer) = opened(&server, &head("GET /mcp", &headers)).await;
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    session.delete().await;
    assert_closed(stream).await;
    let (_events, answer) = opened(&server, &head("GET /v1/events", "")).await;
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn body_that_stalls_gets_408_and_the_end() {
    let server = Server::with("[http]\nbody_timeout = '1s'\n").await;
    let json = "content-type: application/json\r\naccept: application/json, text/event-stream\r\n";
    let requests = [
        head("POST /mcp", &format!("{json}content-length: 10\r\n")) + "{",
        head("POST /mcp", &format!("{json}transfer-encoding: chunked\r\n")) + "1\r\n{\r\n",
        head("PUT /v1/resources/a%3Ab", "content-length: 10\r\n"),
        head(
            "POST /v1/resources",
            "content-type: application/x-ndjson\r\ncontent-length: 10\r\n",
        ),
    ];
    for request in requests {
        let mut connection = RawConnection::open(server.address).await;
        connection.send(&request).await;
        let answer = connection.head().await.to_lowercase();
        assert!(answer.starts_with("http/1.1 408 "), "{request}: {answer}");
        assert!(answer.contains("connection: close\r\n"), "{answer}");
        assert_closed(connection).await;
    }
    // A byte now and then does not help.
    let mut connection = RawConnection::open(server.address).await;
    connection
        .send(&head("PUT /v1/resources/a%3Ab", "transfer-encoding: chunked\r\n"))
        .await;
    let (mut reading, mut writing) = connection.stream.split();
    let dripping = async {
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            if tokio::io::AsyncWriteExt::write_all(&mut writing, b"1\r\nx\r\n")
                .await
                .is_err()
            {
                std::future::pending::<()>().await;
            }
        }
    };
    let mut first = [0; 12];
    let reading = tokio::io::AsyncReadExt::read_exact(&mut reading, &mut first);
    tokio::select! {
        () = dripping => {}
        read = within("an answer", reading) => { read.unwrap(); }
    }
    assert_eq!(&first, b"HTTP/1.1 408");
    let scrape = Request::new("GET", "/metrics").send(server.address).await;
    let counted = "tidings_limit_reached_total{limit=\"http.body_timeout\"} 5";
    assert!(scrape.text().contains(counted), "{}", scrape.text());
    server.assert_healthy().await;
}

#[tokio::test]
async fn head_is_judged_before_the_body() {
    let server = Server::start().await;
    let json = "content-type: application/json\r\naccept: application/json, text/event-stream\r\n";
    let html = "content-type: text/html\r\naccept: application/json, text/event-stream\r\n";
    let unknown = format!("{json}mcp-session-id: 0123\r\n");
    // None of these sends a byte of its body.
    for (line, headers, length, status) in [
        ("POST /mcp", html, "9", "415"),
        ("POST /mcp", "accept: */*\r\n", "9", "406"),
        ("POST /mcp", &unknown, "9", "404"),
        ("POST /mcp", json, "99999999", "413"),
        ("PATCH /mcp", json, "9", "405"),
        ("PUT /v1/resources/a%3Ab", "content-type: what\r\n", "9", "415"),
        ("PUT /v1/resources/nothing", "", "9", "400"),
        ("PUT /v1/resources/a%3Ab", "", "99999999", "413"),
        ("PATCH /v1/resources/a%3Ab", "", "9", "405"),
        ("POST /v1/resources", json, "9", "415"),
    ] {
        let request = head(line, &format!("{headers}content-length: {length}\r\n"));
        let (connection, answer) = opened(&server, &request).await;
        let expected = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&expected), "{request}: {answer}");
        // After a short body the connection would go on.
        let ends = answer.to_ascii_lowercase().contains("\r\nconnection: close\r\n");
        assert_eq!(ends, length != "9", "{request}: {answer}");
        if ends {
            assert_closed(connection).await;
        }
    }
    server.assert_healthy().await;
}

#[tokio::test]
async fn bodies_in_flight_have_a_common_limit() {
    let server = Server::with("[http]\nbodies_bytes_max = '1MiB'\n").await;
    let announced = head("PUT /v1/resources/demo%3A%2F%2Fb", "content-length: 1000000\r\n");
    let part = announced + &"x".repeat(900_000);
    let large = "y".repeat(400_000);
    let put = Request::new("PUT", "/v1/resources/demo%3A%2F%2Fa").body(large.as_str());
    let post = Request::post(format!("[{large}]"));
    let (stalled, [refused, _, posted]) = within("the limit", async {
        loop {
            let mut stalled = RawConnection::open(server.address).await;
            let sent = tokio::io::AsyncWriteExt::write_all(&mut stalled.stream, part.as_bytes()).await;
            // Bodies that come at the same time may all be refused, so only a row of refusals shows that this
            // one is there.
            let replies = [
                put.send(server.address).await,
                put.send(server.address).await,
                post.send(server.address).await,
            ];
            if sent.is_ok() && replies.iter().all(|reply| reply.status == 503) {
                return (stalled, replies);
            }
        }
    })
    .await;
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert!(
        refused.text().contains("http.bodies_bytes_max"),
        "{}",
        refused.text()
    );
    assert_eq!(posted.header("retry-after"), Some("5"));
    // Small ones still find room, and the rest does when the client has gone.
    server.put(A, "small").await;
    drop(stalled);
    within("room", async {
        while put.send(server.address).await.status == 503 {}
    })
    .await;
}

#[tokio::test]
async fn flood_of_sessions_keeps_nobody_out() {
    let server = Server::with("[session]\nmax = 3\n").await;
    let victim = Client::open(server.address, "2025-11-25").await;
    let mut flood = Vec::new();
    for _ in 0..20 {
        flood.push(Client::initialize(server.address, "2025-11-25").await);
    }
    let late = Client::open(server.address, "2025-06-18").await;
    for client in [&victim, &late] {
        assert_eq!(client.request("ping", json!({})).await.status, 200);
    }
    let gone = flood[0].request("ping", json!({})).await;
    assert_eq!(gone.status, 404);
    assert!(
        gone.text().contains("notifications/initialized"),
        "{}",
        gone.text()
    );
}

#[tokio::test]
async fn pipelined_request_that_drips_has_an_end() {
    let server = Server::with("[http]\nheader_timeout = '1s'\nbody_timeout = '1s'\n").await;
    let mut connection = RawConnection::open(server.address).await;
    let whole = head("PUT /v1/resources/demo%3A%2F%2Fa", "content-length: 1\r\n") + "x";
    let part = head("PUT /v1/resources/demo%3A%2F%2Fb", "content-length: 1000\r\n");
    connection.send(&(whole + &part)).await;
    assert_eq!(connection.status().await, 201);
    let (mut reading, mut writing) = connection.stream.split();
    let dripping = async {
        while tokio::io::AsyncWriteExt::write_all(&mut writing, b"x")
            .await
            .is_ok()
        {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        std::future::pending::<()>().await;
    };
    let mut first = [0; 12];
    let reading = tokio::io::AsyncReadExt::read_exact(&mut reading, &mut first);
    tokio::select! {
        () = dripping => {}
        read = within("an answer", reading) => { read.unwrap(); }
    }
    assert_eq!(&first, b"HTTP/1.1 408");
}
