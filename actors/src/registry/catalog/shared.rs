//! The catalog of a bus with a shared log: resources come with its records.

use std::sync::Arc;

use super::Catalog;
use crate::model::{Owner, Resource, ResourceUri};

impl Catalog {
    /// Takes over a resource of a shared log, or drops it if there is none. Returns the registered resource
    /// and its generation.
    pub(crate) fn install(
        &mut self,
        uri: &ResourceUri,
        resource: Option<(Arc<Resource>, Owner)>,
    ) -> Option<(Arc<Resource>, u64)> {
        let installed = match resource {
            Some((resource, owner)) => Some(self.resources.install(resource, owner)),
            None => {
                self.resources.uninstall(uri);
                None
            }
        };
        self.resources.keep();
        installed
    }

    /// Returns the registered resource and its owner.
    pub(crate) fn owned(&self, uri: &ResourceUri) -> Option<(&Arc<Resource>, &Owner)> {
        self.resources.owned(uri)
    }

    /// The URIs of the resources of `owner`, in no order.
    pub(crate) fn of_owner(&self, owner: &Owner) -> impl Iterator<Item = &ResourceUri> {
        self.resources.of_owner(owner)
    }
}
