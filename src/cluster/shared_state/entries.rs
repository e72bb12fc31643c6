//! The entries that were heard: the newest of each key, with the time at which it was.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::key::{StateKey, StateKind};

/// The most entries that are kept. Nodes and leases are few, so more come from a mistake.
const ENTRIES_MAX: usize = 10_000;

/// The time after which an entry that was not renewed is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(120);

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedEntry {
    /// Its content.
    pub value: Bytes,
    /// Its revision: a number that grows with every write to the state.
    pub revision: u64,
}

/// An entry that was heard.
#[derive(Debug, Clone)]
pub struct HeardEntry {
    /// The entry.
    pub entry: SharedEntry,
    /// The time at which this revision was heard first.
    pub at: Instant,
}

/// The entries that were heard.
#[derive(Debug, Default)]
pub(super) struct HeardEntries {
    entries: BTreeMap<StateKey, HeardEntry>,
    /// True while further keys are left out.
    pub(super) is_full: bool,
}

impl HeardEntries {
    /// Takes an entry as it was heard; an empty one means that it was deleted. Returns false for one that is
    /// known, or older than the known one.
    pub(super) fn take(&mut self, key: StateKey, entry: SharedEntry, now: Instant) -> bool {
        let is_known = match self.entries.get(&key) {
            // Told again after a new connection: its age goes on.
            Some(known) if known.entry.revision >= entry.revision => return false,
            known => known.is_some(),
        };
        if entry.value.is_empty() {
            return self.entries.remove(&key).is_some();
        }
        if !is_known && self.entries.len() >= ENTRIES_MAX {
            self.entries.retain(|_, heard| now - heard.at < FORGET_AFTER);
        }
        self.is_full = !is_known && self.entries.len() >= ENTRIES_MAX;
        if !self.is_full {
            self.entries.insert(key, HeardEntry { entry, at: now });
        }
        !self.is_full
    }

    /// Returns the entry of a key.
    pub(super) fn get(&self, key: &StateKey) -> Option<HeardEntry> {
        self.entries.get(key).cloned()
    }

    /// Returns the entries of a kind that were heard within `age`, by name.
    pub(super) fn of_kind(&self, kind: StateKind, age: Duration, now: Instant) -> Vec<(String, HeardEntry)> {
        let mut found = Vec::new();
        for (key, heard) in &self.entries {
            if key.kind() == kind && now - heard.at < age {
                found.push((key.name().to_owned(), heard.clone()));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> StateKey {
        StateKey::new(StateKind::Presence, name)
    }

    fn entry(text: &'static str, revision: u64) -> SharedEntry {
        SharedEntry {
            value: Bytes::from_static(text.as_bytes()),
            revision,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn newest_revision_stays_and_keeps_its_age() {
        let mut heard = HeardEntries::default();
        let begin = Instant::now();
        assert!(heard.take(key("a"), entry("x", 5), begin));
        let later = begin + Duration::from_secs(8);
        assert!(!heard.take(key("a"), entry("x", 5), later));
        assert!(!heard.take(key("a"), entry("old", 4), later));
        assert_eq!(heard.get(&key("a")).unwrap().at, begin);
        let age = Duration::from_secs(10);
        assert_eq!(heard.of_kind(StateKind::Presence, age, later).len(), 1);
        assert_eq!(heard.of_kind(StateKind::Lease, age, later).len(), 0);
        let gone = begin + Duration::from_secs(11);
        assert_eq!(heard.of_kind(StateKind::Presence, age, gone).len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn deleted_entry_is_gone() {
        let mut heard = HeardEntries::default();
        let now = Instant::now();
        heard.take(key("a"), entry("x", 5), now);
        assert!(!heard.take(key("b"), entry("", 6), now));
        assert!(heard.take(key("a"), entry("", 7), now));
        assert!(heard.get(&key("a")).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn further_keys_are_left_out() {
        let mut heard = HeardEntries::default();
        let now = Instant::now();
        for n in 0..ENTRIES_MAX as u64 {
            assert!(heard.take(key(&n.to_string()), entry("x", n + 1), now));
        }
        assert!(!heard.take(key("more"), entry("x", 20_000), now));
        assert!(heard.is_full);
        assert!(heard.take(key("0"), entry("y", 20_001), now));
        let later = now + FORGET_AFTER;
        assert!(heard.take(key("more"), entry("x", 20_002), later));
        assert_eq!(heard.entries.len(), 1);
    }
}
