//! Every bound of the bus in one place.
//!
//! Owns: the numbers, their defaults and what happens at each. Never: enforces them; the actor that owns the thing
//! does.

use std::time::Duration;

/// What the bus holds at most. Defaults suit one service on one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Requests behind the door at once (default 1,024). At the limit `publish` and the other calls wait,
    /// `try_publish` answers `Busy`. At least 1.
    pub in_flight_max: usize,
    /// Registered resources (default 100,000). At the limit `register` and `upsert` answer `TooMany`.
    pub resources_max: usize,
    /// Tools, prompts and templates, each (default 10,000). At the limit adding one answers `TooMany`.
    pub list_items_max: usize,
    /// Bytes of one held body (default 16 MiB). A larger one is refused with `BodyTooLarge`.
    pub body_bytes_max: usize,
    /// Removed URIs that keep a version of their own (default 100,000). Beyond it the oldest are folded into one
    /// floor that every later registration starts above, so versions still never go backward.
    pub removed_max: usize,
    /// Sessions and streams attached at once (default 20,000). At the limit opening one answers `TooMany`.
    pub sessions_max: usize,
    /// Subscriptions of one session, unless the session asks for fewer (default 1,000). At the limit subscribing
    /// answers `TooMany`.
    pub subscriptions_max: usize,
    /// Notices that one drain hands out (default 256): what one write can carry. At least 1.
    pub drain_max: usize,
    /// Attached subscribers that are no sessions (default 64). At the limit attaching one answers `TooMany`.
    pub attached_max: usize,
    /// Publisher shards, each a thread (default 0: one per core, at most 64).
    pub shards: usize,
    /// How long an open stream stays silent at most before its reader is asked for a sign of life (default 15 s, at
    /// least 10 ms).
    pub keep_alive: Duration,
    /// How long a subscriber with an open stream may take nothing of what waits for it before surveys call it stalled
    /// (default 3 s). Nothing else happens then; see [`SessionOptions::stall_timeout`](crate::SessionOptions).
    pub stalled_after: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            in_flight_max: 1_024,
            resources_max: 100_000,
            list_items_max: 10_000,
            body_bytes_max: 16 << 20,
            removed_max: 100_000,
            sessions_max: 20_000,
            subscriptions_max: 1_000,
            drain_max: 256,
            attached_max: 64,
            shards: 0,
            keep_alive: Duration::from_secs(15),
            stalled_after: Duration::from_secs(3),
        }
    }
}

impl Limits {
    /// These limits, with at least one wherever nothing could happen otherwise.
    pub(crate) fn checked(mut self) -> Limits {
        self.in_flight_max = self.in_flight_max.max(1);
        self.drain_max = self.drain_max.max(1);
        self.keep_alive = self.keep_alive.max(Duration::from_millis(10));
        self
    }

    pub(crate) fn shard_count(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let wanted = if self.shards == 0 { cores } else { self.shards };
        wanted.clamp(1, 64)
    }
}
