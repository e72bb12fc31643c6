//! Requests that are answered before their body has come, over real connections.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::RawConnection;
use super::tls::Secure;
use super::tls::authority::connect;
use crate::mcp::http::{Request, within};
use crate::mcp::server::Server;

/// Returns the head of a request with these headers.
fn head(line: &str, headers: &str) -> String {
    format!("{line} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n")
}

/// Reads an answer whose connection ends. Returns its head.
async fn last_answer(connection: &mut RawConnection) -> String {
    let mut answer = Vec::new();
    let read = connection.stream.read_to_end(&mut answer);
    within("the end of the connection", read).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, _) = answer.split_once("\r\n\r\n").unwrap();
    head.to_ascii_lowercase()
}

/// Asserts how often the limit `key` was reached.
async fn assert_counted(server: &Server, key: &str, times: u32) {
    let counted = format!("tidings_limit_reached_total{{limit=\"{key}\"}} {times}\n");
    let metrics = Request::new("GET", "/metrics").send(server.address).await;
    assert!(metrics.text().contains(&counted), "{}", metrics.text());
}

#[tokio::test]
async fn connection_outlives_a_refusal_before_the_body() {
    let server = Server::start().await;
    let mut connection = RawConnection::open(server.address).await;
    let resource = "PUT /v1/resources/a%3Ab";
    for (line, header, length, status) in [
        ("POST /v1/nothing", "", 2, 404),
        (resource, "content-type: what\r\n", 2, 415),
        ("PUT /v1/resources/nothing", "", 20_000, 400),
        ("PATCH /v1/resources/a%3Ab", "", 200_000, 405),
        ("POST /mcp", "accept: */*\r\n", 9, 406),
    ] {
        let request = head(line, &format!("{header}content-length: {length}\r\n"));
        connection.send(&request).await;
        assert_eq!(connection.status().await, status, "{request}");
        connection.send(&"x".repeat(length)).await;
        connection.send(&head("GET /healthz", "")).await;
        assert_eq!(connection.status().await, 200, "{request}");
    }
    assert_counted(&server, "http.unread_timeout", 0).await;
}

#[tokio::test]
async fn refusal_reaches_a_client_that_sends_it_all() {
    let server = Server::start().await;
    let body = vec![b'x'; 8 << 20];
    let put = "PUT /v1/resources/a%3Ab";
    let typed = "content-type: what\r\ncontent-length: 8388608\r\n";
    for (line, headers, status) in [
        (put, typed, "415"),
        ("POST /v1/nothing", "content-length: 8388608\r\n", "404"),
        // The length of these is unknown when they are answered.
        (put, "content-type: what\r\ntransfer-encoding: chunked\r\n", "415"),
    ] {
        let mut connection = RawConnection::open(server.address).await;
        let mut request = head(line, headers);
        if headers.contains("chunked") {
            request += "800000\r\n";
        }
        connection.send(&request).await;
        within("the body", connection.stream.write_all(&body))
            .await
            .unwrap();
        let answer = last_answer(&mut connection).await;
        assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{answer}");
        assert!(answer.contains("\r\nconnection: close"), "{answer}");
    }
    // The library answers this one, and reads no further.
    let mut connection = RawConnection::open(server.address).await;
    let long = format!("{}x: {}", head("GET /", "").trim_end(), "x".repeat(4 << 20));
    connection.send(&long).await;
    let answer = last_answer(&mut connection).await;
    assert!(answer.starts_with("http/1.1 431 "), "{answer}");
    server.assert_healthy().await;
}

#[tokio::test]
async fn refusal_over_tls_reaches_a_client_that_sends_all() {
    let secure = Secure::with("", |_, _| {}).await;
    let body = vec![b'x'; 8 << 20];
    for (line, headers, status) in [
        ("POST /v1/nothing", "content-length: 8388608\r\n", "404"),
        (
            "PUT /v1/resources/a%3Ab",
            "content-type: what\r\ntransfer-encoding: chunked\r\n",
            "415",
        ),
    ] {
        let client = secure.authority.client(None);
        let mut stream = connect(&client, secure.address, false).await.unwrap();
        let mut request = head(line, headers);
        if headers.contains("chunked") {
            request += "800000\r\n";
        }
        stream.write_all(request.as_bytes()).await.unwrap();
        // All of it before the answer is read, as simple clients do.
        within("the body", stream.write_all(&body)).await.unwrap();
        within("the body", stream.flush()).await.unwrap();
        let mut answer = Vec::new();
        // An end without the closing message of TLS would be an error, and so would a reset.
        within("the end of the connection", stream.read_to_end(&mut answer))
            .await
            .unwrap();
        let answer = String::from_utf8(answer).unwrap().to_ascii_lowercase();
        assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{answer}");
        assert!(answer.contains("\r\nconnection: close"), "{answer}");
    }
    secure.server.assert_healthy().await;
}

#[tokio::test]
async fn client_that_awaits_the_answer_is_told_of_the_end() {
    let server = Server::start().await;
    let mut connection = RawConnection::open(server.address).await;
    let headers = "content-type: what\r\nexpect: 100-continue\r\ncontent-length: 9\r\n";
    connection.send(&head("PUT /v1/resources/a%3Ab", headers)).await;
    let answer = last_answer(&mut connection).await;
    assert!(answer.starts_with("http/1.1 415 "), "{answer}");
    assert!(answer.contains("\r\nconnection: close"), "{answer}");
}

#[tokio::test]
async fn unread_bodies_have_limits() {
    let server = Server::with("[http]\nunread_bytes_max = '256KiB'\nunread_timeout = '1s'\n").await;
    // Sends without an end.
    let mut connection = RawConnection::open(server.address).await;
    let headers = "content-type: what\r\ncontent-length: 99999999999\r\n";
    connection.send(&head("PUT /v1/resources/a%3Ab", headers)).await;
    let sending = async {
        let part = [b'x'; 64 << 10];
        while connection.stream.write_all(&part).await.is_ok() {}
    };
    within("the limit of bytes", sending).await;
    assert_counted(&server, "http.unread_bytes_max", 1).await;
    // Announces a short body and does not send it.
    let mut connection = RawConnection::open(server.address).await;
    let headers = "content-type: what\r\ncontent-length: 9\r\n";
    connection.send(&head("PUT /v1/resources/a%3Ab", headers)).await;
    let answer = last_answer(&mut connection).await;
    assert!(answer.starts_with("http/1.1 415 "), "{answer}");
    assert_counted(&server, "http.unread_timeout", 1).await;
    server.assert_healthy().await;
}
