//! What was counted, by kind of client.
//!
//! Owns the counters and histograms of a run. It decides nothing: [`crate::bench::load::updates`] says what a notice is.
//! Latencies are in microseconds; only updates that were due in the measured time are in them.

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
    /// Notices that were news, in the whole run.
    pub(crate) deliveries: u64,
    /// Those of them that came in the measured time.
    pub(crate) in_window: u64,
    /// Updates that came merged into a later one.
    pub(crate) conflated: u64,
    pub(crate) again: u64,
    pub(crate) backward: u64,
    pub(crate) foreign: u64,
    /// Updates times their subscribers.
    pub(crate) owed: u64,
    /// Of those, the ones of which nobody heard, not even merged.
    pub(crate) untold: u64,
    /// Subscriptions that do not have the newest state at the end.
    pub(crate) missing: u64,
    /// From the due time of the update that a notice announces.
    pub(crate) latency: Histogram<u64>,
    /// From the due time of the oldest update that it is the first word of.
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

/// All of it.
#[derive(Debug)]
pub(crate) struct Stats {
    groups: [Group; 5],
    /// The measured time.
    pub(crate) window: Range<u64>,
    /// Of the second that is running, by those that read or are slow.
    pub(crate) second: Histogram<u64>,
    pub(crate) second_deliveries: u64,
    /// Other messages on streams.
    pub(crate) others: u64,
    /// Streams that the server ended, and in whose words the first one was lost.
    pub(crate) lost: u64,
    pub(crate) lost_reason: Option<String>,
    /// When the last news came.
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
                let micros = |due: u64| now.saturating_sub(due) / 1_000;
                if self.window.contains(&now) {
                    group.in_window += 1;
                    self.second_deliveries += 1;
                    if kind != Kind::Stalled {
                        self.second.saturating_record(micros(due));
                    }
                }
                if self.window.contains(&due) {
                    group.latency.saturating_record(micros(due));
                    group.age.saturating_record(micros(oldest_due));
                }
            }
        }
    }

    /// A stream ended that should not have.
    pub(crate) fn lose(&mut self, reason: String) {
        self.lost += 1;
        self.lost_reason.get_or_insert(reason);
    }

    /// Notices that were news, of all kinds, in the measured time.
    pub(crate) fn in_window(&self) -> u64 {
        self.groups.iter().map(|group| group.in_window).sum()
    }

    /// Notices that were news, of all kinds.
    pub(crate) fn deliveries(&self) -> u64 {
        self.groups.iter().map(|group| group.deliveries).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_updates_due_in_the_measured_time_have_a_latency() {
        let mut stats = Stats::new();
        stats.window = 1_000_000..2_000_000;
        let told = |covered, due, oldest_due| Told::New {
            covered,
            due,
            oldest_due,
        };
        stats.note(Kind::Reading, told(1, 900_000, 900_000), 1_100_000);
        stats.note(Kind::Reading, told(3, 1_500_000, 900_000), 1_700_000);
        stats.note(Kind::Reading, told(1, 1_900_000, 1_900_000), 2_300_000);
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
