//! Which server, and the texts by which its readers know a notice and its publisher an answer.
//!
//! Owns: the names of servers, eras and resources, and the requests that change one. Pure: opens nothing.

use std::net::SocketAddr;

use super::broker;

/// The resource that is changed.
pub(crate) const WATCHED: &str = "watched";
/// What is changed after a burst: whoever is told of it has been told of all before.
pub(crate) const FENCE: &str = "fence";

/// How a client of MCP subscribes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// A session with a handshake and a stream of its own, as of 2025-11-25.
    Sessions,
    /// One request whose answer is the stream, as of 2026-07-28.
    Listen,
}

impl Era {
    pub(crate) const ALL: [Era; 2] = [Era::Sessions, Era::Listen];

    /// What tells lines of the tables apart.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Era::Sessions => "sessions 2025-11-25",
            Era::Listen => "listen 2026-07-28",
        }
    }
}

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The service; the one built with the benches, unless `TIDINGS_BIN` names another.
    Tidings(Era),
    /// rmcp with its own session layer.
    Rmcp(Era),
    /// Bare sockets.
    Bare,
    /// `nats-server`, by its own protocol.
    Nats,
    /// `redis-server`, by its own protocol.
    Redis,
}

impl Kind {
    /// Its line in a table.
    pub(crate) fn label(self) -> String {
        match self {
            Kind::Tidings(era) => format!("tidings, {}", era.name()),
            Kind::Rmcp(era) => format!("rmcp, {}", era.name()),
            Kind::Bare => "bare sockets".to_owned(),
            Kind::Nats => "nats-server".to_owned(),
            Kind::Redis => "redis-server".to_owned(),
        }
    }

    /// Whether it is what is measured, rather than a twin.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Kind::Tidings(_))
    }

    /// The request that changes `name` to `state`, where a delivery has `delivery_bytes` bytes.
    pub(super) fn publication(
        self,
        address: SocketAddr,
        name: &str,
        state: &str,
        delivery_bytes: usize,
    ) -> Vec<u8> {
        let start = match self {
            Kind::Nats => return broker::nats_publication(name, state, delivery_bytes),
            Kind::Redis => return broker::redis_publication(name, state, delivery_bytes),
            Kind::Tidings(_) => format!("PUT /v1/resources/bench%3A%2F%2F{name}"),
            Kind::Rmcp(_) | Kind::Bare => format!("POST /publish/{name}"),
        };
        let length = state.len();
        format!(
            "{start} HTTP/1.1\r\nHost: {address}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{state}"
        )
        .into_bytes()
    }

    /// What every notice has exactly once.
    pub(super) fn notice(self) -> &'static str {
        match self {
            // With the key before it, so that a URI elsewhere in a frame is not a second notice.
            Kind::Tidings(_) | Kind::Rmcp(_) | Kind::Bare => "\"uri\":\"bench://",
            Kind::Nats => "MSG ",
            Kind::Redis => "message\r\n",
        }
    }

    /// What every notice of the fence has exactly once, and no other.
    pub(super) fn fence(self) -> &'static str {
        match self {
            Kind::Tidings(_) | Kind::Rmcp(_) | Kind::Bare => "\"uri\":\"bench://fence\"",
            Kind::Nats => "MSG fence ",
            Kind::Redis => "message\r\n$5\r\nfence\r\n",
        }
    }

    /// What every answer to a publication has exactly once, and what one has that accepts; none where publications
    /// are not answered.
    pub(super) fn answers(self) -> Option<(&'static str, &'static str)> {
        match self {
            Kind::Tidings(_) | Kind::Rmcp(_) | Kind::Bare => Some(("HTTP/1.1 ", "HTTP/1.1 2")),
            Kind::Nats => None,
            // The number of those told; a refusal begins with a minus.
            Kind::Redis => Some((":", ":")),
        }
    }
}

/// The URI of a resource.
pub(super) fn uri(name: &str) -> String {
    format!("bench://{name}")
}

/// What `build` makes of so much padding that it has `bytes` bytes, or of none when it has more anyway.
pub(super) fn padded(bytes: usize, build: impl Fn(&str) -> Vec<u8>) -> Vec<u8> {
    let all = "x".repeat(bytes);
    let fitting = |padding: usize| {
        let around = build(&all[..padding]).len() - padding;
        bytes.saturating_sub(around)
    };
    // Twice, since a length in the text itself has fewer digits with less padding.
    build(&all[..fitting(fitting(bytes))])
}
