//! One rule of hosts and origins before every path.

use std::net::SocketAddr;

use axum::body::Body;
use serde_json::json;
use tidings::Bus;
use tidings::mcp::{Endpoint, McpOptions};

use super::RawConnection;
use crate::mcp::server::Server;

/// Paths that answer a caller who is let in.
const GUARDED: [&str; 5] = ["/mcp", "/v1/resources", "/v1/events", "/v1/ws", "/metrics"];

/// Request targets and headers of callers that are not let in. No browser sends most of them, but a lax proxy
/// may.
const REFUSED: [(&str, &str); 22] = [
    ("", ""),
    ("", "host: evil.example\r\n"),
    ("", "host: localhost\r\nhost: evil.example\r\n"),
    ("", "host: localhost\r\nhost: localhost\r\n"),
    ("http://evil.example", "host: localhost\r\n"),
    ("", "host: a@localhost\r\n"),
    ("", "host: evil.example@127.0.0.1\r\n"),
    ("", "host: localhost:evil\r\n"),
    ("", "host: localhost:99999\r\n"),
    ("", "host: localhost:\r\n"),
    ("", "host: \r\n"),
    (
        "",
        "host: localhost\r\norigin: http://localhost\r\norigin: http://evil.example\r\n",
    ),
    (
        "",
        "host: localhost\r\norigin: http://localhost\r\norigin: http://localhost\r\n",
    ),
    ("", "host: localhost\r\norigin: http://localhost/x\r\n"),
    ("", "host: localhost\r\norigin: http://localhost:abc\r\n"),
    ("", "host: localhost\r\norigin: http://localhost#@evil\r\n"),
    ("", "host: localhost\r\norigin: http://evil.example\r\n"),
    ("", "host: localhost\r\norigin: null\r\n"),
    (
        "",
        "host: localhost\r\norigin: http://127.0.0.1:8808.evil.example\r\n",
    ),
    ("http://evil.example:80", "host: 127.0.0.1\r\n"),
    ("", "host: localhost\r\nsec-fetch-site: cross-site\r\n"),
    ("", "host: localhost\r\norigin: \u{e9}\r\n"),
];

async fn status(server: SocketAddr, path: &str, target: &str, headers: &str) -> u16 {
    let mut connection = RawConnection::open(server).await;
    let request = format!("GET {target}{path} HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
    connection.send(&request).await;
    connection.status().await
}

#[tokio::test]
async fn unknown_host_or_origin_is_refused_on_every_path() {
    let server = Server::start().await;
    for path in GUARDED {
        for (target, headers) in REFUSED {
            let status = status(server.address, path, target, headers).await;
            assert_eq!(status, 403, "{path}: {target} {headers:?}");
        }
    }
}

/// Requests that a browser marks as those of a page elsewhere.
#[tokio::test]
async fn writes_of_foreign_pages_are_refused() {
    let config = "[http]\nallowed_origins = [\"https://app.example\"]\n";
    let server = Server::with(config).await;
    let status = async |method: &str, path: &str, headers: &str| {
        let mut connection = RawConnection::open(server.address).await;
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}connection: close\r\n");
        let rest = "content-type: text/plain\r\ncontent-length: 1\r\n\r\nx";
        connection.send(&format!("{head}{rest}")).await;
        connection.status().await
    };
    let writes = [
        ("POST", "/mcp"),
        ("DELETE", "/mcp"),
        ("POST", "/v1/resources/demo%3Aa"),
        ("POST", "/v1/resources/demo%3Aa/touch"),
        ("PUT", "/v1/resources/demo%3Aa"),
        ("DELETE", "/v1/resources/demo%3Aa"),
        ("DELETE", "/v1/sessions/s1"),
        ("POST", "/v1/resources"),
    ];
    for (method, path) in writes {
        for site in ["cross-site", "same-site"] {
            for origin in ["", "origin: http://localhost:3000\r\n"] {
                let headers = format!("sec-fetch-site: {site}\r\n{origin}");
                assert_eq!(
                    status(method, path, &headers).await,
                    403,
                    "{method} {path} {headers}"
                );
            }
        }
    }
    for headers in [
        "",
        "sec-fetch-site: same-origin\r\n",
        "sec-fetch-site: none\r\n",
        "sec-fetch-site: cross-site\r\norigin: https://app.example\r\n",
    ] {
        let status = status("PUT", "/v1/resources/demo%3Ab", headers).await;
        assert!(matches!(status, 201 | 204), "{status} for {headers}");
    }
}

#[tokio::test]
async fn loopback_pages_may_read_events_across_sites() {
    let server = Server::start().await;
    let request = crate::mcp::http::Request::new("GET", "/v1/events").header("sec-fetch-site", "cross-site");
    assert_eq!(request.open(server.address).await.status, 403);
    let request = request.header("origin", "http://127.0.0.1:3000");
    assert_eq!(request.open(server.address).await.status, 200);
}

#[tokio::test]
async fn health_is_answered_whatever_the_host() {
    let server = Server::start().await;
    for (target, headers) in REFUSED {
        for path in ["/healthz", "/readyz"] {
            let status = status(server.address, path, target, headers).await;
            assert_eq!(status, 200, "{path}: {target} {headers:?}");
        }
    }
}

#[tokio::test]
async fn known_hosts_and_origins_may_call_every_path() {
    let config = "[http]\nallowed_hosts = [\"bus.example\"]\nallowed_origins = [\"https://app.example\"]\n";
    let server = Server::with(config).await;
    let callers = [
        ("", "host: localhost\r\n"),
        ("", "host: LOCALHOST:1\r\norigin: http://127.0.0.1:3000\r\n"),
        (
            "",
            "host: bus.example:8080\r\norigin: https://app.example:443\r\n",
        ),
        ("http://[::1]:80", "host: [::1]:80\r\n"),
    ];
    for (target, headers) in callers {
        // The answers of callers that are let in but ask for nothing that these paths have.
        for (path, expected) in [
            ("/mcp", 406),
            ("/v1/resources", 200),
            ("/v1/ws", 426),
            ("/metrics", 200),
        ] {
            let status = status(server.address, path, target, headers).await;
            assert_eq!(status, expected, "{path}: {target} {headers:?}");
        }
    }
}

#[tokio::test]
async fn refusal_on_mcp_names_host_and_remedy() {
    let server = Server::start().await;
    let mut request = crate::mcp::http::Request::post(json!({}).to_string());
    request = request.header("host", "evil.example");
    let reply = request.send(server.address).await;
    assert_eq!(reply.status, 403);
    assert!(reply.text().contains("evil.example") && reply.text().contains("http.allowed_hosts"));
}

#[tokio::test]
async fn embedded_endpoint_refuses_unknown_callers_itself() {
    let bus = Bus::builder().start().unwrap();
    let endpoint = Endpoint::new(bus, McpOptions::default());
    let answer = async |headers: &[(&str, &str)]| {
        let mut request = ::http::Request::get("/mcp");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        endpoint
            .handle(request.body(Body::empty()).unwrap())
            .await
            .status()
    };
    assert_eq!(answer(&[("host", "localhost")]).await, 406);
    assert_eq!(answer(&[("host", "evil.example")]).await, 403);
    assert_eq!(
        answer(&[("host", "localhost"), ("host", "evil.example")]).await,
        403
    );
    assert_eq!(answer(&[]).await, 403);
}
