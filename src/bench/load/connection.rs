//! One connection that never blocks.
//!
//! Owns the socket and the bytes it has not taken yet. It understands nothing of what passes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, Socket, Type};

/// A connection that is open or opening.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: TcpStream,
    out: Vec<u8>,
    written: usize,
}

/// What one read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrived {
    Bytes(usize),
    Nothing,
    End,
}

impl Connection {
    /// Begins to connect, from `source` where one is given and with so small a receive buffer as asked.
    pub(crate) fn open(
        address: SocketAddr,
        source: Option<SocketAddr>,
        receive_bytes: Option<usize>,
    ) -> io::Result<Connection> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        if let Some(bytes) = receive_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(source) = source {
            socket.bind(&source.into())?;
        }
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error) if is_under_way(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(Connection {
            socket: TcpStream::from_std(socket.into()),
            out: Vec::new(),
            written: 0,
        })
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.socket, token, Interest::READABLE | Interest::WRITABLE)
    }

    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(&mut self.socket)
    }

    /// Sends these bytes after what waits already; what the socket does not take now goes with a later flush.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.extend_from_slice(bytes);
        self.flush()
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.written < self.out.len() {
            match self.socket.write(&self.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Arrived> {
        loop {
            match self.socket.read(buffer) {
                Ok(0) => return Ok(Arrived::End),
                Ok(count) => return Ok(Arrived::Bytes(count)),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    return Ok(Arrived::Nothing);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_under_way(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
        || error.raw_os_error() == Some(nix::errno::Errno::EINPROGRESS as i32)
}
