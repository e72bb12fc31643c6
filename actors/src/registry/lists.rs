//! Named items of one kind, in the order of their names, with a hash that follows every change.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::model::{ListHash, PublishError};

/// An item of a list.
pub(super) trait ListItem {
    /// The items in an error message.
    const PLURAL: &'static str;

    /// The name by which the list has one item alone.
    fn name(&self) -> &str;

    /// The share of the item in the hash of the list.
    fn share(&self) -> ListHash;
}

struct Entry<T> {
    item: T,
    /// Kept, because a digest costs far more than this room.
    share: ListHash,
}

/// A list of at most `max` items.
pub(super) struct ItemList<T> {
    entries: BTreeMap<String, Entry<T>>,
    hash: ListHash,
    max: usize,
}

impl<T: ListItem> ItemList<T> {
    pub(super) fn new(max: usize) -> ItemList<T> {
        ItemList {
            entries: BTreeMap::new(),
            hash: ListHash::EMPTY,
            max,
        }
    }

    pub(super) fn hash(&self) -> ListHash {
        self.hash
    }

    /// The hash of the items whose names are shown.
    pub(super) fn hash_of(&self, shows: impl Fn(&str) -> bool) -> ListHash {
        let mut hash = ListHash::EMPTY;
        for (name, entry) in &self.entries {
            if shows(name) {
                hash = hash.plus(entry.share);
            }
        }
        hash
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&self, name: &str) -> Option<&T> {
        self.entries.get(name).map(|entry| &entry.item)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.values().map(|entry| &entry.item)
    }

    /// The items after this name.
    pub(super) fn after(&self, name: Option<&str>) -> impl Iterator<Item = &T> {
        let start = match name {
            Some(name) => Bound::Excluded(name),
            None => Bound::Unbounded,
        };
        self.entries
            .range::<str, _>((start, Bound::Unbounded))
            .map(|(_, entry)| &entry.item)
    }

    /// Adds an item, or replaces the one with its name.
    pub(super) fn put(&mut self, item: T) -> Result<(), PublishError> {
        if !self.entries.contains_key(item.name()) {
            Self::check_len(self.entries.len() + 1, self.max)?;
        }
        self.insert(item);
        Ok(())
    }

    /// Replaces all items; of several with one name the last counts.
    pub(super) fn replace(&mut self, items: Vec<T>) -> Result<(), PublishError> {
        // Built beside the old list, so that a refusal leaves that as it is.
        let mut next = ItemList::new(self.max);
        for item in items {
            next.insert(item);
        }
        Self::check_len(next.len(), self.max)?;
        *self = next;
        Ok(())
    }

    /// Removes the item with this name, if there is one.
    pub(super) fn remove(&mut self, name: &str) {
        if let Some(entry) = self.entries.remove(name) {
            self.hash = self.hash.minus(entry.share);
        }
    }

    /// Removes some items, then puts others, all of them or none.
    pub(super) fn change(&mut self, puts: Vec<T>, removes: &[String]) -> Result<(), PublishError> {
        let removed: BTreeSet<&str> = removes.iter().map(String::as_str).collect();
        let put: BTreeSet<&str> = puts.iter().map(T::name).collect();
        let mut len = self.entries.len() + put.len();
        // Subtracts the removed and replaced items rather than count the others: the list may be long.
        for name in removed.union(&put) {
            len -= usize::from(self.entries.contains_key(*name));
        }
        Self::check_len(len, self.max)?;
        for name in removes {
            self.remove(name);
        }
        for item in puts {
            self.insert(item);
        }
        Ok(())
    }

    /// Edits the item with this name, if there is one.
    pub(super) fn edit(&mut self, name: &str, edit: impl FnOnce(&mut T)) {
        if let Some(entry) = self.entries.get_mut(name) {
            edit(&mut entry.item);
            let share = entry.item.share();
            self.hash = self.hash.minus(entry.share).plus(share);
            entry.share = share;
        }
    }

    fn insert(&mut self, item: T) {
        let share = item.share();
        self.hash = self.hash.plus(share);
        let before = self.entries.insert(item.name().to_owned(), Entry { item, share });
        if let Some(before) = before {
            self.hash = self.hash.minus(before.share);
        }
    }

    fn check_len(len: usize, max: usize) -> Result<(), PublishError> {
        if len > max {
            let what = T::PLURAL;
            return Err(PublishError::TooMany { what, max });
        }
        Ok(())
    }
}
