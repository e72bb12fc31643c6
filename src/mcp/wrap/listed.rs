//! The wrapped server's lists as they were answered last: one digest and the names per list. The bus's hash
//! of a kind is made of them.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::client_view::ServerList;
use crate::{Digest, ListKind};

/// The lists of a wrapped server.
#[derive(Debug, Default)]
pub(super) struct ListedItems {
    lists: HashMap<ServerList, KnownList>,
    /// Changes by kind that are in no list here, since only some clients are shown them.
    unseen: [u64; 3],
}

#[derive(Debug)]
struct KnownList {
    /// None when the list is empty.
    digest: Option<Digest>,
    names: HashSet<String>,
}

impl ListedItems {
    /// Stores a list. Returns true when it differs from the one before; the first one does not.
    pub(super) fn put(&mut self, list: ServerList, items: &[Value], digest: Option<Digest>) -> bool {
        let mut names = HashSet::new();
        for item in items {
            if let Some(Value::String(name)) = item.get("name") {
                names.insert(name.clone());
            }
        }
        match self.lists.insert(list, KnownList { digest, names }) {
            Some(before) => before.digest != digest,
            None => false,
        }
    }

    /// Takes note of a change of a kind that is in no list here.
    #[cfg(feature = "service")]
    pub(super) fn note_unseen(&mut self, kind: ListKind) {
        self.unseen[kind as usize] += 1;
    }

    /// Returns the digest of everything that was listed of a kind; none when there is nothing.
    pub(super) fn of_kind(&self, kind: ListKind) -> Option<Digest> {
        let mut bytes: Vec<[u8; 16]> = Vec::new();
        let mut is_empty = true;
        for list in ServerList::ALL {
            if list.kind() != kind {
                continue;
            }
            let digest = match self.lists.get(&list) {
                Some(known) => known.digest,
                None => None,
            };
            is_empty &= digest.is_none();
            // The digest includes empty lists: an item that moves from one list to the other is a change.
            bytes.push(digest.map(|digest| digest.0.to_le_bytes()).unwrap_or_default());
        }
        if self.unseen[kind as usize] > 0 {
            is_empty = false;
            bytes.push(u128::from(self.unseen[kind as usize]).to_le_bytes());
        }
        (!is_empty).then(|| digest_of_all(&bytes))
    }

    /// Returns true when the server listed an item of that name; none when it was not asked yet.
    pub(super) fn has(&self, list: ServerList, name: &str) -> Option<bool> {
        self.lists.get(&list).map(|known| known.names.contains(name))
    }
}

/// Returns the digest of a list, which does not depend on its order; none when it is empty.
pub(super) fn digest(items: &[Value]) -> Option<Digest> {
    let mut digests: Vec<[u8; 16]> = items
        .iter()
        .map(|item| Digest::of_json(item).0.to_le_bytes())
        .collect();
    // Servers often list from a hash map, so another order must not look like a change.
    digests.sort_unstable();
    (!items.is_empty()).then(|| digest_of_all(&digests))
}

fn digest_of_all(digests: &[[u8; 16]]) -> Digest {
    let slices: Vec<&[u8]> = digests.iter().map(<[u8; 16]>::as_slice).collect();
    Digest::of(&slices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn list_digest_ignores_order_only() {
        let a = json!({ "name": "a" });
        let b = json!({ "name": "b" });
        assert_eq!(digest(&[a.clone(), b.clone()]), digest(&[b, a.clone()]));
        assert_ne!(
            digest(std::slice::from_ref(&a)),
            digest(&[json!({ "name": "a", "description": "new" })])
        );
        assert_ne!(digest(&[a.clone(), a.clone()]), digest(&[a]));
        assert_eq!(digest(&[]), None);
    }

    #[test]
    fn resources_and_templates_are_one_kind() {
        let mut listed = ListedItems::default();
        let items = [json!({ "name": "a" })];
        assert_eq!(listed.of_kind(ListKind::Resources), None);
        assert!(!listed.put(ServerList::Resources, &items, digest(&items)));
        let as_resource = listed.of_kind(ListKind::Resources);
        assert!(listed.put(ServerList::Resources, &[], None));
        listed.put(ServerList::Templates, &items, digest(&items));
        assert!(as_resource.is_some());
        assert_ne!(listed.of_kind(ListKind::Resources), as_resource);
        listed.put(ServerList::Templates, &[], None);
        assert_eq!(listed.of_kind(ListKind::Resources), None);
        assert_eq!(listed.of_kind(ListKind::Tools), None);
        assert_eq!(listed.has(ServerList::Tools, "a"), None);
        assert_eq!(listed.has(ServerList::Templates, "a"), Some(false));
    }
}
