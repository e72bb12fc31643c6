//! A number of subscriptions that several sessions share.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of subscriptions that several sessions share, such as those of one client. See
/// [`SessionOptions::allowance`](crate::SessionOptions::allowance).
#[derive(Debug)]
pub struct SubscriptionAllowance {
    used: AtomicUsize,
    /// Those that the client has at other nodes.
    elsewhere: AtomicUsize,
    max: usize,
}

impl SubscriptionAllowance {
    /// Allows `max` subscriptions. At the limit subscribing fails with `AllowanceUsed`.
    pub fn new(max: usize) -> SubscriptionAllowance {
        SubscriptionAllowance {
            used: AtomicUsize::new(0),
            elsewhere: AtomicUsize::new(0),
            max,
        }
    }

    /// The most subscriptions.
    pub fn max(&self) -> usize {
        self.max
    }

    /// The subscriptions that the sessions have.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Counts the subscriptions that the client has at other nodes of a cluster, which are as many less that
    /// it may have here. Those that it has stay.
    pub fn set_elsewhere(&self, count: usize) {
        self.elsewhere.store(count, Ordering::Relaxed);
    }

    /// The subscriptions that the client has at other nodes, as far as is known.
    pub fn elsewhere(&self) -> usize {
        self.elsewhere.load(Ordering::Relaxed)
    }

    /// Takes one of them. Returns false if all are used.
    pub(crate) fn take(&self) -> bool {
        let max = self.max.saturating_sub(self.elsewhere());
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                (used < max).then_some(used + 1)
            });
        taken.is_ok()
    }

    pub(crate) fn give_back(&self, count: usize) {
        self.used.fetch_sub(count, Ordering::Relaxed);
    }
}
