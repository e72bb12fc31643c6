//! The times of updates, as an open model: an update is due at its time whatever became of the one before it,
//! and its latency counts from then. Flat out, an update is due when there is room for it.
//!
//! Times are nanoseconds since the start of the run.

use std::time::Duration;

/// The pace of updates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// This many per second, at equal distances.
    PerSecond(f64),
    /// As fast as the server answers, which measures throughput rather than latency.
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
    /// Plans updates of the resources in turn, from `begin` on for `length`.
    pub(crate) fn new(pace: Pace, resources: usize, begin: u64, length: Duration) -> Schedule {
        Schedule {
            pace,
            resources,
            begin,
            end: begin + nanos(length),
            next: 0,
        }
    }

    /// Returns the update that is due at `now`; it stays due until [`Schedule::advance`].
    pub(crate) fn due(&self, now: u64) -> Option<Due> {
        let at = self.next_at(now)?;
        if at > now {
            return None;
        }
        Some(Due {
            number: self.next,
            resource: (self.next % self.resources as u64) as usize,
            at,
        })
    }

    /// Notes that the due update was sent.
    pub(crate) fn advance(&mut self) {
        self.next += 1;
    }

    /// Returns the time of the next update; none after the last.
    pub(crate) fn next_at(&self, now: u64) -> Option<u64> {
        let at = match self.pace {
            // Computed from the begin each time, so that rounding does not add up.
            Pace::PerSecond(rate) => self.begin + (self.next as f64 * 1e9 / rate) as u64,
            // Due now, whenever it is asked: the room in the connections decides.
            Pace::FlatOut => now.max(self.begin),
        };
        (at < self.end).then_some(at)
    }

    /// Ends the schedule: no further update becomes due.
    pub(crate) fn stop(&mut self, now: u64) {
        self.end = self.end.min(now);
    }

    /// Returns the number of updates that were sent.
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
    fn late_question_keeps_equal_distances() {
        let mut schedule = Schedule::new(Pace::PerSecond(4.0), 3, 1_000, Duration::from_secs(2));
        assert_eq!(schedule.due(999), None);
        let mut all = Vec::new();
        // Asked after two seconds, it still gives each update its own time.
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
    fn flat_out_is_always_due_until_the_end() {
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
