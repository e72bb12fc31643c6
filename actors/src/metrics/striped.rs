//! A number that the shards change without waiting for each other.
//!
//! Owns: one stripe per shard, on cache lines of their own, and one for all other threads. Never: is exact while it
//! changes; a sum taken later has everything that was added before. Read by the metrics when they are exported.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

thread_local! {
    /// The stripe to which this thread adds.
    static STRIPE: Cell<usize> = const { Cell::new(0) };
}

/// Gives this thread the stripe of `shard`.
pub(crate) fn enter_stripe(shard: usize) {
    STRIPE.set(shard + 1);
}

/// Two cache lines, since processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicI64);

/// The number.
#[derive(Debug)]
pub(crate) struct Striped {
    stripes: Box<[Stripe]>,
}

impl Striped {
    /// Zero, for this many shards.
    pub(crate) fn new(shards: usize) -> Striped {
        let stripes = (0..=shards).map(|_| Stripe::default());
        Striped {
            stripes: stripes.collect(),
        }
    }

    pub(crate) fn add(&self, n: i64) {
        if n == 0 {
            return;
        }
        // A shard's thread of another bus has no stripe of its own here.
        let stripe = self.stripes.get(STRIPE.get()).unwrap_or(&self.stripes[0]);
        stripe.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> i64 {
        self.stripes
            .iter()
            .map(|stripe| stripe.0.load(Ordering::Relaxed))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_add_at_a_time_is_all_there_afterwards() {
        let number = Striped::new(2);
        std::thread::scope(|scope| {
            for shard in [None, Some(0), Some(1), Some(2)] {
                let number = &number;
                scope.spawn(move || {
                    if let Some(shard) = shard {
                        enter_stripe(shard);
                    }
                    for _ in 0..1_000 {
                        number.add(3);
                        number.add(-1);
                    }
                });
            }
        });
        assert_eq!(number.get(), 8_000);
    }
}
