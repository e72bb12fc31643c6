//! The slots of an outbox that takes every URI its filter lets through, beside its subscriptions.
//!
//! The number of slots is bounded. One is freed when a removal was handed out, or for a URI that changed
//! later.

use std::sync::Arc;

use super::{Key, MarkResult, OutboxSet};
use crate::model::{Etag, Filter, Notice, ResourceUri, UriMap};
use crate::outbox::slots::SlotId;

/// The slots of an outbox that takes every URI its filter lets through, beside its subscriptions.
///
/// A mark of an unknown URI adds a slot, and handing out a removal frees it.
#[derive(Debug)]
pub(super) struct FilterSlots {
    filter: Arc<Filter>,
    /// The maximum number of slots.
    max: usize,
    /// The number of changes dropped because every slot was pending.
    lost: u64,
    /// The index at which the last search for a slot to reuse ended (the clock algorithm of page caches).
    clock_hand: SlotId,
    /// The shards that the subscriber has left and that may still mark it.
    handovers: usize,
    /// The versions of slots that were freed since such a shard was left, at most `max`.
    freed: UriMap<u64>,
}

impl FilterSlots {
    /// Returns true if the filter lets a notice through.
    pub(super) fn wants(&self, notice: &Notice) -> bool {
        self.filter.wants(notice)
    }

    /// Returns true if a notice of a URI without a slot is older than one that was handed out.
    fn is_outdated(&self, notice: &Notice) -> bool {
        match self.freed.get(&notice.uri) {
            Some(version) => notice.etag.version <= *version,
            None => false,
        }
    }
}

impl OutboxSet {
    /// Takes notices of every URI that `filter` lets through, in at most `max` slots (at least 1) beside the
    /// subscriptions. Replaces the filter before; what that one alone let through is not handed out any more.
    pub(crate) fn set_filter(&mut self, filter: Arc<Filter>, max: usize) {
        let max = max.max(1);
        match &mut self.filter {
            Some(filtered) => {
                filtered.filter = filter;
                filtered.max = max;
                self.drop_unwanted();
            }
            None => {
                self.filter = Some(Box::new(FilterSlots {
                    filter,
                    max,
                    lost: 0,
                    clock_hand: 0,
                    handovers: 0,
                    freed: UriMap::default(),
                }));
            }
        }
    }

    /// Returns true if there is a filter, and it lets notices of `uri` through.
    pub(super) fn filter_wants(&self, uri: &ResourceUri) -> bool {
        match &self.filter {
            Some(filtered) => filtered.filter.wants_uri(uri),
            None => false,
        }
    }

    /// Drops the slots that are neither subscriptions nor wanted by the filter.
    fn drop_unwanted(&mut self) {
        let slots = self.slots.iter();
        let unwanted = slots.filter(|(_, slot)| {
            let is_filtered = !slot.subscribed && !slot.hidden;
            is_filtered && !self.filter_wants(&slot.uri)
        });
        let unwanted: Vec<SlotId> = unwanted.map(|(index, _)| index).collect();
        for index in &unwanted {
            if let Some(slot) = self.slots.get_mut(*index) {
                slot.withdraw();
            }
        }
        // Once for all of them, since the queue may be long.
        let slots = &self.slots;
        self.queue.retain(|key| match key {
            Key::Slot(index) => slots.is_pending(*index),
            Key::List(_) => true,
        });
        for index in unwanted {
            self.free(index);
        }
    }

    /// Returns true if the outbox has a filter.
    pub(crate) fn has_filter(&self) -> bool {
        self.filter.is_some()
    }

    /// Returns the number of changes dropped since the last call because every slot was pending.
    pub(crate) fn take_lost(&mut self) -> u64 {
        match &mut self.filter {
            Some(filtered) => std::mem::take(&mut filtered.lost),
            None => 0,
        }
    }

    /// Marks a resource as changed if the filter lets its notice through. A change that is lost is counted
    /// only if the subscriber may be told of it (`is_seen`).
    pub(crate) fn mark_filtered(
        &mut self,
        notice: &Arc<Notice>,
        is_seen: impl FnOnce(&ResourceUri) -> bool,
    ) -> MarkResult {
        match &self.filter {
            Some(filtered) if filtered.filter.wants(notice) => {}
            _ => return MarkResult::Ignored,
        }
        if let Some(slot) = self.find(&notice.uri) {
            return self.mark(slot, notice);
        }
        if self.is_outdated(notice) {
            return MarkResult::Ignored;
        }
        if !self.make_room() {
            if let Some(filtered) = &mut self.filter
                && is_seen(&notice.uri)
            {
                filtered.lost += 1;
            }
            return MarkResult::Ignored;
        }
        let before = notice.position.offset.saturating_sub(1);
        let slot = self.insert(&notice.uri, Etag::UNKNOWN, before);
        self.mark(slot, notice)
    }

    fn is_outdated(&self, notice: &Notice) -> bool {
        match &self.filter {
            Some(filtered) => filtered.is_outdated(notice),
            None => false,
        }
    }

    /// Makes room for one more slot of the filter, if necessary by freeing one that is not pending. Returns
    /// false if that is not possible.
    fn make_room(&mut self) -> bool {
        let Some(filtered) = &self.filter else {
            return false;
        };
        if self.slots.len() - self.subscriptions < filtered.max {
            return true;
        }
        match self.find_idle_slot() {
            Some(index) => self.free(index),
            None => false,
        }
    }

    /// Returns the next slot of the filter that is not pending.
    fn find_idle_slot(&mut self) -> Option<SlotId> {
        let filtered = self.filter.as_mut()?;
        // If all slots are pending, the reader has stopped, and each mark would search them all in vain.
        if self.queue.len() >= self.slots.len() {
            return None;
        }
        let indexes = self.slots.indexes() as SlotId;
        for step in 1..=indexes {
            let index = (filtered.clock_hand + step) % indexes;
            if let Some(slot) = self.slots.get(index)
                && !slot.is_pending()
                && !slot.subscribed
                && !slot.hidden
            {
                filtered.clock_hand = index;
                return Some(index);
            }
        }
        None
    }

    /// Frees a slot of the filter. Returns false if its version must be remembered and there is no room.
    pub(super) fn free(&mut self, index: SlotId) -> bool {
        if let Some(filtered) = &mut self.filter
            && filtered.handovers > 0
            && let Some(slot) = self.slots.get(index)
        {
            // The shard that was left may mark the URI with an older notice, which the slot would have told
            // from a newer one.
            if filtered.freed.len() >= filtered.max {
                return false;
            }
            filtered.freed.insert(slot.uri.clone(), slot.version);
        }
        self.remove(index);
        true
    }

    /// Notes that another shard marks the outbox from here on, beside the late marks of the one it leaves.
    pub(crate) fn begin_handover(&mut self) {
        if let Some(filtered) = &mut self.filter {
            filtered.handovers += 1;
        }
    }

    /// Notes that the shard that was left has made its last mark.
    pub(crate) fn end_handover(&mut self) {
        if let Some(filtered) = &mut self.filter {
            filtered.handovers = filtered.handovers.saturating_sub(1);
            if filtered.handovers == 0 {
                filtered.freed.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Cause, Position};
    use crate::outbox::OutboxEntry;
    use std::time::Instant;

    fn notice(name: u8, version: u64, offset: u64, cause: Cause) -> Arc<Notice> {
        let uri = ResourceUri::new(&format!("demo://{name}")).unwrap();
        let etag = Etag {
            version,
            updated_at: 0,
            life: 0,
        };
        let position = Position { epoch: 1, offset };
        Arc::new(Notice::new(uri, etag, cause, position, Instant::now()))
    }

    #[test]
    fn late_mark_of_a_left_shard_is_no_step_back() {
        let mut set = OutboxSet::default();
        set.set_filter(Arc::default(), 1);
        set.begin_handover();
        // The new shard removes one resource, and its slot is freed when that is handed out.
        let removed = notice(1, 4, 9, Cause::Removed);
        assert_eq!(set.mark_filtered(&removed, |_| true), MarkResult::New);
        assert!(set.pop().is_some());
        // The old shard is late with an older notice of it, and with the newest of another one.
        let late = notice(1, 3, 7, Cause::Updated);
        assert_eq!(set.mark_filtered(&late, |_| true), MarkResult::Ignored);
        let other = notice(2, 1, 8, Cause::Updated);
        assert_eq!(set.mark_filtered(&other, |_| true), MarkResult::New);
        assert!(set.pop().is_some() && set.pop().is_none());
        // Its slot cannot be reused: the one version that may be remembered is that of the first resource.
        let third = notice(3, 1, 10, Cause::Updated);
        assert_eq!(set.mark_filtered(&third, |_| true), MarkResult::Ignored);
        assert_eq!(set.take_lost(), 1);
        set.end_handover();
        let again = notice(3, 2, 11, Cause::Updated);
        assert_eq!(set.mark_filtered(&again, |_| true), MarkResult::New);
        assert_eq!(set.take_lost(), 0);
    }

    /// Makes a filter of these patterns.
    fn filter_of(patterns: &[&str]) -> Arc<Filter> {
        let patterns = patterns.iter().map(|text| text.parse().unwrap());
        Arc::new(Filter::of(patterns.collect()).unwrap())
    }

    fn handed_out(set: &mut OutboxSet) -> Vec<String> {
        let entries = std::iter::from_fn(|| set.pop());
        let names = entries.map(|entry| match entry {
            OutboxEntry::Updated(notice) => notice.uri.to_string(),
            OutboxEntry::ListChanged(kind) => kind.name().to_owned(),
        });
        names.collect()
    }

    #[test]
    fn replaced_filter_hands_out_nothing_of_the_old_one() {
        let mut set = OutboxSet::default();
        let named = ResourceUri::new("demo://2").unwrap();
        set.set_filter(filter_of(&["demo://*"]), 10);
        set.subscribe(&named, Etag::UNKNOWN, 0);
        for name in 1..=3 {
            set.mark_filtered(&notice(name, 1, u64::from(name), Cause::Updated), |_| true);
        }
        set.set_filter(filter_of(&["demo://3"]), 10);
        assert_eq!(handed_out(&mut set), ["demo://2", "demo://3"]);
        let other = notice(1, 2, 4, Cause::Updated);
        assert_eq!(set.mark_filtered(&other, |_| true), MarkResult::Ignored);
        // The subscription by name is the filter's too, as long as that lets it through.
        set.set_filter(filter_of(&["demo://*"]), 10);
        set.mark_filtered(&notice(2, 2, 5, Cause::Updated), |_| true);
        assert!(set.unsubscribe(&named).is_some());
        assert_eq!(handed_out(&mut set), ["demo://2"]);
        set.subscribe(&named, Etag::UNKNOWN, 5);
        set.set_filter(filter_of(&["note://*"]), 10);
        let slot = set.find(&named).unwrap();
        set.mark(slot, &notice(2, 3, 6, Cause::Updated));
        set.unsubscribe(&named);
        assert_eq!(handed_out(&mut set), [""; 0]);
    }
}
