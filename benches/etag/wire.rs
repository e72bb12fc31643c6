//! What a polling client sends, and what it must be answered, as bytes.
//!
//! Owns: requests made once and numbered afresh for each poll, and just enough of HTTP/1.1 to read answers whose length
//! is known. Written by hand, so that no client library's own share is mistaken for the server's.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

/// How long one answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(20);
const HEAD_END: &[u8] = b"\r\n\r\n";
/// The number in the first request, which leaves room for all others with as many digits.
pub(super) const FIRST_ID: u64 = 100_000_000;

/// Which form of the protocol the polls have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    /// In a session of 2025-11-25.
    Session,
    /// Each for itself, as of 2026-07-28.
    Stateless,
}

impl Era {
    pub(super) fn name(self) -> &'static str {
        match self {
            Era::Session => "session 2025-11-25",
            Era::Stateless => "stateless 2026-07-28",
        }
    }
}

/// A connection that polls, with what it sends and expects.
pub(super) struct Poller {
    pub(super) socket: TcpStream,
    pub(super) request: Numbered,
    /// The answer's body.
    pub(super) expected: Numbered,
    /// Bytes of an answer with its head.
    pub(super) answer_bytes: usize,
}

/// Bytes with a place for a number of nine digits, or with none.
pub(super) struct Numbered {
    bytes: Vec<u8>,
    at: Option<usize>,
}

impl Numbered {
    fn new(bytes: Vec<u8>, id: Option<u64>) -> Numbered {
        let at = id.and_then(|id| position(&bytes, id.to_string().as_bytes()));
        Numbered { bytes, at }
    }

    /// The bytes with this number.
    pub(super) fn with(&mut self, id: u64) -> &[u8] {
        if let Some(at) = self.at {
            let mut rest = id;
            for digit in self.bytes[at..at + 9].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
        &self.bytes
    }
}

/// Makes a resource at the service; answers its etag.
pub(super) fn put(address: SocketAddr, uri: &str) -> anyhow::Result<String> {
    let path = uri.replace(':', "%3A").replace('/', "%2F");
    let head = format!(
        "PUT /v1/resources/{path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\none"
    );
    let answer = exchange(&mut connect(address)?, head.as_bytes())?;
    let etag = answer
        .header("etag")
        .context("a PUT was answered without an etag")?;
    Ok(etag.trim_matches('"').to_owned())
}

/// Opens a connection that polls `uri` with the etag it holds, and checks the first answer.
pub(super) fn open(address: SocketAddr, era: Era, uri: &str, etag: &str) -> anyhow::Result<Poller> {
    let mut socket = connect(address)?;
    let headers = match era {
        Era::Session => open_session(&mut socket, address)?,
        Era::Stateless => {
            "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: get_resource_etag\r\n"
                .to_owned()
        }
    };
    let mut params = json!({"name": "get_resource_etag", "arguments": {"uri": uri, "client_etag": etag}});
    if era == Era::Stateless {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
    }
    let call = json!({"jsonrpc": "2.0", "id": FIRST_ID, "method": "tools/call", "params": params});
    let request = post(address, &headers, &call);
    let answer = exchange(&mut socket, &request)?;
    let body: Value = serde_json::from_slice(&answer.body)?;
    let told = &body["result"]["structuredContent"];
    ensure!(
        told["etag_encoded"] == etag && told["stale_for_client"] == false && body["id"] == FIRST_ID,
        "{uri} is at {etag}, and its poll was answered {body}"
    );
    Ok(Poller {
        socket,
        request: Numbered::new(request, Some(FIRST_ID)),
        answer_bytes: answer.bytes(),
        expected: Numbered::new(answer.body, Some(FIRST_ID)),
    })
}

/// Opens a connection to the twin that sends the same `request`.
pub(super) fn open_twin(address: SocketAddr, request: Vec<u8>, body: &[u8]) -> anyhow::Result<Poller> {
    let mut socket = connect(address)?;
    let answer = exchange(&mut socket, &request)?;
    ensure!(answer.body == body, "the twin answers something else");
    Ok(Poller {
        socket,
        request: Numbered::new(request, Some(FIRST_ID)),
        answer_bytes: answer.bytes(),
        expected: Numbered::new(answer.body, None),
    })
}

fn open_session(socket: &mut TcpStream, address: SocketAddr) -> anyhow::Result<String> {
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"},
    }});
    let answer = exchange(socket, &post(address, "", &initialize))?;
    let id = answer.header("mcp-session-id");
    let id = id.context("the answer to initialize names no session")?;
    let headers = format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: 2025-11-25\r\n");
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    exchange(socket, &post(address, &headers, &initialized))?;
    Ok(headers)
}

fn post(address: SocketAddr, headers: &str, message: &Value) -> Vec<u8> {
    let body = message.to_string();
    let length = body.len();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {length}\r\n{headers}\r\n"
    );
    (head + &body).into_bytes()
}

/// An answer that has arrived whole.
struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = headers.find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        Some(value.trim())
    }

    fn bytes(&self) -> usize {
        self.head.len() + self.body.len()
    }
}

fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let socket = TcpStream::connect_timeout(&address, ANSWER_MAX)
        .with_context(|| format!("cannot connect to {address}"))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(ANSWER_MAX))?;
    Ok(socket)
}

fn exchange(socket: &mut TcpStream, request: &[u8]) -> anyhow::Result<Answer> {
    socket.write_all(request)?;
    let (mut read, mut bytes) = (Vec::new(), [0; 4096]);
    loop {
        let count = socket
            .read(&mut bytes)
            .context("no answer within the time for one")?;
        ensure!(count > 0, "the server closed the connection");
        read.extend_from_slice(&bytes[..count]);
        let Some(end) = position(&read, HEAD_END) else {
            continue;
        };
        let body = read.split_off(end + HEAD_END.len());
        let mut answer = Answer {
            head: String::from_utf8(read).context("a head is no text")?,
            body,
        };
        if !answer.head.starts_with("HTTP/1.1 2") {
            bail!("{}{}", answer.head, String::from_utf8_lossy(&answer.body));
        }
        let length = answer.header("content-length").map_or(Ok(0), str::parse)?;
        let arrived = answer.body.len();
        answer.body.resize(length, 0);
        socket.read_exact(&mut answer.body[arrived.min(length)..])?;
        return Ok(answer);
    }
}

/// Where `part` begins in `text`.
fn position(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}
