//! The HTTP side: the listener, and the transports beside MCP.

use super::bounded::{
    Address, Bytes, Checked, Count, GIB, HOUR, Host, KIB, List, MIB, MINUTE, Origin, SECOND, Time,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tidings_actors::Limits;

/// The listener: its address, the hosts and origins it admits, and its timeouts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Address to accept connections on; port 0 takes a free one.
    /// At the limit: An address other machines can reach needs `http.allowed_hosts`, or the service does not
    /// start.
    #[serde(with = "Checked::<Address>")]
    pub listen: SocketAddr,
    /// Names the `Host` header may carry, on any port, besides localhost, 127.0.0.1 and \[::1\].
    /// At the limit: A request with another name gets 403.
    #[serde(with = "Checked::<List<Host, 0, 256>>")]
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may call, besides http and https of localhost, 127.0.0.1 and \[::1\] on any
    /// port.
    /// At the limit: A request from another origin gets 403; one without `Origin` passes.
    #[serde(with = "Checked::<List<Origin, 0, 256>>")]
    pub allowed_origins: Vec<String>,
    /// Largest request body.
    /// At the limit: A larger one gets 413 and is not read further.
    #[serde(with = "Checked::<Bytes<KIB, { 64 * MIB }>>")]
    pub body_bytes_max: usize,
    /// Open connections in all.
    /// At the limit: Further connections are closed at once and counted.
    #[serde(with = "Checked::<Count<1, 1_000_000>>")]
    pub connections_max: usize,
    /// Time a client has to send the headers of a request, also after the one before it on the same
    /// connection.
    /// At the limit: A slower connection is closed.
    #[serde(with = "Checked::<Time<SECOND, { 5 * MINUTE }>>")]
    pub header_timeout: Duration,
    /// Interval of the comments on an idle stream, by which proxies keep it and dead peers are noticed.
    #[serde(with = "Checked::<Time<SECOND, { 5 * MINUTE }>>")]
    pub keep_alive: Duration,
    /// Time a connection may read nothing of the bytes that are written to it.
    /// At the limit: It is closed, which ends a listen stream. The client of a session may reconnect and gets
    /// the notices it missed.
    #[serde(with = "Checked::<Time<SECOND, HOUR>>")]
    pub write_timeout: Duration,
    /// Unsent bytes the kernel may hold per stream (`TCP_NOTSENT_LOWAT`); more means staler notices for slow
    /// readers.
    /// At the limit: Notices wait in the outbox, where repeats of one URI become one.
    #[serde(with = "Checked::<Bytes<KIB, { 4 * MIB }>>")]
    pub not_sent_low_water: usize,
}

impl Default for HttpConfig {
    fn default() -> HttpConfig {
        HttpConfig {
            listen: (Ipv4Addr::LOCALHOST, 8808).into(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            body_bytes_max: 4 << 20,
            connections_max: 20_000,
            header_timeout: Duration::from_secs(10),
            keep_alive: Limits::default().keep_alive,
            write_timeout: Duration::from_secs(300),
            not_sent_low_water: 16 << 10,
        }
    }
}

/// The streams of `GET /v1/events` and the history they read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EventsConfig {
    /// Events kept for streams that are behind or reconnect.
    /// At the limit: The oldest is forgotten; a stream that still needed it reports how many it missed.
    #[serde(with = "Checked::<Count<1, 10_000_000>>")]
    pub history_max: usize,
    /// Memory of those events.
    /// At the limit: The oldest are forgotten.
    #[serde(with = "Checked::<Bytes<{ 64 * KIB }, { 16 * GIB }>>")]
    pub history_bytes_max: usize,
    /// Open streams; 0 turns `/v1/events` off.
    /// At the limit: A further one gets 503.
    #[serde(with = "Checked::<Count<0, 1_000_000>>")]
    pub streams_max: usize,
    /// Pause that a browser is asked to make before it connects again (`retry`).
    #[serde(with = "Checked::<Time<100, HOUR>>")]
    pub retry: Duration,
}

impl Default for EventsConfig {
    fn default() -> EventsConfig {
        EventsConfig {
            history_max: 10_000,
            history_bytes_max: 16 << 20,
            streams_max: 10_000,
            retry: Duration::from_secs(3),
        }
    }
}

/// The connections of `GET /v1/ws`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WsConfig {
    /// Open connections, which are sessions too; 0 turns `/v1/ws` off.
    /// At the limit: A further one is closed with code 1013.
    #[serde(with = "Checked::<Count<0, 1_000_000>>")]
    pub connections_max: usize,
    /// Largest message of a client.
    /// At the limit: The connection is closed with code 1009.
    #[serde(with = "Checked::<Bytes<KIB, { 4 * MIB }>>")]
    pub message_bytes_max: usize,
    /// Time a client may take to answer a ping, which is sent after `http.keep_alive` of silence.
    /// At the limit: The connection is closed with code 1008.
    #[serde(with = "Checked::<Time<SECOND, HOUR>>")]
    pub pong_timeout: Duration,
}

impl Default for WsConfig {
    fn default() -> WsConfig {
        WsConfig {
            connections_max: 10_000,
            message_bytes_max: 64 << 10,
            pong_timeout: Duration::from_secs(30),
        }
    }
}
