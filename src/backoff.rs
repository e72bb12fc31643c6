//! Waits between attempts: exponential, bounded, and spread at random.
//!
//! Random numbers come from the caller, so the arithmetic is testable and the same on every run.

use std::time::Duration;

/// The waits between attempts to reach a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The upper bound of the first wait.
    first: Duration,
    /// The upper bound of every wait.
    max: Duration,
    attempts: u32,
}

impl Backoff {
    /// Creates waits of at most `first`, then at most twice that, and so on, never longer than `max`.
    pub const fn new(first: Duration, max: Duration) -> Backoff {
        Backoff {
            first,
            max,
            attempts: 0,
        }
    }

    /// Returns the next wait: the fraction `random / u32::MAX` of its upper bound.
    ///
    /// The whole range is used ("full jitter"), so clients that lost one server together come back spread
    /// out.
    pub(crate) fn next(&mut self, random: u32) -> Duration {
        let bound = doubled(self.first, self.max, self.attempts);
        self.attempts = self.attempts.saturating_add(1);
        // `mul_f64` may round up beyond the bound.
        bound.mul_f64(fraction(random)).min(bound)
    }

    /// Returns the same waits, beginning with the first.
    pub(crate) fn restarted(self) -> Backoff {
        Backoff::new(self.first, self.max)
    }

    /// The time that a connection must last for the waits to begin anew. Without it, a server that accepts
    /// every client and drops it at once would be tried in a tight loop.
    pub(crate) fn stable_after(&self) -> Duration {
        self.max
    }
}

impl Default for Backoff {
    /// At most one second, doubling up to half a minute.
    fn default() -> Backoff {
        Backoff::new(Duration::from_secs(1), Duration::from_secs(30))
    }
}

/// Returns `first` doubled `times` times, at most `max`.
pub(crate) fn doubled(first: Duration, max: Duration, times: u32) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(times)).min(max)
}

/// Returns `wait` shortened by up to a half, so that clients with the same timer do not act at the same
/// moment.
pub(crate) fn shortened(wait: Duration, random: u32) -> Duration {
    wait.saturating_sub(wait.mul_f64(fraction(random) / 2.0))
}

fn fraction(random: u32) -> f64 {
    f64::from(random) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bounds_double_up_to_the_maximum() {
        let mut backoff = Backoff::default();
        let waits: Vec<u64> = (0..8).map(|_| backoff.next(u32::MAX).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(backoff.restarted().next(u32::MAX).as_secs(), 1);
    }

    proptest! {
        #[test]
        fn waits_stay_within_their_bounds(
            first in 0_u64..100_000,
            max in 0_u64..100_000_000,
            randoms in proptest::collection::vec(any::<u32>(), 1..80),
        ) {
            let max = Duration::from_millis(max);
            let mut bound = Duration::from_millis(first).min(max);
            let mut backoff = Backoff::new(Duration::from_millis(first), max);
            for random in randoms {
                prop_assert!(backoff.next(random) <= bound);
                bound = (bound * 2).min(max);
            }
        }

        #[test]
        fn waits_grow_with_the_random_number(one: u32, other: u32, attempts in 0_usize..40) {
            let mut backoff = Backoff::default();
            for _ in 0..attempts {
                backoff.next(0);
            }
            let mut twin = backoff;
            prop_assert!(backoff.next(one.min(other)) <= twin.next(one.max(other)));
        }

        #[test]
        fn shortened_waits_keep_at_least_half(millis in 0_u64..10_000_000, random: u32) {
            let wait = Duration::from_millis(millis);
            let left = shortened(wait, random);
            prop_assert!(left <= wait && left >= wait.mul_f64(0.499));
        }
    }
}
