//! The counters and histograms of a run, by kind of client.
//!
//! Latencies are in microseconds and cover only updates that were due in the measured time.

use std::ops::Range;

use hdrhistogram::Histogram;

use crate::bench::load::updates::Told;

/// The kinds of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Reading,
    Slow,
    Stalled,
    Churn,
    Polling,
}

impl Kind {
    pub(crate) const ALL: [Kind; 5] = [
        Kind::Reading,
        Kind::Slow,
        Kind::Stalled,
        Kind::Churn,
        Kind::Polling,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Reading => "reading",
            Kind::Slow => "slow",
            Kind::Stalled => "stalled",
            Kind::Churn => "churn",
            Kind::Polling => "polling",
        }
    }
}

/// Longer times than two hours count as two hours.
const LONGEST_US: u64 = 7_200_000_000;

/// Microseconds, to three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LONGEST_US, 3).expect("three digits up to an hour are allowed")
}

/// One kind of clients.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) sessions: u64,
    /// Notices that announced something new, in the whole run.
    pub(crate) deliveries: u64,
    /// The part of them that came in the measured time.
    pub(crate) in_window: u64,
    /// Updates that were merged into a later one.
    pub(crate) conflated: u64,
    pub(crate) again: u64,
    pub(crate) backward: u64,
    pub(crate) foreign: u64,
    /// Updates times their subscribers.
    pub(crate) owed: u64,
    /// The part of them that was not announced, not even merged.
    pub(crate) untold: u64,
    /// Subscriptions without the newest state at the end.
    pub(crate) missing: u64,
    /// Times from the due time of the update that a notice announces.
    pub(crate) latency: Histogram<u64>,
    /// Times from the due time of the oldest update that it covers.
    pub(crate) age: Histogram<u64>,
}

impl Group {
    fn new() -> Group {
        Group {
            sessions: 0,
            deliveries: 0,
            in_window: 0,
            conflated: 0,
            again: 0,
            backward: 0,
            foreign: 0,
            owed: 0,
            untold: 0,
            missing: 0,
            latency: histogram(),
            age: histogram(),
        }
    }
}

/// The counters of a run.
#[derive(Debug)]
pub(crate) struct Stats {
    groups: [Group; 5],
    /// The measured time.
    pub(crate) window: Range<u64>,
    /// The latencies of the current second, without those of stalled clients.
    pub(crate) second: Histogram<u64>,
    pub(crate) second_deliveries: u64,
    /// Other messages on streams.
    pub(crate) others: u64,
    /// Streams that the server ended, with the reason of the first.
    pub(crate) lost: u64,
    pub(crate) lost_reason: Option<String>,
    /// The time of the last new notice.
    pub(crate) last_at: u64,
}

impl Stats {
    pub(crate) fn new() -> Stats {
        Stats {
            groups: std::array::from_fn(|_| Group::new()),
            window: u64::MAX..u64::MAX,
            second: histogram(),
            second_deliveries: 0,
            others: 0,
            lost: 0,
            lost_reason: None,
            last_at: 0,
        }
    }

    pub(crate) fn group(&self, kind: Kind) -> &Group {
        &self.groups[kind as usize]
    }

    pub(crate) fn group_mut(&mut self, kind: Kind) -> &mut Group {
        &mut self.groups[kind as usize]
    }

    /// Counts a notice that came at `now`.
    pub(crate) fn note(&mut self, kind: Kind, told: Told, now: u64) {
        let group = &mut self.groups[kind as usize];
        match told {
            Told::Again => group.again += 1,
            Told::Backward => group.backward += 1,
            Told::Foreign => group.foreign += 1,
            Told::New {
                covered,
                due,
                oldest_due,
            } => {
                group.deliveries += 1;
                group.conflated += covered - 1;
                self.last_at = now;
                if self.window.contains(&now) {
                    group.in_window += 1;
                    self.second_deliveries += 1;
                    // Stalled clients read only at the end, which would hide the others in the timeline.
                    if kind != Kind::Stalled {
                        self.second.saturating_record(micros(due, now));
                    }
                }
                // By its due time: a late notice of a measured update counts, however late it is.
                if self.window.contains(&due) {
                    group.latency.saturating_record(micros(due, now));
                    group.age.saturating_record(micros(oldest_due, now));
                }
            }
        }
    }

    /// Counts a stream that ended during the run.
    pub(crate) fn lose(&mut self, reason: String) {
        self.lose_many(1, reason);
    }

    /// Counts streams that ended during the run for one reason.
    pub(crate) fn lose_many(&mut self, count: usize, reason: String) {
        self.lost += count as u64;
        self.lost_reason.get_or_insert(reason);
    }

    /// Returns the new notices of all kinds in the measured time.
    pub(crate) fn in_window(&self) -> u64 {
        self.groups.iter().map(|group| group.in_window).sum()
    }

    /// Returns the new notices of all kinds.
    pub(crate) fn deliveries(&self) -> u64 {
        self.groups.iter().map(|group| group.deliveries).sum()
    }
}

/// Returns the microseconds between two times in nanoseconds.
fn micros(from: u64, to: u64) -> u64 {
    to.saturating_sub(from) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(covered: u64, due: u64, oldest_due: u64) -> Told {
        Told::New {
            covered,
            due,
            oldest_due,
        }
    }

    #[test]
    fn only_updates_of_the_window_have_a_latency() {
        let mut stats = Stats::new();
        stats.window = 1_000_000..2_000_000;
        stats.note(Kind::Reading, new(1, 900_000, 900_000), 1_100_000);
        stats.note(Kind::Reading, new(3, 1_500_000, 900_000), 1_700_000);
        stats.note(Kind::Reading, new(1, 1_900_000, 1_900_000), 2_300_000);
        stats.note(Kind::Reading, Told::Again, 2_400_000);
        let group = stats.group(Kind::Reading);
        assert_eq!(
            (group.deliveries, group.in_window, group.conflated, group.again),
            (3, 2, 2, 1)
        );
        assert_eq!(
            (group.latency.len(), group.latency.min(), group.latency.max()),
            (2, 200, 400)
        );
        assert_eq!(group.age.max(), 800);
        assert_eq!(stats.last_at, 2_300_000);
    }
}
