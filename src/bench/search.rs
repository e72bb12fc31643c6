//! The search for the largest number of sessions that meets a goal: doubles until it fails, then halves the
//! gap.

use std::str::FromStr;
use std::time::Duration;

/// The most runs of a search.
pub const TRIALS_MAX: usize = 20;

/// The search ends when the gap is this share of its lower side.
const NEAR: f64 = 0.05;

/// A bound on a percentile of the latency, such as `p99<250ms`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal {
    /// The percentile, from 0 to 100; 100 is the largest latency of all.
    pub percentile: f64,
    /// The latency below which it must stay.
    pub below: Duration,
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Goal, String> {
        match Goal::parse(text) {
            Some(goal) => Ok(goal),
            None => Err(format!("{text:?} is no target: write one such as p99<250ms")),
        }
    }
}

impl Goal {
    fn parse(text: &str) -> Option<Goal> {
        let (percentile, below) = text.split_once('<')?;
        let percentile = match percentile.trim() {
            "max" => 100.0,
            name => name.strip_prefix('p')?.parse::<f64>().ok()?,
        };
        let below = duration(below.trim())?;
        let is_valid = percentile > 0.0 && percentile <= 100.0 && !below.is_zero();
        is_valid.then_some(Goal { percentile, below })
    }
}

/// Parses a duration with a unit: `us`, `ms`, `s` or `m`.
pub fn duration(text: &str) -> Option<Duration> {
    let at = text.find(|letter: char| !(letter.is_ascii_digit() || letter == '.'))?;
    let (number, unit) = text.split_at(at);
    let number: f64 = number.parse().ok()?;
    let seconds = match unit.trim() {
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "m" => number * 60.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// A search that is under way.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    next: usize,
    max: usize,
    best: Option<usize>,
    failed: Option<usize>,
    trials: usize,
    over: bool,
}

impl Search {
    /// Begins with `first` sessions and tries no more than `max`.
    pub(crate) fn new(first: usize, max: usize) -> Search {
        Search {
            next: first.clamp(1, max.max(1)),
            max,
            best: None,
            failed: None,
            trials: 0,
            over: false,
        }
    }

    /// Returns the number of sessions to try next; none when the answer is known or the trials are used up.
    pub(crate) fn next(&self) -> Option<usize> {
        match self.over || self.trials >= TRIALS_MAX {
            true => None,
            false => Some(self.next),
        }
    }

    /// Notes the outcome of the trial that [`Search::next`] asked for.
    pub(crate) fn record(&mut self, passed: bool) {
        self.trials += 1;
        if passed {
            self.best = Some(self.next);
        } else {
            self.failed = Some(self.next);
        }
        // Doubling finds a failure in few runs; then the gap is halved.
        self.next = match (self.best, self.failed) {
            (Some(best), None) => (best * 2).min(self.max),
            (best, Some(failed)) => best.unwrap_or(0).midpoint(failed),
            (None, None) => self.next,
        };
        self.over = match (self.best, self.failed) {
            (Some(best), None) => best >= self.max,
            (best, Some(failed)) => is_close(best.unwrap_or(0), failed),
            (None, None) => false,
        };
    }

    /// Returns the largest number of sessions that passed.
    pub(crate) fn best(&self) -> Option<usize> {
        self.best
    }
}

fn is_close(best: usize, failed: usize) -> bool {
    (failed - best) as f64 <= (best as f64 * NEAR).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn targets_are_parsed() {
        let target: Goal = "p99<250ms".parse().unwrap();
        assert_eq!(
            (target.percentile, target.below),
            (99.0, Duration::from_millis(250))
        );
        let target: Goal = "p99.9 < 1.5s".parse().unwrap();
        assert_eq!(
            (target.percentile, target.below),
            (99.9, Duration::from_millis(1500))
        );
        assert_eq!("max<900us".parse::<Goal>().unwrap().percentile, 100.0);
        for text in [
            "",
            "p99",
            "p99<",
            "99<1s",
            "p0<1s",
            "p101<1s",
            "p99<1",
            "p99<0ms",
            "p99>1s",
            "p99<1e99s",
        ] {
            assert!(text.parse::<Goal>().is_err(), "{text}");
        }
    }

    fn tried(first: usize, max: usize, limit: usize) -> (Vec<usize>, Option<usize>) {
        let mut search = Search::new(first, max);
        let mut tried = Vec::new();
        while let Some(sessions) = search.next() {
            tried.push(sessions);
            search.record(sessions <= limit);
        }
        (tried, search.best())
    }

    #[test]
    fn search_doubles_then_halves() {
        assert_eq!(
            tried(100, 60_000, 1_000),
            (vec![100, 200, 400, 800, 1600, 1200, 1000, 1100, 1050], Some(1000))
        );
        assert_eq!(
            tried(100, 300, 9_999),
            (vec![100, 200, 300], Some(300)),
            "the bound"
        );
        assert_eq!(
            tried(100, 60_000, 3),
            (vec![100, 50, 25, 12, 6, 3, 4], Some(3)),
            "downward"
        );
        assert_eq!(tried(8, 60_000, 0), (vec![8, 4, 2, 1], None));
    }

    proptest! {
        #[test]
        fn search_ends_near_the_limit(first in 1usize..2_000, max in 1usize..60_000, limit in 1usize..60_000) {
            let (tried, best) = tried(first, max, limit);
            prop_assert!(tried.len() <= TRIALS_MAX);
            let best = best.unwrap();
            let truth = limit.min(max);
            prop_assert!(best <= truth);
            prop_assert!(truth as f64 <= best as f64 * (1.0 + NEAR) + 1.0, "{} of {}", best, truth);
        }
    }
}
