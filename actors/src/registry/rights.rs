//! The lists of subscribers whose rights changed.

use std::sync::Arc;

use super::Registry;
use crate::messages::{EtagRequest, SettleRights};
use crate::model::ListKind;
use crate::outbox::Outbox;

impl Registry {
    /// Finds what a subscriber sees of its lists by the rights that it has now.
    pub(super) fn settle_rights(&self, outbox: Arc<Outbox>, kinds: &[ListKind]) -> EtagRequest {
        let mut generation = 0;
        if let Some(viewer) = outbox.viewer() {
            generation = viewer.generation();
        }
        let mut lists = Vec::with_capacity(kinds.len());
        for kind in kinds {
            lists.push((*kind, self.visible_hash(*kind)));
        }
        EtagRequest::Settle(SettleRights {
            outbox,
            generation,
            lists,
        })
    }
}
