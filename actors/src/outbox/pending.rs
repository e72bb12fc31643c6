//! The entries that one subscriber has not been handed yet, without locks, wake-ups or encoding.
//!
//! Marking a key that is already pending replaces its notice and keeps its place in the queue. The newest
//! notice wins, repeats cost nothing, and there is at most one entry per subscription and list. Each pending
//! entry remembers the *first* offset that is not handed out yet; that makes it safe to resume from
//! [`OutboxSet::safe_offset`].

mod filter_slots;
mod hidden;
mod missed;
mod resumed;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use self::filter_slots::FilterSlots;
use super::slots::{Slot, SlotId, SlotTable};
#[cfg(test)]
use crate::model::ToldList;
use crate::model::{Cause, Etag, ListHash, ListKind, Notice, ResourceUri, SubscriptionAllowance};

/// One entry of an outbox.
#[derive(Debug, Clone)]
pub enum OutboxEntry {
    /// A resource changed.
    Updated(Arc<Notice>),
    /// A list changed.
    ListChanged(ListKind),
}

/// The effect of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkResult {
    /// The entry became pending.
    New,
    /// The entry was already pending and now holds the newer state.
    Conflated,
    /// There is nothing to notify of: the slot is unknown, the version is old, or the list hash is known.
    Ignored,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Slot(SlotId),
    List(ListKind),
}

#[derive(Debug, Clone, Copy)]
struct ListSlot {
    /// The hash of the last notification; none if the subscriber may have missed it.
    notified: Option<ListHash>,
    /// The local offset of the last notification; 0 if there was none.
    notified_offset: u64,
    current: ListHash,
    /// The offset of `current`. A mark with an older one is out of date.
    current_offset: u64,
    /// The local offset of `current`.
    current_local: u64,
    /// The oldest local offset that is not handed out yet; none if nothing is pending.
    first_offset: Option<u64>,
    /// True if another node may have told of the pending change.
    unsure: bool,
}

/// The pending entries of one subscriber, and its subscriptions.
#[derive(Debug, Default)]
pub(crate) struct OutboxSet {
    slots: SlotTable,
    /// The number of slots that are subscriptions.
    subscriptions: usize,
    /// The number of subscriptions whose resources do not exist yet.
    awaited: usize,
    // Boxed because many subscribers watch no list and each mark touches the fields around it.
    lists: Option<Box<[Option<ListSlot>; 3]>>,
    queue: VecDeque<Key>,
    /// The highest local offset so far.
    highest_offset: u64,
    /// The last local offset that is beyond the order of the bus.
    invented_offset: Option<u64>,
    filter: Option<Box<FilterSlots>>,
    /// The allowance from which each subscription takes one.
    allowance: Option<Arc<SubscriptionAllowance>>,
    /// The hidden subscriptions that the table of the shard still has.
    hidden: usize,
    /// True while changes of lists are held back.
    lists_held: bool,
    /// The shard whose table has the subscriptions.
    pub(super) home: usize,
}

impl OutboxSet {
    /// Makes a set whose subscriptions come out of `allowance`.
    pub(crate) fn new(allowance: Option<Arc<SubscriptionAllowance>>) -> OutboxSet {
        let mut set = OutboxSet::default();
        set.allowance = allowance;
        set
    }

    /// Takes one from the allowance, for a subscription that follows.
    ///
    /// # Errors
    /// The most that the sessions which share it may have.
    pub(crate) fn take_allowed(&self) -> Result<(), usize> {
        match &self.allowance {
            Some(allowance) if !allowance.take() => Err(allowance.max()),
            _ => Ok(()),
        }
    }

    /// Gives all subscriptions back to the allowance, because the subscriber has ended.
    pub(crate) fn give_back_allowed(&mut self) {
        if let Some(allowance) = self.allowance.take() {
            allowance.give_back(self.subscriptions);
        }
    }

    /// Subscribes to `uri` for a subscriber that knows `etag`, at offset `at`. Returns the slot, and true if
    /// the subscription is new.
    pub(crate) fn subscribe(&mut self, uri: &ResourceUri, etag: Etag, at: u64) -> (SlotId, bool) {
        let index = match self.find(uri) {
            // Subscribed already, or added by the filter.
            Some(index) => index,
            None => self.insert(uri, etag, at),
        };
        let mut new = false;
        if let Some(slot) = self.slots.get_mut(index) {
            new = !std::mem::replace(&mut slot.subscribed, true);
        }
        self.subscriptions += usize::from(new);
        (index, new)
    }

    fn insert(&mut self, uri: &ResourceUri, etag: Etag, at: u64) -> SlotId {
        self.highest_offset = self.highest_offset.max(at);
        self.slots.insert(uri, etag.version)
    }

    /// Ends a subscription and drops its pending notice, unless the filter lets it through. Returns its slot.
    pub(crate) fn unsubscribe(&mut self, uri: &ResourceUri) -> Option<SlotId> {
        let index = self.find(uri)?;
        let slot = self.slots.get_mut(index)?;
        if !std::mem::take(&mut slot.subscribed) {
            return None;
        }
        self.subscriptions -= 1;
        if let Some(allowance) = &self.allowance {
            allowance.give_back(1);
        }
        self.awaited -= usize::from(std::mem::take(&mut slot.awaited));
        if !self.filter_wants(uri) {
            self.drop_slot(index);
        }
        Some(index)
    }

    /// Drops a slot that nothing wants any more, and its pending notice.
    fn drop_slot(&mut self, index: SlotId) {
        if let Some(slot) = self.slots.get_mut(index)
            && slot.withdraw().is_some()
        {
            self.queue.retain(|key| *key != Key::Slot(index));
        }
        // With a filter it may have to stay for a while, without a notice.
        self.free(index);
    }

    fn remove(&mut self, index: SlotId) {
        if let Some(removed) = self.slots.remove(index)
            && removed.is_pending()
        {
            self.queue.retain(|key| *key != Key::Slot(index));
        }
    }

    /// Returns true if there is a subscription to `uri`.
    pub(crate) fn is_subscribed(&self, uri: &ResourceUri) -> bool {
        match self.slot_of(uri) {
            Some(slot) => slot.subscribed,
            None => false,
        }
    }

    /// Returns the slot index of a URI.
    pub(crate) fn find(&self, uri: &ResourceUri) -> Option<SlotId> {
        self.slots.find(uri)
    }

    /// Returns the slot of a URI, subscribed or added by the filter.
    pub(super) fn slot_of(&self, uri: &ResourceUri) -> Option<&Slot> {
        self.slots.get(self.find(uri)?)
    }

    /// Marks the resource of `slot` as changed.
    pub(crate) fn mark(&mut self, slot: SlotId, notice: &Arc<Notice>) -> MarkResult {
        let at = self.local_offset(notice.position.offset);
        let Some(held) = self.slots.get_mut(slot) else {
            return MarkResult::Ignored;
        };
        // The shard that a subscriber left may mark a slot that was reused for another URI since.
        let is_newer = notice.etag.version > held.version;
        let repeats = notice.repeats && notice.etag.version == held.version;
        if !(is_newer || repeats) || notice.uri != held.uri {
            return MarkResult::Ignored;
        }
        let filtered = match &self.filter {
            Some(filtered) if held.hidden || held.awaited => filtered.wants(notice),
            _ => false,
        };
        if held.hidden && !filtered {
            return MarkResult::Ignored;
        }
        if held.awaited {
            if !filtered && !missed::ends_wait(notice) {
                return MarkResult::Ignored;
            }
            held.awaited = false;
            self.awaited -= 1;
        }
        held.version = notice.etag.version;
        held.latest = Some(notice.clone());
        held.latest_offset = at;
        held.unsure = false;
        if held.is_pending() {
            return MarkResult::Conflated;
        }
        held.first_offset = Some(at);
        held.pending_since = Some(notice.at);
        self.queue.push_back(Key::Slot(slot));
        MarkResult::New
    }

    /// Starts to watch a list, of which the subscriber knows the hash `notified`.
    #[cfg(test)]
    pub(crate) fn watch_list(&mut self, kind: ListKind, notified: ListHash, at: u64) {
        let told = ToldList {
            kind,
            hash: Some(notified),
            offset: 0,
        };
        self.watch_list_from(told, notified, at, false);
    }

    /// Marks a list as having the hash `hash` since `offset`.
    pub(crate) fn mark_list(&mut self, kind: ListKind, hash: ListHash, offset: u64) -> MarkResult {
        let at = self.local_offset(offset);
        let Some(list) = self.list_mut(kind) else {
            return MarkResult::Ignored;
        };
        if offset < list.current_offset {
            return MarkResult::Ignored;
        }
        list.current = hash;
        list.current_offset = offset;
        list.current_local = at;
        list.unsure &= list.first_offset.is_none();
        if Some(hash) == list.notified {
            // The list changed back before the entry was handed out, so the subscriber knows its state.
            if list.first_offset.take().is_some() {
                self.queue.retain(|key| *key != Key::List(kind));
            }
            return MarkResult::Ignored;
        }
        if list.first_offset.is_some() {
            return match self.lists_held {
                true => MarkResult::Ignored,
                false => MarkResult::Conflated,
            };
        }
        list.first_offset = Some(at);
        if self.lists_held {
            return MarkResult::Ignored;
        }
        self.queue.push_back(Key::List(kind));
        MarkResult::New
    }

    /// Takes the entry that has been pending longest. It counts as handed out from here on.
    pub(crate) fn pop(&mut self) -> Option<OutboxEntry> {
        while let Some(key) = self.queue.pop_front() {
            let entry = match key {
                Key::Slot(slot) => self.take_notice(slot).map(OutboxEntry::Updated),
                Key::List(kind) => self.take_list(kind).map(OutboxEntry::ListChanged),
            };
            if entry.is_some() {
                return entry;
            }
        }
        None
    }

    fn take_notice(&mut self, slot: SlotId) -> Option<Arc<Notice>> {
        let held = self.slots.get_mut(slot)?;
        held.first_offset = None;
        held.unsure = false;
        let notice = held.latest.clone()?;
        // A removed resource changes no more, so the filter needs no slot for it.
        if self.filter.is_some() && !held.subscribed && !held.hidden && notice.cause == Cause::Removed {
            self.free(slot);
        }
        Some(notice)
    }

    fn take_list(&mut self, kind: ListKind) -> Option<ListKind> {
        let list = self.list_mut(kind)?;
        list.first_offset = None;
        list.unsure = false;
        list.notified = Some(list.current);
        list.notified_offset = list.current_local;
        Some(kind)
    }

    /// Returns the offset up to which everything has been handed out.
    pub(crate) fn safe_offset(&self) -> u64 {
        // The queue is in the order of the first offsets, so its head has the lowest one.
        let oldest = match self.queue.front() {
            Some(key) => self.first_offset(*key),
            None => None,
        };
        match oldest.into_iter().chain(self.first_held()).min() {
            Some(first) => first - 1,
            None => self.highest_offset,
        }
    }

    /// Makes everything that was handed out after `offset` pending again, in the same order.
    pub(crate) fn rewind(&mut self, offset: u64) {
        self.settle_up_to(offset);
        for slot in self.slots.values_mut() {
            if slot.latest.is_some() && slot.latest_offset > offset && !slot.is_pending() {
                slot.first_offset = Some(slot.latest_offset);
                slot.pending_since = slot.latest.as_ref().map(|notice| notice.at);
            }
        }
        for list in self.lists.iter_mut().flat_map(|lists| lists.iter_mut()).flatten() {
            if list.notified_offset > offset {
                list.first_offset.get_or_insert(list.notified_offset);
                // The subscriber may have missed the last hash, so none counts as known.
                list.notified = None;
            }
        }
        self.queue_again();
    }

    /// Puts everything that is pending in the order of the first offsets.
    fn queue_again(&mut self) {
        let slots = self.slots.iter().map(|(index, _)| Key::Slot(index));
        let lists = ListKind::ALL.into_iter().filter(|_| !self.lists_held);
        let keys = slots.chain(lists.map(Key::List));
        let mut pending: Vec<_> = keys
            .flat_map(|key| self.first_offset(key).map(|first| (first, key)))
            .collect();
        pending.sort_by_key(|(first, _)| *first);
        self.queue = pending.into_iter().map(|(_, key)| key).collect();
    }

    fn first_offset(&self, key: Key) -> Option<u64> {
        match key {
            Key::Slot(slot) => self.slots.get(slot)?.first_offset,
            Key::List(kind) => self.list(kind)?.first_offset,
        }
    }

    /// The number of pending entries.
    pub(crate) fn pending(&self) -> usize {
        self.queue.len()
    }

    /// The pending notices, oldest first.
    pub(crate) fn pending_notices(&self) -> impl Iterator<Item = &Arc<Notice>> {
        self.pending_slots().flat_map(|slot| slot.latest.as_ref())
    }

    fn pending_slots(&self) -> impl Iterator<Item = &Slot> {
        self.queue.iter().flat_map(|key| match key {
            Key::Slot(slot) => self.slots.get(*slot),
            Key::List(_) => None,
        })
    }

    /// The lists with a pending change, oldest first.
    pub(crate) fn pending_lists(&self) -> impl Iterator<Item = ListKind> {
        self.queue.iter().flat_map(|key| match key {
            Key::Slot(_) => None,
            Key::List(kind) => Some(*kind),
        })
    }

    /// Returns the time of the oldest pending change of a resource.
    pub(crate) fn oldest_since(&self) -> Option<Instant> {
        self.pending_slots().flat_map(|slot| slot.pending_since).next()
    }

    /// The number of subscriptions.
    pub(crate) fn subscriptions(&self) -> usize {
        self.subscriptions
    }

    /// The subscriptions with their slots.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (SlotId, &ResourceUri)> {
        let subscribed = self.slots.iter().filter(|(_, slot)| slot.subscribed);
        subscribed.map(|(index, slot)| (index, &slot.uri))
    }

    /// Returns the hash of the last notification of a list; none if the list is not watched or the subscriber
    /// may have missed the notification.
    pub(crate) fn list_notified(&self, kind: ListKind) -> Option<ListHash> {
        self.list(kind)?.notified
    }

    /// The watched lists.
    pub(crate) fn lists(&self) -> impl Iterator<Item = ListKind> {
        ListKind::ALL
            .into_iter()
            .filter(|kind| self.list(*kind).is_some())
    }

    fn list(&self, kind: ListKind) -> Option<&ListSlot> {
        self.lists.as_ref()?[kind.index()].as_ref()
    }

    fn list_mut(&mut self, kind: ListKind) -> Option<&mut ListSlot> {
        self.lists.as_mut()?[kind.index()].as_mut()
    }
}

impl Drop for OutboxSet {
    fn drop(&mut self) {
        self.give_back_allowed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Digest, Position};
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn uri(name: u8) -> ResourceUri {
        ResourceUri::new(&format!("demo://{name}")).unwrap()
    }

    fn notice(name: u8, version: u64, offset: u64) -> Arc<Notice> {
        let etag = Etag {
            version,
            updated_at: 0,
            life: 0,
        };
        Arc::new(Notice::new(
            uri(name),
            etag,
            Cause::Updated,
            Position { epoch: 1, offset },
            Instant::now(),
        ))
    }

    fn drained(set: &mut OutboxSet) -> Vec<String> {
        std::iter::from_fn(|| set.pop())
            .map(|entry| match entry {
                OutboxEntry::Updated(notice) => format!("{}@{}", notice.uri, notice.position.offset),
                OutboxEntry::ListChanged(kind) => kind.name().to_owned(),
            })
            .collect()
    }

    fn hash(n: u128) -> ListHash {
        ListHash::EMPTY.with(Digest(n))
    }

    #[test]
    fn safe_offset_waits_for_the_oldest_entry() {
        let mut set = OutboxSet::default();
        let (a, _) = set.subscribe(&uri(1), Etag::UNKNOWN, 4);
        let (b, _) = set.subscribe(&uri(2), Etag::UNKNOWN, 4);
        assert_eq!(set.safe_offset(), 4);
        assert_eq!(set.mark(a, &notice(1, 1, 5)), MarkResult::New);
        assert_eq!(set.mark(b, &notice(2, 1, 6)), MarkResult::New);
        assert_eq!(set.mark(a, &notice(1, 2, 7)), MarkResult::Conflated);
        assert_eq!(set.safe_offset(), 4);
        assert!(matches!(set.pop(), Some(OutboxEntry::Updated(n)) if n.position.offset == 7));
        assert_eq!(set.safe_offset(), 5);
        assert!(matches!(set.pop(), Some(OutboxEntry::Updated(n)) if n.position.offset == 6));
        assert_eq!(set.safe_offset(), 7);
    }

    #[test]
    fn rewind_repeats_only_later_entries() {
        let mut set = OutboxSet::default();
        for name in 1..4 {
            let (slot, _) = set.subscribe(&uri(name), Etag::UNKNOWN, 0);
            set.mark(slot, &notice(name, 1, u64::from(name)));
        }
        assert_eq!(drained(&mut set), ["demo://1@1", "demo://2@2", "demo://3@3"]);
        set.rewind(2);
        assert_eq!(drained(&mut set), ["demo://3@3"]);
        set.rewind(0);
        assert_eq!(set.safe_offset(), 0);
        assert_eq!(drained(&mut set), ["demo://1@1", "demo://2@2", "demo://3@3"]);
    }

    #[test]
    fn list_is_pending_only_if_it_differs() {
        let mut set = OutboxSet::default();
        assert_eq!(
            set.mark_list(ListKind::Tools, hash(1), 1),
            MarkResult::Ignored,
            "not watched"
        );
        set.watch_list(ListKind::Tools, ListHash::EMPTY, 0);
        assert_eq!(
            set.mark_list(ListKind::Tools, ListHash::EMPTY, 1),
            MarkResult::Ignored
        );
        assert_eq!(set.mark_list(ListKind::Tools, hash(1), 2), MarkResult::New);
        assert_eq!(set.mark_list(ListKind::Tools, hash(2), 3), MarkResult::Conflated);
        assert_eq!(drained(&mut set), ["tools"]);
        assert_eq!(set.mark_list(ListKind::Tools, hash(2), 4), MarkResult::Ignored);
        // The list changes and changes back before it is read, so nothing is pending.
        assert_eq!(set.mark_list(ListKind::Tools, hash(3), 5), MarkResult::New);
        assert_eq!(set.mark_list(ListKind::Tools, hash(2), 6), MarkResult::Ignored);
        assert_eq!(drained(&mut set), [""; 0]);
        assert_eq!(set.list_notified(ListKind::Tools), Some(hash(2)));
        assert_eq!(set.safe_offset(), 6);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Subscribe(u8),
        Unsubscribe(u8),
        Mark(u8),
        MarkList(u8),
        Pop,
        Rewind(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..24u8).prop_map(Step::Subscribe),
            1 => (0..24u8).prop_map(Step::Unsubscribe),
            6 => (0..24u8).prop_map(Step::Mark),
            2 => (0..3u8).prop_map(Step::MarkList),
            4 => Just(Step::Pop),
            1 => (0..40u64).prop_map(Step::Rewind),
        ];
        prop::collection::vec(step, 0..250)
    }

    proptest! {
        /// The newest notice of each key is never lost, there is at most one entry per key, versions never go
        /// backward, and everything up to the safe offset has been handed out.
        #[test]
        fn newest_is_kept_with_one_entry_per_key(steps in steps()) {
            let mut set = OutboxSet::default();
            set.watch_list(ListKind::Tools, ListHash::EMPTY, 0);
            let mut subscribed: BTreeSet<u8> = BTreeSet::new();
            let mut newest: BTreeMap<u8, u64> = BTreeMap::new();
            let mut known: BTreeMap<u8, u64> = BTreeMap::new();
            // Per subscribed key, the offset of the first change that was not handed out.
            let mut first_pending: BTreeMap<u8, u64> = BTreeMap::new();
            let mut list_now = ListHash::EMPTY;
            let mut list_known = ListHash::EMPTY;
            let mut offset = 0_u64;
            for step in steps {
                match step {
                    Step::Subscribe(name) => {
                        let version = newest.get(&name).copied().unwrap_or(0);
                        let (_, new) = set.subscribe(&uri(name), Etag { version, updated_at: 0, life: 0 }, offset);
                        prop_assert_eq!(new, subscribed.insert(name));
                        if new {
                            known.insert(name, version);
                        }
                    }
                    Step::Unsubscribe(name) => {
                        prop_assert_eq!(set.unsubscribe(&uri(name)).is_some(), subscribed.remove(&name));
                        known.remove(&name);
                        first_pending.remove(&name);
                    }
                    Step::Mark(name) => {
                        offset += 1;
                        let version = newest.entry(name).or_default();
                        *version += 1;
                        if let Some(slot) = set.find(&uri(name)) {
                            prop_assert_ne!(set.mark(slot, &notice(name, *version, offset)), MarkResult::Ignored);
                            first_pending.entry(name).or_insert(offset);
                        }
                    }
                    Step::MarkList(n) => {
                        offset += 1;
                        list_now = hash(u128::from(n));
                        set.mark_list(ListKind::Tools, list_now, offset);
                    }
                    Step::Pop => match set.pop() {
                        Some(OutboxEntry::Updated(notice)) => {
                            let name: u8 = notice.uri.as_str()["demo://".len()..].parse().unwrap();
                            prop_assert_eq!(notice.etag.version, newest[&name]);
                            prop_assert!(notice.etag.version >= known[&name]);
                            known.insert(name, notice.etag.version);
                            first_pending.remove(&name);
                        }
                        Some(OutboxEntry::ListChanged(_)) => list_known = list_now,
                        None => {
                            prop_assert_eq!(list_known, list_now);
                            prop_assert!(subscribed.iter().all(|n| known[n] == newest.get(n).copied().unwrap_or(0)));
                        }
                    },
                    Step::Rewind(to) => {
                        let before = set.pending();
                        set.rewind(to.min(offset));
                        prop_assert!(set.pending() >= before);
                    }
                }
                prop_assert_eq!(set.subscriptions(), subscribed.len());
                prop_assert!(set.pending() <= subscribed.len() + 1);
                prop_assert!(first_pending.values().all(|first| *first > set.safe_offset()));
            }
        }
    }
}
