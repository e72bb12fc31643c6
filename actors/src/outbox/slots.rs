//! The slots of an outbox: one per subscribed resource, with the newest notice of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::model::{Notice, ResourceUri};

/// The index of a subscription in the outbox of its subscriber.
pub(crate) type SlotId = u32;

/// The number of slots up to which a URI is found by a linear search. Most sessions have fewer subscriptions,
/// and a map would multiply the memory of each.
const LINEAR_SEARCH_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) uri: ResourceUri,
    /// True if the subscriber subscribed to the URI, false if its filter let a notice through.
    pub(super) subscribed: bool,
    /// True for a subscription whose resource did not exist when it began and has not appeared since.
    pub(super) awaited: bool,
    /// True for a subscription that ended because the subscriber may not be told of the resource, until the
    /// table of the shard has forgotten it.
    pub(super) hidden: bool,
    /// True if another node may have handed the pending notice out.
    pub(super) unsure: bool,
    /// The version that the subscriber knows or will know: of its newest notice, or at the time it
    /// subscribed.
    pub(super) version: u64,
    pub(super) latest: Option<Arc<Notice>>,
    /// The offset of `latest` in the order of this outbox; see [`OutboxSet::local_offset`](super::OutboxSet).
    pub(super) latest_offset: u64,
    /// The oldest offset that is not handed out yet; none if nothing is pending.
    pub(super) first_offset: Option<u64>,
    /// The time of the oldest change that is not handed out yet; meaningless if nothing is pending.
    pub(super) pending_since: Option<Instant>,
}

impl Slot {
    pub(super) fn is_pending(&self) -> bool {
        self.first_offset.is_some()
    }

    /// Drops the notice. Returns it if it was pending.
    pub(super) fn withdraw(&mut self) -> Option<Arc<Notice>> {
        self.pending_since = None;
        let pending = self.first_offset.take().is_some();
        self.latest.take().filter(|_| pending)
    }
}

/// Slots with stable indexes. Free indexes are reused, lowest first.
#[derive(Debug, Default)]
pub(super) struct SlotTable {
    slots: Vec<Option<Slot>>,
    /// The index by URI, built once there are more than [`LINEAR_SEARCH_MAX`] slots.
    by_uri: Option<HashMap<ResourceUri, SlotId>>,
    len: usize,
    /// Every index below this one is in use.
    free_from: SlotId,
}

impl SlotTable {
    /// Adds a slot without a notice for a URI that has none.
    pub(super) fn insert(&mut self, uri: &ResourceUri, version: u64) -> SlotId {
        let index = self.free_index();
        self.slots[index as usize] = Some(Slot {
            uri: uri.clone(),
            subscribed: false,
            awaited: false,
            hidden: false,
            unsure: false,
            version,
            latest: None,
            latest_offset: 0,
            first_offset: None,
            pending_since: None,
        });
        self.free_from = index + 1;
        self.len += 1;
        if self.slots.len() > LINEAR_SEARCH_MAX {
            self.index(index, uri);
        }
        index
    }

    fn free_index(&mut self) -> SlotId {
        if self.len < self.slots.len() {
            let from = self.free_from as usize;
            if let Some(free) = self.slots[from..].iter().position(Option::is_none) {
                return (from + free) as SlotId;
            }
        }
        // Growing by one at first keeps the many outboxes with one or two subscriptions small.
        self.slots.reserve_exact(usize::from(self.slots.len() < 4));
        self.slots.push(None);
        (self.slots.len() - 1) as SlotId
    }

    fn index(&mut self, slot: SlotId, uri: &ResourceUri) {
        if let Some(by_uri) = &mut self.by_uri {
            by_uri.insert(uri.clone(), slot);
            return;
        }
        // Built with all slots so far, of which there are just more than a search should cover.
        let known = self.iter().map(|(index, slot)| (slot.uri.clone(), index));
        self.by_uri = Some(known.collect());
    }

    /// Removes a slot; its index may be reused.
    pub(super) fn remove(&mut self, index: SlotId) -> Option<Slot> {
        let removed = self.slots.get_mut(index as usize)?.take()?;
        if let Some(by_uri) = &mut self.by_uri {
            by_uri.remove(&removed.uri);
        }
        // The lowest index is reused first, which keeps the table short.
        self.free_from = self.free_from.min(index);
        self.len -= 1;
        Some(removed)
    }

    pub(super) fn find(&self, uri: &ResourceUri) -> Option<SlotId> {
        if let Some(by_uri) = &self.by_uri {
            return by_uri.get(uri).copied();
        }
        let (index, _) = self.iter().find(|(_, slot)| slot.uri == *uri)?;
        Some(index)
    }

    pub(super) fn get(&self, index: SlotId) -> Option<&Slot> {
        self.slots.get(index as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: SlotId) -> Option<&mut Slot> {
        self.slots.get_mut(index as usize)?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SlotId, &Slot)> {
        let slots = self.slots.iter().enumerate();
        slots.flat_map(|(index, slot)| slot.as_ref().map(|slot| (index as SlotId, slot)))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut().flatten()
    }

    pub(super) fn is_pending(&self, index: SlotId) -> bool {
        matches!(self.get(index), Some(slot) if slot.is_pending())
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The number of indexes, free ones included.
    pub(super) fn indexes(&self) -> usize {
        self.slots.len()
    }
}
