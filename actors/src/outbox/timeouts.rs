//! The pure core of the time-outs of sessions: how long each may be idle, stalled and old, and which was exceeded.
//!
//! Owns: [`SessionTimeouts`] and its verdict. Never: looks at a clock or ends anything; a Publisher shard looks at each of its
//! subscribers in turn, hands in how they stand, and ends those whose time is up.

use std::time::Duration;

use crate::model::{EndReason, SubscriberId};

/// The oldest sessions end by this part of their greatest age early, so that sessions that came together go one by
/// one.
const JITTER: f64 = 0.1;

/// How long a session may be what it is. In milliseconds of four bytes, up to 49 days; zero is for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SessionTimeouts {
    idle: u32,
    stall: u32,
    age: u32,
}

/// How a session stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SessionAges {
    /// How long it has been there.
    pub(crate) age: Duration,
    /// How long it has had neither a reader nor a request; none while it has a reader.
    pub(crate) idle: Option<Duration>,
    /// How long it has taken nothing of what waits for it, while it has a reader; none when nothing waits.
    pub(crate) untaken: Option<Duration>,
}

impl SessionTimeouts {
    /// With the greatest age, each session gets one of its own: up to a tenth less, spread evenly over the sessions
    /// that come after each other.
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

    /// Which time is up, if one is.
    pub(crate) fn verdict(self, standing: &SessionAges) -> Option<EndReason> {
        // Moments are cut to the millisecond, so two of them may look one too far apart.
        let up = |limit: u32, is: Option<Duration>| {
            limit > 0 && is.is_some_and(|is| is > Duration::from_millis(u64::from(limit)))
        };
        [
            (self.stall, standing.untaken, EndReason::Stalled),
            (self.age, Some(standing.age), EndReason::Expired),
            (self.idle, standing.idle, EndReason::Idle),
        ]
        .into_iter()
        .find_map(|(limit, is, reason)| up(limit, is).then_some(reason))
    }

    /// The shortest of its times.
    pub(crate) fn shortest(self) -> Option<Duration> {
        let times = [self.idle, self.stall, self.age];
        let shortest = times.into_iter().filter(|time| *time > 0).min()?;
        Some(Duration::from_millis(u64::from(shortest)))
    }
}

fn millis(time: Option<Duration>) -> u32 {
    let millis = time.map_or(0, |time| time.as_millis());
    u32::try_from(millis).unwrap_or(u32::MAX)
}

/// A number from 0 up to 1: neighbouring ids lie as far from each other as they can (multiples of the golden ratio).
fn spread(id: SubscriberId) -> f64 {
    let turned = id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (turned >> 32) as f64 / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MILLI: Duration = Duration::from_millis(1);

    fn timeouts(idle: u32, stall: u32, age: u32) -> SessionTimeouts {
        let seconds = |n: u32| (n > 0).then_some(SECOND * n);
        SessionTimeouts::new(SubscriberId(0), seconds(idle), seconds(stall), seconds(age))
    }

    #[test]
    fn each_time_is_up_when_it_is_over_and_not_before() {
        let early = SessionAges {
            age: SECOND * 30,
            idle: Some(SECOND * 10),
            untaken: Some(SECOND * 20),
        };
        let timeouts = timeouts(10, 20, 30);
        assert_eq!(timeouts.verdict(&early), None);
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
            assert_eq!(timeouts.verdict(&change), Some(reason));
        }
    }

    #[test]
    fn without_limits_nothing_ends_it_and_without_anything_waiting_it_does_not_stall() {
        let old = SessionAges {
            age: SECOND * 1_000_000,
            idle: Some(SECOND * 1_000_000),
            untaken: Some(SECOND * 1_000_000),
        };
        assert_eq!(timeouts(0, 0, 0).verdict(&old), None);
        assert_eq!(timeouts(0, 0, 0).shortest(), None);
        let served = SessionAges {
            idle: None,
            untaken: None,
            ..old
        };
        assert_eq!(timeouts(1, 1, 0).verdict(&served), None);
        assert_eq!(timeouts(9, 7, 8).shortest(), Some(SECOND * 7));
    }

    #[test]
    fn sessions_that_came_together_end_one_by_one_within_a_tenth_of_their_age() {
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
