//! The registered resources with their etags, as any thread reads them without asking the actors.
//!
//! The Etag actor writes an entry at the moment a version becomes visible: after the store has it, before
//! its publisher is answered and before any subscriber is notified. An entry has the body together with its
//! etag, so a read of both needs no actor. Readers wait for nothing longer than one insertion.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use crate::messages::IndexedResource;
use crate::model::{Etag, ResourceUri, UriHashState, UriMap};

/// The parts of the map, each with a lock of its own, so that readers seldom meet the writer.
const PARTS: usize = 16;

type Part = UriMap<IndexedResource>;

/// The resources and etags that may be seen.
#[derive(Debug, Default)]
pub(crate) struct EtagIndex {
    parts: [RwLock<Part>; PARTS],
    /// Chooses the part of a URI.
    hash: UriHashState,
    /// The number of changes of the tools.
    tool_changes: AtomicU64,
}

impl EtagIndex {
    fn lock_of(&self, uri: &str) -> &RwLock<Part> {
        &self.parts[self.hash.hash_one(uri) as usize % PARTS]
    }

    fn part(&self, uri: &str) -> RwLockReadGuard<'_, Part> {
        self.lock_of(uri).read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the entry of `uri`, or removes it.
    pub(crate) fn set(&self, uri: ResourceUri, entry: Option<IndexedResource>) {
        let mut part = self
            .lock_of(uri.as_str())
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let before = match entry {
            Some(entry) => part.insert(uri, entry),
            // Not in order: readers wait for this lock.
            None => part.swap_remove(&uri),
        };
        // The old body may be large, and readers need not wait until it is freed.
        drop(part);
        drop(before);
    }

    /// The etag of a registered resource.
    pub(crate) fn etag(&self, uri: &str) -> Option<Etag> {
        self.part(uri).get(uri).map(|entry| entry.etag)
    }

    /// A registered resource with its etag.
    pub(crate) fn get(&self, uri: &str) -> Option<IndexedResource> {
        self.part(uri).get(uri).cloned()
    }

    /// All entries, in no order. Each part is locked for its own copy alone.
    pub(crate) fn all(&self) -> Vec<IndexedResource> {
        let mut all = Vec::new();
        for part in &self.parts {
            let part = part.read().unwrap_or_else(PoisonError::into_inner);
            all.extend(part.values().cloned());
        }
        all
    }

    /// The etag of a registered resource at this generation; none while a change of it is on its way.
    pub(crate) fn etag_at(&self, uri: &str, generation: u64) -> Option<Etag> {
        match self.part(uri).get(uri) {
            Some(entry) if entry.generation == generation => Some(entry.etag),
            _ => None,
        }
    }

    /// Counts a change of the tools.
    pub(crate) fn tools_changed(&self) {
        self.tool_changes.fetch_add(1, Ordering::Release);
    }

    /// The number of changes of the tools so far.
    pub(crate) fn tool_changes(&self) -> u64 {
        self.tool_changes.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Resource;
    use std::sync::Arc;

    fn entry(uri: &ResourceUri, version: u64) -> IndexedResource {
        IndexedResource {
            resource: Arc::new(Resource::text(uri, "x").unwrap()),
            etag: Etag {
                version,
                updated_at: 7,
                life: 0,
            },
            generation: version,
        }
    }

    #[test]
    fn entry_stays_until_replaced_or_removed() {
        let index = EtagIndex::default();
        let uris: Vec<ResourceUri> = (0..100)
            .map(|n| ResourceUri::new(&format!("demo://{n}")).unwrap())
            .collect();
        for (version, uri) in (1..).zip(&uris) {
            index.set(uri.clone(), Some(entry(uri, 1)));
            index.set(uri.clone(), Some(entry(uri, version)));
        }
        for (version, uri) in (1..).zip(&uris) {
            assert_eq!(index.etag(uri.as_str()).unwrap().version, version);
            assert_eq!(index.get(uri.as_str()).unwrap().resource.uri(), uri);
            index.set(uri.clone(), None);
            assert_eq!(index.etag(uri.as_str()), None);
        }
        assert!(index.parts.iter().all(|part| part.read().unwrap().is_empty()));
    }

    #[test]
    fn etag_of_another_generation_is_unknown() {
        let index = EtagIndex::default();
        let uri = ResourceUri::new("demo://a").unwrap();
        index.set(uri.clone(), Some(entry(&uri, 2)));
        assert_eq!(index.etag_at("demo://a", 2).unwrap().version, 2);
        assert_eq!(index.etag_at("demo://a", 3), None);
    }
}
