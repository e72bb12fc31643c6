//! The HTTP listener: accepts connections on a socket and hands them to the HTTP server.
//!
//! Owns: the socket, and the options of each connection's. Never: looks into a request, or decides who may come in (the
//! [`HttpServer`] does).

use std::io::{self, Write};
use std::net::SocketAddr;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tracing::{debug, warn};

use super::http_server::{HttpServer, MCP_PATH};
use crate::config::HttpConfig;

/// How long to wait after an accept that failed for lack of descriptors, rather than spin.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// A listening socket.
pub(super) struct Listener {
    address: SocketAddr,
    server: HttpServer,
}

impl Listener {
    /// Accepts connections on `socket` until [`close`](Self::close).
    pub(super) fn start(socket: TcpListener, server: HttpServer) -> io::Result<Listener> {
        let address = socket.local_addr()?;
        tokio::spawn(accept(socket, server.clone()));
        Ok(Listener { address, server })
    }

    /// Says on `out` where MCP is spoken, for people and for programs that wait for it.
    pub(super) fn announce(&self, mut out: impl Write) {
        let line = format!("tidings listening on http://{}{MCP_PATH}\n", self.address);
        if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
            debug!("nobody reads where MCP is spoken");
        }
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts nothing more, and has each connection end after the request it is at; open streams end when the bus
    /// ends them.
    pub(super) fn close(&self) {
        self.server.close();
    }
}

async fn accept(socket: TcpListener, server: HttpServer) {
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = server.closed() => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let prepared = prepare(stream, server.config()).and_then(|stream| {
            // The thread that carries it has a runtime, and so a poller, of its own.
            server.serve(peer, move || TcpStream::from_std(stream))
        });
        if let Err(error) = prepared {
            debug!(%peer, %error, "a connection ended before it was served");
        }
    }
}

/// Sets a connection's socket options and takes it off this runtime.
fn prepare(stream: TcpStream, config: &HttpConfig) -> io::Result<std::net::TcpStream> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    #[cfg(target_os = "linux")]
    {
        // Keeps what is not sent in the outbox, where it is conflated, rather than in the kernel, where it grows old.
        socket.set_tcp_notsent_lowat(u32::try_from(config.not_sent_low_water).unwrap_or(u32::MAX))?;
        // What the kernel has taken is the kernel's to give up on: a client that vanished without a word acknowledges
        // nothing, one that stopped reading opens no window. What it does not take any more, `Metered` gives up on.
        socket.set_tcp_user_timeout(Some(config.write_timeout))?;
    }
    socket.set_keepalive(true)?;
    stream.into_std()
}
