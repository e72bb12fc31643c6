//! The outcome of one attempt to deliver, and the policy of further attempts.
//!
//! Pure: time and random numbers come from the caller.

use std::time::Duration;

use crate::backoff::{doubled, shortened};

/// The first pause between two attempts.
const PAUSE_MIN: Duration = Duration::from_millis(500);

/// The longest pause that a receiver can ask for with `Retry-After`.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReceiverAnswer {
    /// A status, and the value of `Retry-After`.
    Status(u16, Option<Duration>),
    /// No answer, for this reason.
    None(String),
}

/// The outcome of one attempt to deliver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AttemptOutcome {
    /// The receiver has the message.
    Delivered,
    /// The receiver wants no further messages.
    Gone,
    /// The attempt failed for this reason; the pause that the receiver asks for, if any.
    Failed(String, Option<Duration>),
}

impl ReceiverAnswer {
    /// Judges an answer by the rules of Standard Webhooks: every status but 2xx and 410 may change with
    /// another attempt.
    pub(super) fn judge(self) -> AttemptOutcome {
        match self {
            ReceiverAnswer::Status(200..=299, _) => AttemptOutcome::Delivered,
            ReceiverAnswer::Status(410, _) => AttemptOutcome::Gone,
            ReceiverAnswer::Status(status @ 300..=399, _) => AttemptOutcome::Failed(
                format!("the receiver answered {status}; redirects are not followed"),
                None,
            ),
            ReceiverAnswer::Status(status @ (429 | 503), after) => {
                AttemptOutcome::Failed(format!("the receiver answered {status}"), after)
            }
            ReceiverAnswer::Status(status, _) => {
                AttemptOutcome::Failed(format!("the receiver answered {status}"), None)
            }
            ReceiverAnswer::None(reason) => AttemptOutcome::Failed(reason, None),
        }
    }
}

/// The limits of the attempts to deliver one notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RetryPolicy {
    pub(super) attempts: usize,
    pub(super) retry_for: Duration,
    pub(super) backoff_max: Duration,
}

impl RetryPolicy {
    /// Returns the pause after `attempts` attempts, which took `spent` so far; `None` if the notice is given
    /// up. `requested` is the pause that the receiver asks for.
    pub(super) fn pause(
        &self,
        attempts: usize,
        spent: Duration,
        requested: Option<Duration>,
        random: u32,
    ) -> Option<Duration> {
        if attempts >= self.attempts {
            return None;
        }
        let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
        let usual = shortened(doubled(PAUSE_MIN, self.backoff_max, doublings), random);
        // Bounded, or a receiver could stop its sink for days.
        let pause = usual.max(requested.unwrap_or_default().min(RETRY_AFTER_MAX));
        // A last attempt after the deadline would only hold up the notices behind this one.
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
    fn statuses_follow_standard_webhooks() {
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
            assert_eq!(ReceiverAnswer::Status(status, after).judge(), expected);
        }
        let AttemptOutcome::Failed(text, None) = ReceiverAnswer::Status(302, None).judge() else {
            panic!("a redirect is a failure")
        };
        assert_eq!(text, "the receiver answered 302; redirects are not followed");
    }

    #[test]
    fn pauses_double_up_to_the_maximum_and_end() {
        let pauses = [1, 2, 3, 4, 5].map(|attempts| POLICY.pause(attempts, Duration::ZERO, None, 0));
        let expected = [Some(500), Some(1000), Some(2000), Some(2000), None];
        assert_eq!(pauses, expected.map(|millis| millis.map(Duration::from_millis)));
        assert_eq!(POLICY.pause(1, Duration::from_secs(60), None, 0), None);
    }

    #[test]
    fn retry_after_is_honoured_within_bounds() {
        let long = RetryPolicy {
            retry_for: Duration::from_secs(3600),
            ..POLICY
        };
        for (requested, expected) in [
            (Duration::from_secs(30), Duration::from_secs(30)),
            (Duration::from_secs(86_400), RETRY_AFTER_MAX),
            (Duration::ZERO, Duration::from_millis(250)),
        ] {
            let pause = long.pause(1, Duration::ZERO, Some(requested), u32::MAX);
            assert_eq!(pause, Some(expected));
        }
        assert_eq!(POLICY.pause(1, Duration::ZERO, Some(RETRY_AFTER_MAX), 0), None);
    }

    proptest! {
        #[test]
        fn pauses_stay_within_their_bounds(attempts in 1_usize..2000, random: u32) {
            let policy = RetryPolicy { attempts: usize::MAX, ..POLICY };
            let pause = policy.pause(attempts, Duration::ZERO, None, random).unwrap();
            prop_assert!(pause <= policy.backoff_max && pause >= PAUSE_MIN / 2);
        }
    }
}
