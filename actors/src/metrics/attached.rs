//! The metrics of attached subscribers, which come and go while the bus runs.
//!
//! Owns: the numbers of one of them, labelled with its name. Never: a label that a client could choose. Kept in the
//! state of the subscriber; its worker, and whoever offers to it, count.

use std::sync::Arc;

use metrics::{Gauge, counter, describe_counter, describe_gauge, gauge};

use super::Counter;

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
    pub(crate) delivered: Counter,
    pub(crate) retries: Counter,
    pub(crate) restarts: Counter,
    pub(crate) pending: Gauge,
    pub(crate) up: Gauge,
    lost: [Counter; 4],
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
            Counter::new(counter!(metric, "subscriber" => name.clone()))
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
                Counter::new(counter!(lost, "subscriber" => name.clone(), "reason" => reason))
            }),
        }
    }

    pub(crate) fn lost(&self, count: u64, reason: LossReason) {
        self.lost[reason as usize].add(count);
    }

    pub(crate) fn lost_in_all(&self) -> u64 {
        self.lost.iter().map(Counter::get).sum()
    }
}
