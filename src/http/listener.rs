//! The HTTP listener: accepts connections on a socket and hands them to the HTTP server.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tracing::{debug, warn};

use super::server::{HttpServer, RequestService};
use crate::config::HttpConfig;

/// The pause after an accept that failed for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listening socket.
pub(crate) struct Listener {
    address: SocketAddr,
    /// Closes the server that the listener hands its connections to. Boxed, as listeners of different
    /// services are kept together.
    close: Box<dyn Fn() + Send + Sync>,
}

impl Listener {
    /// Accepts connections on `socket` until [`close`](Self::close).
    pub(crate) fn start<S: RequestService + Sync>(
        socket: TcpListener,
        server: HttpServer<S>,
    ) -> io::Result<Listener> {
        let address = socket.local_addr()?;
        tokio::spawn(accept(socket, server.clone()));
        Ok(Listener {
            address,
            close: Box::new(move || server.close()),
        })
    }

    /// Returns the address that it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts nothing more, and ends each connection after the request it is at. Open streams stay until the
    /// bus ends them.
    pub(crate) fn close(&self) {
        (self.close)();
    }
}

async fn accept<S: RequestService + Sync>(socket: TcpListener, server: HttpServer<S>) {
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = server.closed() => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                // Without a pause this loop would spin until a descriptor is free.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let served = match prepare(stream, server.config()) {
            // The thread that carries the connection has a runtime of its own, and so its own poller.
            Ok(stream) => server.serve(peer, move || TcpStream::from_std(stream)),
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            debug!(%peer, %error, "a connection ended before it was served");
        }
    }
}

/// Sets the socket options of a connection and takes it off this runtime.
fn prepare(stream: TcpStream, config: &HttpConfig) -> io::Result<std::net::TcpStream> {
    // A notification is one small write, which Nagle's algorithm would hold back until the last one is
    // acknowledged.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    #[cfg(target_os = "linux")]
    {
        // Unsent notifications stay in the outbox, where repeats become one, rather than in the kernel, where
        // they grow old.
        socket.set_tcp_notsent_lowat(u32::try_from(config.not_sent_low_water).unwrap_or(u32::MAX))?;
        // The kernel gives up on bytes that it has taken and the client does not acknowledge. `WriteDeadline`
        // gives up when the kernel takes no more.
        socket.set_tcp_user_timeout(Some(config.write_timeout))?;
    }
    // An idle connection sends nothing, so without probes one whose client vanished would stay open.
    socket.set_keepalive(true)?;
    stream.into_std()
}
