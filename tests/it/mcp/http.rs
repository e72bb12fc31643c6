//! An HTTP/1.1 client with one connection per request, so that a test can stop reading, and can vanish.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use socket2::SockRef;
use tidings::wire::http1::ResponseReader;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// The time within which every expected event must happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// Waits for an expected event.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(DEADLINE, future).await else {
        panic!("nothing within {DEADLINE:?}: {what}")
    };
    value
}

/// A request that is not sent yet.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    receive_buffer: Option<usize>,
}

impl Request {
    pub(crate) fn new(method: &'static str, path: impl Into<String>) -> Request {
        Request {
            method,
            path: path.into(),
            headers: Vec::new(),
            body: Vec::new(),
            receive_buffer: None,
        }
    }

    /// A POST of a message to the MCP endpoint.
    pub(crate) fn post(body: impl Into<Vec<u8>>) -> Request {
        let mut request = Request::new("POST", "/mcp")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        request.body = body.into();
        request
    }

    /// A GET of a stream of the MCP endpoint.
    pub(crate) fn stream() -> Request {
        Request::new("GET", "/mcp").header("accept", "text/event-stream")
    }

    /// Sets a header, in place of one of the same name.
    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Request {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Request {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Request {
        self.body = body.into();
        self
    }

    /// Limits the bytes that the kernel accepts for a client that does not read.
    pub(crate) fn small_receive_buffer(mut self) -> Request {
        self.receive_buffer = Some(4 << 10);
        self
    }

    /// Sends it and waits for the head of the answer.
    pub(crate) async fn open(&self, server: SocketAddr) -> Incoming {
        within("the head of an answer", self.try_open(server))
            .await
            .unwrap_or_else(|| panic!("{} {}: the server answered nothing", self.method, self.path))
    }

    /// Sends it; none when the connection ended before there was an answer.
    pub(crate) async fn try_open(&self, server: SocketAddr) -> Option<Incoming> {
        let socket = TcpSocket::new_v4().expect("a socket");
        if let Some(bytes) = self.receive_buffer {
            SockRef::from(&socket)
                .set_recv_buffer_size(bytes)
                .expect("a small receive buffer");
        }
        let mut stream = socket.connect(server).await.ok()?;
        stream.set_nodelay(true).ok()?;
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        if !self.headers.iter().any(|(name, _)| name == "host") {
            head.push_str(&format!("host: {server}\r\n"));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!(
            "connection: close\r\ncontent-length: {}\r\n\r\n",
            self.body.len()
        ));
        stream.write_all(head.as_bytes()).await.ok()?;
        if let Err(error) = stream.write_all(&self.body).await {
            // A server that refuses a body may close before it has read all of it, but it has answered.
            eprintln!("the body was not read: {error}");
        }
        Incoming::head(stream).await
    }

    /// Returns the head and the body as a client of HTTP/2 sends them.
    pub(crate) fn for_http2(&self, server: SocketAddr) -> (http::Request<()>, Vec<u8>) {
        let mut request = http::Request::builder()
            .method(self.method)
            .uri(format!("http://{server}{}", self.path));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        (request.body(()).expect("a request"), self.body.clone())
    }

    /// Sends it and reads the whole answer.
    pub(crate) async fn send(&self, server: SocketAddr) -> Reply {
        self.open(server).await.reply().await
    }
}

/// The outcome of reading the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// More bytes.
    More,
    /// The end that the framing promised.
    End,
    /// The connection broke off.
    Cut,
}

/// An answer whose body is still coming.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    stream: TcpStream,
    response: ResponseReader,
    /// The part of the body that has arrived and was not handed out yet.
    arrived: Vec<u8>,
}

impl Incoming {
    async fn head(stream: TcpStream) -> Option<Incoming> {
        let mut incoming = Incoming {
            status: 0,
            headers: Vec::new(),
            stream,
            response: ResponseReader::default(),
            arrived: Vec::new(),
        };
        while incoming.response.head().is_none() {
            if !incoming.receive().await {
                return None;
            }
        }
        let head = incoming.response.head()?;
        incoming.status = head.status;
        for (name, value) in head.headers() {
            incoming
                .headers
                .push((name.to_ascii_lowercase(), value.to_owned()));
        }
        Some(incoming)
    }

    /// Waits for bytes of the answer. Returns false when the connection has ended.
    async fn receive(&mut self) -> bool {
        let mut bytes = Vec::with_capacity(16 << 10);
        if !matches!(self.stream.read_buf(&mut bytes).await, Ok(1..)) {
            return false;
        }
        let arrived = &mut self.arrived;
        self.response
            .read(&bytes, |part| arrived.extend_from_slice(part))
            .expect("the answer is HTTP");
        true
    }

    /// Appends the available part of the body to `body`, and waits when there is none.
    pub(crate) async fn read(&mut self, body: &mut Vec<u8>) -> Read {
        loop {
            if !self.arrived.is_empty() {
                body.append(&mut self.arrived);
                return Read::More;
            }
            if self.response.is_done() {
                return Read::End;
            }
            if !self.receive().await {
                return match self.response.ends_with_connection() {
                    true => Read::End,
                    false => Read::Cut,
                };
            }
        }
    }

    /// Reads the rest.
    pub(crate) async fn reply(mut self) -> Reply {
        let mut body = Vec::new();
        within("the end of an answer", async {
            while self.read(&mut body).await == Read::More {}
        })
        .await;
        Reply {
            status: self.status,
            headers: self.headers,
            body,
        }
    }

    /// Vanishes like a machine that lost its power and came back: the server gets a reset.
    pub(crate) fn reset(self) {
        SockRef::from(&self.stream)
            .set_linger(Some(Duration::ZERO))
            .expect("a socket");
    }
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, wanted: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }

    /// The message in it: its JSON, or the data of its one event.
    pub(crate) fn json(&self) -> Value {
        let text = self.text();
        let mut data = text.lines().flat_map(|line| line.strip_prefix("data:"));
        let data = data.find(|data| !data.trim().is_empty());
        let json = data.unwrap_or(text);
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {} {text}", self.status))
    }

    /// The code and text of the error in it.
    pub(crate) fn error(&self) -> (i64, String) {
        let json = self.json();
        let code = json["error"]["code"].as_i64();
        let text = json["error"]["message"].as_str().unwrap_or_default();
        (
            code.unwrap_or_else(|| panic!("no error: {json}")),
            text.to_owned(),
        )
    }
}
