//! The kinds of servers, and the texts by which readers recognize a notice and publishers an answer.

use tidings::wire::http1::HttpTarget;

use super::broker;

/// The resource that is changed.
pub(crate) const WATCHED: &str = "watched";
/// The resource that is changed after a burst: a stream that has its notice has all earlier ones.
pub(crate) const FENCE: &str = "fence";

/// The way in which a client of MCP subscribes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// A session with a handshake and a stream of its own, as of 2025-11-25.
    Sessions,
    /// One request whose answer is the stream, as of 2026-07-28.
    Listen,
}

impl Era {
    pub(crate) const ALL: [Era; 2] = [Era::Sessions, Era::Listen];

    /// Returns the name in the labels of lines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Era::Sessions => "sessions 2025-11-25",
            Era::Listen => "listen 2026-07-28",
        }
    }
}

/// The kind of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The service; the one built with the benches, unless `TIDINGS_BIN` names another.
    Tidings(Era),
    /// The service with rules, whose clients send tokens.
    Guarded(Era),
    /// rmcp with its own session layer.
    Rmcp(Era),
    /// Bare sockets.
    Bare,
    /// The service, whose listen streams share connections of HTTP/2.
    TidingsStreams,
    /// The crate `h2` with nothing around it.
    BareStreams,
    /// `nats-server`, in its own protocol.
    Nats,
    /// `redis-server`, in its own protocol.
    Redis,
}

impl Kind {
    /// Returns the label of its line in a table.
    pub(crate) fn label(self) -> String {
        match self {
            Kind::Tidings(era) => format!("tidings, {}", era.name()),
            Kind::Guarded(era) => format!("tidings with rules, {}", era.name()),
            Kind::Rmcp(era) => format!("rmcp, {}", era.name()),
            Kind::Bare => "bare sockets".to_owned(),
            Kind::TidingsStreams => "tidings, listen over HTTP/2".to_owned(),
            Kind::BareStreams => "bare h2".to_owned(),
            Kind::Nats => "nats-server".to_owned(),
            Kind::Redis => "redis-server".to_owned(),
        }
    }

    /// Returns true for the service, and false for its twins.
    pub(crate) fn is_service(self) -> bool {
        matches!(self, Kind::Tidings(_) | Kind::Guarded(_) | Kind::TidingsStreams)
    }

    /// Returns the request that changes `name` to `state`, where a delivery has `delivery_bytes` bytes.
    pub(super) fn publication(
        self,
        target: &HttpTarget,
        name: &str,
        state: &str,
        delivery_bytes: usize,
    ) -> Vec<u8> {
        match self {
            Kind::Nats => broker::nats_publication(name, state, delivery_bytes),
            Kind::Redis => broker::redis_publication(name, state, delivery_bytes),
            Kind::Tidings(_) | Kind::Guarded(_) | Kind::TidingsStreams => {
                target.put_resource(&uri(name), state)
            }
            Kind::Rmcp(_) | Kind::Bare | Kind::BareStreams => {
                let request = target.request_to("POST", &format!("/publish/{name}"));
                request.body("text/plain", state.as_bytes())
            }
        }
    }

    /// Returns a text that every notice has exactly once.
    pub(super) fn notice(self) -> &'static str {
        match self {
            Kind::Nats => "MSG ",
            Kind::Redis => "message\r\n",
            // With the key before it, so that a URI elsewhere in a frame is not counted as a second notice.
            _ => "\"uri\":\"bench://",
        }
    }

    /// Returns a text that every notice of the fence has exactly once, and no other notice.
    pub(super) fn fence(self) -> &'static str {
        match self {
            Kind::Nats => "MSG fence ",
            Kind::Redis => "message\r\n$5\r\nfence\r\n",
            _ => "\"uri\":\"bench://fence\"",
        }
    }

    /// Returns a text that every answer to a publication has exactly once, and one that only a success has;
    /// none where publications have no answer.
    pub(super) fn answers(self) -> Option<(&'static str, &'static str)> {
        match self {
            Kind::Nats => None,
            // The answer is the number of receivers; a refusal begins with a minus.
            Kind::Redis => Some((":", ":")),
            _ => Some(("HTTP/1.1 ", "HTTP/1.1 2")),
        }
    }
}

/// Returns the URI of a resource.
pub(super) fn uri(name: &str) -> String {
    format!("bench://{name}")
}

/// Returns the bytes that `build` makes, with so much padding that they are `bytes` bytes, or with none if
/// they are longer anyway.
pub(super) fn padded(bytes: usize, build: impl Fn(&str) -> Vec<u8>) -> Vec<u8> {
    let all = "x".repeat(bytes);
    let mut padding = bytes;
    // Twice, since a length in the text itself has fewer digits with less padding.
    for _ in 0..2 {
        let around = build(&all[..padding]).len() - padding;
        padding = bytes.saturating_sub(around);
    }
    build(&all[..padding])
}
