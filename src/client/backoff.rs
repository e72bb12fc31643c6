//! How long to wait before the next attempt: exponential, with full jitter.
//!
//! Owns the count of attempts and the bounds. It never waits and draws no random numbers itself; whoever asks for a
//! wait brings one.

use std::time::Duration;

/// The waits between attempts to reach a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The longest the first wait can be.
    first: Duration,
    /// The longest any wait can be.
    max: Duration,
    attempts: u32,
}

impl Backoff {
    /// Waits of at most `first`, then at most twice that, and so on, never longer than `max`.
    pub const fn new(first: Duration, max: Duration) -> Backoff {
        Backoff {
            first,
            max,
            attempts: 0,
        }
    }

    /// The longest the next wait can be.
    fn ceiling(&self) -> Duration {
        let factor = 2_u32.saturating_pow(self.attempts);
        self.first.saturating_mul(factor).min(self.max)
    }

    /// The next wait: the share `random / u32::MAX` of the longest it can be, so that clients that lost one server
    /// together do not come back together.
    pub(super) fn next(&mut self, random: u32) -> Duration {
        let ceiling = self.ceiling();
        self.attempts = self.attempts.saturating_add(1);
        ceiling
            .mul_f64(f64::from(random) / f64::from(u32::MAX))
            .min(ceiling)
    }

    /// The same waits from the first on, as after a connection that held.
    pub(super) fn anew(self) -> Backoff {
        Backoff::new(self.first, self.max)
    }

    /// How long a connection must hold for the next wait to be a first one again; otherwise a server that lets
    /// everybody in and drops them at once would be asked without pause.
    pub(super) fn holds_after(&self) -> Duration {
        self.max
    }
}

impl Default for Backoff {
    /// A second, doubling up to half a minute.
    fn default() -> Backoff {
        Backoff::new(Duration::from_secs(1), Duration::from_secs(30))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_longest_waits_double_up_to_the_bound() {
        let mut backoff = Backoff::default();
        let waits: Vec<u64> = (0..8).map(|_| backoff.next(u32::MAX).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(backoff.anew().next(u32::MAX).as_secs(), 1);
    }

    proptest! {
        #[test]
        fn every_wait_is_within_its_bounds(
            first in 0_u64..100_000,
            max in 0_u64..100_000_000,
            randoms in proptest::collection::vec(any::<u32>(), 1..80),
        ) {
            let (first, max) = (Duration::from_millis(first), Duration::from_millis(max));
            let mut backoff = Backoff::new(first, max);
            let mut ceiling = first.min(max);
            for random in randoms {
                prop_assert!(backoff.next(random) <= ceiling);
                ceiling = (ceiling * 2).min(max);
            }
        }

        #[test]
        fn more_chance_is_never_less_wait(one: u32, other: u32, attempts in 0_usize..40) {
            let mut backoff = Backoff::default();
            for _ in 0..attempts {
                backoff.next(0);
            }
            let mut twin = backoff;
            prop_assert!(backoff.next(one.min(other)) <= twin.next(one.max(other)));
        }
    }
}
