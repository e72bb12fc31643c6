//! The HTTP listener: accepts connections on a socket and hands them to the HTTP server.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::server::{HttpServer, RequestService};
use crate::config::HttpConfig;

/// The pause after an accept that failed for lack of descriptors. Short, so that waiting clients are accepted
/// as soon as one is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The shortest time between two log lines about such failures.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The accepts that failed and are not in the log yet.
#[derive(Debug, Default)]
struct AcceptFailures {
    unreported: u64,
    reported: Option<Instant>,
}

impl AcceptFailures {
    /// Counts a failure. Returns the number to report now, if the last report is long enough ago.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.unreported += 1;
        match self.reported {
            Some(last) if now - last < REPORT_INTERVAL => None,
            _ => {
                self.reported = Some(now);
                Some(std::mem::take(&mut self.unreported))
            }
        }
    }
}

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
    let mut failures = AcceptFailures::default();
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = server.closed() => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            // The client was gone before the accept; the next one may be fine.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                server.metrics().accept_failed();
                // An outage may last for long, and a line for each attempt would fill the disk.
                if let Some(attempts) = failures.count(Instant::now()) {
                    warn!(%error, attempts, "connections could not be accepted; new clients wait until it succeeds");
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_failure_is_one_line_per_interval() {
        let mut failures = AcceptFailures::default();
        let start = Instant::now();
        let mut reports = Vec::new();
        // An attempt every 50 ms for 25 seconds.
        for attempt in 0..500 {
            reports.extend(failures.count(start + attempt * ACCEPT_PAUSE));
        }
        assert_eq!(reports, [1, 200, 200]);
    }
}
