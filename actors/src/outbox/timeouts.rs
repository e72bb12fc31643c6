//! The time-outs of sessions. A Publisher shard checks each of its subscribers against them, about once a
//! second.

use std::time::Duration;

use crate::model::{EndReason, SubscriberId};

/// The part of the maximum age by which the first of many sessions ends early, so that sessions opened
/// together do not all reconnect together.
const JITTER: f64 = 0.1;

/// The time-outs of one session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SessionTimeouts {
    // Milliseconds, up to 49 days; 0 means never. Every session stores them, so they take 12 bytes instead of
    // 48.
    idle: u32,
    stall: u32,
    age: u32,
}

/// The times of a session that its time-outs limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SessionAges {
    /// Time since it was opened.
    pub(crate) age: Duration,
    /// Time without a reader and without a request; none while it has a reader.
    pub(crate) idle: Option<Duration>,
    /// Time for which a reader has taken nothing of the pending entries; none if there is no reader or
    /// nothing pending.
    pub(crate) untaken: Option<Duration>,
}

impl SessionTimeouts {
    /// Creates time-outs. Each session gets a maximum age of its own, up to a tenth below `age`.
    pub(crate) fn new(
        id: SubscriberId,
        idle: Option<Duration>,
        stall: Option<Duration>,
        age: Option<Duration>,
    ) -> SessionTimeouts {
        SessionTimeouts {
            idle: millis(idle),
            stall: millis(stall),
            age: millis(age.map(|age| age.mul_f64(1.0 - JITTER * spread(id)))),
        }
    }

    /// Returns the reason to end a session whose times are `ages`, if a time-out is over.
    pub(crate) fn exceeded_by(self, ages: &SessionAges) -> Option<EndReason> {
        // A session may be over several limits; the most specific reason is reported.
        if is_over(self.stall, ages.untaken) {
            Some(EndReason::Stalled)
        } else if is_over(self.age, Some(ages.age)) {
            Some(EndReason::Expired)
        } else if is_over(self.idle, ages.idle) {
            Some(EndReason::Idle)
        } else {
            None
        }
    }

    /// Returns the shortest of the time-outs.
    pub(crate) fn shortest(self) -> Option<Duration> {
        let times = [self.idle, self.stall, self.age];
        let shortest = times.into_iter().filter(|time| *time > 0).min()?;
        Some(Duration::from_millis(u64::from(shortest)))
    }
}

fn is_over(limit: u32, time: Option<Duration>) -> bool {
    match time {
        // Times are cut to milliseconds, so a difference may be one too large: only more than the limit is
        // over.
        Some(time) => limit > 0 && time > Duration::from_millis(u64::from(limit)),
        None => false,
    }
}

fn millis(time: Option<Duration>) -> u32 {
    match time {
        Some(time) => u32::try_from(time.as_millis()).unwrap_or(u32::MAX),
        None => 0,
    }
}

/// Returns a number from 0 up to 1, different for neighbouring ids.
fn spread(id: SubscriberId) -> f64 {
    // Multiples of the golden ratio are spread evenly over the range for any number of consecutive ids.
    let turned = id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (turned >> 32) as f64 / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MILLI: Duration = Duration::from_millis(1);

    fn timeouts(idle: u32, stall: u32, age: u32) -> SessionTimeouts {
        let [idle, stall, age] = [idle, stall, age].map(|n| (n > 0).then_some(SECOND * n));
        SessionTimeouts::new(SubscriberId(0), idle, stall, age)
    }

    #[test]
    fn each_timeout_ends_after_its_limit_only() {
        let early = SessionAges {
            age: SECOND * 30,
            idle: Some(SECOND * 10),
            untaken: Some(SECOND * 20),
        };
        let timeouts = timeouts(10, 20, 30);
        assert_eq!(timeouts.exceeded_by(&early), None);
        for (change, reason) in [
            (
                SessionAges {
                    idle: Some(SECOND * 10 + MILLI),
                    ..early
                },
                EndReason::Idle,
            ),
            (
                SessionAges {
                    untaken: Some(SECOND * 20 + MILLI),
                    ..early
                },
                EndReason::Stalled,
            ),
            (
                SessionAges {
                    age: SECOND * 30 + MILLI,
                    ..early
                },
                EndReason::Expired,
            ),
        ] {
            assert_eq!(timeouts.exceeded_by(&change), Some(reason));
        }
    }

    #[test]
    fn absent_limits_and_times_never_end_a_session() {
        let old = SessionAges {
            age: SECOND * 1_000_000,
            idle: Some(SECOND * 1_000_000),
            untaken: Some(SECOND * 1_000_000),
        };
        assert_eq!(timeouts(0, 0, 0).exceeded_by(&old), None);
        assert_eq!(timeouts(0, 0, 0).shortest(), None);
        let served = SessionAges {
            idle: None,
            untaken: None,
            ..old
        };
        assert_eq!(timeouts(1, 1, 0).exceeded_by(&served), None);
        assert_eq!(timeouts(9, 7, 8).shortest(), Some(SECOND * 7));
    }

    #[test]
    fn ages_of_sessions_are_spread_over_a_tenth() {
        let hour = Duration::from_secs(3600);
        let mut ages: Vec<u32> = (1..=100)
            .map(|id| SessionTimeouts::new(SubscriberId(id), None, None, Some(hour)).age)
            .collect();
        ages.sort_unstable();
        assert!(ages[0] >= 3_240_000 && ages[99] <= 3_600_000, "{ages:?}");
        let widest = ages.windows(2).map(|two| two[1] - two[0]).max().unwrap();
        assert!(widest < 360_000 / 25, "a gap of {widest} ms among 100 sessions");
    }
}
