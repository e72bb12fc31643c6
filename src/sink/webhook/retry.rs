//! What follows from an answer, or from none: done, again after a pause, given up, or over for good.
//!
//! Owns: the rules of statuses and of pauses. Pure: no clock, no socket; what is random comes from the caller.

use std::time::{Duration, Instant};

/// The first pause.
const PAUSE_MIN: Duration = Duration::from_millis(500);

/// A receiver may ask for a longer pause with `Retry-After`, up to this.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// What one request brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// A status, and how long the receiver asks us to wait.
    Status(u16, Option<Duration>),
    /// No answer, and why.
    None(String),
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AttemptOutcome {
    /// It was delivered.
    Delivered,
    /// The receiver wants nothing more.
    Gone,
    /// It was not delivered, and why; how long the receiver asks us to wait.
    Failed(String, Option<Duration>),
}

impl Answer {
    /// Every status but 2xx and 410 may be another one the next time, as Standard Webhooks says.
    pub(super) fn judge(self) -> AttemptOutcome {
        match self {
            Answer::Status(200..=299, _) => AttemptOutcome::Delivered,
            Answer::Status(410, _) => AttemptOutcome::Gone,
            Answer::Status(status @ 300..=399, _) => AttemptOutcome::Failed(
                format!("the receiver answered {status}; redirects are not followed"),
                None,
            ),
            Answer::Status(status @ (429 | 503), after) => {
                AttemptOutcome::Failed(format!("the receiver answered {status}"), after)
            }
            Answer::Status(status, _) => {
                AttemptOutcome::Failed(format!("the receiver answered {status}"), None)
            }
            Answer::None(reason) => AttemptOutcome::Failed(reason, None),
        }
    }
}

/// How often, and how long, one notice is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RetryPolicy {
    pub(super) attempts: usize,
    pub(super) retry_for: Duration,
    pub(super) backoff_max: Duration,
}

impl RetryPolicy {
    /// The pause after `attempts` requests, the first of which began at `since`; none when it is given up. `chance`
    /// is a number from 0 to 1, `asked` what the receiver asks for.
    pub(super) fn pause(
        &self,
        attempts: usize,
        since: Instant,
        now: Instant,
        asked: Option<Duration>,
        chance: f64,
    ) -> Option<Duration> {
        if attempts >= self.attempts {
            return None;
        }
        let doublings = u32::try_from(attempts.saturating_sub(1))
            .unwrap_or(u32::MAX)
            .min(20);
        let usual = (PAUSE_MIN * 2_u32.pow(doublings)).min(self.backoff_max);
        // Between half of it and all of it, so that many that failed at once do not come back at once.
        let pause = usual.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0);
        let pause = pause.max(asked.unwrap_or_default().min(RETRY_AFTER_MAX));
        let spent = now.saturating_duration_since(since);
        (spent + pause <= self.retry_for).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POLICY: RetryPolicy = RetryPolicy {
        attempts: 5,
        retry_for: Duration::from_secs(60),
        backoff_max: Duration::from_secs(2),
    };

    #[test]
    fn statuses_are_judged_as_standard_webhooks_says() {
        let minute = Some(Duration::from_secs(60));
        for (status, after, expected) in [
            (200, None, AttemptOutcome::Delivered),
            (204, minute, AttemptOutcome::Delivered),
            (410, None, AttemptOutcome::Gone),
            (
                429,
                minute,
                AttemptOutcome::Failed("the receiver answered 429".into(), minute),
            ),
            (
                503,
                minute,
                AttemptOutcome::Failed("the receiver answered 503".into(), minute),
            ),
            (
                500,
                minute,
                AttemptOutcome::Failed("the receiver answered 500".into(), None),
            ),
            (
                400,
                None,
                AttemptOutcome::Failed("the receiver answered 400".into(), None),
            ),
        ] {
            assert_eq!(Answer::Status(status, after).judge(), expected);
        }
        let AttemptOutcome::Failed(text, None) = Answer::Status(302, None).judge() else {
            panic!("a redirect is a failure")
        };
        assert_eq!(text, "the receiver answered 302; redirects are not followed");
    }

    #[test]
    fn pauses_double_up_to_their_longest_and_end() {
        let now = Instant::now();
        let pauses = [1, 2, 3, 4, 5].map(|attempts| POLICY.pause(attempts, now, now, None, 1.0));
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(
            pauses,
            [millis(500), millis(1000), millis(2000), millis(2000), None]
        );
        assert_eq!(
            POLICY.pause(1, now, now + Duration::from_secs(60), None, 1.0),
            None
        );
    }

    #[test]
    fn what_the_receiver_asks_for_is_granted_within_bounds() {
        let now = Instant::now();
        let long = RetryPolicy {
            retry_for: Duration::from_secs(3600),
            ..POLICY
        };
        let asked = |seconds| long.pause(1, now, now, Some(Duration::from_secs(seconds)), 0.0);
        assert_eq!(asked(30), Some(Duration::from_secs(30)));
        assert_eq!(asked(86_400), Some(RETRY_AFTER_MAX));
        assert_eq!(asked(0), Some(Duration::from_millis(250)));
        assert_eq!(POLICY.pause(1, now, now, Some(RETRY_AFTER_MAX), 0.0), None);
    }

    proptest! {
        #[test]
        fn a_pause_is_never_longer_than_it_may_be(attempts in 1_usize..2000, chance in 0.0_f64..=1.0) {
            let now = Instant::now();
            let patience = RetryPolicy { attempts: usize::MAX, ..POLICY };
            let pause = patience.pause(attempts, now, now, None, chance).unwrap();
            prop_assert!(pause <= patience.backoff_max && pause >= PAUSE_MIN / 2);
        }
    }
}
