//! The resources of a bus with a shared log, which come with its records.

use std::sync::Arc;

use super::Resources;
use crate::model::{Digest, Owner, Resource, ResourceUri};

impl Resources {
    /// Takes over a resource of a shared log. The owner and the limits are not checked, since the node that
    /// proposed it did. Returns it with its generation.
    ///
    /// A judgement is taken back before the next record is heard, so there is nothing to keep beside it.
    pub(in crate::registry) fn install(
        &mut self,
        mut resource: Arc<Resource>,
        owner: Owner,
    ) -> (Arc<Resource>, u64) {
        let Some(entry) = self.entries.get_mut(resource.uri()) else {
            let uri = resource.uri().clone();
            let entry = self.new_entry(resource, owner);
            let installed = (entry.resource.clone(), entry.generation);
            self.relist(&uri, None, entry.share());
            self.entries.insert(uri, entry);
            return installed;
        };
        let before = entry.share();
        // A record has a description of its own; most changes leave it as it was, and its digest costs more.
        let is_described = match Arc::get_mut(&mut resource) {
            Some(resource) => !resource.share_descriptor(&entry.resource),
            None => true,
        };
        if is_described {
            entry.item = resource.descriptor().digest();
        }
        self.generation += 1;
        self.bytes = self.bytes - entry.resource.held_len() + resource.held_len();
        entry.generation = self.generation;
        entry.content = resource.digest_with(entry.item);
        entry.owner = owner;
        entry.resource = resource;
        let installed = (entry.resource.clone(), entry.generation);
        let uri = entry.uri().clone();
        let now = entry.share();
        self.relist_heard(&uri, before, now);
        installed
    }

    /// Drops a resource that a shared log has not, or not any more.
    pub(in crate::registry) fn uninstall(&mut self, uri: &ResourceUri) {
        let Some(entry) = self.entries.swap_remove(uri) else {
            return;
        };
        self.bytes -= entry.resource.held_len();
        self.relist_heard(uri, entry.share(), None);
    }

    /// Replaces the share of `uri` in the list, for good.
    fn relist_heard(&mut self, uri: &ResourceUri, before: Option<Digest>, now: Option<Digest>) {
        self.relist(uri, before, now);
        if let (Some(_), None) = (before, now) {
            self.listed.remove(uri);
        }
    }

    /// Returns the registered resource and its owner.
    pub(in crate::registry) fn owned(&self, uri: &ResourceUri) -> Option<(&Arc<Resource>, &Owner)> {
        let entry = self.entries.get(uri)?;
        Some((&entry.resource, &entry.owner))
    }

    /// The URIs of the resources of `owner`, in no order.
    pub(in crate::registry) fn of_owner(&self, owner: &Owner) -> impl Iterator<Item = &ResourceUri> {
        let entries = self.entries.iter();
        entries
            .filter(move |(_, entry)| entry.owner == *owner)
            .map(|(uri, _)| uri)
    }
}
