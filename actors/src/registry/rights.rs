//! The lists of subscribers with a viewer, by the rights that they have now.

use std::sync::Arc;

use super::Registry;
use crate::messages::{EtagRequest, SettleRights};
use crate::model::{ListHash, ListKind};
use crate::outbox::{JoinedAudience, Outbox};
use crate::runtime::Reply;

impl Registry {
    /// Finds the visible hashes of lists as a subscriber sees them, and the audience that it belongs to.
    fn lists_of(
        &mut self,
        outbox: &Outbox,
        kinds: &[ListKind],
    ) -> (Option<JoinedAudience>, Vec<(ListKind, ListHash)>) {
        let Some(viewer) = outbox.viewer() else {
            let lists = kinds.iter().map(|kind| (*kind, self.visible_hash(*kind)));
            return (None, lists.collect());
        };
        let durable = self.has_unsettled_batch();
        let (joined, hashes) = self.audiences.join(viewer.as_ref(), &mut self.catalog, durable);
        let lists = kinds.iter().map(|kind| (*kind, hashes[kind.index()]));
        (Some(joined), lists.collect())
    }

    /// Lets a subscriber watch lists from here on.
    pub(super) fn watch_lists(
        &mut self,
        outbox: Arc<Outbox>,
        kinds: &[ListKind],
        announce: bool,
        reply: Reply<()>,
    ) -> EtagRequest {
        let (joined, lists) = self.lists_of(&outbox, kinds);
        EtagRequest::WatchLists {
            outbox,
            lists,
            joined,
            announce,
            reply,
        }
    }

    /// Finds what a subscriber sees of its lists after its rights changed; none without a viewer, since those
    /// rights do not change.
    pub(super) fn settle_rights(&mut self, outbox: Arc<Outbox>, kinds: &[ListKind]) -> Option<EtagRequest> {
        let (joined, lists) = self.lists_of(&outbox, kinds);
        let joined = joined?;
        Some(EtagRequest::Settle(SettleRights {
            outbox,
            joined,
            lists,
        }))
    }

    /// Sends the hashes of a list for the audiences, in front of its change.
    pub(super) fn show_list(&mut self, kind: ListKind) {
        if let Some(hashes) = self.audiences.hashes(kind, &mut self.catalog) {
            self.decided.push(EtagRequest::Shown(kind, hashes));
        }
    }
}
