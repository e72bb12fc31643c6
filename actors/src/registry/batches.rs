//! Batches of changes, and bursts of several batches: each changes the resource list at most once.

use super::Registry;
use crate::messages::{AnnounceList, DecidedChanges, EtagRequest, MembersChanged, PublishMany};
use crate::model::{ListKind, ListOutcome};

impl Registry {
    /// Decides the changes of a batch, in order.
    pub(super) fn publish_many(&mut self, publish: PublishMany) {
        let PublishMany {
            changes,
            owner,
            in_burst,
            // For a shared log, whose answers take a while.
            deadline: _,
            now,
            reply,
        } = publish;
        // Compared as a whole: a resource that one change adds and another removes is no change of the list.
        let before = self.catalog.hash(ListKind::Resources);
        let mut decisions = Vec::with_capacity(changes.len());
        for (change, condition) in changes {
            decisions.push(self.decide_change(change, &condition, &owner));
        }
        self.collect_evicted(now);
        self.metrics.set_registered(self.catalog.counts());
        let hash = self.catalog.hash(ListKind::Resources);
        let mut list = None;
        if hash != before && !self.is_starting() {
            if in_burst {
                self.unannounced.get_or_insert(before);
            } else {
                self.unannounced = None;
                list = Some((ListKind::Resources, hash));
                self.show_list(ListKind::Resources);
            }
        }
        self.decided.push(EtagRequest::Changes(DecidedChanges {
            decisions,
            list,
            now,
            reply,
        }));
    }

    /// Moves the subscribed members of a changed template to a new version: removed, or with other content.
    pub(super) fn change_members(&mut self, changed: MembersChanged) {
        let MembersChanged {
            template,
            uris,
            now,
            reply,
        } = changed;
        let mut decisions = Vec::new();
        for uri in uris {
            decisions.extend(self.catalog.changed_member(uri, &template).map(Ok));
        }
        self.decided.push(EtagRequest::Changes(DecidedChanges {
            decisions,
            list: None,
            now,
            reply,
        }));
    }

    /// Announces the resource list if a burst changed it.
    pub(super) fn announce_list(&mut self, AnnounceList(reply): AnnounceList) {
        let hash = self.catalog.hash(ListKind::Resources);
        let changed = match self.unannounced.take() {
            Some(before) => before != hash,
            None => false,
        };
        let list = (ListKind::Resources, hash);
        if changed {
            self.show_list(ListKind::Resources);
        }
        match (reply, changed) {
            (Some(reply), true) => self.decided.push(EtagRequest::List { list, reply }),
            // The handle of the burst was dropped.
            (None, true) => self.decided.push(EtagRequest::StartedList(list)),
            (Some(reply), false) => reply.answer(Ok(ListOutcome {
                changed: false,
                notified: 0,
            })),
            (None, false) => {}
        }
    }
}
