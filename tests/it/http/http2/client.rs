//! A client of HTTP/2, and a connection whose frames a test chooses one by one.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::HeaderMap;
use serde_json::Value;
use tidings::wire::http2::frames::{PING, PREFACE, SETTINGS, write_frame};
use tidings::wire::sse::EventReader;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use crate::mcp::events::updated_uri;
use crate::mcp::http::{Request, within};

/// One connection, with prior knowledge or as TLS has agreed.
pub(super) struct Http2Client {
    pub(super) server: SocketAddr,
    pub(super) sender: SendRequest<Bytes>,
    /// The connection until its end.
    pub(super) connection: JoinHandle<Result<(), h2::Error>>,
}

impl Http2Client {
    pub(super) async fn connect(server: SocketAddr) -> Http2Client {
        Http2Client::with(server, &Builder::new()).await
    }

    /// Connects with these settings.
    pub(super) async fn with(server: SocketAddr, settings: &Builder) -> Http2Client {
        let stream = TcpStream::connect(server).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Http2Client::over(stream, server, settings).await
    }

    pub(super) async fn over<T>(stream: T, server: SocketAddr, settings: &Builder) -> Http2Client
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = settings.handshake(stream).await.unwrap();
        Http2Client {
            server,
            sender,
            connection: tokio::spawn(connection),
        }
    }

    /// Sends a request and waits for the head of the answer.
    pub(super) async fn open(&self, request: &Request) -> Answer {
        let (head, body) = request.for_http2(self.server);
        self.send_with(head, Bytes::from(body)).await.unwrap()
    }

    /// Sends a request and waits for the head of the answer.
    pub(super) async fn send_with(&self, head: http::Request<()>, body: Bytes) -> Result<Answer, h2::Error> {
        let mut sender = within("room for a request", self.sender.clone().ready()).await?;
        let (answer, mut sending) = sender.send_request(head, body.is_empty())?;
        if !body.is_empty() {
            sending.send_data(body, true)?;
        }
        let answer = within("the head of an answer", answer).await?;
        let (head, body) = answer.into_parts();
        Ok(Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
            sending,
        })
    }

    /// Sends a request and reads the whole answer.
    pub(super) async fn send(&self, request: &Request) -> (u16, String) {
        let answer = self.open(request).await;
        (answer.status, answer.text().await)
    }

    /// Opens a stream of events, whose status must be 200.
    pub(super) async fn events(&self, request: &Request) -> Http2Events {
        let answer = self.open(request).await;
        assert_eq!(answer.status, 200, "{:?}", answer.headers);
        Http2Events {
            answer,
            reader: EventReader::default(),
            read: VecDeque::new(),
        }
    }
}

/// An answer whose body is still coming.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: RecvStream,
    pub(super) sending: SendStream<Bytes>,
}

impl Answer {
    /// Reads the next part of the body; none at its end.
    pub(super) async fn data(&mut self) -> Option<Result<Bytes, h2::Error>> {
        let data = within("a part of a body", self.body.data()).await;
        if let Some(Ok(data)) = &data {
            self.body.flow_control().release_capacity(data.len()).unwrap();
        }
        data
    }

    async fn text(mut self) -> String {
        let mut text = Vec::new();
        while let Some(data) = self.data().await {
            text.extend(data.unwrap());
        }
        String::from_utf8(text).unwrap()
    }
}

/// A stream of events.
pub(super) struct Http2Events {
    pub(super) answer: Answer,
    reader: EventReader,
    read: VecDeque<Value>,
}

impl Http2Events {
    /// Returns the next message, or the way in which the stream ended.
    pub(super) async fn try_message(&mut self) -> Result<Value, Option<Reason>> {
        loop {
            if let Some(message) = self.read.pop_front() {
                return Ok(message);
            }
            match self.answer.data().await {
                Some(Ok(data)) => self.split(&data),
                Some(Err(error)) => return Err(error.reason()),
                None => return Err(None),
            }
        }
    }

    fn split(&mut self, data: &[u8]) {
        let split = self.reader.read(data, |event| {
            if !event.data.is_empty() {
                self.read.push_back(serde_json::from_slice(event.data).unwrap());
            }
        });
        split.unwrap();
    }

    /// Returns the next message.
    pub(super) async fn message(&mut self) -> Value {
        let message = self.try_message().await;
        message.unwrap_or_else(|ended| panic!("the stream ended: {ended:?}"))
    }

    /// Returns the URI of the next message, which must be an update.
    pub(super) async fn updated(&mut self) -> String {
        let message = self.message().await;
        let uri = updated_uri(&message).unwrap_or_else(|| panic!("not an update: {message}"));
        uri.to_owned()
    }

    /// Resets the stream.
    pub(super) fn reset(mut self) {
        self.answer.sending.send_reset(Reason::CANCEL);
    }
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawFrame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

/// A connection whose frames a test writes.
pub(super) struct RawFrames {
    pub(super) stream: TcpStream,
}

impl RawFrames {
    /// Connects, and sends the preface with empty settings.
    pub(super) async fn connect(server: SocketAddr) -> RawFrames {
        RawFrames::over(TcpStream::connect(server).await.unwrap()).await
    }

    /// Connects with room for few received bytes.
    pub(super) async fn narrow(server: SocketAddr) -> RawFrames {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        RawFrames::over(socket.connect(server).await.unwrap()).await
    }

    async fn over(mut stream: TcpStream) -> RawFrames {
        stream.set_nodelay(true).unwrap();
        stream.write_all(PREFACE).await.unwrap();
        let mut frames = RawFrames { stream };
        frames.write(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        frames
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        within("room for frames", self.stream.write_all(bytes)).await
    }

    /// Returns the next frame; none at the end of the connection.
    pub(super) async fn next(&mut self) -> Option<RawFrame> {
        within("a frame", async {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await.ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            self.stream.read_exact(&mut payload).await.ok()?;
            Some(RawFrame {
                kind: head[3],
                flags: head[4],
                stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
                payload,
            })
        })
        .await
    }

    /// Returns the next frame of this kind; none if the connection ends before.
    pub(super) async fn next_of(&mut self, kind: u8) -> Option<RawFrame> {
        loop {
            let frame = self.next().await?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }

    /// Waits until the server has read everything that was sent before. Returns false if the connection
    /// ended.
    pub(super) async fn is_answered(&mut self) -> bool {
        let sent = self.write(&frame(PING, 0, 0, &[0; 8])).await.is_ok();
        sent && self.next_of(PING).await.is_some()
    }
}

/// Returns the bytes of a frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_frame(&mut bytes, kind, flags, stream, payload);
    bytes
}

/// Returns the headers of a request as literals (RFC 7541, 6.2.2).
pub(super) fn headers(method: &str, path: &str, others: &[(&str, &str)]) -> Vec<u8> {
    let called = [
        (":method", method),
        (":path", path),
        (":scheme", "http"),
        (":authority", "localhost"),
    ];
    let mut block = Vec::new();
    for (name, value) in called.iter().chain(others) {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.as_bytes());
        }
    }
    block
}
