//! When to look after events: once they pause, or after the longest wait.
//!
//! Owns: the window between the first event and the look that follows. Never reads a clock; instants are handed in
//! by the task, which also sleeps until the one told here.

use std::time::{Duration, Instant};

/// Why it is time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::source) enum Due {
    /// Nothing happened for the quiet time.
    Quiet,
    /// Events go on, and the longest wait is over.
    Limit,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    first: Instant,
    last: Instant,
}

/// The debounce.
#[derive(Debug)]
pub(in crate::source) struct Debounce {
    quiet: Duration,
    longest: Duration,
    window: Option<Window>,
}

impl Debounce {
    /// Waits for `quiet` without events, but never longer than `longest`.
    pub(in crate::source) fn new(quiet: Duration, longest: Duration) -> Debounce {
        Debounce {
            quiet,
            longest,
            window: None,
        }
    }

    /// Something happened.
    pub(in crate::source) fn mark(&mut self, now: Instant) {
        let first = self.window.map_or(now, |window| window.first);
        self.window = Some(Window { first, last: now });
    }

    /// Whether something happened since the last look.
    pub(in crate::source) fn is_open(&self) -> bool {
        self.window.is_some()
    }

    /// When to look, unless more happens before.
    pub(in crate::source) fn due_at(&self) -> Option<Instant> {
        self.window
            .map(|window| (window.last + self.quiet).min(window.first + self.longest))
    }

    /// Closes the window when it is time.
    pub(in crate::source) fn take(&mut self, now: Instant) -> Option<Due> {
        let window = self
            .window
            .filter(|_| self.due_at().is_some_and(|due| due <= now))?;
        self.window = None;
        let quiet = window.last + self.quiet <= now;
        Some(if quiet { Due::Quiet } else { Due::Limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const QUIET: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_millis(1000);

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn waits_for_quiet_and_starts_anew() {
        let start = Instant::now();
        let mut debounce = Debounce::new(QUIET, LONGEST);
        assert_eq!((debounce.due_at(), debounce.take(start)), (None, None));
        debounce.mark(start);
        debounce.mark(start + millis(50));
        assert_eq!(debounce.due_at(), Some(start + millis(150)));
        assert_eq!(debounce.take(start + millis(149)), None);
        assert_eq!(debounce.take(start + millis(150)), Some(Due::Quiet));
        assert!(!debounce.is_open());
    }

    #[test]
    fn a_burst_waits_no_longer_than_the_limit() {
        let start = Instant::now();
        let mut debounce = Debounce::new(QUIET, LONGEST);
        for n in 0..=19 {
            debounce.mark(start + millis(n * 50));
        }
        assert_eq!(debounce.due_at(), Some(start + LONGEST));
        assert_eq!(debounce.take(start + LONGEST), Some(Due::Limit));
    }

    proptest! {
        /// Events and a clock that ticks between them, against the definition in words.
        #[test]
        fn looks_exactly_once_per_window_and_never_early(pauses in vec(0_u64..400, 1..60)) {
            let start = Instant::now();
            let mut debounce = Debounce::new(QUIET, LONGEST);
            let (mut now, mut waiting) = (start, Vec::<Instant>::new());
            for pause in pauses {
                let next = now + millis(pause);
                if let Some(due) = debounce.due_at().filter(|due| *due <= next) {
                    let (first, last) = (waiting[0], waiting[waiting.len() - 1]);
                    prop_assert_eq!(due, (last + QUIET).min(first + LONGEST));
                    prop_assert_eq!(debounce.take(due - millis(1)), None);
                    let expected = if due == last + QUIET { Due::Quiet } else { Due::Limit };
                    prop_assert_eq!(debounce.take(due), Some(expected));
                    waiting.clear();
                }
                now = next;
                debounce.mark(now);
                waiting.push(now);
            }
            prop_assert!(debounce.is_open());
        }
    }
}
