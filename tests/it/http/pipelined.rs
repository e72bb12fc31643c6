//! Pipelined `PUT`s are served together and answered in order.

use super::RawConnection;
use crate::mcp::server::Server;

fn put(uri: &str, headers: &str, body: &str) -> String {
    let len = body.len();
    format!(
        "PUT /v1/resources/{uri} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {len}\r\n\r\n{body}"
    )
}

/// The statuses of the next answers.
async fn statuses(connection: &mut RawConnection, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..count {
        statuses.push(connection.status().await);
    }
    statuses
}

#[tokio::test]
async fn pipelined_puts_are_answered_in_order() {
    let server = Server::start().await;
    let mut connection = RawConnection::open(server.address).await;
    let mut requests = String::new();
    for n in 0..150 {
        requests += &put(&format!("demo%3A{n}"), "content-type: text/plain\r\n", "new");
    }
    // Refused one by one: the wrong media type, the wrong host, no URI.
    requests += &put("demo%3A0", "content-type: none\r\n", "x");
    requests += &put("demo%3A1", "", "x").replace("localhost", "elsewhere.example");
    requests += &put("none", "", "x");
    // Changes of one resource keep their order, with an empty body too.
    requests += &put("demo%3A7", "content-type: text/plain\r\n", "second");
    requests += &put("demo:7", "content-type: text/plain\r\n", "");
    requests += &put("demo%3A7", "content-type: text/plain\r\n", "last");
    requests += "GET /v1/resources/demo%3A7 HTTP/1.1\r\nhost: localhost\r\n\r\n";
    connection.send(&requests).await;
    assert_eq!(statuses(&mut connection, 150).await, [201; 150]);
    assert_eq!(statuses(&mut connection, 6).await, [415, 403, 400, 204, 204, 204]);
    let head = connection.head().await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("etag: \"v4-"), "{head}");
}

#[tokio::test]
async fn request_in_pieces_after_a_run_is_answered() {
    let server = Server::start().await;
    let mut connection = RawConnection::open(server.address).await;
    let last = put("demo%3Ac", "", "in two pieces");
    let (first, second) = last.split_at(40);
    let run = put("demo%3Aa", "", "1") + &put("demo%3Ab", "", "1") + first;
    connection.send(&run).await;
    assert_eq!(statuses(&mut connection, 2).await, [201, 201]);
    connection.send(second).await;
    assert_eq!(connection.status().await, 201);
    // Single requests, and others than PUT, go on as before.
    connection.send(&put("demo%3Ad", "", "1")).await;
    assert_eq!(connection.status().await, 201);
    connection
        .send("DELETE /v1/resources/demo%3Ad HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    assert_eq!(connection.status().await, 204);
    connection.send(&put("demo%3Ad", "", "1")).await;
    assert_eq!(connection.status().await, 201);
}
