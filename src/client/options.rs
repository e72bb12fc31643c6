//! How a watcher behaves: which strategies it may take, and how long it waits for what.
//!
//! Owns the values, their defaults and their bounds. It reads no file and no environment, and waits for nothing.

use std::time::Duration;

use super::backoff::Backoff;
use super::strategy::WatchStrategy;

/// The shortest wait that can be asked for, so that no server is asked without pause.
const WAIT_MIN: Duration = Duration::from_millis(10);

/// The longest wait that can be asked for.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How a [`Watcher`](super::Watcher) behaves.
///
/// Every wait but those of `backoff` is between 10 ms and a day; a value beyond is taken as the nearest bound.
///
/// ```
/// use std::time::Duration;
/// use tidings::client::{WatchStrategy, WatchOptions};
/// let mut options = WatchOptions::default();
/// options.strategy = Some(WatchStrategy::ReadAndHash);
/// options.poll_max = Duration::from_secs(5);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchOptions {
    /// The waits between attempts to connect again (default: a second at most, doubling up to half a minute).
    pub backoff: Backoff,
    /// The only strategy to take (default none: the best that the server keeps). A server that does not offer it is not
    /// watched.
    pub strategy: Option<WatchStrategy>,
    /// How long after a change a resource is asked for again, where the server has to be asked (default 1 s). The wait
    /// doubles each time nothing changed. Of every wait, up to half is left out by chance.
    pub poll_first: Duration,
    /// The longest wait between two questions (default 30 s). When it is less than `poll_first`, it is that too.
    pub poll_max: Duration,
    /// How long after a subscription it is first compared whether the server told of everything (default 10 s).
    pub verify_first: Duration,
    /// How often that is compared later on (default 60 s).
    pub verify_every: Duration,
    /// How long a notification of a change that was seen may take before the server counts as silent (default 2 s).
    pub verify_grace: Duration,
}

impl WatchOptions {
    /// The same within the bounds.
    pub(super) fn bounded(mut self) -> WatchOptions {
        let waits = [
            &mut self.poll_first,
            &mut self.poll_max,
            &mut self.verify_first,
            &mut self.verify_every,
            &mut self.verify_grace,
        ];
        for wait in waits {
            *wait = (*wait).clamp(WAIT_MIN, WAIT_MAX);
        }
        self.poll_first = self.poll_first.min(self.poll_max);
        self
    }

    /// The wait after `before`, which passed without a change.
    pub(super) fn slower(&self, before: Duration) -> Duration {
        before.saturating_mul(2).min(self.poll_max)
    }
}

impl Default for WatchOptions {
    fn default() -> WatchOptions {
        WatchOptions {
            backoff: Backoff::default(),
            strategy: None,
            poll_first: Duration::from_secs(1),
            poll_max: Duration::from_secs(30),
            verify_first: Duration::from_secs(10),
            verify_every: Duration::from_secs(60),
            verify_grace: Duration::from_secs(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_beyond_the_bounds_are_taken_as_the_nearest() {
        let options = WatchOptions {
            poll_first: Duration::from_secs(9),
            poll_max: Duration::from_secs(4),
            verify_first: Duration::ZERO,
            verify_every: Duration::MAX,
            ..WatchOptions::default()
        }
        .bounded();
        assert_eq!(
            (options.poll_first, options.poll_max),
            (Duration::from_secs(4), Duration::from_secs(4))
        );
        assert_eq!((options.verify_first, options.verify_every), (WAIT_MIN, WAIT_MAX));
        assert_eq!(WatchOptions::default().bounded(), WatchOptions::default());
    }

    #[test]
    fn the_waits_double_up_to_the_longest() {
        let options = WatchOptions::default();
        let mut wait = options.poll_first;
        let waits = std::iter::repeat_with(|| {
            wait = options.slower(wait);
            wait.as_secs()
        });
        assert_eq!(waits.take(6).collect::<Vec<_>>(), [2, 4, 8, 16, 30, 30]);
    }
}
