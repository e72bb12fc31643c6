//! How many sessions each peer has.
//!
//! Owns: [`PeerAddress`], the counts, and the places taken out of them. Never: finds out who somebody is: without
//! authentication a peer is the address that its connection comes from, so behind a proxy all are one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where a request's connection comes from. Whoever carries connections puts it into the extensions of each request;
/// without it a request counts for nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerAddress(pub IpAddr);

impl PeerAddress {
    /// Under which name it is counted: one machine has a whole /64 of IPv6, and IPv4 may come in IPv6's clothes.
    fn principal(self) -> IpAddr {
        match self.0.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                let network = u128::from(address) >> 64 << 64;
                IpAddr::V6(Ipv6Addr::from(network))
            }
        }
    }
}

/// The sessions of each peer that has some.
#[derive(Debug, Default)]
pub(super) struct Peers {
    sessions: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One session of a peer; given back when dropped.
#[derive(Debug)]
pub(super) struct PeerPlace {
    sessions: Arc<Mutex<HashMap<IpAddr, usize>>>,
    principal: IpAddr,
}

fn lock(sessions: &Mutex<HashMap<IpAddr, usize>>) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
    sessions.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Peers {
    /// A place for one more session of `peer`, of which there may be `max`; none when it has that many.
    pub(super) fn take(&self, peer: PeerAddress, max: usize) -> Option<PeerPlace> {
        let principal = peer.principal();
        let mut sessions = lock(&self.sessions);
        let held = sessions.get(&principal).copied().unwrap_or_default();
        if held >= max {
            return None;
        }
        sessions.insert(principal, held + 1);
        Some(PeerPlace {
            sessions: self.sessions.clone(),
            principal,
        })
    }
}

impl Drop for PeerPlace {
    fn drop(&mut self) {
        let mut sessions = lock(&self.sessions);
        let left = sessions.get(&self.principal).map_or(0, |held| held - 1);
        if left == 0 {
            sessions.remove(&self.principal);
        } else {
            sessions.insert(self.principal, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> PeerAddress {
        PeerAddress(address.parse().unwrap())
    }

    #[test]
    fn each_peer_has_places_of_its_own_and_leaves_nothing_behind() {
        let peers = Peers::default();
        let one = peers.take(peer("192.0.2.1"), 1);
        assert!(one.is_some());
        assert!(peers.take(peer("192.0.2.1"), 1).is_none());
        assert!(peers.take(peer("::ffff:192.0.2.1"), 1).is_none());
        let other = peers.take(peer("192.0.2.2"), 1);
        assert!(other.is_some());
        drop((one, other));
        assert!(lock(&peers.sessions).is_empty());
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one_peer() {
        let peers = Peers::default();
        let one = peers.take(peer("2001:db8::1"), 1);
        assert!(one.is_some() && peers.take(peer("2001:db8::ffff:2"), 1).is_none());
        assert!(peers.take(peer("2001:db8:0:1::1"), 1).is_some());
    }
}
