//! The limits of a bus, with their defaults and the behaviour at each limit. The actors enforce them.

use std::time::Duration;

/// The limits of a bus. The defaults suit one service on one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum number of requests inside the bus at once (default 1,024, at least 1). At the limit `publish`
    /// and the other calls wait, and `try_publish` fails with `Busy`.
    pub in_flight_max: usize,
    /// Maximum number of changes in one call of `update_many` (default 1,000, at least 1), which is one
    /// request inside the bus. A longer batch fails with `BatchTooLarge`, and none of its changes is made.
    pub batch_max: usize,
    /// Maximum number of registered resources (default 100,000). At the limit `register` and `upsert` fail
    /// with `TooMany`.
    pub resources_max: usize,
    /// Maximum number of tools, of prompts and of templates (default 10,000 each). At the limit adding one
    /// fails with `TooMany`.
    pub list_items_max: usize,
    /// Maximum size of a body that the bus holds, in bytes (default 16 MiB). A larger one fails with
    /// `BodyTooLarge`.
    pub body_bytes_max: usize,
    /// Maximum size of all bodies that the bus holds, in bytes (default 4 GiB). At the limit a larger body
    /// fails with `BytesFull`.
    pub bytes_max: usize,
    /// Time after which a URI of a former life that its owner has not registered again is removed, in a life
    /// with a store (default 7 days). The removal is a change like any other.
    pub unclaimed_after: Duration,
    /// Maximum number of changes that wait in the change log for attached subscribers that resume (default
    /// 100,000). Beyond it a subscriber that is further behind gets the newest change of each resource and a
    /// gap for the others.
    pub change_log_max: usize,
    /// Maximum number of removed URIs whose version is kept (default 100,000). Beyond it the oldest are
    /// merged into one lower bound for the versions of all later registrations, so that versions still never
    /// go backward.
    pub removed_max: usize,
    /// Maximum number of open sessions and streams (default 20,000). At the limit opening one fails with
    /// `TooMany`.
    pub sessions_max: usize,
    /// Maximum number of subscriptions of one session (default 1,000); a session may ask for fewer. At the
    /// limit subscribing fails with `TooMany`.
    pub subscriptions_max: usize,
    /// Maximum number of subscriptions of one session to resources that do not exist yet (default 100; 0
    /// allows none); a session may ask for fewer. At the limit subscribing fails with `NotFound`.
    pub pending_subscriptions: usize,
    /// Maximum number of entries that one drain of an outbox returns, to be sent in one write (default 256,
    /// at least 1).
    pub drain_max: usize,
    /// Maximum number of attached subscribers (default 64). At the limit attaching one fails with `TooMany`.
    pub attached_max: usize,
    /// Number of Publisher shards, each with a thread (default 0: one per core, at most 64).
    pub shards: usize,
    /// Time after which a silent stream sends a keep-alive (default 15 s, at least 10 ms).
    pub keep_alive: Duration,
    /// Time after which a subscriber that takes nothing of its pending entries is listed as stalled (default
    /// 3 s). It is only a mark; [`SessionOptions::stall_timeout`](crate::SessionOptions) ends the session.
    pub stalled_after: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            in_flight_max: 1_024,
            batch_max: 1_000,
            resources_max: 100_000,
            list_items_max: 10_000,
            body_bytes_max: 16 << 20,
            bytes_max: 4 << 30,
            unclaimed_after: Duration::from_secs(7 * 24 * 60 * 60),
            change_log_max: 100_000,
            removed_max: 100_000,
            sessions_max: 20_000,
            subscriptions_max: 1_000,
            pending_subscriptions: 100,
            drain_max: 256,
            attached_max: 64,
            shards: 0,
            keep_alive: Duration::from_secs(15),
            stalled_after: Duration::from_secs(3),
        }
    }
}

impl Limits {
    /// Raises limits that would stop the bus to the smallest ones that work.
    pub(crate) fn at_least_minimum(mut self) -> Limits {
        // Without a permit no request would be admitted, an empty batch would change nothing, an empty drain
        // would hand out nothing, and a keep-alive of zero would never let the shards rest.
        self.in_flight_max = self.in_flight_max.max(1);
        self.batch_max = self.batch_max.max(1);
        self.drain_max = self.drain_max.max(1);
        self.keep_alive = self.keep_alive.max(Duration::from_millis(10));
        self
    }

    /// Returns the number of shards to start.
    pub(crate) fn shard_count(&self) -> usize {
        let wanted = match (self.shards, std::thread::available_parallelism()) {
            (0, Ok(cores)) => cores.get(),
            (0, Err(_unknown)) => 1,
            (shards, _) => shards,
        };
        wanted.clamp(1, 64)
    }
}
