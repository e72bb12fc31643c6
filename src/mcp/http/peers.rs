//! The number of sessions that each peer has. Without authentication a peer is the address that its
//! connection comes from, so all clients behind one proxy are one peer.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type SessionCounts = HashMap<IpAddr, usize>;

/// The sessions of each peer that has some.
#[derive(Debug, Default)]
pub(super) struct Peers {
    sessions: Arc<Mutex<SessionCounts>>,
}

/// The right of a peer to one session; given back when dropped.
#[derive(Debug)]
pub(super) struct PeerPermit {
    sessions: Arc<Mutex<SessionCounts>>,
    peer: IpAddr,
}

fn lock(sessions: &Mutex<SessionCounts>) -> MutexGuard<'_, SessionCounts> {
    sessions.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Peers {
    /// Takes a permit for one more session of `peer`; none when the peer has `max` already.
    pub(super) fn take(&self, peer: IpAddr, max: usize) -> Option<PeerPermit> {
        let mut sessions = lock(&self.sessions);
        let held = sessions.get(&peer).copied().unwrap_or_default();
        if held >= max {
            return None;
        }
        sessions.insert(peer, held + 1);
        Some(PeerPermit {
            sessions: self.sessions.clone(),
            peer,
        })
    }
}

impl Drop for PeerPermit {
    fn drop(&mut self) {
        let mut sessions = lock(&self.sessions);
        match sessions.get_mut(&self.peer) {
            Some(held) if *held > 1 => *held -= 1,
            // The last one takes the entry along: addresses come and go, and the table must not keep them
            // all.
            _ => {
                sessions.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::PeerAddress;

    fn peer(address: &str) -> IpAddr {
        PeerAddress(address.parse().unwrap()).counted()
    }

    #[test]
    fn permits_are_counted_per_peer_and_given_back() {
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
    fn ipv6_addresses_of_one_network_are_one_peer() {
        let peers = Peers::default();
        let one = peers.take(peer("2001:db8::1"), 1);
        assert!(one.is_some() && peers.take(peer("2001:db8::ffff:2"), 1).is_none());
        assert!(peers.take(peer("2001:db8:0:1::1"), 1).is_some());
    }
}
