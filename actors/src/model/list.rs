//! The three lists a client can hold, and the hash that tells whether one of them changed.
//!
//! Owns: [`ListKind`] and [`ListHash`]. The hash is a set hash (the wrapping sum of the digests of the items), so
//! one changed item costs one subtraction and one addition, whatever the length of the list, and order is nothing.
//! Never: holds the items themselves (the catalog does).

use super::digest::Digest;

/// One of the registries whose changes clients are told as `list_changed`.
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
    /// All kinds, in the order in which they are told.
    pub const ALL: [ListKind; 3] = [ListKind::Resources, ListKind::Tools, ListKind::Prompts];

    /// The kind as it is written in messages, labels and logs.
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

/// The hash of one registry's full items: schemas and descriptions included, order irrelevant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListHash(u128);

impl ListHash {
    /// The hash of an empty registry.
    pub const EMPTY: ListHash = ListHash(0);

    /// The hash after an item with this digest was added.
    #[must_use]
    pub fn with(self, item: Digest) -> ListHash {
        ListHash(self.0.wrapping_add(item.0))
    }

    /// The hash after an item with this digest was removed.
    #[must_use]
    pub fn without(self, item: Digest) -> ListHash {
        ListHash(self.0.wrapping_sub(item.0))
    }
}

impl std::fmt::Display for ListHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
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
        fn order_is_nothing(items in prop::collection::btree_map("[a-c]{1,3}", "[a-c]{0,3}", 0..8)) {
            prop_assert_eq!(hash_of(&items), hash_of(items.iter().rev()));
        }

        #[test]
        fn every_field_of_every_item_shows(
            items in prop::collection::btree_map("[a-c]{1,3}", "[a-c]{0,3}", 0..8),
            other in prop::collection::btree_map("[a-c]{1,3}", "[a-c]{0,3}", 0..8),
        ) {
            prop_assert_eq!(items == other, hash_of(&items) == hash_of(&other));
        }

        #[test]
        fn one_step_at_a_time_is_the_same_as_all_at_once(
            steps in prop::collection::vec(("[a-c]", prop::option::of("[a-c]{0,2}")), 0..24),
        ) {
            let (mut items, mut hash) = (BTreeMap::new(), ListHash::EMPTY);
            for (key, value) in steps {
                let digest = |v: &String| Digest::of(&[key.as_bytes(), v.as_bytes()]);
                if let Some(old) = items.remove(&key) {
                    hash = hash.without(digest(&old));
                }
                if let Some(value) = value {
                    hash = hash.with(digest(&value));
                    items.insert(key, value);
                }
                prop_assert_eq!(hash, hash_of(&items));
            }
        }
    }
}
