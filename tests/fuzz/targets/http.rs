//! JSON-RPC over HTTP: a whole connection to the public server, or one message in a correct request.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use support::{bus, in_time};
use tidings::config::HttpConfig;
use tidings::http::HttpServer;
use tidings::mcp::{Endpoint, McpOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

static SERVER: LazyLock<HttpServer<Endpoint>> = LazyLock::new(|| {
    let bus = bus();
    let endpoint = Endpoint::new(bus.clone(), McpOptions::default());
    HttpServer::new(&bus, endpoint, &HttpConfig::default())
});

/// The first bytes of a client that speaks HTTP/2 (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The head of a request that carries a message of a revision.
fn head(revision: &str, method: &str, length: usize) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\n{revision}mcp-method: {method}\r\n\
         connection: close\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// Returns true for an answer in the protocol of the client: HTTP/2 after its first bytes, HTTP/1 otherwise.
fn is_http(sent: &[u8], answer: &[u8]) -> bool {
    match sent.starts_with(PREFACE) {
        // The type of the first frame: the settings of the server.
        true => answer.get(3) == Some(&4),
        false => answer.starts_with(b"HTTP/1."),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, body)) = data.split_first() else {
        return;
    };
    let revision = match kind % 4 {
        0 => None,
        1 => Some(""),
        2 => Some("mcp-protocol-version: 2025-11-25\r\n"),
        _ => Some("mcp-protocol-version: 2026-07-28\r\n"),
    };
    let method = match kind / 4 % 4 {
        0 => "initialize",
        1 => "tools/call",
        2 => "subscriptions/listen",
        _ => "resources/read",
    };
    let mut sent = match revision {
        Some(revision) => head(revision, method, body.len()).into_bytes(),
        None => Vec::new(),
    };
    sent.extend_from_slice(body);
    let (mut client, server) = duplex(64 << 10);
    let peer = "127.0.0.1:1".parse().expect("an address");
    SERVER.serve(peer, move || Ok(server)).expect("a place");
    in_time(async {
        let (mut from, mut to) = tokio::io::split(&mut client);
        let sending = async {
            // The server may close before it has read everything.
            let _refused = to.write_all(&sent).await;
            let _refused = to.shutdown().await;
        };
        let mut answer = Vec::new();
        let (_, read) = tokio::join!(sending, from.read_to_end(&mut answer));
        if read.is_ok() && !answer.is_empty() {
            assert!(is_http(&sent, &answer), "the answer is HTTP");
        }
    });
});
