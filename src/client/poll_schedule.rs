//! The schedule of polls: when each watched resource is looked at next, and why.
//!
//! Pure: time and random numbers come from the caller.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::options::WatchOptions;
use crate::backoff::shortened;

/// The shortest interval between two polls that notifications cause, however many notifications a server
/// sends.
const NOTICE_INTERVAL: Duration = Duration::from_millis(100);

/// The reason of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PollReason {
    /// The strategy polls.
    Poll,
    /// A notification without an etag arrived.
    Notice,
    /// The check that the server sends a notification for every change.
    Verify,
    /// The last check found a change without a notification.
    Suspicion,
}

#[derive(Debug)]
struct ScheduledPoll {
    at: Instant,
    reason: PollReason,
    /// The interval that led to `at`, before it was shortened at random.
    interval: Duration,
    /// The time of the last poll that a notification caused.
    noticed: Option<Instant>,
}

/// The next poll of each resource; none for those of which the server is expected to tell.
#[derive(Debug)]
pub(super) struct PollSchedule {
    options: WatchOptions,
    entries: BTreeMap<String, ScheduledPoll>,
}

impl PollSchedule {
    pub(super) fn new(options: WatchOptions) -> PollSchedule {
        PollSchedule {
            options,
            entries: BTreeMap::new(),
        }
    }

    /// Returns the time of the next poll of any resource.
    pub(super) fn next(&self) -> Option<Instant> {
        self.entries.values().map(|entry| entry.at).min()
    }

    pub(super) fn contains(&self, uri: &str) -> bool {
        self.entries.contains_key(uri)
    }

    pub(super) fn forget(&mut self, uri: &str) {
        self.entries.remove(uri);
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Schedules the next poll: soon if the resource is new or has just changed, else after twice the last
    /// interval.
    pub(super) fn poll(&mut self, uri: &str, now: Instant, changed: bool, random: u32) {
        let interval = match self.entries.get(uri) {
            Some(entry) if entry.reason == PollReason::Poll && !changed => {
                self.options.slower(entry.interval)
            }
            _ => self.options.poll_first,
        };
        self.put(uri, now + shortened(interval, random), PollReason::Poll, interval);
    }

    /// Schedules a check of `uri` after `interval`.
    pub(super) fn verify(&mut self, uri: &str, now: Instant, interval: Duration, random: u32) {
        self.put(
            uri,
            now + shortened(interval, random),
            PollReason::Verify,
            interval,
        );
    }

    /// Schedules the second look at a change without a notification, which is given until `at` to arrive.
    pub(super) fn suspect(&mut self, uri: &str, at: Instant) {
        self.put(uri, at, PollReason::Suspicion, Duration::ZERO);
    }

    /// Schedules a poll because of a notification, [`NOTICE_INTERVAL`] after the last such poll at the
    /// earliest.
    pub(super) fn notice(&mut self, uri: &str, now: Instant) {
        let mut at = now;
        if let Some(entry) = self.entries.get(uri) {
            // One poll answers for all notifications that came before it.
            if entry.reason == PollReason::Notice {
                return;
            }
            if let Some(noticed) = entry.noticed {
                at = now.max(noticed + NOTICE_INTERVAL);
            }
        }
        self.put(uri, at, PollReason::Notice, Duration::ZERO);
        if let Some(entry) = self.entries.get_mut(uri) {
            entry.noticed = Some(at);
        }
    }

    fn put(&mut self, uri: &str, at: Instant, reason: PollReason, interval: Duration) {
        // The time of the last noticed poll outlives the entry, or the limit on such polls would not hold.
        let noticed = match self.entries.get(uri) {
            Some(entry) => entry.noticed,
            None => None,
        };
        let entry = ScheduledPoll {
            at,
            reason,
            interval,
            noticed,
        };
        self.entries.insert(uri.to_owned(), entry);
    }

    /// Returns the polls that are due. If one of them is a check, all checks are, since one request may serve
    /// many.
    ///
    /// The returned resources are moved to `later`, so that none is polled twice or forgotten if the caller
    /// does not schedule it again.
    pub(super) fn take_due(&mut self, now: Instant, later: Duration) -> Vec<(String, PollReason)> {
        let verify_due = self
            .entries
            .values()
            .any(|entry| entry.reason == PollReason::Verify && entry.at <= now);
        let mut due = Vec::new();
        for (uri, entry) in &mut self.entries {
            if entry.at <= now || (verify_due && entry.reason == PollReason::Verify) {
                entry.at = now + later;
                due.push((uri.clone(), entry.reason));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_secs(1000);

    fn schedule() -> PollSchedule {
        PollSchedule::new(WatchOptions::default())
    }

    fn poll_of(uri: &str, reason: PollReason) -> (String, PollReason) {
        (uri.to_owned(), reason)
    }

    /// Polls `count` times without a change and returns the intervals in seconds.
    fn intervals(schedule: &mut PollSchedule, now: &mut Instant, count: usize) -> Vec<u64> {
        let mut out = Vec::new();
        for _ in 0..count {
            let next = schedule.next().unwrap();
            out.push((next - *now).as_secs());
            *now = next;
            assert_eq!(
                schedule.take_due(*now, LATER),
                [poll_of("demo://a", PollReason::Poll)]
            );
            schedule.poll("demo://a", *now, false, 0);
        }
        out
    }

    #[test]
    fn poll_interval_doubles_until_a_change() {
        let mut schedule = schedule();
        let mut now = Instant::now();
        schedule.poll("demo://a", now, false, 0);
        assert_eq!(intervals(&mut schedule, &mut now, 7), [1, 2, 4, 8, 16, 30, 30]);
        schedule.poll("demo://a", now, true, 0);
        assert_eq!(intervals(&mut schedule, &mut now, 3), [1, 2, 4]);
    }

    #[test]
    fn repeated_notices_cause_one_poll() {
        let mut schedule = schedule();
        let start = Instant::now();
        schedule.verify("demo://a", start, LATER, 0);
        schedule.notice("demo://a", start);
        assert_eq!(
            schedule.take_due(start, LATER),
            [poll_of("demo://a", PollReason::Notice)]
        );
        schedule.verify("demo://a", start, LATER, 0);
        for millis in 1..50 {
            schedule.notice("demo://a", start + Duration::from_millis(millis));
        }
        assert_eq!(schedule.next(), Some(start + NOTICE_INTERVAL));
        // A notification that arrives after all clears the suspicion.
        schedule.suspect("demo://b", start);
        schedule.notice("demo://b", start);
        assert_eq!(
            schedule.take_due(start, LATER),
            [poll_of("demo://b", PollReason::Notice)]
        );
    }

    #[test]
    fn checks_are_due_together() {
        let mut schedule = PollSchedule::new(WatchOptions {
            poll_first: LATER,
            ..WatchOptions::default()
        });
        let start = Instant::now();
        schedule.verify("demo://a", start, Duration::from_secs(10), 0);
        schedule.verify("demo://b", start, Duration::from_secs(60), 0);
        schedule.poll("demo://c", start, true, 0);
        assert!(schedule.take_due(start, LATER).is_empty());
        let both = ["demo://a", "demo://b"].map(|uri| poll_of(uri, PollReason::Verify));
        assert_eq!(schedule.take_due(start + Duration::from_secs(10), LATER), both);
        assert!(
            schedule
                .take_due(start + Duration::from_secs(11), LATER)
                .is_empty()
        );
    }
}
