//! Counts events by key, such as the requests of each caller, up to a number in a period of time.
//!
//! The generic cell rate algorithm: a key has one instant, at which it will be at rest, and each event moves
//! it. A key that is at rest needs no entry.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The keys that are not at rest. More of them at a time are refused: a limit must not end where its memory
/// does.
const KEYS_MAX: usize = 1 << 16;

/// The shortest time between two looks for keys that are at rest.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Lets each key have a number of events in a period, all at once or evenly. Cheap when few keys are active.
#[derive(Debug)]
pub(crate) struct RateLimiter<K> {
    /// The part of the period that one event takes.
    interval: Duration,
    period: Duration,
    keys: Mutex<Keys<K>>,
}

#[derive(Debug)]
struct Keys<K> {
    /// The instant at which each key will be at rest.
    rest_at: HashMap<K, Instant>,
    swept: Option<Instant>,
}

impl<K: Eq + Hash + Clone> RateLimiter<K> {
    /// Lets each key have `count` events (at least 1) in each `period`.
    pub(crate) fn new(count: u32, period: Duration) -> RateLimiter<K> {
        RateLimiter {
            interval: period / count.max(1),
            period,
            keys: Mutex::new(Keys {
                rest_at: HashMap::new(),
                swept: None,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Keys<K>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts `events` of `key`, or none of them. More than fit into a period count as a period of them.
    ///
    /// # Errors
    /// The time after which they may be tried again.
    pub(crate) fn take(&self, key: &K, events: usize) -> Result<(), Duration> {
        let now = Instant::now();
        let events = u32::try_from(events).unwrap_or(u32::MAX);
        let cost = self.interval.saturating_mul(events).min(self.period);
        let mut keys = self.lock();
        if let Some(rest_at) = keys.rest_at.get_mut(key) {
            *rest_at = admit(*rest_at, now, cost, self.period)?;
            return Ok(());
        }
        if keys.rest_at.len() >= KEYS_MAX && !keys.make_room(now) {
            return Err(SWEEP_INTERVAL);
        }
        keys.rest_at.insert(key.clone(), now + cost);
        Ok(())
    }

    /// Returns the time after which `key` may have an event; none if it may have one now. Counts nothing.
    pub(crate) fn wait(&self, key: &K) -> Option<Duration> {
        let now = Instant::now();
        let mut keys = self.lock();
        match keys.rest_at.get(key).copied() {
            Some(rest_at) => admit(rest_at, now, self.interval, self.period).err(),
            // An event of it could not be counted, so it is refused as in `take`.
            None if keys.rest_at.len() >= KEYS_MAX && !keys.make_room(now) => Some(SWEEP_INTERVAL),
            None => None,
        }
    }
}

impl<K: Eq + Hash> Keys<K> {
    /// Removes the keys that are at rest. Returns true if there is room.
    fn make_room(&mut self, now: Instant) -> bool {
        // Each look visits every key, and in a flood of new ones there is a reason to look at each.
        if let Some(swept) = self.swept
            && now - swept < SWEEP_INTERVAL
        {
            return false;
        }
        self.swept = Some(now);
        self.rest_at.retain(|_, rest_at| *rest_at > now);
        self.rest_at.len() < KEYS_MAX
    }
}

/// Returns the instant of rest after an event of this cost, or the time after which it may be tried again.
fn admit(rest_at: Instant, now: Instant, cost: Duration, period: Duration) -> Result<Instant, Duration> {
    let rest_at = rest_at.max(now) + cost;
    match rest_at.checked_duration_since(now + period) {
        Some(too_long) if !too_long.is_zero() => Err(too_long),
        _ => Ok(rest_at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn key_has_its_events_at_once_or_evenly() {
        let limiter = RateLimiter::new(4, SECOND);
        for _ in 0..4 {
            assert_eq!(limiter.take(&"a", 1), Ok(()));
        }
        assert_eq!(limiter.wait(&"a"), Some(SECOND / 4));
        assert_eq!(limiter.take(&"a", 1), Err(SECOND / 4));
        assert_eq!(limiter.take(&"a", 2), Err(SECOND / 2));
        // Another key has its own.
        assert_eq!((limiter.wait(&"b"), limiter.take(&"b", 4)), (None, Ok(())));
        for _ in 0..20 {
            tokio::time::advance(SECOND / 4).await;
            assert_eq!(limiter.take(&"a", 1), Ok(()));
            assert!(limiter.take(&"a", 1).is_err());
        }
        tokio::time::advance(100 * SECOND).await;
        assert_eq!(
            (limiter.take(&"a", 4), limiter.wait(&"a")),
            (Ok(()), Some(SECOND / 4))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn more_events_than_a_period_has_take_a_whole_one() {
        let limiter = RateLimiter::new(4, SECOND);
        assert_eq!(limiter.take(&"a", 1_000), Ok(()));
        assert_eq!(limiter.take(&"a", 1_000), Err(SECOND));
        tokio::time::advance(SECOND).await;
        assert_eq!(limiter.take(&"a", usize::MAX), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_at_rest_make_room_for_others() {
        let limiter = RateLimiter::new(1, SECOND);
        for key in 0..KEYS_MAX {
            assert_eq!(limiter.take(&key, 1), Ok(()));
        }
        assert_eq!(limiter.wait(&KEYS_MAX), Some(SECOND));
        assert_eq!(limiter.take(&KEYS_MAX, 1), Err(SECOND));
        assert!(limiter.take(&0, 1).is_err());
        tokio::time::advance(SECOND).await;
        assert_eq!(limiter.take(&KEYS_MAX, 1), Ok(()));
        assert_eq!(limiter.lock().rest_at.len(), 1);
    }

    proptest! {
        /// In no stretch of time are there more events than in one period besides those of the stretch.
        #[test]
        fn events_stay_below_the_rate(
            count in 1..20u32,
            steps in prop::collection::vec((0..400u64, 1..4u32), 1..60),
        ) {
            let start = Instant::now();
            let interval = SECOND / count;
            let (mut now, mut rest_at) = (start, start);
            let mut taken = Vec::new();
            for (pause, events) in steps {
                now += Duration::from_millis(pause);
                let cost = (interval * events).min(SECOND);
                if let Ok(later) = admit(rest_at, now, cost, SECOND) {
                    rest_at = later;
                    taken.push((now, cost));
                }
            }
            for (from, (begin, _)) in taken.iter().enumerate() {
                let mut sum = Duration::ZERO;
                for (at, cost) in &taken[from..] {
                    sum += *cost;
                    prop_assert!(sum <= SECOND + (*at - *begin), "{taken:?}");
                }
            }
        }
    }
}
