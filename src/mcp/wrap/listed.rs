//! What the wrapped server's lists were when they were last seen.
//!
//! Owns: one digest and the names per list; what the bus is told of each kind is made of them. Never: asks anybody.
//! Used by [`Wrap`](super::Wrap), under its lock.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::inner::Part;
use crate::{Digest, ListKind};

/// The lists of a wrapped server.
#[derive(Debug, Default)]
pub(super) struct Listed {
    parts: HashMap<Part, List>,
}

#[derive(Debug)]
struct List {
    /// None: there is nothing in it.
    digest: Option<Digest>,
    names: HashSet<String>,
}

impl Listed {
    /// Takes over what was listed; answers whether it is another list than the one before.
    pub(super) fn put(&mut self, part: Part, items: &[Value], digest: Option<Digest>) -> bool {
        let names = items.iter().filter_map(|item| item.get("name")?.as_str());
        let names = names.map(str::to_owned).collect();
        let before = self.parts.insert(part, List { digest, names });
        before.is_some_and(|before| before.digest != digest)
    }

    /// What was listed of a kind, all parts of it; none when there is nothing.
    pub(super) fn of_kind(&self, kind: ListKind) -> Option<Digest> {
        let parts = Part::ALL.into_iter().filter(|part| part.kind() == kind);
        // A part that is empty counts too: an item that moves from one to the other is a change.
        let digests: Vec<Option<Digest>> = parts
            .map(|part| self.parts.get(&part).and_then(|list| list.digest))
            .collect();
        digests.iter().any(Option::is_some).then(|| {
            let bytes: Vec<[u8; 16]> = digests
                .iter()
                .map(|digest| digest.map_or([0; 16], |digest| digest.0.to_le_bytes()))
                .collect();
            Digest::of(&bytes.iter().map(<[u8; 16]>::as_slice).collect::<Vec<_>>())
        })
    }

    /// Whether the server listed an item of that name; none when it was not asked yet.
    pub(super) fn has(&self, part: Part, name: &str) -> Option<bool> {
        self.parts.get(&part).map(|list| list.names.contains(name))
    }
}

/// The digest of a list, whatever its order; none when it is empty.
pub(super) fn digest(items: &[Value]) -> Option<Digest> {
    let mut digests: Vec<[u8; 16]> = items
        .iter()
        .map(|item| Digest::of_json(item).0.to_le_bytes())
        .collect();
    digests.sort_unstable();
    let whole: Vec<&[u8]> = digests.iter().map(<[u8; 16]>::as_slice).collect();
    (!items.is_empty()).then(|| Digest::of(&whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn order_does_not_matter_and_everything_else_does() {
        let (a, b) = (json!({ "name": "a" }), json!({ "name": "b" }));
        assert_eq!(digest(&[a.clone(), b.clone()]), digest(&[b, a.clone()]));
        assert_ne!(
            digest(std::slice::from_ref(&a)),
            digest(&[json!({ "name": "a", "description": "new" })])
        );
        assert_ne!(digest(&[a.clone(), a.clone()]), digest(&[a]));
        assert_eq!(digest(&[]), None);
    }

    #[test]
    fn resources_and_templates_are_one_kind_and_an_empty_kind_is_none() {
        let mut listed = Listed::default();
        let items = [json!({ "name": "a" })];
        assert_eq!(listed.of_kind(ListKind::Resources), None);
        assert!(!listed.put(Part::Resources, &items, digest(&items)));
        let as_resource = listed.of_kind(ListKind::Resources);
        assert!(listed.put(Part::Resources, &[], None));
        listed.put(Part::Templates, &items, digest(&items));
        assert!(as_resource.is_some());
        assert_ne!(listed.of_kind(ListKind::Resources), as_resource);
        listed.put(Part::Templates, &[], None);
        assert_eq!(listed.of_kind(ListKind::Resources), None);
        assert_eq!(listed.of_kind(ListKind::Tools), None);
        assert_eq!(listed.has(Part::Tools, "a"), None);
        assert_eq!(listed.has(Part::Templates, "a"), Some(false));
    }
}
