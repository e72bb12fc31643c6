//! Connections on which one request is answered at a time: a blocking one, and the same for any asynchronous
//! stream.
//!
//! Neither is used while latencies are measured; the load generators drive nonblocking sockets of their own.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::http1::{HttpTarget, ResponseHead, ResponseReader};
use super::sse::EventReader;
use super::tls::TlsSession;

const READ_BYTES: usize = 16 * 1024;

/// A response that has arrived whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpAnswer {
    /// The head.
    pub head: ResponseHead,
    /// The body, free of its framing.
    pub body: Vec<u8>,
}

/// A connection that blocks, with a limit on every wait.
#[derive(Debug)]
pub struct BlockingConnection {
    socket: TcpStream,
    /// Bytes that were read and belong to the next answer.
    unread: Vec<u8>,
    answer_max: Duration,
    tls: Option<TlsSession>,
}

impl BlockingConnection {
    /// Connects to `address`, from `source` where one is given; neither this nor one answer may take longer
    /// than `answer_max`.
    ///
    /// # Errors
    /// The error of the socket.
    pub fn open(
        address: SocketAddr,
        source: Option<SocketAddr>,
        answer_max: Duration,
    ) -> io::Result<BlockingConnection> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if let Some(source) = source {
            socket.bind(&source.into())?;
        }
        socket.connect_timeout(&address.into(), answer_max)?;
        let socket = TcpStream::from(socket);
        // Several requests may be sent before the first answer: the later ones would wait for an
        // acknowledgement.
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(answer_max))?;
        socket.set_write_timeout(Some(answer_max))?;
        Ok(BlockingConnection {
            socket,
            unread: Vec::new(),
            answer_max,
            tls: None,
        })
    }

    /// Connects to a server, over TLS where it has that; the first request makes the handshake.
    ///
    /// # Errors
    /// The error of the socket.
    pub fn to(target: &HttpTarget, answer_max: Duration) -> io::Result<BlockingConnection> {
        let tls = match &target.tls {
            Some(tls) => Some(tls.session()?),
            None => None,
        };
        let plain = BlockingConnection::open(target.address, None, answer_max)?;
        Ok(BlockingConnection { tls, ..plain })
    }

    /// Gives up the socket; bytes that were read and not asked for are lost.
    pub fn into_socket(self) -> TcpStream {
        self.socket
    }

    /// Sends these bytes.
    ///
    /// # Errors
    /// The error of the socket.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => tls.write_blocking(&mut self.socket, bytes),
            None => self.socket.write_all(bytes),
        }
    }

    /// Reads one answer; bytes after it are kept for the next one.
    ///
    /// # Errors
    /// The error of the socket, an answer that is no HTTP, or none in time.
    pub fn answer(&mut self) -> io::Result<HttpAnswer> {
        let mut response = ResponseReader::default();
        let mut body = Vec::new();
        loop {
            let read = response.read(&self.unread, |part| body.extend_from_slice(part));
            let used = read.map_err(invalid)?;
            self.unread.drain(..used);
            if response.is_done() {
                break;
            }
            if self.read_more()? == 0 {
                if response.ends_with_connection() {
                    break;
                }
                return Err(closed());
            }
        }
        // A body that is complete has a head.
        let head = response.into_head().unwrap_or_default();
        Ok(HttpAnswer { head, body })
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// Those of [`send`](Self::send) and [`answer`](Self::answer).
    pub fn exchange(&mut self, request: &[u8]) -> io::Result<HttpAnswer> {
        self.send(request)?;
        self.answer()
    }

    /// Sends the request of a stream and reads the stream up to its head, or up to the first event that
    /// contains `first`; returns the head.
    ///
    /// # Errors
    /// Those of [`exchange`](Self::exchange); a response that is no stream is one too, with its status and
    /// body.
    pub fn open_stream(&mut self, request: &[u8], first: Option<&str>) -> io::Result<ResponseHead> {
        self.send(request)?;
        let mut response = ResponseReader::default();
        let mut events = EventReader::default();
        let mut body = Vec::new();
        let mut has_begun = first.is_none();
        loop {
            // Taken whole, since a stream is the last response of its connection.
            let bytes = std::mem::take(&mut self.unread);
            let read = response.read(&bytes, |part| body.extend_from_slice(part));
            read.map_err(invalid)?;
            if let Some(head) = response.head() {
                if !head.is_success() || !head.is_stream {
                    return Err(no_stream(head, &body));
                }
                let split = events.read(&body, |event| {
                    has_begun |= matches!(first, Some(first) if contains(event.data, first));
                });
                split.map_err(invalid)?;
                body.clear();
                if has_begun {
                    return Ok(head.clone());
                }
            }
            if self.read_more()? == 0 {
                return Err(closed());
            }
        }
    }

    /// Reads up to `end`, and `end`, of any protocol; returns the bytes.
    ///
    /// # Errors
    /// The error of the socket, or `end` did not come in time.
    pub fn read_until(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = memchr::memmem::find(&self.unread, end) {
                return Ok(self.unread.drain(..at + end.len()).collect());
            }
            if self.read_more()? == 0 {
                return Err(closed());
            }
        }
    }

    fn read_more(&mut self) -> io::Result<usize> {
        let mut bytes = [0; READ_BYTES];
        loop {
            let read = match &mut self.tls {
                Some(tls) => tls.read_blocking(&mut self.socket, &mut bytes),
                None => self.socket.read(&mut bytes),
            };
            match read {
                Ok(count) => {
                    self.unread.extend_from_slice(&bytes[..count]);
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Of TLS, which says itself what is wrong.
                Err(error) if error.kind() == ErrorKind::InvalidData => return Err(error),
                Err(error) => {
                    let reason = format!("no answer within {:?}: {error}", self.answer_max);
                    return Err(io::Error::new(error.kind(), reason));
                }
            }
        }
    }
}

/// Sends a request on an asynchronous stream and reads its answer. Bytes after the answer are lost, so the
/// stream serves one request.
///
/// # Errors
/// The error of the stream, or an answer that is no HTTP. It never ends by itself: the caller sets the limit.
pub async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &[u8],
) -> io::Result<HttpAnswer> {
    stream.write_all(request).await?;
    let mut response = ResponseReader::default();
    let mut body = Vec::new();
    // Smaller than for threads, since this buffer is a part of the future.
    let mut bytes = [0; READ_BYTES / 2];
    while !response.is_done() {
        let count = stream.read(&mut bytes).await?;
        if count == 0 {
            if response.ends_with_connection() {
                break;
            }
            return Err(closed());
        }
        let read = response.read(&bytes[..count], |part| body.extend_from_slice(part));
        read.map_err(invalid)?;
    }
    let head = response.into_head().unwrap_or_default();
    Ok(HttpAnswer { head, body })
}

fn contains(text: &[u8], part: &str) -> bool {
    memchr::memmem::find(text, part.as_bytes()).is_some()
}

/// Returns the error for a response that is no stream, with the part of its body that came with the head.
fn no_stream(head: &ResponseHead, body: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(body);
    let status = head.status;
    io::Error::other(format!("instead of a stream came HTTP status {status}: {text}"))
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

fn closed() -> io::Error {
    let reason = "the server closed the connection before it answered";
    io::Error::new(ErrorKind::UnexpectedEof, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const LIMIT: Duration = Duration::from_secs(10);

    /// A connection to a server that sends `bytes` to its first client and closes.
    fn served(bytes: &'static [u8]) -> BlockingConnection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let count = socket.read(&mut request).unwrap();
            assert!(count > 0);
            socket.write_all(bytes).unwrap();
        });
        BlockingConnection::open(address, None, LIMIT).unwrap()
    }

    #[test]
    fn answers_are_read_one_by_one() {
        let mut connection =
            served(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 404 No\r\n\r\nto the end");
        let first = connection.exchange(b"x").unwrap();
        assert_eq!((first.head.status, first.body.as_slice()), (200, &b"a"[..]));
        let second = connection.answer().unwrap();
        assert_eq!(
            (second.head.status, second.body.as_slice()),
            (404, &b"to the end"[..])
        );
        assert_eq!(connection.answer().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn stream_begins_with_the_event_asked_for() {
        let stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: x\n\ndata: begun\n\n";
        let head = served(stream).open_stream(b"x", Some("begun")).unwrap();
        assert!(head.is_stream);
        assert!(served(stream).open_stream(b"x", Some("other")).is_err());
        assert!(served(stream).open_stream(b"x", None).is_ok());
        let refused = served(b"HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nfull").open_stream(b"x", None);
        assert_eq!(
            refused.unwrap_err().to_string(),
            "instead of a stream came HTTP status 503: full"
        );
    }
}
