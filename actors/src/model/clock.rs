//! When something happened, in eight bytes: milliseconds of the process's own monotonic clock.
//!
//! Owns: [`MonotonicMillis`]. Never: tells the time of day. Sessions keep several of these, so an `Instant` of twice the size,
//! which an `Option` makes half as large again, is too much.

use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

static START: OnceLock<Instant> = OnceLock::new();

/// A point in the life of the process, to the millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MonotonicMillis(NonZeroU64);

impl MonotonicMillis {
    /// Now. The first call of a process makes its clock begin.
    pub(crate) fn now() -> MonotonicMillis {
        let millis = START.get_or_init(Instant::now).elapsed().as_millis() as u64;
        MonotonicMillis(NonZeroU64::MIN.saturating_add(millis))
    }

    /// How long after `earlier` this is; zero when it is before.
    pub(crate) fn since(self, earlier: MonotonicMillis) -> Duration {
        Duration::from_millis(self.0.get().saturating_sub(earlier.0.get()))
    }

    /// The number that stands for it.
    pub(crate) fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// The moment that `bits` stand for; 0 stands for none.
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
    fn moments_are_in_order_and_none_costs_nothing() {
        let one = MonotonicMillis::now();
        let later = one + Duration::from_secs(3);
        assert_eq!(later.since(one), Duration::from_secs(3));
        assert_eq!(one.since(later), Duration::ZERO);
        assert_eq!(MonotonicMillis::from_bits(later.to_bits()), Some(later));
        assert_eq!(MonotonicMillis::from_bits(0), None);
        assert_eq!(size_of::<Option<MonotonicMillis>>(), 8);
    }
}
