//! One blocking connection to a server, until it becomes a stream or a publisher.
//!
//! Owns: a socket, and just enough of HTTP/1.1 to read answers. Never: used while latencies are measured. Written by
//! hand, so that no client library's own share is mistaken for the server's.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};
use socket2::{Domain, Protocol, Socket, Type};

use super::matches::position;

/// How long one answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Requests that are sent before the first answer is read: fewer than fill a socket.
pub(super) const AT_ONCE: usize = 100;
/// Connections that leave from one address: well below the number of ports that the kernel deals out for each.
const PER_SOURCE_MAX: usize = 10_000;

/// An answer that has arrived whole.
pub(crate) struct Answer {
    head: String,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = headers.find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        Some(value.trim())
    }
}

/// One connection.
pub(crate) struct Client {
    socket: TcpStream,
    pub(super) address: SocketAddr,
    /// Read and not yet used.
    pub(super) buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> anyhow::Result<Client> {
        Client::connect_from(address, 0)
    }

    /// Connects as the connection number `index` of many, which leave from 127.0.0.1, 127.0.0.2 and on.
    pub(crate) fn connect_from(address: SocketAddr, index: usize) -> anyhow::Result<Client> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        let source = Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + (index / PER_SOURCE_MAX) as u32);
        if source != Ipv4Addr::LOCALHOST {
            socket.bind(&SocketAddr::from((source, 0)).into())?;
        }
        socket
            .connect_timeout(&address.into(), ANSWER_MAX)
            .with_context(|| format!("cannot connect to {address}"))?;
        let socket = TcpStream::from(socket);
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        Ok(Client {
            socket,
            address,
            buffer: Vec::new(),
        })
    }

    pub(crate) fn into_socket(self) -> TcpStream {
        self.socket
    }

    /// Sends these bytes as they are.
    pub(super) fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.socket.write_all(bytes).context("cannot send")
    }

    /// Sends requests as they are, many at once, and waits for as many answers, each of which has to accept.
    pub(crate) fn publish(&mut self, requests: &[Vec<u8>]) -> anyhow::Result<()> {
        for requests in requests.chunks(AT_ONCE) {
            self.send(&requests.concat())?;
            requests.iter().try_for_each(|_| self.answer().map(drop))?;
        }
        Ok(())
    }

    /// Reads one answer.
    pub(super) fn answer(&mut self) -> anyhow::Result<Answer> {
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
    pub(super) fn head(&mut self) -> anyhow::Result<String> {
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

    /// Reads up to `end`, and `end`.
    pub(super) fn until(&mut self, end: &[u8]) -> anyhow::Result<Vec<u8>> {
        loop {
            if let Some(at) = position(&self.buffer, end) {
                return self.take(at + end.len());
            }
            self.more()?;
        }
    }

    /// Waits for more and reads it into the buffer.
    pub(super) fn more(&mut self) -> anyhow::Result<()> {
        let mut bytes = [0; 4096];
        match self.socket.read(&mut bytes) {
            Ok(0) => bail!("the server closed the connection"),
            Ok(count) => self.buffer.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("no answer within the time for one"),
        }
        Ok(())
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

    fn take(&mut self, length: usize) -> anyhow::Result<Vec<u8>> {
        while self.buffer.len() < length {
            self.more()?;
        }
        Ok(self.buffer.drain(..length).collect())
    }
}
