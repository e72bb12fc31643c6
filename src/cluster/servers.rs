//! The servers of the log in the order in which they are tried, and the connection to one of them.
//!
//! Each connection is made anew, with a client of its own: what waits inside of a client for a server that
//! does not answer is gone with it, and nothing goes back to a server that was left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::{Client, ConnectError, ConnectOptions, Event, ServerAddr};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;

use super::settings::{ClusterLogin, ClusterSettings};

/// The most servers that are tried; further ones that a server names are left out.
const SERVERS_MAX: usize = 64;

/// The time for which a server is waited for.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval at which a connection is tested. After three tests without an answer it is lost.
const PING_INTERVAL: Duration = Duration::from_secs(2);

/// The time for which an answer to a request is waited for.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// The time after which the next server is tried, too.
const TRY_NEXT: Duration = Duration::from_millis(400);

/// The time for which a server that did not answer is tried after the others: one that hangs costs a whole
/// timeout, which would be a part of the time for which changes wait.
const AVOIDED: Duration = Duration::from_secs(10);

/// The servers, and the one that is tried next.
#[derive(Debug)]
pub(super) struct ServerRing {
    servers: Vec<RingServer>,
    next: usize,
}

#[derive(Debug)]
struct RingServer {
    address: ServerAddr,
    /// The last time at which it did not answer.
    failed: Option<Instant>,
}

impl ServerRing {
    /// Creates a ring that begins anywhere, so that the nodes of a cluster spread over the servers.
    pub(super) fn new(servers: Vec<ServerAddr>, random: u32) -> ServerRing {
        let next = random as usize;
        let servers = servers.into_iter().map(RingServer::new).collect();
        ServerRing { servers, next }
    }

    /// Returns the next server, which is another one than before if there are several. Those that have
    /// failed lately come after the others.
    fn next(&mut self, now: Instant) -> Option<ServerAddr> {
        let count = self.servers.len();
        let first = self.next.checked_rem(count)?;
        let order = (0..count).map(|step| (first + step) % count);
        // One that has failed is better than none: all of them may have been away together.
        let chosen = order.clone().find(|place| self.servers[*place].may_work(now));
        let place = chosen.or(order.clone().next())?;
        self.next = place + 1;
        Some(self.servers[place].address.clone())
    }

    /// Notes that a server did not answer.
    fn failed(&mut self, server: &ServerAddr, now: Instant) {
        for known in &mut self.servers {
            if known.address == *server {
                known.failed = Some(now);
            }
        }
    }

    /// Adds the servers that a server names, which may be all of a cluster.
    pub(super) fn discover(&mut self, urls: &[String]) {
        for url in urls {
            if let Ok(server) = url.parse::<ServerAddr>()
                && !self.servers.iter().any(|known| known.address == server)
                && self.servers.len() < SERVERS_MAX
            {
                self.servers.push(RingServer::new(server));
            }
        }
    }
}

impl RingServer {
    fn new(address: ServerAddr) -> RingServer {
        let failed = None;
        RingServer { address, failed }
    }

    fn may_work(&self, now: Instant) -> bool {
        match self.failed {
            Some(failed) => now.saturating_duration_since(failed) >= AVOIDED,
            None => true,
        }
    }
}

/// A connection to one server.
pub(super) struct ServerConnection {
    pub(super) server: ServerAddr,
    pub(super) client: Client,
    /// Told when the connection is lost.
    pub(super) lost: Arc<Notify>,
}

/// Connects to the next server that answers, and tries each once. Beside one that takes its time, the next
/// one is tried, too.
///
/// # Errors
/// The problem of the last server.
pub(super) async fn connect_next(
    settings: &ClusterSettings,
    ring: &mut ServerRing,
) -> Result<ServerConnection, ServerError> {
    // Each once: a caller that learns that none answers can say so, and wait before it tries them again.
    let mut left = ring.servers.len();
    let mut tried = FuturesUnordered::new();
    loop {
        if left > 0
            && let Some(server) = ring.next(Instant::now())
        {
            left -= 1;
            tried.push(async move { (connect(settings, &server).await, server) });
        }
        tokio::select! {
            Some((connected, server)) = tried.next() => match connected {
                Ok(connection) => return Ok(connection),
                Err(error) => {
                    ring.failed(&server, Instant::now());
                    if left == 0 && tried.is_empty() {
                        return Err(ServerError(shown(&server), error));
                    }
                }
            },
            () = tokio::time::sleep(TRY_NEXT), if left > 0 => {}
        }
    }
}

/// A server that does not answer, and its problem.
#[derive(Debug, thiserror::Error)]
#[error("{0}: {1}")]
pub(super) struct ServerError(String, ConnectError);

async fn connect(settings: &ClusterSettings, server: &ServerAddr) -> Result<ServerConnection, ConnectError> {
    let lost = Arc::new(Notify::new());
    let options = options(settings, lost.clone()).await?;
    let client = options.connect(server.clone()).await?;
    let server = server.clone();
    Ok(ServerConnection { server, client, lost })
}

async fn options(settings: &ClusterSettings, lost: Arc<Notify>) -> Result<ConnectOptions, ConnectError> {
    let mut options = ConnectOptions::new()
        .name(format!("tidings {}", settings.node_name()))
        .connection_timeout(CONNECT_TIMEOUT)
        .request_timeout(Some(REQUEST_TIMEOUT))
        .ping_interval(PING_INTERVAL)
        // They are in the ring, which chooses.
        .ignore_discovered_servers()
        // A lost connection is followed by a client of its own for the next server; this one ends.
        .max_reconnects(1)
        .event_callback(move |event| {
            if matches!(event, Event::Disconnected | Event::Closed) {
                lost.notify_one();
            }
            std::future::ready(())
        });
    match &settings.login {
        ClusterLogin::None => {}
        ClusterLogin::File(path) => options = options.credentials_file(path).await?,
        ClusterLogin::User { name, password } => {
            options = options.user_and_password(name.clone(), password.clone());
        }
        ClusterLogin::Token(token) => options = options.token(token.clone()),
    }
    // A server that offers no TLS must not get credentials in clear text.
    if let Some(ca) = &settings.tls_ca {
        options = options.add_root_certificates(ca.clone()).require_tls(true);
    }
    if let (Some(cert), Some(key)) = (&settings.tls_cert, &settings.tls_key) {
        options = options.add_client_certificate(cert.clone(), key.clone());
    }
    Ok(options)
}

/// Returns the host and the port of a server, without credentials.
pub(super) fn shown(server: &ServerAddr) -> String {
    format!("{}:{}", server.host(), server.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(urls: &[&str], random: u32) -> ServerRing {
        let servers = urls.iter().map(|url| url.parse().unwrap()).collect();
        ServerRing::new(servers, random)
    }

    #[test]
    fn ring_goes_round_from_any_server() {
        let mut ring = ring(&["a:1", "b:1", "c:1"], u32::MAX);
        let now = Instant::now();
        let hosts: Vec<String> = (0..4)
            .filter_map(|_| ring.next(now))
            .map(|server| shown(&server))
            .collect();
        assert_eq!(hosts, ["a:1", "b:1", "c:1", "a:1"]);
    }

    #[test]
    fn server_without_an_answer_comes_after_the_others() {
        let mut ring = ring(&["a:1", "b:1", "c:1"], 2);
        let begin = Instant::now();
        let failed = ring.next(begin).unwrap();
        assert_eq!(shown(&failed), "c:1");
        ring.failed(&failed, begin);
        let shown_next = |ring: &mut ServerRing, now| shown(&ring.next(now).unwrap());
        let hosts: Vec<String> = (0..4).map(|_| shown_next(&mut ring, begin)).collect();
        assert_eq!(hosts, ["a:1", "b:1", "a:1", "b:1"]);
        // Its turn comes again after a while, and at once when no other answers either.
        let later = begin + AVOIDED;
        let hosts: Vec<String> = (0..3).map(|_| shown_next(&mut ring, later)).collect();
        assert_eq!(hosts, ["c:1", "a:1", "b:1"]);
        for server in ["a:1", "b:1", "c:1"] {
            ring.failed(&server.parse().unwrap(), later);
        }
        let hosts: Vec<String> = (0..3).map(|_| shown_next(&mut ring, later)).collect();
        assert_eq!(hosts, ["c:1", "a:1", "b:1"]);
    }

    #[test]
    fn discovered_servers_are_added_once() {
        let mut ring = ring(&["a:1"], 0);
        ring.discover(&[
            "b:1".to_owned(),
            "a:1".to_owned(),
            "b:1".to_owned(),
            "::".to_owned(),
        ]);
        assert_eq!(ring.servers.len(), 2);
        let many: Vec<String> = (0..100).map(|port| format!("c:{port}")).collect();
        ring.discover(&many);
        assert_eq!(ring.servers.len(), SERVERS_MAX);
    }
}
