//! How clients of MCP subscribe, in both eras.
//!
//! Owns: the handshakes, from the first request to the moment at which the stream counts. Works with the service and
//! with its twin of rmcp alike. Never: reads a notice.

use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::client::{AT_ONCE, Client};
use super::kind::uri;
use super::matches::position;

const SESSIONS_REVISION: &str = "2025-11-25";
const LISTEN_REVISION: &str = "2026-07-28";

/// Begins a session and subscribes it to `names`; answers the headers of its further requests.
pub(crate) fn start_session(client: &mut Client, names: &[String]) -> anyhow::Result<String> {
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": SESSIONS_REVISION, "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    }});
    client.send(&post(client.address, "", &initialize))?;
    let answer = client.answer()?;
    let id = answer
        .header("mcp-session-id")
        .context("the answer to initialize names no session")?;
    let headers = format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: {SESSIONS_REVISION}\r\n");
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    client.send(&post(client.address, &headers, &initialized))?;
    client.answer()?;
    for names in names.chunks(AT_ONCE) {
        subscribe(client, &headers, names)?;
    }
    Ok(headers)
}

fn subscribe(client: &mut Client, headers: &str, names: &[String]) -> anyhow::Result<()> {
    let requests = names.iter().enumerate().map(|(id, name)| {
        let subscribe = json!({"jsonrpc": "2.0", "id": id + 1, "method": "resources/subscribe",
            "params": {"uri": uri(name)}});
        post(client.address, headers, &subscribe)
    });
    let requests: Vec<u8> = requests.flatten().collect();
    client.send(&requests)?;
    for _ in names {
        let body = client.answer()?.body;
        let refused = position(&body, b"\"error\"").is_some();
        ensure!(
            !refused,
            "a subscription was refused: {}",
            String::from_utf8_lossy(&body)
        );
    }
    Ok(())
}

/// Makes a connection the stream of the session with these headers, or of nobody in particular.
pub(crate) fn open_stream(mut client: Client, headers: &str) -> anyhow::Result<TcpStream> {
    let address = client.address;
    let request =
        format!("GET /mcp HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n{headers}\r\n");
    client.send(request.as_bytes())?;
    client.head()?;
    Ok(client.into_socket())
}

/// Makes a connection a listen stream; it answers once the server has acknowledged it.
pub(crate) fn listen(mut client: Client, index: usize, names: &[String]) -> anyhow::Result<TcpStream> {
    let uris: Vec<String> = names.iter().map(|name| uri(name)).collect();
    // Clients count their requests, so ids are small and shared by many.
    let listen = json!({"jsonrpc": "2.0", "id": index % 8 + 1, "method": "subscriptions/listen", "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": LISTEN_REVISION,
            "io.modelcontextprotocol/clientCapabilities": {},
        },
        "notifications": {"resourceSubscriptions": uris},
    }});
    let headers = format!("MCP-Protocol-Version: {LISTEN_REVISION}\r\nMcp-Method: subscriptions/listen\r\n");
    client.send(&post(client.address, &headers, &listen))?;
    client.head()?;
    // The stream counts from its acknowledgement on, which names the URIs too and ends with an empty line.
    let acknowledged = b"notifications/subscriptions/acknowledged";
    loop {
        let begun = position(&client.buffer, acknowledged);
        if begun.is_some_and(|at| position(&client.buffer[at..], b"\n\n").is_some()) {
            return Ok(client.into_socket());
        }
        client.more()?;
    }
}

fn post(address: SocketAddr, headers: &str, message: &Value) -> Vec<u8> {
    let body = message.to_string();
    let length = body.len();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
    .into_bytes()
}
