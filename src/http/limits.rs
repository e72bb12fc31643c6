//! The limits that the endpoints of one server share: what each caller may hold, and the request bodies that
//! are being received.

mod bodies;
mod shares;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::Extensions;

use bodies::Bodies;
pub(crate) use bodies::{BodyFault, BytesPlace, ReceivedBody};
pub(crate) use shares::Place;
use shares::Shares;

use super::problem::{Problem, ProblemKind};
use crate::auth::Caller;
use crate::config::{HttpConfig, SessionConfig};
use crate::metrics::{self, Limit};

/// The limits that the endpoints of one server share. Clones share their counts, so endpoints that are made
/// with clones of one value count the same callers together.
#[derive(Debug, Clone)]
pub struct SharedLimits {
    shared: Arc<Counts>,
}

#[derive(Debug)]
struct Counts {
    /// The sessions and streams that one caller may hold; none when they are not counted.
    sessions_max: Option<usize>,
    sessions: Shares,
    bodies: Bodies,
    body_timeout: Duration,
}

/// The name under which the limits of a caller count.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Counted {
    /// The address of the connection.
    Address(IpAddr),
    /// A connection whose address the server does not tell. All of them are one caller: a limit must not end
    /// where an address is missing.
    Unknown,
}

impl Counted {
    /// Returns the name of the caller of a request.
    pub(crate) fn of(extensions: &Extensions) -> Counted {
        match Caller::of(extensions).and_then(Caller::counted) {
            Some(address) => Counted::Address(address),
            None => Counted::Unknown,
        }
    }
}

/// A limit that a request has reached, which is counted already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exceeded {
    /// Names the limit, its configuration key and the remedy.
    pub(crate) text: String,
    /// The seconds after which the client may try again.
    pub(crate) retry_after: u32,
}

impl From<Exceeded> for Problem {
    fn from(exceeded: Exceeded) -> Problem {
        ProblemKind::TooManyRequests
            .because(exceeded.text)
            .retry_after(exceeded.retry_after)
    }
}

impl Default for SharedLimits {
    /// Makes the limits that a configuration without keys has.
    fn default() -> SharedLimits {
        SharedLimits::new(&HttpConfig::default(), &SessionConfig::default())
    }
}

impl SharedLimits {
    /// Makes the limits: of `http` it heeds `body_timeout` and `bodies_bytes_max`, of `session`
    /// `per_peer_max`.
    pub fn new(http: &HttpConfig, session: &SessionConfig) -> SharedLimits {
        SharedLimits {
            shared: Arc::new(Counts {
                sessions_max: session.per_peer_max,
                sessions: Shares::default(),
                bodies: Bodies::new(http.bodies_bytes_max),
                body_timeout: http.body_timeout,
            }),
        }
    }

    /// Takes a place among the sessions and long-lived streams of a caller; none when they are not counted.
    ///
    /// # Errors
    /// The caller has as many as it may.
    pub(crate) fn session(&self, caller: &Counted) -> Result<Option<Place>, Exceeded> {
        let Some(max) = self.shared.sessions_max else {
            return Ok(None);
        };
        if let Some(place) = self.shared.sessions.take(caller, max) {
            return Ok(Some(place));
        }
        metrics::limit_reached(Limit::SessionsOfPeer);
        Err(Exceeded {
            text: format!(
                "too many sessions and streams from this address: the limit is {max} (session.per_peer_max); \
                 end one, or wait until idle ones have ended"
            ),
            retry_after: 5,
        })
    }
}
