//! The servers of the log in the order in which they are tried, and the connection to one of them.
//!
//! Each connection is made anew, with a client of its own: what waits inside of a client for a server that
//! does not answer is gone with it, and nothing goes back to a server that was left.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectError, ConnectOptions, Event, ServerAddr};
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

/// The servers, and the one that is tried next.
#[derive(Debug)]
pub(super) struct ServerRing {
    servers: Vec<ServerAddr>,
    next: usize,
}

impl ServerRing {
    /// Creates a ring that begins anywhere, so that the nodes of a cluster spread over the servers.
    pub(super) fn new(servers: Vec<ServerAddr>, random: u32) -> ServerRing {
        let next = random as usize;
        ServerRing { servers, next }
    }

    /// Returns the next server, which is another one than before if there are several.
    pub(super) fn next(&mut self) -> Option<ServerAddr> {
        let server = self.servers.get(self.next.checked_rem(self.servers.len())?)?;
        self.next = self.next.wrapping_add(1) % self.servers.len();
        Some(server.clone())
    }

    /// Adds the servers that a server names, which may be all of a cluster.
    pub(super) fn discover(&mut self, urls: &[String]) {
        for url in urls {
            if let Ok(server) = url.parse::<ServerAddr>()
                && !self.servers.contains(&server)
                && self.servers.len() < SERVERS_MAX
            {
                self.servers.push(server);
            }
        }
    }
}

/// A connection to one server.
pub(super) struct ServerConnection {
    pub(super) client: Client,
    /// Told when the connection is lost.
    pub(super) lost: Arc<Notify>,
}

/// Connects to `server`.
pub(super) async fn connect(
    settings: &ClusterSettings,
    server: &ServerAddr,
) -> Result<ServerConnection, ConnectError> {
    let lost = Arc::new(Notify::new());
    let options = options(settings, lost.clone()).await?;
    let client = options.connect(server.clone()).await?;
    Ok(ServerConnection { client, lost })
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
    if let (Some(cert), Some(key)) = (&settings.tls_certificate, &settings.tls_key) {
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
        let hosts: Vec<String> = (0..4)
            .filter_map(|_| ring.next())
            .map(|server| shown(&server))
            .collect();
        assert_eq!(hosts, ["a:1", "b:1", "c:1", "a:1"]);
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
