//! What the readers say to a server until their streams are open.
//!
//! Owns: requests as bytes, and just enough of HTTP/1.1 to read their answers. Never: used while something is
//! measured. Written by hand, so that no client library's own share is mistaken for the server's.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

/// How long one answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(20);
const SESSIONS_REVISION: &str = "2025-11-25";
const LISTEN_REVISION: &str = "2026-07-28";

/// Something that changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Thing {
    /// The last part of its URI and of the path where twins publish it.
    pub(super) name: &'static str,
    pub(super) uri: &'static str,
}

/// What every reader watches.
pub(super) const WATCHED: Thing = Thing {
    name: "watched",
    uri: "bench://watched",
};

/// What is changed after a burst: whoever is told of it has been told of all before.
pub(super) const FENCE: Thing = Thing {
    name: "fence",
    uri: "bench://fence",
};

/// How a reader subscribes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    /// A session with a handshake and a stream of its own, as of 2025-11-25.
    Sessions,
    /// One request whose answer is the stream, as of 2026-07-28.
    Listen,
    /// A GET that says nothing, for the bare twin.
    None,
}

impl Era {
    /// What tells lines of the table apart.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Era::Sessions => ", sessions 2025-11-25",
            Era::Listen => ", listen 2026-07-28",
            Era::None => "",
        }
    }
}

/// Opens `count` streams, each on a connection of its own and subscribed to both things.
pub(super) fn open_streams(address: SocketAddr, era: Era, count: usize) -> anyhow::Result<Vec<TcpStream>> {
    let mut control = None;
    let open = |index| {
        let stream = match era {
            Era::Sessions => open_session(&mut control, address),
            Era::Listen => open_listen(address, index),
            Era::None => open_get(address, ""),
        };
        stream.with_context(|| format!("stream {index} of {count} could not be opened"))
    };
    (0..count).map(open).collect()
}

/// Opens a session and its stream. One connection, `control`, carries the handshakes of all sessions, so that all
/// others are streams and nothing else.
fn open_session(control: &mut Option<Client>, address: SocketAddr) -> anyhow::Result<TcpStream> {
    let control = match control {
        Some(control) => control,
        none => none.insert(Client::connect(address)?),
    };
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": SESSIONS_REVISION, "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    }});
    let answer = control.post("", &initialize)?;
    let id = answer
        .header("mcp-session-id")
        .context("the answer to initialize names no session")?;
    let headers = format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: {SESSIONS_REVISION}\r\n");
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    control.post(&headers, &initialized)?;
    for (id, thing) in [WATCHED, FENCE].iter().enumerate() {
        let subscribe = json!({"jsonrpc": "2.0", "id": id + 1, "method": "resources/subscribe",
            "params": {"uri": thing.uri}});
        let answer = control.post(&headers, &subscribe)?;
        ensure!(
            !find(&answer.body, b"\"error\""),
            "a subscription was refused: {}",
            String::from_utf8_lossy(&answer.body)
        );
    }
    open_get(address, &headers)
}

fn open_get(address: SocketAddr, headers: &str) -> anyhow::Result<TcpStream> {
    let mut client = Client::connect(address)?;
    let request =
        format!("GET /mcp HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n{headers}\r\n");
    client.socket.write_all(request.as_bytes())?;
    client.head()?;
    Ok(client.socket)
}

fn open_listen(address: SocketAddr, index: usize) -> anyhow::Result<TcpStream> {
    let mut client = Client::connect(address)?;
    // Clients count their requests, so ids are small and shared by many.
    let listen = json!({"jsonrpc": "2.0", "id": index % 8 + 1, "method": "subscriptions/listen", "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": LISTEN_REVISION,
            "io.modelcontextprotocol/clientCapabilities": {},
        },
        "notifications": {"resourceSubscriptions": [WATCHED.uri, FENCE.uri]},
    }});
    let headers = format!("MCP-Protocol-Version: {LISTEN_REVISION}\r\nMcp-Method: subscriptions/listen\r\n");
    client.send_post(&headers, &listen)?;
    client.head()?;
    // The stream counts from its acknowledgement on, which names the URIs too and ends with an empty line.
    let acknowledged = b"notifications/subscriptions/acknowledged";
    while !(find(&client.buffer, acknowledged) && find(after(&client.buffer, acknowledged), b"\n\n")) {
        client.more()?;
    }
    Ok(client.socket)
}

/// An answer that has arrived whole.
pub(super) struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = headers.find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        Some(value.trim())
    }
}

/// One connection.
pub(super) struct Client {
    socket: TcpStream,
    address: SocketAddr,
    /// Read and not yet used.
    buffer: Vec<u8>,
}

impl Client {
    pub(super) fn connect(address: SocketAddr) -> anyhow::Result<Client> {
        let socket = TcpStream::connect_timeout(&address, ANSWER_MAX)
            .with_context(|| format!("cannot connect to {address}"))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        Ok(Client {
            socket,
            address,
            buffer: Vec::new(),
        })
    }

    pub(super) fn into_socket(self) -> TcpStream {
        self.socket
    }

    /// Sends a request as it is and waits for its answer.
    pub(super) fn publish(&mut self, request: &[u8]) -> anyhow::Result<Answer> {
        self.socket.write_all(request)?;
        self.answer()
    }

    fn post(&mut self, headers: &str, message: &Value) -> anyhow::Result<Answer> {
        self.send_post(headers, message)?;
        self.answer()
    }

    fn send_post(&mut self, headers: &str, message: &Value) -> anyhow::Result<()> {
        let (body, address) = (message.to_string(), self.address);
        let length = body.len();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        self.socket.write_all((head + &body).as_bytes())?;
        Ok(())
    }

    fn answer(&mut self) -> anyhow::Result<Answer> {
        let mut answer = Answer {
            head: self.head()?,
            body: Vec::new(),
        };
        let chunked = answer.header("transfer-encoding").is_some();
        let length = answer.header("content-length").map(str::parse).transpose()?;
        answer.body = if chunked {
            self.chunks()?
        } else {
            self.take(length.unwrap_or(0))?
        };
        Ok(answer)
    }

    /// Reads a head; what follows it stays in the buffer.
    fn head(&mut self) -> anyhow::Result<String> {
        let head = self.until(b"\r\n\r\n")?;
        let head = String::from_utf8(head).context("a head is no text")?;
        let status = head.split_whitespace().nth(1).unwrap_or_default();
        if !status.starts_with('2') {
            // The body says why; what has arrived of it is enough.
            drop(self.more());
            bail!("{head}{}", String::from_utf8_lossy(&self.buffer));
        }
        Ok(head)
    }

    fn chunks(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size = String::from_utf8(self.until(b"\r\n")?)?;
            let size = usize::from_str_radix(size.trim(), 16)
                .with_context(|| format!("{size:?} is no size of a chunk"))?;
            body.extend(self.take(size)?);
            self.until(b"\r\n")?;
            if size == 0 {
                return Ok(body);
            }
        }
    }

    fn until(&mut self, end: &[u8]) -> anyhow::Result<Vec<u8>> {
        loop {
            if let Some(at) = position(&self.buffer, end) {
                return self.take(at + end.len());
            }
            self.more()?;
        }
    }

    fn take(&mut self, length: usize) -> anyhow::Result<Vec<u8>> {
        while self.buffer.len() < length {
            self.more()?;
        }
        Ok(self.buffer.drain(..length).collect())
    }

    fn more(&mut self) -> anyhow::Result<()> {
        let mut bytes = [0; 4096];
        match self.socket.read(&mut bytes) {
            Ok(0) => bail!("the server closed the connection"),
            Ok(count) => self.buffer.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("no answer within the time for one"),
        }
        Ok(())
    }
}

/// Where `part` begins in `text`.
pub(super) fn position(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

fn find(text: &[u8], part: &[u8]) -> bool {
    position(text, part).is_some()
}

fn after<'a>(text: &'a [u8], part: &[u8]) -> &'a [u8] {
    position(text, part).map_or(&[], |at| &text[at + part.len()..])
}
