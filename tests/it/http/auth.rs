//! Callers with and without credentials, over the real service.

pub(super) mod issuer;

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use super::RawConnection;
use crate::mcp::http::within;
use crate::mcp::server::{Server, binary};

/// Paths that need credentials, with the status that a caller with every right gets.
const GUARDED: [(&str, &str, &str); 6] = [
    ("GET /v1/resources", "", "200"),
    ("GET /v1/sessions", "", "200"),
    ("GET /v1/events", "", "200"),
    (
        "GET /v1/ws",
        "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        "101",
    ),
    ("GET /metrics", "", "200"),
    (
        "POST /mcp",
        "content-type: application/json\r\naccept: application/json, text/event-stream\r\ncontent-length: 2\r\n",
        "400",
    ),
];

/// A service with one token for every right.
pub(super) struct Guarded {
    pub(super) folder: TempDir,
    pub(super) server: Server,
    pub(super) token: String,
}

impl Guarded {
    pub(super) async fn start(more: &str) -> Guarded {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("ci");
        let made = Command::new(binary())
            .args(["token", "new", "ci", "--file"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let token = String::from_utf8(made.stdout).unwrap().trim_end().to_owned();
        let file = file.display();
        let config = format!(
            "[auth]\nanonymous = 'none'\n{more}\n[[auth.token]]\nname = 'ci'\nfile = '{file}'\nroles = ['all']\n\
             [[auth.rule]]\nroles = ['all']\n\
             may = ['list', 'read', 'subscribe', 'publish', 'call', 'admin', 'metrics']\n\
             match = ['*', 'tool:*', 'prompt:*']\n"
        );
        let server = Server::with(&config).await;
        Guarded {
            folder,
            server,
            token,
        }
    }

    /// Sends a request with this header, and returns the head of the answer.
    async fn head(&self, line: &str, headers: &str, credentials: &str) -> String {
        let mut connection = RawConnection::open(self.server.address).await;
        let head = format!("{line} HTTP/1.1\r\nhost: localhost\r\n{headers}{credentials}\r\n");
        connection.send(&head).await;
        if line.starts_with("POST") && credentials.contains(&self.token) {
            connection.send("{}").await;
        }
        connection.head().await.to_ascii_lowercase()
    }
}

fn assert_refused(head: &str, status: &str, challenge: &str) {
    assert!(head.starts_with(&format!("http/1.1 {status} ")), "{head}");
    assert!(
        head.contains(&format!("www-authenticate: {challenge}\r\n")),
        "{head}"
    );
    assert!(head.contains("cache-control: no-store\r\n"), "{head}");
}

#[tokio::test]
async fn guarded_paths_need_good_credentials() {
    let guarded = Guarded::start("").await;
    for (line, headers, status) in GUARDED {
        // The body of the POST is not sent, so these answers do not wait for it.
        let head = guarded.head(line, headers, "").await;
        assert_refused(&head, "401", "bearer");
        let head = guarded
            .head(line, headers, "authorization: Bearer tdg_x\r\n")
            .await;
        assert_refused(&head, "401", "bearer error=\"invalid_token\"");
        let basic = "authorization: Basic dGRnX3g6\r\n";
        let head = guarded.head(line, headers, basic).await;
        assert_refused(&head, "400", "bearer error=\"invalid_request\"");
        let good = format!("authorization: Bearer {}\r\n", guarded.token);
        let head = guarded.head(line, headers, &good).await;
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{line}: {head}");
        let head = guarded.head(line, headers, &good.repeat(2)).await;
        assert_refused(&head, "400", "bearer error=\"invalid_request\"");
    }
    for line in ["GET /healthz", "GET /readyz"] {
        let head = guarded.head(line, "", "").await;
        assert!(head.starts_with("http/1.1 200 "), "{head}");
    }
}

#[tokio::test]
async fn refusal_comes_before_the_body() {
    let guarded = Guarded::start("").await;
    for line in [
        "PUT /v1/resources/a%3Ab",
        "POST /v1/resources",
        "PUT /v1/resources/a%3Ab/touch",
    ] {
        for framing in ["content-length: 10\r\n", "transfer-encoding: chunked\r\n"] {
            let head = guarded.head(line, framing, "").await;
            assert_refused(&head, "401", "bearer");
        }
    }
}

#[tokio::test]
async fn removed_token_is_refused_from_then_on() {
    let guarded = Guarded::start("").await;
    let good = format!("authorization: Bearer {}\r\n", guarded.token);
    let head = guarded.head("GET /v1/resources", "", &good).await;
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    fs::write(guarded.folder.path().join("ci"), "# nobody\n").unwrap();
    within("the end of the token", async {
        while guarded
            .head("GET /v1/resources", "", &good)
            .await
            .starts_with("http/1.1 200 ")
        {}
    })
    .await;
    let head = guarded.head("GET /v1/resources", "", &good).await;
    assert_refused(&head, "401", "bearer error=\"invalid_token\"");
}

#[tokio::test]
async fn wrong_credentials_are_limited_by_address() {
    let guarded = Guarded::start("failures_max = 3").await;
    let wrong = "authorization: Bearer tdg_x\r\n";
    for _ in 0..3 {
        let head = guarded.head("GET /v1/resources", "", wrong).await;
        assert_refused(&head, "401", "bearer error=\"invalid_token\"");
    }
    let head = guarded.head("GET /v1/resources", "", wrong).await;
    assert!(head.starts_with("http/1.1 429 "), "{head}");
    assert!(head.contains("retry-after: "), "{head}");
    assert!(!head.contains("www-authenticate"), "{head}");
    let good = format!("authorization: Bearer {}\r\n", guarded.token);
    let head = guarded.head("GET /v1/resources", "", &good).await;
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    let scrape = crate::mcp::http::Request::new("GET", "/metrics")
        .header("authorization", format!("Bearer {}", guarded.token))
        .send(guarded.server.address)
        .await;
    for row in [
        "tidings_auth_total{result=\"invalid\"} 3",
        "tidings_auth_total{result=\"too_many\"} 1",
        "tidings_limit_reached_total{limit=\"auth.failures_max\"} 1",
    ] {
        assert!(scrape.text().contains(row), "{row} in {}", scrape.text());
    }
}
