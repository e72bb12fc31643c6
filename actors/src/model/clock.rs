//! Monotonic time of the process in eight bytes.
//!
//! An `Instant` takes 16 bytes and cannot be stored in an atomic; every session stores several times.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

static START: OnceLock<Instant> = OnceLock::new();

thread_local! {
    /// The time of this thread while a [`HeldClock`] lives.
    static HELD: Cell<Option<MonotonicMillis>> = const { Cell::new(None) };
}

/// A clock that stands still for one thread, for as long as this lives.
///
/// A task that serves many readers in a turn of less than a millisecond reads the clock once for all of them,
/// which costs as much as to hand an entry out.
#[derive(Debug)]
pub struct HeldClock(());

impl HeldClock {
    /// Has the outboxes and write progresses that this thread touches count the present time.
    #[must_use]
    pub fn begin() -> HeldClock {
        HELD.set(None);
        HELD.set(Some(MonotonicMillis::now()));
        HeldClock(())
    }
}

impl Drop for HeldClock {
    fn drop(&mut self) {
        HELD.set(None);
    }
}

/// A point in time in milliseconds since the first call of [`MonotonicMillis::now`], plus one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MonotonicMillis(NonZeroU64);

impl MonotonicMillis {
    /// Returns the current time.
    pub(crate) fn now() -> MonotonicMillis {
        if let Some(held) = HELD.get() {
            return held;
        }
        let millis = START.get_or_init(Instant::now).elapsed().as_millis() as u64;
        // Adding one keeps 0 free, so an `Option` takes no more room and an atomic can say "never".
        MonotonicMillis(NonZeroU64::MIN.saturating_add(millis))
    }

    /// Returns the time passed since `earlier`, or zero if `earlier` is later.
    pub(crate) fn since(self, earlier: MonotonicMillis) -> Duration {
        Duration::from_millis(self.0.get().saturating_sub(earlier.0.get()))
    }

    /// Returns the number to store in an atomic; it is never 0.
    pub(crate) fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// Reads a number written by [`to_bits`](Self::to_bits); 0 means none.
    pub(crate) fn from_bits(bits: u64) -> Option<MonotonicMillis> {
        NonZeroU64::new(bits).map(MonotonicMillis)
    }
}

impl std::ops::Add<Duration> for MonotonicMillis {
    type Output = MonotonicMillis;

    fn add(self, later: Duration) -> MonotonicMillis {
        MonotonicMillis(self.0.saturating_add(later.as_millis() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_ordered_and_none_takes_no_room() {
        let one = MonotonicMillis::now();
        let later = one + Duration::from_secs(3);
        assert_eq!(later.since(one), Duration::from_secs(3));
        assert_eq!(one.since(later), Duration::ZERO);
        assert_eq!(MonotonicMillis::from_bits(later.to_bits()), Some(later));
        assert_eq!(MonotonicMillis::from_bits(0), None);
        assert_eq!(size_of::<Option<MonotonicMillis>>(), 8);
    }

    #[test]
    fn held_clock_stands_still_until_it_is_dropped() {
        let before = MonotonicMillis::now();
        let held = HeldClock::begin();
        let time = MonotonicMillis::now();
        while START.get().unwrap().elapsed().as_millis() as u64 <= time.to_bits() {
            std::thread::yield_now();
        }
        assert!(MonotonicMillis::now() == time && time >= before);
        drop(held);
        assert!(MonotonicMillis::now() > time);
    }
}
