//! The kinds of lists, and the hash by which a change of a list is detected.
//!
//! The hash is the wrapping sum of the digests of the items: one changed item costs one subtraction and one
//! addition for a list of any length, and the order of the items does not matter.

use super::digest::Digest;

/// A list whose changes clients are notified of with `list_changed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ListKind {
    /// Resources and resource templates.
    Resources,
    /// Tools.
    Tools,
    /// Prompts.
    Prompts,
}

impl ListKind {
    /// All kinds, in the order of notification.
    pub const ALL: [ListKind; 3] = [ListKind::Resources, ListKind::Tools, ListKind::Prompts];

    /// The kind as written in messages, labels and logs.
    pub fn name(self) -> &'static str {
        match self {
            ListKind::Resources => "resources",
            ListKind::Tools => "tools",
            ListKind::Prompts => "prompts",
        }
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// The hash of the complete items of one list, schemas and descriptions included.
// Packed like a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(Rust, packed(8))]
pub struct ListHash(pub u128);

impl ListHash {
    /// The hash of an empty list.
    pub const EMPTY: ListHash = ListHash(0);

    /// Returns the hash of the list with one more item.
    #[must_use]
    pub fn with(self, item: Digest) -> ListHash {
        // A wrapping sum can be undone by `without` in any order.
        ListHash(self.0.wrapping_add(item.0))
    }

    /// Returns the hash of two lists together.
    #[must_use]
    pub(crate) fn plus(self, other: ListHash) -> ListHash {
        ListHash(self.0.wrapping_add(other.0))
    }

    /// Returns the hash of the list without items that it has.
    #[must_use]
    pub(crate) fn minus(self, other: ListHash) -> ListHash {
        ListHash(self.0.wrapping_sub(other.0))
    }

    /// Returns the hash of the list without an item that it has.
    #[must_use]
    pub fn without(self, item: Digest) -> ListHash {
        ListHash(self.0.wrapping_sub(item.0))
    }
}

impl std::fmt::Display for ListHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", { self.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn hash_of<'a>(items: impl IntoIterator<Item = (&'a String, &'a String)>) -> ListHash {
        items.into_iter().fold(ListHash::EMPTY, |hash, (k, v)| {
            hash.with(Digest::of(&[k.as_bytes(), v.as_bytes()]))
        })
    }

    proptest! {
        #[test]
        fn order_of_items_does_not_matter(items in prop::collection::btree_map("[a-c]{1,3}", "[a-c]{0,3}", 0..8)) {
            prop_assert_eq!(hash_of(&items), hash_of(items.iter().rev()));
        }

        #[test]
        fn every_field_of_every_item_counts(
            items in prop::collection::btree_map("[a-c]{1,3}", "[a-c]{0,3}", 0..8),
            other in prop::collection::btree_map("[a-c]{1,3}", "[a-c]{0,3}", 0..8),
        ) {
            prop_assert_eq!(items == other, hash_of(&items) == hash_of(&other));
        }

        #[test]
        fn single_steps_equal_one_full_hash(
            steps in prop::collection::vec(("[a-c]", prop::option::of("[a-c]{0,2}")), 0..24),
        ) {
            let mut items: BTreeMap<String, String> = BTreeMap::new();
            let mut hash = ListHash::EMPTY;
            for (key, value) in steps {
                if let Some(old) = items.remove(&key) {
                    hash = hash.without(Digest::of(&[key.as_bytes(), old.as_bytes()]));
                }
                if let Some(value) = value {
                    hash = hash.with(Digest::of(&[key.as_bytes(), value.as_bytes()]));
                    items.insert(key, value);
                }
                prop_assert_eq!(hash, hash_of(&items));
            }
        }
    }
}
