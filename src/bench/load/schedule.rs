//! When updates are due, and of which resource.
//!
//! Owns the open model: an update is due at its time whatever became of the one before it, and its latency counts from
//! then. Flat out, an update is due when there is room for it. Pure: times are nanoseconds since the run's start.

use std::time::Duration;

/// How updates follow each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// This many per second, at equal distances.
    PerSecond(f64),
    /// As fast as the server answers.
    FlatOut,
}

/// The updates of one run.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    pace: Pace,
    resources: usize,
    begin: u64,
    end: u64,
    next: u64,
}

/// One update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) number: u64,
    pub(crate) resource: usize,
    pub(crate) at: u64,
}

impl Schedule {
    /// Updates from `begin` on for `length`, of the resources in turn.
    pub(crate) fn new(pace: Pace, resources: usize, begin: u64, length: Duration) -> Schedule {
        Schedule {
            pace,
            resources,
            begin,
            end: begin + nanos(length),
            next: 0,
        }
    }

    /// The update that is due at `now`, if one is; it stays due until [`Schedule::advance`].
    pub(crate) fn due(&self, now: u64) -> Option<Due> {
        let at = self.next_at(now)?;
        (at <= now).then(|| Due {
            number: self.next,
            resource: (self.next % self.resources as u64) as usize,
            at,
        })
    }

    /// The update that was due is on its way.
    pub(crate) fn advance(&mut self) {
        self.next += 1;
    }

    /// When the next one is due; none after the last.
    pub(crate) fn next_at(&self, now: u64) -> Option<u64> {
        let at = match self.pace {
            Pace::PerSecond(rate) => self.begin + (self.next as f64 * 1e9 / rate) as u64,
            Pace::FlatOut => now.max(self.begin),
        };
        (at < self.end).then_some(at)
    }

    /// No further update becomes due.
    pub(crate) fn stop(&mut self, now: u64) {
        self.end = self.end.min(now);
    }

    /// How many became due so far.
    pub(crate) fn made(&self) -> u64 {
        self.next
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_are_due_at_equal_distances_whatever_happens() {
        let mut schedule = Schedule::new(Pace::PerSecond(4.0), 3, 1_000, Duration::from_secs(2));
        assert_eq!(schedule.due(999), None);
        let mut all = Vec::new();
        // Nobody looked for two seconds: all of them are due at their own times.
        while let Some(due) = schedule.due(3_000_000_000) {
            all.push((due.number, due.resource, due.at));
            schedule.advance();
        }
        assert_eq!(all.len(), 8);
        assert_eq!(all[0], (0, 0, 1_000));
        assert_eq!(all[4], (4, 1, 1_000_001_000));
        assert_eq!(schedule.next_at(0), None);
        assert_eq!(schedule.made(), 8);
    }

    #[test]
    fn distances_do_not_drift() {
        let mut schedule = Schedule::new(Pace::PerSecond(3.0), 1, 0, Duration::from_secs(3600));
        schedule.next = 3 * 3599;
        assert_eq!(schedule.next_at(0), Some(3_599_000_000_000));
    }

    #[test]
    fn flat_out_one_is_due_whenever_asked_until_the_end() {
        let mut schedule = Schedule::new(Pace::FlatOut, 2, 10, Duration::from_nanos(90));
        assert_eq!(schedule.due(5), None);
        assert_eq!(schedule.due(20).unwrap().at, 20);
        schedule.advance();
        assert_eq!(schedule.due(99).unwrap().resource, 1);
        assert_eq!(schedule.due(100), None);
        schedule.stop(30);
        assert_eq!(schedule.due(31), None);
    }
}
