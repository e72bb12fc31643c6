//! The things that each caller holds at a time, by caller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Counted;

type Held = HashMap<Counted, usize>;

/// The number of things that each caller holds. A caller that holds none takes no memory.
#[derive(Debug, Default)]
pub(super) struct Shares {
    held: Arc<Mutex<Held>>,
}

/// The right of a caller to one of them; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    held: Arc<Mutex<Held>>,
    caller: Counted,
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shares {
    /// Takes a place for one more; none when the caller holds `max` already.
    pub(super) fn take(&self, caller: &Counted, max: usize) -> Option<Place> {
        let mut held = lock(&self.held);
        let count = held.get(caller).copied().unwrap_or_default();
        if count >= max {
            return None;
        }
        held.insert(caller.clone(), count + 1);
        Some(Place {
            held: self.held.clone(),
            caller: caller.clone(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        match held.get_mut(&self.caller) {
            Some(count) if *count > 1 => *count -= 1,
            // The last one takes the entry along: callers come and go, and the table must not keep them all.
            _ => {
                held.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::PeerAddress;

    fn peer(address: &str) -> Counted {
        Counted::Address(PeerAddress(address.parse().unwrap()).counted())
    }

    #[test]
    fn places_are_counted_by_caller_and_given_back() {
        let shares = Shares::default();
        let one = shares.take(&peer("192.0.2.1"), 1);
        assert!(one.is_some());
        assert!(shares.take(&peer("192.0.2.1"), 1).is_none());
        assert!(shares.take(&peer("::ffff:192.0.2.1"), 1).is_none());
        let other = shares.take(&peer("192.0.2.2"), 1);
        assert!(other.is_some());
        drop((one, other));
        assert!(lock(&shares.held).is_empty());
    }

    #[test]
    fn ipv6_addresses_of_one_network_are_one_caller() {
        let shares = Shares::default();
        let one = shares.take(&peer("2001:db8::1"), 1);
        assert!(one.is_some() && shares.take(&peer("2001:db8::ffff:2"), 1).is_none());
        assert!(shares.take(&peer("2001:db8:0:1::1"), 1).is_some());
    }

    #[test]
    fn callers_without_address_are_one_caller() {
        let shares = Shares::default();
        let one = shares.take(&Counted::of(&::http::Extensions::new()), 1);
        assert!(one.is_some() && shares.take(&Counted::Unknown, 1).is_none());
    }
}
