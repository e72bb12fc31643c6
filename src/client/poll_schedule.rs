//! When each watched resource is looked at next, and why.
//!
//! Owns the schedule of questions: those on a timer, because the server has to be asked; those that verify that it tells
//! of changes; those that find out what a notification without an etag meant. Pure: it is told the time and brought
//! random numbers, and neither waits nor asks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::options::WatchOptions;

/// How long at least lies between two looks that notifications cause, whatever a server sends.
const NOTICE_REST: Duration = Duration::from_millis(100);

/// Why a resource is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PollReason {
    /// The server has to be asked.
    Poll,
    /// A notification did not say which version it told of.
    Notice,
    /// To see whether the server told of everything.
    Verify,
    /// It had changed at the last look, and no notification had told of it.
    Suspicion,
}

#[derive(Debug)]
struct Check {
    at: Instant,
    why: PollReason,
    /// The wait before the next question, the chance aside.
    wait: Duration,
    /// When a notification last caused a look.
    looked: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct PollSchedule {
    held: BTreeMap<String, Check>,
}

impl PollSchedule {
    /// When something is due; none when nothing ever is.
    pub(super) fn next(&self) -> Option<Instant> {
        self.held.values().map(|check| check.at).min()
    }

    pub(super) fn contains(&self, uri: &str) -> bool {
        self.held.contains_key(uri)
    }

    pub(super) fn forget(&mut self, uri: &str) {
        self.held.remove(uri);
    }

    pub(super) fn clear(&mut self) {
        self.held.clear();
    }

    /// Asks for `uri` after the wait that is its turn: the first after a change or at the beginning, else a longer one.
    pub(super) fn poll(
        &mut self,
        uri: &str,
        now: Instant,
        changed: bool,
        options: &WatchOptions,
        random: u32,
    ) {
        let before = self
            .held
            .get(uri)
            .filter(|check| check.why == PollReason::Poll && !changed);
        let wait = before.map_or(options.poll_first, |check| options.slower(check.wait));
        self.put(uri, now + with_chance(wait, random), PollReason::Poll, wait);
    }

    /// Verifies `uri` once `wait` has passed.
    pub(super) fn verify(&mut self, uri: &str, now: Instant, wait: Duration, random: u32) {
        self.put(uri, now + with_chance(wait, random), PollReason::Verify, wait);
    }

    /// Looks again at what changed silently, once the notification had its time.
    pub(super) fn suspect(&mut self, uri: &str, at: Instant) {
        self.put(uri, at, PollReason::Suspicion, Duration::ZERO);
    }

    /// Looks at `uri`, of which there was a notification, as soon as it may be.
    pub(super) fn notice(&mut self, uri: &str, now: Instant) {
        let held = self.held.get(uri);
        if held.is_some_and(|check| check.why == PollReason::Notice) {
            return;
        }
        let looked = held.and_then(|check| check.looked);
        let at = looked.map_or(now, |looked| now.max(looked + NOTICE_REST));
        self.put(uri, at, PollReason::Notice, Duration::ZERO);
        if let Some(check) = self.held.get_mut(uri) {
            check.looked = Some(at);
        }
    }

    fn put(&mut self, uri: &str, at: Instant, why: PollReason, wait: Duration) {
        let looked = self.held.get(uri).and_then(|check| check.looked);
        let check = Check {
            at,
            why,
            wait,
            looked,
        };
        self.held.insert(uri.to_owned(), check);
    }

    /// What is due, and with one that is verified all that are, since one call may ask for many. Until it is scheduled
    /// anew, it is after `later`, so that nothing is forgotten or asked for twice.
    pub(super) fn take_due(&mut self, now: Instant, later: Duration) -> Vec<(String, PollReason)> {
        let verifies = |check: &Check| check.why == PollReason::Verify;
        let verified = self.held.values().any(|check| verifies(check) && check.at <= now);
        let due = self
            .held
            .iter_mut()
            .filter(|(_, check)| check.at <= now || (verified && verifies(check)));
        due.map(|(uri, check)| {
            check.at = now + later;
            (uri.clone(), check.why)
        })
        .collect()
    }
}

/// `wait`, of which up to half is left out, so that many clients of one server do not ask at once.
fn with_chance(wait: Duration, random: u32) -> Duration {
    let left_out = wait.mul_f64(f64::from(random) / f64::from(u32::MAX) / 2.0);
    wait.saturating_sub(left_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LATER: Duration = Duration::from_secs(1000);

    /// The seconds between questions, as long as nothing changes.
    fn waits(checks: &mut PollSchedule, now: &mut Instant, count: usize) -> Vec<u64> {
        let options = WatchOptions::default();
        let mut out = Vec::new();
        for _ in 0..count {
            let next = checks.next().unwrap();
            out.push((next - *now).as_secs());
            *now = next;
            assert_eq!(
                checks.take_due(*now, LATER),
                [("demo://a".to_owned(), PollReason::Poll)]
            );
            checks.poll("demo://a", *now, false, &options, 0);
        }
        out
    }

    #[test]
    fn questions_become_rarer_until_something_changes() {
        let (mut checks, mut now) = (PollSchedule::default(), Instant::now());
        let options = WatchOptions::default();
        checks.poll("demo://a", now, false, &options, 0);
        assert_eq!(waits(&mut checks, &mut now, 7), [1, 2, 4, 8, 16, 30, 30]);
        checks.poll("demo://a", now, true, &options, 0);
        assert_eq!(waits(&mut checks, &mut now, 3), [1, 2, 4]);
    }

    #[test]
    fn a_notification_is_looked_at_once_however_often_it_comes() {
        let (mut checks, start) = (PollSchedule::default(), Instant::now());
        checks.verify("demo://a", start, LATER, 0);
        checks.notice("demo://a", start);
        assert_eq!(
            checks.take_due(start, LATER),
            [("demo://a".to_owned(), PollReason::Notice)]
        );
        checks.verify("demo://a", start, LATER, 0);
        for millis in 1..50 {
            checks.notice("demo://a", start + Duration::from_millis(millis));
        }
        assert_eq!(checks.next(), Some(start + NOTICE_REST));
        checks.suspect("demo://b", start);
        checks.notice("demo://b", start);
        assert_eq!(
            checks.take_due(start, LATER),
            [("demo://b".to_owned(), PollReason::Notice)],
            "it was told of"
        );
    }

    #[test]
    fn what_is_verified_is_verified_together() {
        let (mut checks, start) = (PollSchedule::default(), Instant::now());
        checks.verify("demo://a", start, Duration::from_secs(10), 0);
        checks.verify("demo://b", start, Duration::from_secs(60), 0);
        checks.poll(
            "demo://c",
            start,
            true,
            &WatchOptions {
                poll_first: LATER,
                ..WatchOptions::default()
            },
            0,
        );
        assert!(checks.take_due(start, LATER).is_empty());
        let verified = ["demo://a", "demo://b"].map(|uri| (uri.to_owned(), PollReason::Verify));
        assert_eq!(checks.take_due(start + Duration::from_secs(10), LATER), verified);
        assert!(checks.take_due(start + Duration::from_secs(11), LATER).is_empty());
    }

    proptest! {
        #[test]
        fn chance_leaves_out_half_of_a_wait_at_most(millis in 0_u64..10_000_000, random: u32) {
            let wait = Duration::from_millis(millis);
            let left = with_chance(wait, random);
            prop_assert!(left <= wait && left >= wait.mul_f64(0.499));
        }
    }
}
