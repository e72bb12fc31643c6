//! A number with one stripe per shard, which the shards change without contention.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

thread_local! {
    /// The index of the stripe to which this thread adds; 0 is for all threads that are no shard.
    static STRIPE: Cell<usize> = const { Cell::new(0) };
}

/// Makes this thread add to the stripe of `shard`.
pub(crate) fn enter_stripe(shard: usize) {
    STRIPE.set(shard + 1);
}

// Two cache lines, since the prefetchers of current processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicI64);

/// A number in stripes. A sum includes all that was added before it is read.
#[derive(Debug)]
pub(crate) struct Striped {
    stripes: Box<[Stripe]>,
}

impl Striped {
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
        // A thread of a bus with more shards has no stripe here.
        let stripe = self.stripes.get(STRIPE.get()).unwrap_or(&self.stripes[0]);
        stripe.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> i64 {
        // The stripes are not read at one moment, so the sum is exact only when no thread adds.
        let stripes = self.stripes.iter();
        stripes.map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_additions_are_all_counted() {
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
