//! Telling the bus what a document came to.
//!
//! Owns: what this collection has on the bus, and nothing else there. One document is one pass: what is new or another
//! is published, what has vanished is removed. The bus decides by digest what its subscribers are told. Used by the
//! task; never looks at the file.

use super::document::{Built, Shown, Spec};
use crate::metrics::{self, Source};
use futures_util::future::join_all;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use tidings_actors::{Body, Bus, Closed, Content, Descriptor, PublishError, Resource, ResourceUri};

/// Changes sent to the bus at once.
const PORTION: usize = 64;

/// Where each item is in the list of all, as of the last document; the tools look there first.
#[derive(Debug, Clone, Default)]
pub(super) struct Index(Arc<RwLock<Arc<HashMap<String, usize>>>>);

impl Index {
    /// The place of the item with this id.
    pub(super) fn place(&self, id: &str) -> Option<usize> {
        let index = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        index.get(id).copied()
    }

    fn set(&self, index: HashMap<String, usize>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(index);
    }
}

/// What is on the bus.
#[derive(Debug)]
pub(super) struct ViewPublisher {
    bus: Bus,
    spec: Arc<Spec>,
    index: Index,
    shown: BTreeMap<ResourceUri, Shown>,
    /// Whether somebody was told that there are values without a resource.
    omitting: bool,
    /// Whether somebody was told that the bus refuses something.
    refused: bool,
}

impl ViewPublisher {
    /// A publisher that has published nothing.
    pub(super) fn new(bus: Bus, spec: Arc<Spec>, index: Index) -> ViewPublisher {
        ViewPublisher {
            bus,
            spec,
            index,
            shown: BTreeMap::new(),
            omitting: false,
            refused: false,
        }
    }

    /// Views on the bus.
    pub(super) fn views(&self) -> usize {
        self.shown.len()
    }

    /// Whether something the bus refused is to be tried again.
    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Forgets what is on the bus, so that the next document puts right what others did to it.
    pub(super) fn distrust(&mut self) {
        for shown in self.shown.values_mut() {
            shown.text = Arc::from("");
        }
    }

    /// Makes the bus show this document; answers how many views the bus found changed, new or gone.
    pub(super) async fn apply(&mut self, built: Built) -> Result<usize, Closed> {
        self.report_omitted(built.omitted);
        // Before the views, which may not be found without it; after them it might lead to the wrong item, which the
        // tools notice.
        self.index.set(built.index);
        let gone: Vec<_> = self
            .shown
            .keys()
            .filter(|uri| !built.views.contains_key(*uri))
            .cloned()
            .collect();
        let new: Vec<_> = built
            .views
            .into_iter()
            .filter(|(uri, shown)| self.shown.get(uri) != Some(shown))
            .collect();
        let mut refusal = None;
        // Removed first: at the limit, that makes room.
        let mut changed = self.remove(gone).await?;
        for portion in new.chunks(PORTION) {
            let upserts = portion
                .iter()
                .map(|(uri, shown)| self.bus.upsert(resource(uri, shown)));
            for ((uri, shown), outcome) in portion.iter().zip(join_all(upserts).await) {
                match outcome {
                    Ok(outcome) => {
                        changed += usize::from(outcome.changed);
                        self.shown.insert(uri.clone(), shown.clone());
                    }
                    Err(PublishError::Closed(closed)) => return Err(closed),
                    Err(error) => refusal = Some(error),
                }
            }
        }
        self.report_refused(refusal.as_ref());
        Ok(changed)
    }

    async fn remove(&mut self, gone: Vec<ResourceUri>) -> Result<usize, Closed> {
        let mut removed = 0;
        for portion in gone.chunks(PORTION) {
            for outcome in join_all(portion.iter().map(|uri| self.bus.remove(uri))).await {
                match outcome {
                    Ok(_) => removed += 1,
                    Err(PublishError::Closed(closed)) => return Err(closed),
                    // Somebody else removed it: it is gone, which is what was wanted.
                    Err(error) => tracing::debug!(%error, "could not remove a view"),
                }
            }
            for uri in portion {
                self.shown.remove(uri);
            }
        }
        Ok(removed)
    }

    fn report_omitted(&mut self, omitted: usize) {
        if omitted > 0 && !self.omitting {
            let collection = &self.spec.name;
            tracing::warn!(
                collection,
                omitted,
                "values too long for a URI have no view of their own; shorten them"
            );
        }
        self.omitting = omitted > 0;
    }

    fn report_refused(&mut self, refusal: Option<&PublishError>) {
        if let Some(error) = refusal.filter(|_| !self.refused) {
            let collection = &self.spec.name;
            metrics::source_failed(Source::Collection);
            tracing::warn!(collection, %error, "the bus refused a view; it is tried again");
        }
        self.refused = refusal.is_some();
    }
}

fn resource(uri: &ResourceUri, shown: &Shown) -> Resource {
    let descriptor = Descriptor {
        name: shown.name.clone(),
        title: Some(shown.title.clone()),
        description: Some(shown.description.clone()),
        media_type: Some("application/json".to_owned()),
        ..Descriptor::new(uri.clone())
    };
    Resource::new(descriptor, Content::Held(Body::text(shown.text.clone())))
}
