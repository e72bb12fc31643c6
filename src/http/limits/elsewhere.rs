//! What callers hold at other nodes of a cluster, as far as those have told it.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use super::Counted;

/// The things that one caller holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeldCounts {
    /// Its sessions and long-lived streams.
    pub sessions: usize,
    /// Its subscriptions.
    pub subscriptions: usize,
    /// The bytes that it has published.
    pub bytes: usize,
    /// Its running tool calls.
    pub tool_calls: usize,
}

impl HeldCounts {
    /// Adds the counts of another node.
    pub fn add(&mut self, other: HeldCounts) {
        self.sessions = self.sessions.saturating_add(other.sessions);
        self.subscriptions = self.subscriptions.saturating_add(other.subscriptions);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.tool_calls = self.tool_calls.saturating_add(other.tool_calls);
    }
}

/// The counts of all other nodes, by the keys of callers.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    counts: RwLock<HashMap<u64, HeldCounts>>,
}

impl Elsewhere {
    /// Returns what a caller holds at other nodes.
    pub(super) fn of(&self, caller: &Counted) -> HeldCounts {
        let counts = self.counts.read().unwrap_or_else(PoisonError::into_inner);
        // A node that is alone makes no hash.
        if counts.is_empty() {
            return HeldCounts::default();
        }
        let held = key_of(caller).and_then(|key| counts.get(&key));
        held.copied().unwrap_or_default()
    }

    #[cfg(feature = "nats")]
    pub(super) fn set(&self, counts: HashMap<u64, HeldCounts>) {
        *self.counts.write().unwrap_or_else(PoisonError::into_inner) = counts;
    }
}

/// Returns the key of a caller, the same on every node; none for one whose connection has no address, since
/// those of two nodes have nothing in common. A part of a hash, so that no name is told to the servers.
#[cfg(feature = "nats")]
pub(super) fn key_of(caller: &Counted) -> Option<u64> {
    use sha2::{Digest as _, Sha256};

    let name = match caller {
        Counted::Principal(principal) => format!("principal {}", principal.id()),
        Counted::Address(address) => format!("address {address}"),
        Counted::Unknown => return None,
    };
    let mut key = 0;
    for byte in Sha256::digest(name.as_bytes()).iter().take(8) {
        key = key << 8 | u64::from(*byte);
    }
    Some(key)
}

#[cfg(not(feature = "nats"))]
fn key_of(_: &Counted) -> Option<u64> {
    None
}
