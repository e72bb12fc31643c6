//! The HTTP side: the listener, and the transports beside MCP.

use super::bounded::*;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use tidings_actors::Limits;

table! { HttpConfig = "The listener: its address, the hosts and origins it admits, and its timeouts.";
    /// Address to accept connections on; port 0 takes a free one.
    /// At the limit: An address other machines can reach needs `http.allowed_hosts`, or the service does not
    /// start.
    listen: SocketAddr = (Ipv4Addr::LOCALHOST, 8808).into(), "Checked::<Address>";
    /// Names the `Host` header may carry, on any port, besides localhost, 127.0.0.1 and \[::1\].
    /// At the limit: A request with another name gets 403.
    allowed_hosts: Vec<String> = Vec::new(), "Checked::<List<Host, 0, 256>>";
    /// Origins of web pages that may call, besides http and https of localhost, 127.0.0.1 and \[::1\] on any
    /// port. At the limit: A request from another origin gets 403; one without `Origin` passes.
    allowed_origins: Vec<String> = Vec::new(), "Checked::<List<Origin, 0, 256>>";
    /// Largest request body. At the limit: A larger one gets 413 and is kept no further.
    body_bytes_max: usize = 4 << 20, "Checked::<Bytes<KIB, { 64 * MIB }>>";
    /// Changes in one batch, which are stored in one step and change the resource list at most once. Sources
    /// of many changes publish them in batches of this size. At the limit: A longer batch gets 413, and
    /// nothing of it is applied.
    batch_max: usize = Limits::default().batch_max, "Checked::<Count<1, 100_000>>";
    /// Open connections in all. At the limit: Further connections are closed at once and counted.
    connections_max: usize = 20_000, "Checked::<Count<1, 1_000_000>>";
    /// Time a client has to send the headers of a request, also after the one before it on the same
    /// connection. At the limit: A slower connection is closed.
    header_timeout: Duration = Duration::from_secs(10), "Checked::<Time<SECOND, { 5 * MINUTE }>>";
    /// Time a client has to send the whole body of a request.
    /// At the limit: The request gets 408, and its connection is closed (in HTTP/2 its stream).
    body_timeout: Duration = Duration::from_secs(30), "Checked::<Time<SECOND, HOUR>>";
    /// Bytes that are read and dropped after a request was refused before its body had come, so that the
    /// client gets the answer before the connection ends. After a rest of at most 256 KiB whose length is
    /// known the connection is kept; otherwise the answer says `Connection: close`.
    /// At the limit: The connection is closed, and a client that is still sending may lose the answer.
    unread_bytes_max: usize = 64 << 20, "Checked::<Bytes<{ 256 * KIB }, { 16 * GIB }>>";
    /// Time for which they are read; 5 s without a byte end it, too.
    /// At the limit: As for `http.unread_bytes_max`.
    unread_timeout: Duration = Duration::from_secs(30), "Checked::<Time<SECOND, HOUR>>";
    /// Bytes of all request bodies that are received or answered at a time, over all connections, and of the
    /// notices with content that are being written. At the limit: A request whose body would take more gets
    /// 503 and is kept no further, and a notice comes without its content.
    bodies_bytes_max: usize = 256 << 20, "Checked::<Bytes<MIB, { 1024 * GIB }>>";
    /// Largest content that a notice carries on `/v1/events` and `/v1/ws` with `?body=1`; 0B carries empty
    /// contents alone. At the limit: The notice comes without its content, and says so.
    notice_body_max: usize = 64 << 10, "Checked::<Bytes<0, { 4 * MIB }>>";
    /// Interval of the comments on an idle stream, by which proxies keep it and dead peers are noticed.
    keep_alive: Duration = Limits::default().keep_alive, "Checked::<Time<SECOND, { 5 * MINUTE }>>";
    /// Time a connection may read nothing of the bytes that are written to it.
    /// The same holds for a stream of HTTP/2 whose window is closed.
    /// At the limit: It is closed, which ends a listen stream. The client of a session may reconnect and gets
    /// the notices it missed.
    write_timeout: Duration = Duration::from_secs(300), "Checked::<Time<SECOND, HOUR>>";
    /// Requests and streams of one HTTP/2 connection at a time; 0 turns HTTP/2 off.
    /// At the limit: Clients wait with further requests; one that is sent gets `REFUSED_STREAM`.
    h2_streams_max: usize = 1_000, "Checked::<Count<0, 1_000_000>>";
    /// Requests of all HTTP/2 connections that are not answered yet, or that are still sent after the answer;
    /// an open stream is answered. Those whose bodies have not come whole have half of the places at most.
    /// At the limit: A request gets 503, and the rest of an answered one is refused.
    h2_requests_max: usize = 20_000, "Checked::<Count<1, 10_000_000>>";
    /// Headers of one HTTP/2 request, decoded, and 32 bytes for each.
    /// At the limit: The request gets 431; far beyond it the connection is closed.
    h2_header_bytes_max: usize = 16 << 10, "Checked::<Bytes<KIB, MIB>>";
    /// Time a client may take to answer a ping, which an HTTP/2 connection sends after `http.keep_alive` of
    /// silence. At the limit: The connection is closed.
    h2_ping_timeout: Duration = Duration::from_secs(60), "Checked::<Time<SECOND, HOUR>>";
    /// Unsent bytes the kernel may hold per stream (`TCP_NOTSENT_LOWAT`); more means staler notices for slow
    /// readers. At the limit: Notices wait in the outbox, where repeats of one URI become one.
    not_sent_low_water: usize = 16 << 10, "Checked::<Bytes<KIB, { 4 * MIB }>>";
}

table! { TlsConfig = "TLS on the listeners. Files are read again when they change; new connections then get the new ones.";
    /// PEM file with the certificate of the listeners, followed by those of the authorities between it and a
    /// known one; empty turns TLS off. A relative path starts at the folder of the configuration file.
    #[schemars(extend("x-path" = "read"))]
    certificate: Option<PathBuf> = None, "Checked::<OrNone<File>>";
    /// PEM file with the private key of that certificate. A relative path starts at the folder of the
    /// configuration file.
    #[schemars(extend("x-path" = "read"))]
    key: Option<PathBuf> = None, "Checked::<OrNone<File>>";
    /// PEM file with the authorities whose certificates clients may present; empty asks for none. One of
    /// another authority fails the handshake, and a client without one connects. A relative path starts at
    /// the folder of the configuration file.
    #[schemars(extend("x-path" = "read"))]
    client_ca: Option<PathBuf> = None, "Checked::<OrNone<File>>";
    /// PEM file with a revocation list of each authority of `tls.client_ca` and of those below; empty checks
    /// none. A revoked certificate fails the handshake, and so does one without a current list. A relative
    /// path starts at the folder of the configuration file.
    #[schemars(extend("x-path" = "read"))]
    client_crl: Option<PathBuf> = None, "Checked::<OrNone<File>>";
}

/// Whether the page at `/ui/` is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageEnabled {
    /// On a listener that this machine alone can reach.
    #[default]
    Loopback,
    /// Always.
    Yes,
    /// Never.
    No,
}

impl Serialize for PageEnabled {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            PageEnabled::Loopback => to.serialize_str("loopback"),
            PageEnabled::Yes => to.serialize_bool(true),
            PageEnabled::No => to.serialize_bool(false),
        }
    }
}

impl<'de> Deserialize<'de> for PageEnabled {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<PageEnabled, D::Error> {
        match serde_json::Value::deserialize(from)? {
            serde_json::Value::Bool(true) => Ok(PageEnabled::Yes),
            serde_json::Value::Bool(false) => Ok(PageEnabled::No),
            serde_json::Value::String(text) if text == "loopback" => Ok(PageEnabled::Loopback),
            other => Err(serde::de::Error::custom(format_args!(
                "expected \"loopback\", true or false, not {other}"
            ))),
        }
    }
}

table! { PageConfig = "The live page at `/ui/`.";
    /// Serves the page: on a listener that this machine alone can reach, always, or never. With `true`, a
    /// listener that other machines can reach needs credentials, or the service does not start.
    enabled: PageEnabled = PageEnabled::default(), "Checked::<Served>";
}

#[cfg(feature = "service")]
impl PageConfig {
    /// Returns true if the page is served on a listener with this address.
    pub(crate) fn is_served_on(&self, listen: SocketAddr) -> bool {
        match self.enabled {
            PageEnabled::Loopback => listen.ip().to_canonical().is_loopback(),
            PageEnabled::Yes => true,
            PageEnabled::No => false,
        }
    }
}

table! { EventsConfig = "The streams of `GET /v1/events` and the history they read from.";
    /// Events kept for streams that are behind or reconnect.
    /// At the limit: The oldest is forgotten; a stream that still needed it reports how many it missed.
    history_max: usize = 10_000, "Checked::<Count<1, 10_000_000>>";
    /// Memory of those events. At the limit: The oldest are forgotten.
    history_bytes_max: usize = 16 << 20, "Checked::<Bytes<{ 64 * KIB }, { 16 * GIB }>>";
    /// Open streams; 0 turns `/v1/events` off. At the limit: A further one gets 503.
    streams_max: usize = 10_000, "Checked::<Count<0, 1_000_000>>";
    /// Pause that a browser is asked to make before it connects again (`retry`).
    retry: Duration = Duration::from_secs(3), "Checked::<Time<100, HOUR>>";
}

table! { WsConfig = "The connections of `GET /v1/ws`.";
    /// Open connections, which are sessions too; 0 turns `/v1/ws` off.
    /// At the limit: A further one is closed with code 1013.
    connections_max: usize = 10_000, "Checked::<Count<0, 1_000_000>>";
    /// Largest message of a client. At the limit: The connection is closed with code 1009.
    message_bytes_max: usize = 64 << 10, "Checked::<Bytes<KIB, { 4 * MIB }>>";
    /// Time a client may take to answer a ping, which is sent after `http.keep_alive` of silence.
    /// At the limit: The connection is closed with code 1008.
    pong_timeout: Duration = Duration::from_secs(30), "Checked::<Time<SECOND, HOUR>>";
}

table! { QuotaConfig = "The share of one client: of one principal, or of one address where there is none (of one \
                        /64 of IPv6).";
    /// Sessions, listen streams, streams of `/v1/events` and connections of `/v1/ws` of one client, together;
    /// 0 is no limit. `session.per_peer_max` counts the same, and the lower of both holds.
    /// At the limit: A request that opens a further one gets 429.
    sessions_max: Option<usize> = None, "Checked::<OrNone<Count<0, 1_000_000>>>";
    /// Subscriptions of one client over all its sessions and streams; 0 is no limit.
    /// At the limit: Further ones get an error that names the key; a listen request that needs more is
    /// refused as a whole.
    subscriptions_max: Option<usize> = None, "Checked::<OrNone<Count<0, 100_000_000>>>";
    /// Requests of one client in a second, all at once or evenly; 0 is no limit. Messages and lines of a
    /// batch and requests on a WebSocket count one by one, health checks do not.
    /// At the limit: A further one gets 429 with `Retry-After`; on a WebSocket an error.
    requests_per_second: Option<u32> = None, "Checked::<OrNone<Count<0, 1_000_000>>>";
    /// Bodies and URIs of the resources that one client wrote last over HTTP and that exist; 0 is no limit.
    /// Counted from the start of the service: content that a store kept counts for no client until one writes
    /// it again.
    /// At the limit: A change that needs more is refused with 507.
    bytes_max: Option<usize> = None, "Checked::<OrNone<Bytes<0, { 1024 * GIB }>>>";
    /// Tool calls of one client that run at a time; 0 is no limit.
    /// At the limit: A further call gets an error that names the limit.
    tool_places: Option<usize> = None, "Checked::<OrNone<Count<0, 100_000>>>";
}
