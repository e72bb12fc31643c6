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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::model::{Change, Limits, ListKind};

    /// A step: a number of a resource, and what happens to it.
    #[derive(Debug, Clone)]
    enum Step {
        /// A record has this body, this title and whether it is listed.
        Installed(usize, u8, u8, bool),
        Uninstalled(usize),
        /// A change is judged, and taken back.
        Judged(usize, u8, u8, bool),
        RemovalJudged(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let resource = || (0..4_usize, 0..3_u8, 0..2_u8, any::<bool>());
        prop_oneof![
            4 => resource().prop_map(|(uri, body, title, listed)| Step::Installed(uri, body, title, listed)),
            1 => (0..4_usize).prop_map(Step::Uninstalled),
            2 => resource().prop_map(|(uri, body, title, listed)| Step::Judged(uri, body, title, listed)),
            1 => (0..4_usize).prop_map(Step::RemovalJudged),
        ]
    }

    fn resource(uri: usize, body: u8, title: u8, listed: bool) -> Resource {
        let text = "x".repeat(usize::from(body));
        let resource = Resource::text(format!("demo://{uri}"), text).unwrap();
        resource.title(title.to_string()).listed(listed)
    }

    fn shared_catalog() -> Catalog {
        let mut catalog = Catalog::new(Arc::new(Limits::default()));
        catalog.record_changes();
        catalog
    }

    /// What can be seen of a catalog.
    fn seen(catalog: &Catalog) -> (String, usize, Vec<String>, [usize; 4]) {
        let listed = catalog.listed_after(None).map(ToString::to_string).collect();
        let hash = format!("{:?}", catalog.hash(ListKind::Resources));
        (hash, catalog.resources().bytes(), listed, catalog.counts())
    }

    proptest! {
        #[test]
        fn installed_resources_are_as_if_nothing_was_there_before(steps in prop::collection::vec(step(), 0..40)) {
            let mut catalog = shared_catalog();
            let mut newest = BTreeMap::new();
            let mut generation = 0;
            for step in steps {
                match step {
                    Step::Installed(uri, body, title, listed) => {
                        let installed = resource(uri, body, title, listed);
                        newest.insert(uri, installed.clone());
                        let uri = installed.uri().clone();
                        let entry = catalog.install(&uri, Some((Arc::new(installed.clone()), Owner::Api)));
                        let (entry, its_generation) = entry.unwrap();
                        prop_assert_eq!(&*entry, &installed);
                        prop_assert!(its_generation > generation);
                        generation = its_generation;
                    }
                    Step::Uninstalled(uri) => {
                        newest.remove(&uri);
                        let uri = resource(uri, 0, 0, true).uri().clone();
                        prop_assert!(catalog.install(&uri, None).is_none());
                    }
                    Step::Judged(uri, body, title, listed) => {
                        let change = Change::Upsert(resource(uri, body, title, listed));
                        catalog.apply(change, &Owner::Api).unwrap();
                        catalog.undo();
                    }
                    Step::RemovalJudged(uri) => {
                        let change = Change::Remove(resource(uri, 0, 0, true).uri().clone());
                        prop_assert_eq!(catalog.apply(change, &Owner::Api).is_ok(), newest.contains_key(&uri));
                        catalog.undo();
                    }
                }
            }
            let mut fresh = shared_catalog();
            for installed in newest.into_values() {
                fresh.install(&installed.uri().clone(), Some((Arc::new(installed), Owner::Api)));
            }
            prop_assert_eq!(seen(&catalog), seen(&fresh));
        }
    }
}
