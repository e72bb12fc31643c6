//! Wrong credentials by address: beyond a limit they are not looked at until a minute is over.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::caller::PeerAddress;

/// The time for which failures are counted together.
const WINDOW: Duration = Duration::from_secs(60);
/// Most addresses that are counted one by one. Further ones are counted as if they were one address.
const ADDRESSES_MAX: usize = 10_000;
/// The time between two looks for addresses whose minute is over, when there is no room.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Counts of wrong credentials.
pub(crate) struct Failures {
    /// Most failures of one address in a minute.
    max: usize,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    /// By address; none stands for all that are not counted one by one.
    windows: HashMap<Option<IpAddr>, Window>,
    swept: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Window {
    began: Instant,
    failures: usize,
}

impl Failures {
    pub(crate) fn new(max: usize) -> Failures {
        Failures {
            max,
            counts: Mutex::default(),
        }
    }

    /// Returns the seconds for which an address has to wait; none if it is below the limit.
    pub(crate) fn wait_of(&self, address: Option<PeerAddress>, now: Instant) -> Option<u32> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let window = counts.windows.get(&counts.key(address))?;
        let over = window.began + WINDOW;
        if window.failures < self.max || over <= now {
            return None;
        }
        let seconds = (over - now).as_secs_f64().ceil();
        // At most a minute, so it fits.
        Some(seconds as u32)
    }

    /// Counts a failure of an address.
    pub(crate) fn count(&self, address: Option<PeerAddress>, now: Instant) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.make_room(now);
        let key = counts.key(address);
        let fresh = Window {
            began: now,
            failures: 0,
        };
        let window = counts.windows.entry(key).or_insert(fresh);
        if window.began + WINDOW <= now {
            *window = fresh;
        }
        window.failures += 1;
    }
}

impl Counts {
    fn key(&self, address: Option<PeerAddress>) -> Option<IpAddr> {
        let key = address.map(PeerAddress::counted);
        let is_counted = self.windows.contains_key(&key) || self.windows.len() < ADDRESSES_MAX;
        key.filter(|_| is_counted)
    }

    fn make_room(&mut self, now: Instant) {
        if self.windows.len() < ADDRESSES_MAX {
            return;
        }
        if let Some(swept) = self.swept
            && now < swept + SWEEP_INTERVAL
        {
            return;
        }
        self.swept = Some(now);
        self.windows.retain(|_, window| now < window.began + WINDOW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(number: u32) -> Option<PeerAddress> {
        Some(PeerAddress(IpAddr::V4(Ipv4Addr::from(number))))
    }

    #[test]
    fn address_waits_until_its_minute_is_over() {
        let failures = Failures::new(2);
        let start = Instant::now();
        failures.count(address(1), start);
        assert_eq!(failures.wait_of(address(1), start), None);
        failures.count(address(1), start + Duration::from_secs(10));
        assert_eq!(
            failures.wait_of(address(1), start + Duration::from_secs(10)),
            Some(50)
        );
        assert_eq!(failures.wait_of(address(2), start), None);
        assert_eq!(failures.wait_of(address(1), start + WINDOW), None);
        failures.count(address(1), start + WINDOW);
        assert_eq!(failures.wait_of(address(1), start + WINDOW), None);
    }

    #[test]
    fn addresses_beyond_the_limit_count_as_one() {
        let failures = Failures::new(2);
        let start = Instant::now();
        let most = u32::try_from(ADDRESSES_MAX).unwrap();
        for number in 0..most + 2 {
            failures.count(address(number), start);
        }
        assert!(failures.counts.lock().unwrap().windows.len() <= ADDRESSES_MAX + 1);
        assert_eq!(failures.wait_of(address(0), start), None);
        assert_eq!(failures.wait_of(address(most + 9), start), Some(60));
        let later = start + WINDOW;
        failures.count(address(most + 9), later);
        assert_eq!(failures.counts.lock().unwrap().windows.len(), 1);
    }

    #[test]
    fn missing_addresses_are_one() {
        let failures = Failures::new(1);
        let now = Instant::now();
        failures.count(None, now);
        assert_eq!(failures.wait_of(None, now), Some(60));
    }
}
