//! A connection of many streams that never blocks.

use std::io;
use std::net::SocketAddr;

use mio::{Registry, Token};

use super::client::{Http2Client, StreamEvent};
use super::header_block::HeaderBlock;
use crate::wire::http1::HttpTarget;
use crate::wire::nonblocking::{NonblockingConnection, ReadOutcome};

/// A socket, and the state of HTTP/2 on it.
#[derive(Debug)]
pub struct Http2Connection {
    socket: NonblockingConnection,
    client: Http2Client,
}

impl Http2Connection {
    /// Begins to connect, from `source` where it is given, and registers for events. The connection is for
    /// about `streams` streams; `some_shut` says whether some will be shut.
    ///
    /// # Errors
    /// The error of the socket.
    pub fn open(
        target: &HttpTarget,
        source: Option<SocketAddr>,
        (streams, some_shut): (usize, bool),
        (registry, token): (&Registry, Token),
    ) -> io::Result<Http2Connection> {
        let mut connection = Http2Connection {
            socket: NonblockingConnection::open(target, source, None)?,
            client: Http2Client::new(streams, some_shut),
        };
        connection.socket.register(registry, token)?;
        connection.flush()?;
        Ok(connection)
    }

    /// Returns the state of HTTP/2.
    pub fn client(&self) -> &Http2Client {
        &self.client
    }

    /// Returns the version and the cipher suite of TLS once they are agreed; none without TLS.
    pub fn tls(&self) -> Option<String> {
        self.socket.tls()
    }

    /// Opens a stream, and returns its number; see [`Http2Client::open`]. A later [`flush`](Self::flush)
    /// sends it, so that the requests of many streams go out together.
    pub fn request(&mut self, headers: &HeaderBlock, body: Vec<u8>, is_shut: bool) -> usize {
        self.client.open(headers, body, is_shut)
    }

    /// Gives a stream that is shut a window again, with the next flush.
    pub fn unshut(&mut self, stream: usize) {
        self.client.unshut(stream);
    }

    /// Sends what waits, as far as the socket takes it.
    ///
    /// # Errors
    /// The error of the socket.
    pub fn flush(&mut self) -> io::Result<()> {
        self.client.flush(|bytes| self.socket.send(bytes))?;
        self.socket.flush()
    }

    /// Reads once, and hands what came to `on_event` with the number of its stream. Returns false if nothing
    /// more is there.
    ///
    /// # Errors
    /// The error of the socket, the end of the connection, and bytes that are no HTTP/2.
    pub fn read(
        &mut self,
        buffer: &mut [u8],
        on_event: impl FnMut(usize, StreamEvent<'_>),
    ) -> Result<bool, String> {
        let room = buffer.len();
        let read = self.socket.read(buffer).map_err(|error| self.broken(&error))?;
        let count = match read {
            ReadOutcome::Nothing => return Ok(false),
            ReadOutcome::Bytes(count) => count,
            ReadOutcome::End => {
                return Err(match self.client.farewell() {
                    Some(reason) => format!("the server ended the connection (GOAWAY): {reason}"),
                    None => "the server closed the connection".to_owned(),
                });
            }
        };
        // Answers to PING and SETTINGS, and updates of windows, go out at once.
        self.client.receive(&buffer[..count], on_event)?;
        self.flush().map_err(|error| self.broken(&error))?;
        // A read that does not fill the buffer took everything (epoll(7)), which saves a second call.
        Ok(count == room)
    }

    /// Describes an error of the socket, with the reason that the server gave before.
    fn broken(&self, error: &io::Error) -> String {
        match self.client.farewell() {
            Some(reason) => format!("{error} (GOAWAY: {reason})"),
            None => error.to_string(),
        }
    }
}
