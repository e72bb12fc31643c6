//! A connection that never blocks, for load generators with thousands of them on one thread.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, Socket, Type};

use super::http1::HttpTarget;
use super::tls::TlsSession;

/// A connection that is open or opening.
#[derive(Debug)]
pub struct NonblockingConnection {
    socket: TcpStream,
    /// The bytes that the socket did not take yet begin at `written`; TLS keeps its own.
    unsent: Vec<u8>,
    written: usize,
    tls: Option<TlsSession>,
}

/// The outcome of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOutcome {
    /// This many bytes were read.
    Bytes(usize),
    /// No bytes are there yet.
    Nothing,
    /// The server closed the connection.
    End,
}

impl NonblockingConnection {
    /// Begins to connect; the connection is open once it is reported as writable.
    ///
    /// It leaves from `source` and has a receive buffer of `receive_bytes`, where they are given.
    ///
    /// # Errors
    /// The error of the socket.
    pub fn open(
        target: &HttpTarget,
        source: Option<SocketAddr>,
        receive_bytes: Option<usize>,
    ) -> io::Result<NonblockingConnection> {
        let address = target.address;
        let tls = match &target.tls {
            Some(tls) => Some(tls.session()?),
            None => None,
        };
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        // Before the connection is made, since the window is negotiated with it (tcp(7)).
        if let Some(bytes) = receive_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(source) = source {
            socket.bind(&source.into())?;
        }
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error) if is_in_progress(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(NonblockingConnection {
            tls,
            ..NonblockingConnection::from_socket(socket.into())
        })
    }

    /// Takes over a socket that is nonblocking already.
    pub fn from_socket(socket: std::net::TcpStream) -> NonblockingConnection {
        NonblockingConnection {
            socket: TcpStream::from_std(socket),
            unsent: Vec::new(),
            written: 0,
            tls: None,
        }
    }

    /// Returns the version and the cipher suite of TLS once they are agreed; none without TLS.
    pub fn tls(&self) -> Option<String> {
        self.tls.as_ref()?.agreed()
    }

    /// Registers the connection for readable and writable events.
    ///
    /// # Errors
    /// The error of the selector.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        // Both at once: events are edge-triggered, so an interest that is not needed costs no wake-ups, and
        // none has to be changed later.
        registry.register(&mut self.socket, token, Interest::READABLE | Interest::WRITABLE)
    }

    /// Ends the registration.
    ///
    /// # Errors
    /// The error of the selector.
    pub fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(&mut self.socket)
    }

    /// Sends bytes after those that wait already. A later [`flush`](Self::flush) sends the part that the
    /// socket does not take now.
    ///
    /// # Errors
    /// The error of the socket.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => tls.queue(bytes)?,
            None => self.unsent.extend_from_slice(bytes),
        }
        self.flush()
    }

    /// Sends the bytes that wait, as far as the socket takes them.
    ///
    /// # Errors
    /// The error of the socket.
    pub fn flush(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            return tls.flush(&mut self.socket);
        }
        while self.written < self.unsent.len() {
            match self.socket.write(&self.unsent[self.written..]) {
                Ok(count) => self.written += count,
                // A socket that is still opening says that it is not connected.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // Cleared rather than dropped: the next request finds its room.
        self.unsent.clear();
        self.written = 0;
        Ok(())
    }

    /// Reads into `buffer`; a read that does not fill it took everything that was there.
    ///
    /// # Errors
    /// The error of the socket, and with TLS the reason for which TLS failed.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        if let Some(tls) = &mut self.tls {
            return Ok(match tls.read(&mut self.socket, buffer)? {
                None => ReadOutcome::Nothing,
                Some(0) => ReadOutcome::End,
                Some(count) => ReadOutcome::Bytes(count),
            });
        }
        loop {
            match self.socket.read(buffer) {
                Ok(0) => return Ok(ReadOutcome::End),
                Ok(count) => return Ok(ReadOutcome::Bytes(count)),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    return Ok(ReadOutcome::Nothing);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_in_progress(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
        || error.raw_os_error() == Some(nix::errno::Errno::EINPROGRESS as i32)
}
