//! What may be read without asking the actors: the etag of every registered resource, and whether the tools changed.
//!
//! Owns: a copy of those etags. Never: decides anything, or knows a version before its publisher and its subscribers
//! may. Written by the Etag actor alone, in the order of the bus, at the moment in which a version becomes visible:
//! durable where there is a store, and before anybody is told of it; the Registry counts changes of tools. Read by any
//! thread, which waits for nothing longer than one insertion.
//!
//! An entry takes 32 bytes beside the text of its URI, which it shares with the ledger; with the spare room of a hash
//! map 38 to 76. There is one per registered resource, so at most `resources_max`.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use crate::model::{Etag, ResourceUri, UriHashState, UriMap};

/// Parts of the map, each with a lock of its own, so that those who read seldom meet the one who writes.
const PARTS: usize = 16;

/// The etags that may be shown.
#[derive(Debug, Default)]
pub(crate) struct EtagIndex {
    parts: [RwLock<UriMap<Etag>>; PARTS],
    /// Chooses the part of a URI.
    hash: UriHashState,
    /// How often the tools changed.
    tool_changes: AtomicU64,
}

impl EtagIndex {
    fn part(&self, uri: &str) -> &RwLock<UriMap<Etag>> {
        &self.parts[self.hash.hash_one(uri) as usize % PARTS]
    }

    /// From now on `uri` shows this etag; with none it shows nothing.
    pub(crate) fn show(&self, uri: &ResourceUri, etag: Option<Etag>) {
        let part = self.part(uri.as_str());
        let mut part = part.write().unwrap_or_else(PoisonError::into_inner);
        match etag {
            Some(etag) => drop(part.insert(uri.clone(), etag)),
            None => drop(part.remove(uri)),
        }
    }

    /// The etag of `uri`, if it is registered.
    pub(crate) fn etag(&self, uri: &str) -> Option<Etag> {
        let part = self.part(uri).read().unwrap_or_else(PoisonError::into_inner);
        part.get(uri).copied()
    }

    /// The tools are other ones now.
    pub(crate) fn tools_changed(&self) {
        self.tool_changes.fetch_add(1, Ordering::Release);
    }

    /// How often the tools changed so far.
    pub(crate) fn tool_changes(&self) -> u64 {
        self.tool_changes.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_shows_its_last_etag_until_it_is_removed() {
        let etag_index = EtagIndex::default();
        let etag = |version| Etag {
            version,
            updated_at: 7,
        };
        let uris: Vec<ResourceUri> = (0..100)
            .map(|n| ResourceUri::new(&format!("demo://{n}")).unwrap())
            .collect();
        for (version, uri) in (1..).zip(&uris) {
            etag_index.show(uri, Some(etag(1)));
            etag_index.show(uri, Some(etag(version)));
        }
        for (version, uri) in (1..).zip(&uris) {
            assert_eq!(etag_index.etag(uri.as_str()), Some(etag(version)));
            etag_index.show(uri, None);
            assert_eq!(etag_index.etag(uri.as_str()), None);
        }
        assert!(
            etag_index
                .parts
                .iter()
                .all(|part| part.read().unwrap().is_empty())
        );
    }
}
