//! The judgement of a change on what this node has applied.

use std::time::Instant;

use super::{Intent, Judgement, SharedOrder, Wish, unavailable};
use crate::messages::Decision;
use crate::model::Line;
use crate::model::{Change, Content, Outcome, Owner, PublishError, ResourceUri};
use crate::registry::Registry;
use crate::shared_log::{LoggedResource, OperationId};

impl Registry {
    /// Judges a change, and changes nothing.
    pub(super) fn judge(&mut self, intent: &Intent) -> Result<Judgement, PublishError> {
        if Instant::now() >= intent.expires {
            return Err(unavailable(false, "the changes before it took too long"));
        }
        match &intent.wish {
            Wish::Change(change) => {
                self.check(change, &intent.condition, &intent.owner)?;
                let decided = self.catalog.apply(change.clone(), &intent.owner);
                // The record makes the change when it is heard, as it does at every other node.
                self.catalog.undo();
                self.judge_decision(decided?, intent)
            }
            Wish::Member(uri, template) => match self.catalog.changed_member(uri.clone(), template) {
                Some(decision) => self.judge_decision(decision, intent),
                None => Ok(unchanged(self.shared.as_deref(), uri)),
            },
            Wish::Restate(uri) => Ok(self.judge_restatement(uri, intent)),
        }
    }

    fn judge_decision(&mut self, decision: Decision, intent: &Intent) -> Result<Judgement, PublishError> {
        let Some(shared) = &mut self.shared else {
            return Err(unavailable(false, "this bus has no log"));
        };
        let (line, stamped) = shared.ledger.try_make(&decision, intent.now);
        let changed = stamped.cause.is_some() || decision.list.is_some();
        let outcome = Outcome {
            etag: stamped.etag,
            changed,
            created: decision.created,
            notified: 0,
        };
        let Some(line) = line.filter(|_| changed || stamped.claimed) else {
            return Ok(Judgement::Unchanged(outcome));
        };
        let resource = decision.entry.map(|(resource, _)| resource);
        let held = resource.clone();
        let held = held.filter(|resource| matches!(resource.content(), Content::Held(_)));
        Ok(Judgement::Proposed {
            logged: Box::new(LoggedResource {
                former: shared.former(&decision.uri),
                uri: decision.uri,
                line: Line { offset: 0, ..line },
                resource: held,
                announces: intent.announces,
            }),
            outcome,
            resource,
        })
    }
}

/// The judgement of a change that alters nothing.
pub(super) fn unchanged(shared: Option<&SharedOrder>, uri: &ResourceUri) -> Judgement {
    Judgement::Unchanged(Outcome {
        etag: shared.map(|shared| shared.etag(uri)).unwrap_or_default(),
        changed: false,
        created: false,
        notified: 0,
    })
}

impl SharedOrder {
    /// The proposals that the next record of `uri` names.
    pub(super) fn former(&self, uri: &ResourceUri) -> Vec<OperationId> {
        match self.places.get(uri) {
            Some(place) => place.operations.clone(),
            None => Vec::new(),
        }
    }

    /// Notes that an owner has published a URI at this node.
    pub(super) fn note_published(&mut self, intent: &Intent) {
        let Wish::Change(change) = &intent.wish else {
            return;
        };
        if intent.owner == Owner::Api {
            return;
        }
        let published = self.published.entry(intent.owner.clone()).or_default();
        match change {
            Change::Remove(uri) => published.remove(uri),
            change => published.insert(change.uri().clone()),
        };
    }

    /// Returns true if `owner` has published `uri` at this node.
    pub(super) fn has_published(&self, owner: &Owner, uri: &ResourceUri) -> bool {
        match self.published.get(owner) {
            Some(published) => published.contains(uri),
            None => false,
        }
    }
}
