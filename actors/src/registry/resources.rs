//! The registered resources with their bodies, and the hash of those that are listed.

mod shared;
mod shown;

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use super::audiences::Relisted;
use super::unclaimed::Unclaimed;
use crate::messages::{Decision, Effect};
use crate::model::{Content, Digest, Limits, ListHash, Owner, PublishError, Resource, ResourceUri, UriMap};

#[derive(Debug, Clone)]
struct ResourceEntry {
    resource: Arc<Resource>,
    /// The digest of body and description; none for a lazy body.
    content: Option<Digest>,
    /// The digest of the list item, whether the resource is listed or not.
    item: Digest,
    generation: u64,
    owner: Owner,
}

impl ResourceEntry {
    /// The URI. While the description stays it is one with the key and with what was handed on before, so
    /// comparisons further down the way look at one pointer.
    fn uri(&self) -> &ResourceUri {
        self.resource.uri()
    }

    /// Returns the share in the hash of the list; none when the resource is not listed.
    fn share(&self) -> Option<Digest> {
        self.resource.descriptor().listed.then_some(self.item)
    }

    fn check_owner(&self, owner: &Owner) -> Result<(), PublishError> {
        if self.owner.yields_to(owner) {
            return Ok(());
        }
        Err(PublishError::NotOwner {
            uri: self.uri().clone(),
            owner: self.owner.clone(),
        })
    }

    fn has_content(&self, resource: &Resource, content: Option<Digest>) -> bool {
        match (self.resource.content(), resource.content()) {
            (Content::Held(_), Content::Held(_)) => self.content == content,
            // The results of readers cannot be compared; the same reader is no change.
            (Content::Lazy(before), Content::Lazy(now)) => Arc::ptr_eq(before, now),
            _ => false,
        }
    }

    fn decision(&self, effect: Effect, created: bool) -> Decision {
        Decision {
            uri: self.uri().clone(),
            effect,
            created,
            owner: self.owner.clone(),
            list: None,
            subscribable: self.resource.descriptor().subscribable,
            entry: Some((self.resource.clone(), self.generation)),
        }
    }
}

/// The resources as the store has them, as far as they differ: what readers see until the changes since then
/// are durable, and what is restored if they fail.
#[derive(Debug)]
struct Durable {
    /// Per changed URI, its entry; none if it was not registered.
    entries: UriMap<Option<ResourceEntry>>,
    hash: ListHash,
    bytes: usize,
}

impl Durable {
    /// Keeps the entry of `uri` from before its first change.
    fn save(&mut self, uri: &ResourceUri, entry: Option<&ResourceEntry>) {
        if !self.entries.contains_key(uri) {
            self.entries.insert(uri.clone(), entry.cloned());
        }
    }
}

/// The registered resources.
pub(super) struct Resources {
    entries: UriMap<ResourceEntry>,
    /// The durable state; none without a store.
    durable: Option<Durable>,
    /// The URIs of the listed ones, in order. With a store also those whose removal is not durable.
    listed: BTreeSet<ResourceUri>,
    hash: ListHash,
    /// The changes of shares that the audiences have not taken over; none without audiences.
    relisted: Option<Vec<Relisted>>,
    /// The number of contents stored so far.
    generation: u64,
    /// The size of all held bodies, in bytes.
    bytes: usize,
    /// The URIs of former lives that wait for their owners.
    pub(super) unclaimed: Unclaimed,
    /// The unclaimed URIs that made room for new resources, to be removed as changes.
    pub(super) evicted: Vec<ResourceUri>,
    limits: Arc<Limits>,
}

impl Resources {
    pub(super) fn new(limits: Arc<Limits>) -> Resources {
        Resources {
            entries: UriMap::default(),
            durable: None,
            listed: BTreeSet::new(),
            hash: ListHash::EMPTY,
            relisted: None,
            generation: 0,
            bytes: 0,
            unclaimed: Unclaimed::default(),
            evicted: Vec::new(),
            limits,
        }
    }

    /// The sum of the digests of the listed resources.
    pub(super) fn hash(&self) -> ListHash {
        self.hash
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The size of all held bodies, in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns a resource as it is visible: with a store, without the changes that are not durable.
    pub(super) fn get(&self, uri: &ResourceUri) -> Option<&Arc<Resource>> {
        let mut entry = self.entries.get(uri);
        if let Some(durable) = &self.durable
            && let Some(before) = durable.entries.get(uri)
        {
            entry = before.as_ref();
        }
        entry.map(|entry| &entry.resource)
    }

    pub(super) fn generation(&self, uri: &ResourceUri) -> Option<u64> {
        self.entries.get(uri).map(|entry| entry.generation)
    }

    /// The URIs after this one that are listed, or were before the changes that are not durable, in order.
    pub(super) fn after(&self, uri: Option<&str>) -> impl Iterator<Item = &ResourceUri> {
        let start = match uri {
            Some(uri) => Bound::Excluded(uri),
            None => Bound::Unbounded,
        };
        self.listed.range::<str, _>((start, Bound::Unbounded))
    }

    /// Takes the changes of shares since the last call. The first call begins to note them.
    pub(super) fn take_relisted(&mut self) -> Vec<Relisted> {
        std::mem::take(self.relisted.get_or_insert_default())
    }

    /// Keeps what each change replaces until [`keep`](Self::keep) or [`undo`](Self::undo) is called.
    pub(super) fn record_changes(&mut self) {
        self.durable = Some(Durable {
            entries: UriMap::default(),
            hash: self.hash,
            bytes: self.bytes,
        });
        self.unclaimed.record_changes();
    }

    /// Takes over the changes since the last call: they are durable.
    pub(super) fn keep(&mut self) {
        if let Some(durable) = &mut self.durable {
            durable.hash = self.hash;
            durable.bytes = self.bytes;
            let changed = std::mem::take(&mut durable.entries);
            for (uri, before) in changed {
                self.list_again(uri, before.as_ref());
            }
        }
        self.unclaimed.keep();
    }

    /// Takes back the changes since the last call of [`keep`](Self::keep): the store could not keep them.
    pub(super) fn undo(&mut self) {
        if let Some(durable) = &mut self.durable {
            self.hash = durable.hash;
            self.bytes = durable.bytes;
            let changed = std::mem::take(&mut durable.entries);
            for (uri, before) in changed {
                if let Some(relisted) = &mut self.relisted {
                    relisted.push(Relisted {
                        before: share_of(self.entries.get(&uri)),
                        now: share_of(before.as_ref()),
                        uri: uri.clone(),
                    });
                }
                // Generations are not taken back, so that no later change gets that of a refused one.
                let undone = match before {
                    Some(entry) => self.entries.insert(uri.clone(), entry),
                    // The order of the entries does not count, and closing the gap would take them all.
                    None => self.entries.swap_remove(&uri),
                };
                self.list_again(uri, undone.as_ref());
            }
        }
        self.unclaimed.undo();
    }

    /// Corrects whether `uri` is listed, which had another entry before.
    fn list_again(&mut self, uri: ResourceUri, other: Option<&ResourceEntry>) {
        let is_listed = share_of(self.entries.get(&uri)).is_some();
        match (is_listed, share_of(other).is_some()) {
            // It stood in the list all the time. Finding its place among many costs more than all the rest.
            (true, true) => {}
            (true, false) => {
                self.listed.insert(uri);
            }
            (false, _) => {
                self.listed.remove(&uri);
            }
        }
    }

    /// Checks that `owner` may change the resource of this URI, if there is one.
    ///
    /// # Errors
    /// [`PublishError::NotOwner`].
    pub(super) fn check_owner(&self, uri: &ResourceUri, owner: &Owner) -> Result<(), PublishError> {
        match self.entries.get(uri) {
            Some(entry) => entry.check_owner(owner),
            None => Ok(()),
        }
    }

    /// Creates a resource.
    pub(super) fn register(&mut self, resource: Resource, owner: &Owner) -> Result<Decision, PublishError> {
        let Some(entry) = self.entries.get(resource.uri()) else {
            return self.create(resource, owner);
        };
        // Another's resource cannot be replaced either, so the owner is the more useful answer.
        entry.check_owner(owner)?;
        Err(PublishError::AlreadyExists(resource.uri().clone()))
    }

    /// Adds a resource that a store kept. Returns it with its generation.
    pub(super) fn restore(&mut self, resource: Resource, owner: Owner) -> (Arc<Resource>, u64) {
        let entry = self.new_entry(Arc::new(resource), owner);
        let uri = entry.uri().clone();
        let restored = entry.resource.clone();
        let generation = entry.generation;
        self.relist(&uri, None, entry.share());
        self.entries.insert(uri, entry);
        (restored, generation)
    }

    /// Creates or replaces a resource.
    pub(super) fn upsert(&mut self, resource: Resource, owner: &Owner) -> Result<Decision, PublishError> {
        if self.entries.contains_key(resource.uri()) {
            self.update(resource, owner)
        } else {
            self.create(resource, owner)
        }
    }

    /// Replaces a resource.
    pub(super) fn update(&mut self, mut resource: Resource, owner: &Owner) -> Result<Decision, PublishError> {
        let Some(entry) = self.entries.get_mut(resource.uri()) else {
            return Err(PublishError::NotFound(resource.uri().clone()));
        };
        entry.check_owner(owner)?;
        check_len(&resource, self.limits.body_bytes_max)?;
        let bytes = self.bytes - entry.resource.held_len() + resource.held_len();
        check_bytes(bytes, self.bytes, self.limits.bytes_max)?;
        if let Some(durable) = &mut self.durable {
            durable.save(entry.uri(), Some(entry));
        }
        let before = entry.share();
        // A digest costs more than this comparison, and most updates change the body alone.
        let described = !resource.share_descriptor(&entry.resource);
        if described {
            entry.item = resource.descriptor().digest();
        }
        let content = resource.digest_with(entry.item);
        let mut effect = Effect::Unchanged;
        // A new description is a new version too: an etag that outlived it would let a writer that never saw
        // it replace it.
        if described || !entry.has_content(&resource, content) {
            self.generation += 1;
            entry.content = content;
            entry.generation = self.generation;
            effect = Effect::Stored(content);
        }
        entry.resource = Arc::new(resource);
        if entry.owner != *owner {
            entry.owner = owner.clone();
        }
        let share = entry.share();
        let decision = entry.decision(effect, false);
        self.bytes = bytes;
        self.relist(&decision.uri, before, share);
        Ok(decision)
    }

    fn create(&mut self, resource: Resource, owner: &Owner) -> Result<Decision, PublishError> {
        if let Some(other) = self.unclaimed.other_owner(resource.uri(), owner) {
            return Err(PublishError::NotOwner {
                uri: resource.uri().clone(),
                owner: other.clone(),
            });
        }
        check_len(&resource, self.limits.body_bytes_max)?;
        check_bytes(
            self.bytes + resource.held_len(),
            self.bytes,
            self.limits.bytes_max,
        )?;
        let max = self.limits.resources_max;
        if self.entries.len() >= max {
            let what = "resources";
            return Err(PublishError::TooMany { what, max });
        }
        self.unclaimed.take(resource.uri());
        if self.entries.len() + self.unclaimed.len() >= max {
            // What no owner wants any more makes room for what one publishes.
            self.evicted.extend(self.unclaimed.take_oldest());
        }
        if let Some(durable) = &mut self.durable {
            durable.save(resource.uri(), None);
        }
        let entry = self.new_entry(Arc::new(resource), owner.clone());
        let decision = entry.decision(Effect::Stored(entry.content), true);
        self.relist(&decision.uri, None, entry.share());
        self.entries.insert(decision.uri.clone(), entry);
        Ok(decision)
    }

    /// Counts a new resource and makes its entry.
    fn new_entry(&mut self, resource: Arc<Resource>, owner: Owner) -> ResourceEntry {
        self.generation += 1;
        self.bytes += resource.held_len();
        let item = resource.descriptor().digest();
        ResourceEntry {
            content: resource.digest_with(item),
            item,
            generation: self.generation,
            resource,
            owner,
        }
    }

    /// Moves a resource to a new generation; none if it is not registered.
    ///
    /// # Errors
    /// [`PublishError::NotOwner`].
    pub(super) fn touch(
        &mut self,
        uri: &ResourceUri,
        owner: &Owner,
    ) -> Result<Option<Decision>, PublishError> {
        let Some(entry) = self.entries.get_mut(uri) else {
            return Ok(None);
        };
        entry.check_owner(owner)?;
        if let Some(durable) = &mut self.durable {
            durable.save(uri, Some(entry));
        }
        self.generation += 1;
        entry.generation = self.generation;
        Ok(Some(entry.decision(Effect::Touched(entry.content), false)))
    }

    /// Removes a resource.
    pub(super) fn remove(&mut self, uri: ResourceUri, owner: &Owner) -> Result<Decision, PublishError> {
        let Some(entry) = self.entries.get(&uri) else {
            return Err(PublishError::NotFound(uri));
        };
        entry.check_owner(owner)?;
        let share = entry.share();
        self.bytes -= entry.resource.held_len();
        if let Some(durable) = &mut self.durable {
            durable.save(&uri, Some(entry));
        }
        // Pages come from the ordered set of URIs, not from this map.
        self.entries.swap_remove(&uri);
        self.relist(&uri, share, None);
        Ok(Decision {
            uri,
            effect: Effect::Removed,
            created: false,
            owner: owner.clone(),
            list: None,
            subscribable: true,
            entry: None,
        })
    }

    /// Replaces the share of `uri` in the list.
    fn relist(&mut self, uri: &ResourceUri, before: Option<Digest>, now: Option<Digest>) {
        if before == now {
            return;
        }
        if let Some(relisted) = &mut self.relisted {
            let uri = uri.clone();
            relisted.push(Relisted { uri, before, now });
        }
        if let Some(item) = before {
            self.hash = self.hash.without(item);
        }
        if let Some(item) = now {
            self.hash = self.hash.with(item);
            self.listed.insert(uri.clone());
        } else if self.durable.is_none() {
            self.listed.remove(uri);
        }
    }
}

/// Returns the share of an entry in the hash of the list.
fn share_of(entry: Option<&ResourceEntry>) -> Option<Digest> {
    entry?.share()
}

fn check_len(resource: &Resource, max: usize) -> Result<(), PublishError> {
    let len = resource.held_len();
    if len > max {
        let uri = resource.uri().clone();
        return Err(PublishError::BodyTooLarge { uri, len, max });
    }
    Ok(())
}

/// Checks the size of all bodies. One that does not grow is accepted, so that a lower limit can be reached.
fn check_bytes(len: usize, before: usize, max: usize) -> Result<(), PublishError> {
    if len > max && len > before {
        return Err(PublishError::BytesFull { len, max });
    }
    Ok(())
}
