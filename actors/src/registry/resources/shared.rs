//! The resources of a bus with a shared log, which come with its records.

use std::sync::Arc;

use super::Resources;
use crate::model::{Digest, Owner, Resource, ResourceUri};

impl Resources {
    /// Takes over a resource of a shared log. The owner and the limits are not checked, since the node that
    /// proposed it did. Returns it with its generation.
    pub(in crate::registry) fn install(
        &mut self,
        resource: Arc<Resource>,
        owner: Owner,
    ) -> (Arc<Resource>, u64) {
        let uri = resource.uri().clone();
        let before = self.take_out(&uri);
        let entry = self.new_entry(resource, owner);
        let installed = (entry.resource.clone(), entry.generation);
        self.relist(&uri, before, entry.share());
        self.entries.insert(uri, entry);
        installed
    }

    /// Drops a resource that a shared log has not, or not any more.
    pub(in crate::registry) fn uninstall(&mut self, uri: &ResourceUri) {
        let before = self.take_out(uri);
        self.relist(uri, before, None);
    }

    /// Takes the entry of `uri` out. Returns its share in the hash of the list.
    fn take_out(&mut self, uri: &ResourceUri) -> Option<Digest> {
        if let Some(durable) = &mut self.durable {
            durable.save(uri, self.entries.get(uri));
        }
        let entry = self.entries.swap_remove(uri)?;
        self.bytes -= entry.resource.held_len();
        entry.share()
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
