//! A connection becomes a WebSocket however its bytes arrive, and as any of its requests.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::io::AsyncReadExt;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::RawConnection;
use crate::mcp::http::within;
use crate::mcp::server::Server;

const UPGRADE: &str = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Returns a GET request with these further header lines.
fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n")
}

/// Asserts that the next answer is an upgrade, and that requests are answered over the WebSocket.
async fn assert_becomes_websocket(mut connection: RawConnection) {
    let head = connection.head().await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let mut socket = WebSocketStream::from_raw_socket(connection.stream, Role::Client, None).await;
    socket
        .send(Message::text(r#"{"type":"ping","id":7}"#))
        .await
        .unwrap();
    let answer = within("a pong", socket.next()).await.unwrap().unwrap();
    assert_eq!(answer, Message::text(r#"{"id":7,"type":"pong"}"#));
}

#[tokio::test]
async fn upgrade_in_any_two_segments_is_a_websocket() {
    let server = Server::start().await;
    let request = get("/v1/ws", UPGRADE);
    for split in [1, 3, 5, 9, 10, 11, 30, request.len() - 1] {
        let mut connection = RawConnection::open(server.address).await;
        connection.send(&request[..split]).await;
        // The server must have read the first segment before the second is there.
        tokio::time::sleep(Duration::from_millis(20)).await;
        connection.send(&request[split..]).await;
        assert_becomes_websocket(connection).await;
    }
}

#[tokio::test]
async fn upgrade_after_other_requests_is_a_websocket() {
    let server = Server::start().await;
    let mut connection = RawConnection::open(server.address).await;
    for path in ["/healthz", "/v1/resources", "/mcp"] {
        connection.send(&get(path, "")).await;
        connection.status().await;
    }
    connection.send(&get("/v1/ws", UPGRADE)).await;
    assert_becomes_websocket(connection).await;
}

#[tokio::test]
async fn upgrade_behind_a_pipelined_request_is_a_websocket() {
    let server = Server::start().await;
    let mut connection = RawConnection::open(server.address).await;
    let pipelined = get("/healthz", "") + &get("/v1/ws", UPGRADE);
    connection.send(&pipelined).await;
    assert_eq!(connection.status().await, 200);
    assert_becomes_websocket(connection).await;
}

#[tokio::test]
async fn refused_upgrade_leaves_the_connection_usable() {
    let server = Server::start().await;
    let mut connection = RawConnection::open(server.address).await;
    // Version 12 was never published.
    let wrong = UPGRADE.replace(": 13", ": 12");
    connection.send(&get("/v1/ws", &wrong)).await;
    assert_eq!(connection.status().await, 426);
    connection.send(&get("/healthz", UPGRADE)).await;
    assert_eq!(connection.status().await, 200);
    connection.send(&get("/v1/ws", UPGRADE)).await;
    assert_becomes_websocket(connection).await;
}

#[tokio::test]
async fn stream_after_other_requests_is_written() {
    let server = Server::start().await;
    let mut connection = RawConnection::open(server.address).await;
    connection.send(&get("/healthz", "")).await;
    assert_eq!(connection.status().await, 200);
    connection.send(&get("/v1/events", "")).await;
    let head = connection.head().await;
    assert!(head.contains("text/event-stream"), "{head}");
    let mut first = [0; 64];
    within("the first chunk", connection.stream.read_exact(&mut first))
        .await
        .unwrap();
    let first = String::from_utf8_lossy(&first);
    assert!(first.contains("\r\nretry: 3000\nid: "), "{first}");
}

#[tokio::test]
async fn stream_beside_offered_protocol_is_written() {
    let server = Server::start().await;
    let mut connection = RawConnection::open(server.address).await;
    // Some clients offer HTTP/2 with their first request.
    let offer =
        "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n";
    connection.send(&get("/v1/events", offer)).await;
    let head = connection.head().await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let mut first = [0; 64];
    within("the first chunk", connection.stream.read_exact(&mut first))
        .await
        .unwrap();
}

#[tokio::test]
async fn websocket_counts_among_connections_until_it_ends() {
    let server = Server::with("[http]\nconnections_max = 1\n").await;
    let mut connection = RawConnection::open(server.address).await;
    connection.send(&get("/v1/ws", UPGRADE)).await;
    assert!(connection.head().await.starts_with("HTTP/1.1 101 "));

    // A second connection is closed without an answer.
    let mut refused = RawConnection::open(server.address).await;
    let mut bytes = Vec::new();
    within(
        "the end of a refused connection",
        refused.stream.read_to_end(&mut bytes),
    )
    .await
    .unwrap();
    assert!(bytes.is_empty());

    // The end of the WebSocket makes room for another.
    drop(connection);
    within("room for a connection", async {
        loop {
            let mut next = RawConnection::open(server.address).await;
            next.send(&get("/healthz", "")).await;
            if next.stream.read_u8().await.is_ok() {
                return;
            }
        }
    })
    .await;
}
