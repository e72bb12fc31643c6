//! The options of a watcher, their defaults and their bounds.

use std::time::Duration;

use super::strategy::WatchStrategy;
use crate::backoff::Backoff;
use crate::credentials::Credentials;

/// The shortest interval that can be configured, so that no server is asked in a tight loop.
const WAIT_MIN: Duration = Duration::from_millis(10);

/// The longest interval that can be configured.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The options of a [`Watcher`](super::Watcher).
///
/// Every interval except those of `backoff` is clamped to between 10 ms and a day.
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
    /// The waits between attempts to reconnect (default: at most one second, doubling up to half a minute).
    pub backoff: Backoff,
    /// The only strategy to use (default `None`: the best that the server offers and honours). Connecting to
    /// a server that does not offer it fails.
    pub strategy: Option<WatchStrategy>,
    /// Interval between a change and the next poll, for the strategies that poll (default 1 s). It doubles
    /// with every poll that finds no change, and each interval is shortened at random by up to a half.
    pub poll_first: Duration,
    /// Longest interval between polls (default 30 s). `poll_first` is lowered to it if necessary.
    pub poll_max: Duration,
    /// Time from a subscription to the first check that the server sent every notification (default 10 s).
    pub verify_first: Duration,
    /// Interval between further checks (default 60 s).
    pub verify_every: Duration,
    /// Time that the notification of a detected change may take before the server counts as silent (default 2
    /// s).
    pub verify_grace: Duration,
    /// Watch resources that the server does not have yet, too (default `false`: subscribing fails). They are
    /// reported as missing, and as changed when they appear.
    pub wait_for_missing: bool,
    /// Report changes of the lists of resources, tools and prompts, as the server notifies them (default
    /// `false`).
    pub lists: bool,
    /// The credentials that are presented to a server over HTTP (default: none). A program that is a server
    /// gets none: its credentials are in its environment.
    pub credentials: Credentials,
}

impl WatchOptions {
    /// Returns the options with every interval clamped to its bounds.
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
        // Otherwise the first interval would be the longest.
        self.poll_first = self.poll_first.min(self.poll_max);
        self
    }

    /// Returns the interval that follows `interval` if no change was found.
    pub(super) fn slower(&self, interval: Duration) -> Duration {
        interval.saturating_mul(2).min(self.poll_max)
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
            wait_for_missing: false,
            lists: false,
            credentials: Credentials::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_clamped_to_their_bounds() {
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
}
