//! The load whose sessions are streams of shared connections of HTTP/2.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use tidings::bench::{Era, Pace, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{all_kinds, bench, run, stderr};
use crate::mcp::server::Server;

/// Streams on three connections.
pub(super) fn streams(server: &Server) -> Settings {
    Settings {
        http2: true,
        http2_connections: Some(3),
        era: Era::Modern,
        stalled: 0,
        slow: 0,
        churn: 0.0,
        pollers: 0,
        duration: Duration::from_secs(1),
        ..all_kinds(server)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_shared_connections_are_told() {
    let server = Server::start().await;
    let report = run(streams(&server)).await;
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(report.opened.sessions, 50);
    assert_eq!(report.settings["http2_connections"], 3);
    let reading = report.group("reading").unwrap();
    // 1.2 seconds at 100 per second; two subscriptions each, spread evenly over ten resources.
    assert_eq!((reading.clients, reading.owed), (50, 120 * 50 * 2 / 10));
    assert_eq!(
        reading.deliveries + reading.conflated,
        reading.owed,
        "{reading:?}"
    );
    assert_eq!(
        (reading.untold, reading.again, reading.backward),
        (0, 0, 0),
        "{reading:?}"
    );
    assert!(reading.latency.count > 0, "{reading:?}");
    server.assert_healthy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_streams_get_the_last_state() {
    let server = Server::start().await;
    let settings = Settings {
        // Enough notices to fill the small window of a stalled stream.
        pace: Pace::PerSecond(300.0),
        resources: 2,
        stalled: 9,
        ..streams(&server)
    };
    let report = run(settings).await;
    assert_eq!(report.problems, Vec::<String>::new());
    let stalled = report.group("stalled").unwrap();
    assert_eq!(stalled.clients, 9);
    assert_eq!(
        stalled.deliveries + stalled.conflated,
        stalled.owed,
        "{stalled:?}"
    );
    assert!(stalled.conflated > 0, "{stalled:?}");
    let reading = report.group("reading").unwrap();
    assert_eq!((reading.missing_finals, reading.untold), (0, 0), "{reading:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_stream_is_quoted() {
    let server = Server::with("[session]\nstreams_max = 3\n").await;
    let url = format!("http://{}/mcp", server.address);
    let output = bench(&[&url, "--http2", "--sessions", "8"]).await;
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("of 8 sessions could not be opened: the stream was refused: HTTP status"),
        "{}",
        stderr(&output)
    );
    let few = Server::with("[http]\nh2_streams_max = 2\n").await;
    let url = format!("http://{}/mcp", few.address);
    let output = bench(&[&url, "--http2", "--sessions", "8"]).await;
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("--connections 4 or more"),
        "{}",
        stderr(&output)
    );
}

/// Answers requests of HTTP/1.1 as the service does, and connections of HTTP/2 with these bytes.
async fn hostile(server: SocketAddr, bytes: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut first = [0; 3];
                socket.peek(&mut first).await.unwrap();
                if &first == b"PRI" {
                    socket.write_all(bytes).await.unwrap();
                    let mut sink = Vec::new();
                    socket.read_to_end(&mut sink).await.ok();
                } else {
                    let mut service = tokio::net::TcpStream::connect(server).await.unwrap();
                    tokio::io::copy_bidirectional(&mut socket, &mut service)
                        .await
                        .ok();
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_server_ends_the_run_with_a_reason() {
    let server = Server::start().await;
    for (bytes, reason) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            "HTTP/1.1, not in HTTP/2",
        ),
        (b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x00\0\0\0\0\x01\0", "not open"),
        (b"\xff\0\0\x04\0\0\0\0\0", "more than the 16384"),
        (
            b"\0\0\0\x04\0\0\0\0\0\0\0\x0d\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0benough",
            "ENHANCE_YOUR_CALM, enoug",
        ),
    ] {
        let address = hostile(server.address, bytes).await;
        let url = format!("http://{address}/mcp");
        let output = bench(&[&url, "--http2", "--sessions", "4", "--open-timeout", "20s"]).await;
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains(reason), "{reason}: {}", stderr(&output));
    }
}
