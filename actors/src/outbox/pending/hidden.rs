//! The subscriptions whose resources the subscriber may not be told of any more, and the lists that wait
//! until they were compared with what it sees now.
//!
//! A hidden subscription is over at once. Its slot stays taken until the shard has removed it from its table,
//! since the table and the outbox name subscriptions by slots.

use std::sync::Arc;

use super::{Key, OutboxSet};
use crate::model::{ListKind, Notice, ResourceUri};
use crate::outbox::slots::SlotId;

impl OutboxSet {
    /// Ends every subscription that is not `told` of its resource, and drops its pending notice. Returns
    /// their number and the notices that were dropped.
    pub(crate) fn hide(&mut self, told: impl Fn(&ResourceUri) -> bool) -> (usize, Vec<Arc<Notice>>) {
        // Judged before anything changes: the judge is code of others and may panic.
        let refused: Vec<SlotId> = self
            .slots()
            .filter(|(_, uri)| !told(uri))
            .map(|(index, _)| index)
            .collect();
        let mut dropped = Vec::new();
        for index in &refused {
            let Some(slot) = self.slots.get_mut(*index) else {
                continue;
            };
            slot.subscribed = false;
            slot.hidden = true;
            self.awaited -= usize::from(std::mem::take(&mut slot.awaited));
            dropped.extend(slot.withdraw());
        }
        if !refused.is_empty() {
            self.subscriptions -= refused.len();
            if let Some(allowance) = &self.allowance {
                allowance.give_back(refused.len());
            }
            self.hidden += refused.len();
            let slots = &self.slots;
            self.queue.retain(|key| match key {
                Key::Slot(index) => slots.is_pending(*index),
                Key::List(_) => true,
            });
        }
        (refused.len(), dropped)
    }

    /// Forgets the hidden subscriptions. Returns their slots, which the table of the shard has to forget too.
    pub(crate) fn take_hidden(&mut self) -> Vec<SlotId> {
        if std::mem::take(&mut self.hidden) == 0 {
            return Vec::new();
        }
        let hidden = self.slots.iter().filter(|(_, slot)| slot.hidden);
        let hidden: Vec<SlotId> = hidden.map(|(index, _)| index).collect();
        for index in &hidden {
            if let Some(slot) = self.slots.get_mut(*index) {
                slot.hidden = false;
            }
            // With a filter it goes on as a slot of the filter, as after an unsubscription.
            if self.filter.is_none() {
                self.remove(*index);
            }
        }
        hidden
    }

    /// Returns true if `uri` is here for the sake of the filter alone, so that each of its notices is judged.
    pub(crate) fn is_only_filtered(&self, uri: &ResourceUri) -> bool {
        self.filter.is_some() && !self.is_subscribed(uri)
    }

    /// Drops the last notice of `uri`, so that resuming does not bring it back.
    pub(crate) fn withdraw(&mut self, uri: &ResourceUri) {
        if let Some(index) = self.find(uri)
            && let Some(slot) = self.slots.get_mut(index)
        {
            slot.withdraw();
        }
    }

    /// Holds the changes of lists back until [`release_lists`](Self::release_lists): they may be due to items
    /// that the subscriber does not see any more.
    pub(crate) fn hold_lists(&mut self) {
        if self.lists.is_some() {
            self.lists_held = true;
            self.queue.retain(|key| matches!(key, Key::Slot(_)));
        }
    }

    /// Makes the lists that still differ pending again. Returns the number of those that were held.
    pub(crate) fn release_lists(&mut self) -> usize {
        if !std::mem::take(&mut self.lists_held) {
            return 0;
        }
        let before = self.queue.len();
        self.queue_again();
        self.queue.len() - before
    }

    /// Returns the oldest offset of a list that is held back.
    pub(super) fn first_held(&self) -> Option<u64> {
        if !self.lists_held {
            return None;
        }
        let offsets = ListKind::ALL.map(|kind| self.first_offset(Key::List(kind)));
        offsets.into_iter().flatten().min()
    }
}
