//! Every metric of the bus: its name, its meaning, and the only use of the metrics macros.
//!
//! Owns: the counters of one bus, exported through the `metrics` facade (whichever recorder the embedder installed
//! before the bus started) and readable through [`Stats`](crate::Stats). Never: a label with a URI or a session id.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

use crate::EndReason;

/// A counter that can be read back.
pub(crate) struct Tally {
    value: AtomicU64,
    exported: Counter,
}

impl Tally {
    fn new(name: &'static str, help: &'static str) -> Tally {
        describe_counter!(name, help);
        Tally::of(counter!(name))
    }

    fn of(exported: Counter) -> Tally {
        Tally {
            value: AtomicU64::new(0),
            exported,
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

/// Why an attached subscriber did not get a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LossReason {
    /// Its queue was full.
    Full,
    /// It refused it.
    Refused,
    /// It panicked.
    Panicked,
    /// It was detached, and its time was up.
    Closed,
}

impl LossReason {
    const ALL: [(LossReason, &'static str); 4] = [
        (LossReason::Full, "full"),
        (LossReason::Refused, "refused"),
        (LossReason::Panicked, "panicked"),
        (LossReason::Closed, "closed"),
    ];
}

/// The counters of one attached subscriber. Its name is a label: names are given by operators and few.
pub(crate) struct AttachedMetrics {
    pub(crate) delivered: Tally,
    pub(crate) retries: Tally,
    pub(crate) restarts: Tally,
    pub(crate) pending: Gauge,
    pub(crate) up: Gauge,
    lost: [Tally; 4],
}

impl std::fmt::Debug for AttachedMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AttachedMetrics").finish_non_exhaustive()
    }
}

impl AttachedMetrics {
    pub(crate) fn register(name: &Arc<str>) -> AttachedMetrics {
        let of = |metric: &'static str, help: &'static str| {
            describe_counter!(metric, help);
            Tally::of(counter!(metric, "subscriber" => name.clone()))
        };
        let lost = "tidings_subscriber_lost_total";
        describe_counter!(lost, "deliveries an attached subscriber did not get");
        let pending = "tidings_subscriber_pending";
        describe_gauge!(pending, "deliveries that wait for an attached subscriber");
        let up = "tidings_subscriber_up";
        describe_gauge!(
            up,
            "1 while an attached subscriber takes what it is handed, else 0"
        );
        AttachedMetrics {
            delivered: of(
                "tidings_subscriber_delivered_total",
                "deliveries an attached subscriber took",
            ),
            retries: of(
                "tidings_subscriber_retries_total",
                "deliveries handed to an attached subscriber again",
            ),
            restarts: of(
                "tidings_subscriber_restarts_total",
                "times an attached subscriber was made anew after a panic",
            ),
            pending: gauge!(pending, "subscriber" => name.clone()),
            up: gauge!(up, "subscriber" => name.clone()),
            lost: LossReason::ALL.map(|(_, reason)| {
                Tally::of(counter!(lost, "subscriber" => name.clone(), "reason" => reason))
            }),
        }
    }

    pub(crate) fn lost(&self, count: u64, reason: LossReason) {
        self.lost[reason as usize].add(count);
    }

    pub(crate) fn lost_in_all(&self) -> u64 {
        self.lost.iter().map(Tally::get).sum()
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
    sessions_ended: [Counter; EndReason::ALL.len()],
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
        let ended = "tidings_sessions_ended_total";
        describe_counter!(ended, "sessions and streams ended, by why");
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
            sessions_ended: EndReason::ALL.map(|reason| counter!(ended, "reason" => reason.name())),
            mailbox_refused: Tally::new(
                "tidings_mailbox_refused_total",
                "messages refused by a mailbox; must stay 0",
            ),
            fan_out: histogram!(fan_out),
        })
    }

    /// Counts the end of a session.
    pub(crate) fn session_ended(&self, reason: EndReason) {
        if let Some(counter) = self.sessions_ended.get(reason as usize) {
            counter.increment(1);
        }
    }
}
