//! Publishing the views of a document, and removing those that it no longer has.

use super::document::{CollectionSpec, View, Views};
use crate::metrics::{self, Source};
use crate::source::{SourceBurst, SourceTurn};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use tidings_actors::{Body, Bus, Closed, Content, Descriptor, PublishError, Resource, ResourceUri};

/// The position of each item in the view `all` of the last document, by id. The tools use it as a hint.
#[derive(Debug, Clone, Default)]
pub(super) struct ItemPositions(Arc<RwLock<Arc<HashMap<String, usize>>>>);

impl ItemPositions {
    /// Returns the position of the item with this id.
    pub(super) fn get(&self, id: &str) -> Option<usize> {
        // Cloned, so that the lock is not held while a large map is searched or replaced.
        let positions = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        positions.get(id).copied()
    }

    fn set(&self, positions: HashMap<String, usize>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(positions);
    }
}

/// Publishes the views of one collection.
#[derive(Debug)]
pub(super) struct ViewPublisher {
    bus: Bus,
    spec: Arc<CollectionSpec>,
    positions: ItemPositions,
    turn: SourceTurn,
    /// The views on the bus.
    published: BTreeMap<ResourceUri, View>,
    /// True if values without a resource of their own were reported.
    omitted: bool,
    /// True if a view that the bus refused was reported.
    refused: bool,
}

impl ViewPublisher {
    /// Returns a publisher that has published nothing.
    pub(super) fn new(
        bus: Bus,
        spec: Arc<CollectionSpec>,
        positions: ItemPositions,
        turn: SourceTurn,
    ) -> ViewPublisher {
        ViewPublisher {
            bus,
            spec,
            positions,
            turn,
            published: BTreeMap::new(),
            omitted: false,
            refused: false,
        }
    }

    /// Returns the number of views on the bus.
    pub(super) fn views(&self) -> usize {
        self.published.len()
    }

    /// Returns true if the bus refused a view of the last document.
    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Makes the next document be published in full, which restores views that others changed on the bus.
    pub(super) fn distrust(&mut self) {
        for view in self.published.values_mut() {
            // No view has an empty text, so each one counts as changed.
            view.text = Arc::from("");
        }
    }

    /// Removes the views of a former life, or of another node, that were not published again.
    pub(super) async fn remove_unclaimed(&self) -> Result<(), Closed> {
        if self.turn.is_shared() {
            self.remove_strangers().await?;
        }
        let removed = self.bus.remove_unclaimed().await?;
        if removed > 0 {
            tracing::info!(
                collection = self.spec.name,
                removed,
                "views that ended while the service was down are removed"
            );
        }
        Ok(())
    }

    /// Removes the views that the document does not have, which another node published.
    async fn remove_strangers(&self) -> Result<(), Closed> {
        let scheme = format!("{}://", self.spec.name);
        let mut strangers = Vec::new();
        for (resource, _) in self.bus.resources_by_change()? {
            let uri = resource.uri();
            if uri.as_str().starts_with(&scheme) && !self.published.contains_key(uri) {
                strangers.push(uri.clone());
            }
        }
        let burst = SourceBurst::new(&self.bus, &self.turn);
        // Those of other owners are refused, and stay.
        burst.remove_all(&strangers).await?;
        burst.finish().await
    }

    /// Publishes a document, and returns the number of views that the bus found new, changed or gone.
    pub(super) async fn publish(&mut self, views: Views) -> Result<usize, Closed> {
        self.report_omitted(views.omitted);
        // Set before the views are published: an item of a new view must be found. The tools
        // notice a position that belongs to the other version of the view, and search.
        self.positions.set(views.positions);
        let mut removed = Vec::new();
        for uri in self.published.keys() {
            if !views.views.contains_key(uri) {
                removed.push(uri.clone());
            }
        }
        let mut changed = Vec::new();
        for (uri, view) in views.views {
            if self.published.get(&uri) != Some(&view) {
                changed.push((uri, view));
            }
        }
        // Removed first, which makes room when the bus is at its limit.
        let burst = SourceBurst::new(&self.bus, &self.turn);
        let mut count = burst.remove_all(&removed).await?;
        for uri in &removed {
            self.published.remove(uri);
        }
        let resources = changed.iter().map(|(uri, view)| resource(uri, view)).collect();
        let mut refusal = None;
        let outcomes = burst.upsert_all(resources).await?;
        burst.finish().await?;
        for ((uri, view), outcome) in std::iter::zip(changed, outcomes) {
            match outcome {
                Ok(changed) => {
                    count += usize::from(changed);
                    self.published.insert(uri, view);
                }
                Err(error) => refusal = Some(error),
            }
        }
        self.report_refused(refusal.as_ref());
        Ok(count)
    }

    fn report_omitted(&mut self, omitted: usize) {
        if omitted > 0 && !self.omitted {
            tracing::warn!(
                collection = self.spec.name,
                omitted,
                "values too long for a URI have no view of their own; shorten them"
            );
        }
        self.omitted = omitted > 0;
    }

    fn report_refused(&mut self, refusal: Option<&PublishError>) {
        if let Some(error) = refusal
            && !self.refused
        {
            metrics::source_failed(Source::Collection);
            tracing::warn!(collection = self.spec.name, %error, "the bus refused a view; it is tried again");
        }
        self.refused = refusal.is_some();
    }
}

fn resource(uri: &ResourceUri, view: &View) -> Resource {
    let descriptor = Descriptor {
        name: view.name.clone(),
        title: Some(view.title.clone()),
        description: Some(view.description.clone()),
        media_type: Some("application/json".into()),
        ..Descriptor::new(uri.clone())
    };
    Resource::new(descriptor, Content::Held(Body::text(view.text.clone())))
}
