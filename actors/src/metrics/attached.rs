//! The metrics of attached subscribers, which come and go while the bus runs.

use std::sync::Arc;

use metrics::{Gauge, counter, gauge};

use super::{Counter, label_table, metric_table};

metric_table! {
    describe_counter DELIVERED = "tidings_subscriber_delivered_total", "Deliveries that an attached subscriber took.";
    describe_counter RETRIES = "tidings_subscriber_retries_total", "Deliveries repeated to an attached subscriber.";
    describe_counter RESTARTS = "tidings_subscriber_restarts_total",
        "Times that an attached subscriber was recreated after a panic.";
    describe_counter LOST = "tidings_subscriber_lost_total", "Deliveries that an attached subscriber did not get.";
    describe_gauge PENDING = "tidings_subscriber_pending", "Deliveries that wait for an attached subscriber.";
    describe_gauge UP = "tidings_subscriber_up", "1 while an attached subscriber takes its deliveries, else 0.";
}

label_table! {
    /// The reason for which an attached subscriber did not get a delivery.
    LossReason {
        /// Its queue was full.
        Full = "full",
        /// It refused the delivery.
        Refused = "refused",
        /// It panicked.
        Panicked = "panicked",
        /// The bus knows only newer changes of the same resources: it was too far behind when it resumed.
        Overwritten = "overwritten",
        /// It was detached, and its time to finish was over.
        Closed = "closed",
    }
}

/// The metrics of one attached subscriber. Its name is a label, because operators choose the names and they
/// are few.
pub(crate) struct AttachedMetrics {
    pub(crate) delivered: Counter,
    pub(crate) retries: Counter,
    pub(crate) restarts: Counter,
    pub(crate) pending: Gauge,
    pub(crate) up: Gauge,
    lost: [Counter; LossReason::KEYS.len()],
}

impl std::fmt::Debug for AttachedMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AttachedMetrics").finish_non_exhaustive()
    }
}

impl AttachedMetrics {
    pub(crate) fn register(name: &Arc<str>) -> AttachedMetrics {
        describe();
        // All counters start at 0, because one that appears with its first event hides that event from
        // `rate()`.
        AttachedMetrics {
            delivered: Counter::new(counter!(DELIVERED, "subscriber" => name.clone())),
            retries: Counter::new(counter!(RETRIES, "subscriber" => name.clone())),
            restarts: Counter::new(counter!(RESTARTS, "subscriber" => name.clone())),
            pending: gauge!(PENDING, "subscriber" => name.clone()),
            up: gauge!(UP, "subscriber" => name.clone()),
            lost: LossReason::KEYS
                .map(|reason| Counter::new(counter!(LOST, "subscriber" => name.clone(), "reason" => reason))),
        }
    }

    pub(crate) fn count_lost(&self, count: u64, reason: LossReason) {
        self.lost[reason as usize].add(count);
    }

    /// The number of lost deliveries for all reasons.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.iter().map(Counter::get).sum()
    }
}
