//! Every metric of the bus: its name, its meaning, and the only use of the metrics macros.
//!
//! Owns: the counters of one bus, exported through the `metrics` facade (whichever recorder the embedder installed
//! before the bus started) and readable through [`Stats`](crate::Stats). Never: a label with a URI or a session id.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Histogram, counter, describe_counter, describe_histogram, histogram};

/// A counter that can be read back.
pub(crate) struct Tally {
    value: AtomicU64,
    exported: Counter,
}

impl Tally {
    fn new(name: &'static str, help: &'static str) -> Tally {
        describe_counter!(name, help);
        Tally {
            value: AtomicU64::new(0),
            exported: counter!(name),
        }
    }

    pub(crate) fn add(&self, n: u64) {
        if n > 0 {
            self.value.fetch_add(n, Ordering::Relaxed);
            self.exported.increment(n);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}

/// The counters of one bus.
pub(crate) struct Metrics {
    pub(crate) changes: Tally,
    pub(crate) unchanged: Tally,
    pub(crate) refused: Tally,
    pub(crate) notices: Tally,
    pub(crate) list_changes: Tally,
    pub(crate) told: Tally,
    pub(crate) conflated: Tally,
    pub(crate) subscriptions_denied: Tally,
    pub(crate) sessions_opened: Tally,
    pub(crate) sessions_ended: Tally,
    pub(crate) mailbox_refused: Tally,
    pub(crate) fan_out: Histogram,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    pub(crate) fn register() -> Arc<Metrics> {
        let fan_out = "tidings_fan_out_seconds";
        describe_histogram!(
            fan_out,
            "time from the door until every outbox is marked, in seconds"
        );
        Arc::new(Metrics {
            changes: Tally::new(
                "tidings_changes_total",
                "changes that altered content, description or existence",
            ),
            unchanged: Tally::new(
                "tidings_unchanged_total",
                "changes that altered nothing and told nobody",
            ),
            refused: Tally::new("tidings_refused_total", "changes refused with an error"),
            notices: Tally::new("tidings_notices_total", "stamped resource changes"),
            list_changes: Tally::new(
                "tidings_list_changes_total",
                "list hashes that became another one",
            ),
            told: Tally::new("tidings_told_total", "outbox entries newly pending"),
            conflated: Tally::new(
                "tidings_conflated_total",
                "outbox entries replaced by a newer one before they were told",
            ),
            subscriptions_denied: Tally::new(
                "tidings_subscriptions_denied_total",
                "subscriptions refused with an error",
            ),
            sessions_opened: Tally::new("tidings_sessions_opened_total", "sessions and streams attached"),
            sessions_ended: Tally::new("tidings_sessions_ended_total", "sessions and streams ended"),
            mailbox_refused: Tally::new(
                "tidings_mailbox_refused_total",
                "messages refused by a mailbox; must stay 0",
            ),
            fan_out: histogram!(fan_out),
        })
    }
}
