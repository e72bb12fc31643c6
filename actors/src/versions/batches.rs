//! Batches of changes: their versions are given in one turn.

use super::EtagActor;
use super::release::{ChangeEffect, Release, ReleasedChanges};
use crate::messages::DecidedChanges;

impl EtagActor {
    /// Gives the changes of a batch their versions. Their records are written in one step of the store,
    /// because all of them are queued in one turn.
    pub(super) fn change_many(&mut self, changes: DecidedChanges) {
        let DecidedChanges {
            decisions,
            list,
            now,
            reply,
        } = changes;
        let mut results = Vec::with_capacity(decisions.len());
        let mut effects = Vec::with_capacity(decisions.len());
        for decision in decisions {
            let decision = match decision {
                Ok(decision) => decision,
                Err(error) => {
                    results.push(Err(error));
                    continue;
                }
            };
            let (outcome, stamped) = self.stamp_change(&decision, now, reply.at());
            let indexed = decision.into_indexed(outcome.etag);
            effects.push((results.len(), ChangeEffect { indexed, stamped }));
            results.push(Ok(outcome));
        }
        // After all changes, so that a subscriber that reads the list on its notice finds every one of them.
        let list = list.map(|(kind, hash)| self.place_list(kind, hash));
        self.waiting.push(Release::Changes(ReleasedChanges {
            results,
            effects,
            list,
            reply,
        }));
    }
}
