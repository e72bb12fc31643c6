//! The things that each caller holds at a time, by caller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tidings_actors::SubscriptionAllowance;

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

    /// Returns the callers, and how much each holds.
    #[cfg(feature = "nats")]
    pub(super) fn counts(&self) -> Vec<(Counted, usize)> {
        let held = lock(&self.held);
        held.iter()
            .map(|(caller, count)| (caller.clone(), *count))
            .collect()
    }
}

/// The subscriptions that the sessions of each caller share.
#[derive(Debug, Default)]
pub(super) struct Allowances {
    by_caller: Mutex<HashMap<Counted, Weak<SubscriptionAllowance>>>,
}

impl Allowances {
    /// Returns the allowance of a caller, which lives as long as one of its sessions.
    pub(super) fn of(&self, caller: &Counted, max: usize) -> Arc<SubscriptionAllowance> {
        let mut by_caller = self.by_caller.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = by_caller.get(caller).and_then(Weak::upgrade) {
            return known;
        }
        // Looked through when it would grow, so that it is at most twice as large as it has live entries.
        if by_caller.len() == by_caller.capacity() {
            by_caller.retain(|_, allowance| allowance.strong_count() > 0);
        }
        let new = Arc::new(SubscriptionAllowance::new(max));
        by_caller.insert(caller.clone(), Arc::downgrade(&new));
        new
    }

    /// Returns the callers with subscriptions, and how many each has.
    #[cfg(feature = "nats")]
    pub(super) fn counts(&self) -> Vec<(Counted, usize)> {
        let by_caller = self.by_caller.lock().unwrap_or_else(PoisonError::into_inner);
        let used = |(caller, allowance): (&Counted, &Weak<SubscriptionAllowance>)| {
            let used = allowance.upgrade()?.used();
            (used > 0).then(|| (caller.clone(), used))
        };
        by_caller.iter().filter_map(used).collect()
    }

    /// Sets the subscriptions that each caller has at other nodes.
    #[cfg(feature = "nats")]
    pub(super) fn set_elsewhere(&self, elsewhere: impl Fn(&Counted) -> usize) {
        let by_caller = self.by_caller.lock().unwrap_or_else(PoisonError::into_inner);
        for (caller, allowance) in &*by_caller {
            if let Some(allowance) = allowance.upgrade() {
                allowance.set_elsewhere(elsewhere(caller));
            }
        }
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
    use crate::auth::PeerAddress;

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
    fn allowance_is_shared_while_a_session_has_it() {
        let allowances = Allowances::default();
        let one = allowances.of(&peer("192.0.2.1"), 7);
        assert!(Arc::ptr_eq(&one, &allowances.of(&peer("192.0.2.1"), 7)));
        assert!(!Arc::ptr_eq(&one, &allowances.of(&peer("192.0.2.2"), 7)));
        for number in 0..10_000u32 {
            let address = Counted::Address(std::net::Ipv4Addr::from(number).into());
            assert_eq!(allowances.of(&address, 7).max(), 7);
        }
        // Those whose sessions are gone take no room for long.
        let entries = allowances.by_caller.lock().unwrap().len();
        assert!(entries < 100, "{entries}");
        assert!(Arc::ptr_eq(&one, &allowances.of(&peer("192.0.2.1"), 7)));
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
