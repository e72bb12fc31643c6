//! The pure core of an outbox: what one subscriber has not been told yet.
//!
//! Owns: one slot per subscription and one per list kind, and the order in which they were marked. Never: waits,
//! wakes, encodes or knows who reads it.
//!
//! Marking a slot that is already pending replaces its notice and keeps its place: the newest wins, repeats cost
//! nothing, and the set never holds more than one entry per slot. Each pending entry remembers the *first* offset
//! not yet told, which is what makes [`OutboxSet::safe_offset`] safe to resume from.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use crate::model::{Cause, Etag, Filter, ListHash, ListKind, Notice, ResourceUri};

/// A subscription's place in its subscriber's own outbox.
pub(crate) type SlotId = u32;

/// Slots beyond which URIs are found through a map instead of a walk.
const WALK_MAX: usize = 16;

/// One thing to tell.
#[derive(Debug, Clone)]
pub enum OutboxEntry {
    /// This resource changed.
    Updated(Arc<Notice>),
    /// This list changed.
    ListChanged(ListKind),
}

/// What marking did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkResult {
    /// The entry is newly pending.
    New,
    /// The entry was pending already; it now holds the newer state.
    Conflated,
    /// Nothing to tell: unknown slot, an older version, or the hash the subscriber knows.
    Ignored,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Slot(SlotId),
    List(ListKind),
}

#[derive(Debug)]
struct Slot {
    uri: ResourceUri,
    /// Whether it was subscribed to by name, rather than taken in because the set is open.
    by_name: bool,
    /// The version this subscriber knows or will know: what it was told, or what stood when it subscribed.
    version: u64,
    latest: Option<Arc<Notice>>,
    /// The offset at which `latest` was taken in; see [`OutboxSet::place`].
    latest_offset: u64,
    /// The oldest offset not yet told; none when nothing is pending.
    first: Option<u64>,
    /// When the oldest change not yet told passed the door; means nothing while nothing is pending.
    since: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct ListSlot {
    /// The hash the subscriber was last told of; none when it is unsure whether that reached it.
    notified: Option<ListHash>,
    /// The offset of the notice that told it; 0 when none did.
    notified_offset: u64,
    current: ListHash,
    /// The offset of `current`; one that comes with an older one is out of date.
    current_offset: u64,
    /// The offset at which `current` was taken in.
    current_place: u64,
    first: Option<u64>,
}

/// What one subscriber has not been told yet.
#[derive(Debug, Default)]
pub(crate) struct OutboxSet {
    slots: Vec<Option<Slot>>,
    /// Where slots are found once there are many.
    by_uri: Option<HashMap<ResourceUri, SlotId>>,
    len: usize,
    /// How many slots were subscribed to by name.
    by_name: usize,
    /// Apart, so that what every mark touches lies close together, and since many watch none.
    lists: Option<Box<[Option<ListSlot>; 3]>>,
    queue: VecDeque<Key>,
    /// The highest offset of any notice taken in.
    seen: u64,
    /// The lowest slot that may be free.
    free_from: SlotId,
    /// Set when it takes URIs by filter: marking an unknown one subscribes to it, telling of a removal ends that.
    open: Option<Box<Open>>,
}

/// What a set takes beside its subscriptions by name.
#[derive(Debug)]
struct Open {
    filter: Arc<Filter>,
    /// How many slots there may be for it.
    max: usize,
    /// Changes not taken in because every slot was pending.
    lost: u64,
    /// Where the search for a slot that is not pending goes on.
    hand: SlotId,
}

impl OutboxSet {
    /// Adds a subscription that knows `etag`, at offset `at`. Answers its slot, and whether it is new: subscribing
    /// twice is one subscription.
    pub(crate) fn subscribe(&mut self, uri: &ResourceUri, etag: Etag, at: u64) -> (SlotId, bool) {
        let index = self.find(uri).unwrap_or_else(|| self.occupy(uri, etag, at));
        let mut new = false;
        if let Some(Some(slot)) = self.slots.get_mut(index as usize) {
            new = !std::mem::replace(&mut slot.by_name, true);
        }
        self.by_name += usize::from(new);
        (index, new)
    }

    /// A slot for a URI that has none.
    fn occupy(&mut self, uri: &ResourceUri, etag: Etag, at: u64) -> SlotId {
        self.seen = self.seen.max(at);
        let slot = Slot {
            uri: uri.clone(),
            by_name: false,
            version: etag.version,
            latest: None,
            latest_offset: 0,
            first: None,
            since: None,
        };
        let free = if self.len < self.slots.len() {
            let from = self.free_from as usize;
            let rest = self.slots.iter().skip(from);
            rest.into_iter()
                .position(Option::is_none)
                .map(|place| from + place)
        } else {
            None
        };
        let index = free.unwrap_or_else(|| {
            self.slots.reserve_exact(usize::from(self.slots.len() < 4));
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[index] = Some(slot);
        self.free_from = index as SlotId + 1;
        self.len += 1;
        if self.slots.len() > WALK_MAX {
            self.index_all(index as SlotId, uri);
        }
        index as SlotId
    }

    fn index_all(&mut self, slot: SlotId, uri: &ResourceUri) {
        let by_uri = self.by_uri.get_or_insert_with(|| {
            let known = self.slots.iter().enumerate();
            let known = known.filter_map(|(i, s)| Some((s.as_ref()?.uri.clone(), i as SlotId)));
            known.collect()
        });
        by_uri.insert(uri.clone(), slot);
    }

    /// Ends a subscription, pending notice included unless the set is open. Answers its slot.
    pub(crate) fn unsubscribe(&mut self, uri: &ResourceUri) -> Option<SlotId> {
        let index = self.find(uri)?;
        let slot = self.slots.get_mut(index as usize)?.as_mut()?;
        if !std::mem::take(&mut slot.by_name) {
            return None;
        }
        self.by_name -= 1;
        if self.open.is_none() {
            self.vacate(index);
        }
        Some(index)
    }

    fn vacate(&mut self, index: SlotId) {
        let Some(removed) = self.slots.get_mut(index as usize).and_then(Option::take) else {
            return;
        };
        if removed.first.is_some() {
            self.queue.retain(|key| *key != Key::Slot(index));
        }
        if let Some(by_uri) = &mut self.by_uri {
            by_uri.remove(&removed.uri);
        }
        self.free_from = self.free_from.min(index);
        self.len -= 1;
    }

    /// The place of a notice in this set's own order. While a subscriber moves, the shard it left may mark it late,
    /// with an offset that the subscriber has passed; what it is told then counts as after all it was told before,
    /// so that resuming from there does not skip it.
    fn place(&mut self, offset: u64) -> u64 {
        if offset < self.seen {
            return self.seen + 1;
        }
        self.seen = offset;
        offset
    }

    /// Whether there is a subscription to `uri` by name.
    pub(crate) fn is_subscribed(&self, uri: &ResourceUri) -> bool {
        let slot = self
            .find(uri)
            .and_then(|slot| self.slots.get(slot as usize)?.as_ref());
        slot.is_some_and(|slot| slot.by_name)
    }

    /// The slot of a URI.
    pub(crate) fn find(&self, uri: &ResourceUri) -> Option<SlotId> {
        if let Some(by_uri) = &self.by_uri {
            return by_uri.get(uri).copied();
        }
        let same = |slot: &Option<Slot>| slot.as_ref().is_some_and(|slot| slot.uri == *uri);
        self.slots.iter().position(same).map(|index| index as SlotId)
    }

    /// Notes that the resource behind `slot` changed. A notice of another URI is for a subscription that has ended:
    /// the shard that a subscriber left may still have it.
    pub(crate) fn mark(&mut self, slot: SlotId, notice: &Arc<Notice>) -> MarkResult {
        let at = self.place(notice.position.offset);
        let Some(Some(held)) = self.slots.get_mut(slot as usize) else {
            return MarkResult::Ignored;
        };
        if notice.etag.version <= held.version || notice.uri != held.uri {
            return MarkResult::Ignored;
        }
        held.version = notice.etag.version;
        held.latest = Some(notice.clone());
        held.latest_offset = at;
        if held.first.is_some() {
            return MarkResult::Conflated;
        }
        held.first = Some(at);
        held.since = Some(notice.at);
        self.queue.push_back(Key::Slot(slot));
        MarkResult::New
    }

    /// Makes the set take notices of every URI that `filter` wants, in at most `max` slots (at least 1) beside those
    /// of its subscriptions. The first filter stands.
    pub(crate) fn open(&mut self, filter: Arc<Filter>, max: usize) {
        self.open.get_or_insert_with(|| {
            Box::new(Open {
                filter,
                max: max.max(1),
                lost: 0,
                hand: 0,
            })
        });
    }

    /// Whether it takes notices by filter.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// How many changes were not taken in since this was last asked, because every slot was pending.
    pub(crate) fn take_lost(&mut self) -> u64 {
        self.open
            .as_mut()
            .map_or(0, |open| std::mem::take(&mut open.lost))
    }

    /// Notes that a resource changed, whichever it is; for a set made [`open`](Self::open).
    pub(crate) fn mark_any(&mut self, notice: &Arc<Notice>) -> MarkResult {
        let wanted = self.open.as_ref().is_some_and(|open| open.filter.wants(notice));
        if !wanted {
            return MarkResult::Ignored;
        }
        if let Some(slot) = self.find(&notice.uri) {
            return self.mark(slot, notice);
        }
        if !self.make_room() {
            return MarkResult::Ignored;
        }
        let before = notice.position.offset.saturating_sub(1);
        let slot = self.occupy(&notice.uri, Etag::UNKNOWN, before);
        self.mark(slot, notice)
    }

    /// Sees that an open set has room for one more slot, if need be that of a resource that has been told. Counts a loss
    /// when every slot is pending.
    fn make_room(&mut self) -> bool {
        let Some(open) = &mut self.open else { return false };
        if self.len - self.by_name < open.max {
            return true;
        }
        let slots = self.slots.len();
        let mut hand = open.hand as usize;
        // All of them pending is the state of a reader that stands still: no search then.
        let steps = if self.queue.len() < self.len { slots } else { 0 };
        for _ in 0..steps {
            hand = (hand + 1) % slots;
            let notified = |slot: &Slot| slot.first.is_none() && !slot.by_name;
            if self.slots[hand].as_ref().is_some_and(notified) {
                open.hand = hand as SlotId;
                self.vacate(hand as SlotId);
                return true;
            }
        }
        open.lost += 1;
        false
    }

    /// Begins to watch a list whose last told hash is `notified`.
    pub(crate) fn watch_list(&mut self, kind: ListKind, notified: ListHash, at: u64) {
        let slot = ListSlot {
            notified: Some(notified),
            notified_offset: 0,
            current: notified,
            current_offset: at,
            current_place: at,
            first: None,
        };
        self.lists.get_or_insert_default()[kind.index()].get_or_insert(slot);
        self.seen = self.seen.max(at);
    }

    /// Notes that a list has the hash `hash` since `offset`. A list that is back at what the subscriber was told is
    /// no longer pending.
    pub(crate) fn mark_list(&mut self, kind: ListKind, hash: ListHash, offset: u64) -> MarkResult {
        let at = self.place(offset);
        let Some(list) = self.list_mut(kind) else {
            return MarkResult::Ignored;
        };
        if offset < list.current_offset {
            return MarkResult::Ignored;
        }
        (list.current, list.current_offset, list.current_place) = (hash, offset, at);
        if Some(hash) == list.notified {
            if list.first.take().is_some() {
                self.queue.retain(|key| *key != Key::List(kind));
            }
            return MarkResult::Ignored;
        }
        if list.first.is_some() {
            return MarkResult::Conflated;
        }
        list.first = Some(at);
        self.queue.push_back(Key::List(kind));
        MarkResult::New
    }

    /// Takes the entry that has been pending longest. From here on it counts as told.
    pub(crate) fn pop(&mut self) -> Option<OutboxEntry> {
        while let Some(key) = self.queue.pop_front() {
            match key {
                Key::Slot(slot) => {
                    let Some(Some(held)) = self.slots.get_mut(slot as usize) else {
                        continue;
                    };
                    held.first = None;
                    let Some(notice) = held.latest.clone() else {
                        continue;
                    };
                    if self.open.is_some() && !held.by_name && notice.cause == Cause::Removed {
                        self.vacate(slot);
                    }
                    return Some(OutboxEntry::Updated(notice));
                }
                Key::List(kind) => {
                    let Some(list) = self.list_mut(kind) else {
                        continue;
                    };
                    list.first = None;
                    (list.notified, list.notified_offset) = (Some(list.current), list.current_place);
                    return Some(OutboxEntry::ListChanged(kind));
                }
            }
        }
        None
    }

    /// The offset up to which this subscriber has been told everything it asked for.
    pub(crate) fn safe_offset(&self) -> u64 {
        // The queue is in the order of `first`, so its head is the oldest entry.
        let first = self.queue.front().and_then(|key| self.first_of(*key));
        first.map_or(self.seen, |first| first - 1)
    }

    /// Marks again everything that was told after `offset`: the reader says it got no further. Keeps the order.
    pub(crate) fn rewind(&mut self, offset: u64) {
        for slot in self.slots.iter_mut().flatten() {
            if slot.latest.is_some() && slot.latest_offset > offset && slot.first.is_none() {
                slot.first = Some(slot.latest_offset);
                slot.since = slot.latest.as_ref().map(|notice| notice.at);
            }
        }
        for list in self.lists.iter_mut().flat_map(|lists| lists.iter_mut()).flatten() {
            if list.notified_offset > offset {
                list.first.get_or_insert(list.notified_offset);
                list.notified = None;
            }
        }
        let slots = (0..self.slots.len()).map(|slot| Key::Slot(slot as SlotId));
        let keys = slots.chain(ListKind::ALL.map(Key::List));
        let mut pending: Vec<_> = keys.filter_map(|key| Some((self.first_of(key)?, key))).collect();
        pending.sort_by_key(|(first, _)| *first);
        self.queue = pending.into_iter().map(|(_, key)| key).collect();
    }

    fn first_of(&self, key: Key) -> Option<u64> {
        match key {
            Key::Slot(slot) => self.slots.get(slot as usize)?.as_ref()?.first,
            Key::List(kind) => self.list(kind)?.first,
        }
    }

    /// How many entries are pending.
    pub(crate) fn pending(&self) -> usize {
        self.queue.len()
    }

    /// The URIs of the pending resource entries, oldest first.
    pub(crate) fn pending_uris(&self) -> impl Iterator<Item = &ResourceUri> {
        self.pending_notices().map(|notice| &notice.uri)
    }

    /// The notices that are pending, oldest first.
    pub(crate) fn pending_notices(&self) -> impl Iterator<Item = &Arc<Notice>> {
        self.queue.iter().filter_map(|key| match key {
            Key::Slot(slot) => self.slots.get(*slot as usize)?.as_ref()?.latest.as_ref(),
            Key::List(_) => None,
        })
    }

    /// The lists whose change is pending, oldest first.
    pub(crate) fn pending_lists(&self) -> impl Iterator<Item = ListKind> {
        self.queue.iter().filter_map(|key| match key {
            Key::Slot(_) => None,
            Key::List(kind) => Some(*kind),
        })
    }

    /// When the change passed the door that has been pending longest.
    pub(crate) fn oldest_since(&self) -> Option<Instant> {
        self.queue.iter().find_map(|key| match key {
            Key::Slot(slot) => self.slots.get(*slot as usize)?.as_ref()?.since,
            Key::List(_) => None,
        })
    }

    /// How `uri` stands: the version this subscriber knows or will know, the newest notice of it, and whether that is
    /// pending. None when it is told nothing of it.
    pub(crate) fn standing(&self, uri: &ResourceUri) -> Option<(u64, Option<&Arc<Notice>>, bool)> {
        let slot = self.slots.get(self.find(uri)? as usize)?.as_ref()?;
        Some((slot.version, slot.latest.as_ref(), slot.first.is_some()))
    }

    /// How many subscriptions by name there are.
    pub(crate) fn subscriptions(&self) -> usize {
        self.by_name
    }

    /// Every subscription by name with its slot.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (SlotId, &ResourceUri)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, slot)| {
            let slot = slot.as_ref().filter(|slot| slot.by_name)?;
            Some((index as SlotId, &slot.uri))
        })
    }

    /// The hash of `kind` that the subscriber was last told of; none when it does not watch that list or may have
    /// missed the telling.
    pub(crate) fn list_notified(&self, kind: ListKind) -> Option<ListHash> {
        self.list(kind).and_then(|list| list.notified)
    }

    /// The kinds it watches.
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
        };
        Arc::new(Notice::new(
            uri(name),
            etag,
            Cause::Updated,
            Position { epoch: 1, offset },
            Instant::now(),
        ))
    }

    fn notified(set: &mut OutboxSet) -> Vec<String> {
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
    fn a_drain_of_a5_b6_a7_as_a7_is_safe_only_when_b6_is_told_too() {
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
    fn rewinding_repeats_what_came_after_and_nothing_else() {
        let mut set = OutboxSet::default();
        for name in 1..4 {
            let (slot, _) = set.subscribe(&uri(name), Etag::UNKNOWN, 0);
            set.mark(slot, &notice(name, 1, u64::from(name)));
        }
        assert_eq!(notified(&mut set), ["demo://1@1", "demo://2@2", "demo://3@3"]);
        set.rewind(2);
        assert_eq!(notified(&mut set), ["demo://3@3"]);
        set.rewind(0);
        assert_eq!(set.safe_offset(), 0);
        assert_eq!(notified(&mut set), ["demo://1@1", "demo://2@2", "demo://3@3"]);
    }

    #[test]
    fn a_list_is_due_only_when_it_differs_from_what_was_told() {
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
        assert_eq!(notified(&mut set), ["tools"]);
        assert_eq!(set.mark_list(ListKind::Tools, hash(2), 4), MarkResult::Ignored);
        // There and back again before anybody read: nothing to tell.
        assert_eq!(set.mark_list(ListKind::Tools, hash(3), 5), MarkResult::New);
        assert_eq!(set.mark_list(ListKind::Tools, hash(2), 6), MarkResult::Ignored);
        assert_eq!(notified(&mut set), [""; 0]);
        assert_eq!(set.list_notified(ListKind::Tools), Some(hash(2)));
        assert_eq!(set.safe_offset(), 6);
    }

    #[derive(Debug, Clone)]
    enum TraceStep {
        Subscribe(u8),
        Unsubscribe(u8),
        Mark(u8),
        MarkList(u8),
        Pop,
        Rewind(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<TraceStep>> {
        let step = prop_oneof![
            3 => (0..24u8).prop_map(TraceStep::Subscribe),
            1 => (0..24u8).prop_map(TraceStep::Unsubscribe),
            6 => (0..24u8).prop_map(TraceStep::Mark),
            2 => (0..3u8).prop_map(TraceStep::MarkList),
            4 => Just(TraceStep::Pop),
            1 => (0..40u64).prop_map(TraceStep::Rewind),
        ];
        prop::collection::vec(step, 0..250)
    }

    proptest! {
        /// The newest of each key is never lost, there is never more than one entry per key, versions never go
        /// backward, and everything at or before the safe offset has been told.
        #[test]
        fn never_loses_the_newest_and_never_exceeds_its_keys(steps in steps()) {
            let mut set = OutboxSet::default();
            set.watch_list(ListKind::Tools, ListHash::EMPTY, 0);
            let mut subscribed: BTreeSet<u8> = BTreeSet::new();
            let mut newest: BTreeMap<u8, u64> = BTreeMap::new();
            let mut known: BTreeMap<u8, u64> = BTreeMap::new();
            // Offsets at which a subscribed key changed, per key, while not told.
            let mut unnotified: BTreeMap<u8, u64> = BTreeMap::new();
            let (mut list_now, mut list_known, mut offset) = (ListHash::EMPTY, ListHash::EMPTY, 0u64);
            for step in steps {
                match step {
                    TraceStep::Subscribe(name) => {
                        let version = newest.get(&name).copied().unwrap_or(0);
                        let (_, new) = set.subscribe(&uri(name), Etag { version, updated_at: 0 }, offset);
                        prop_assert_eq!(new, subscribed.insert(name));
                        if new {
                            known.insert(name, version);
                        }
                    }
                    TraceStep::Unsubscribe(name) => {
                        prop_assert_eq!(set.unsubscribe(&uri(name)).is_some(), subscribed.remove(&name));
                        known.remove(&name);
                        unnotified.remove(&name);
                    }
                    TraceStep::Mark(name) => {
                        offset += 1;
                        let version = newest.entry(name).or_default();
                        *version += 1;
                        if let Some(slot) = set.find(&uri(name)) {
                            prop_assert_ne!(set.mark(slot, &notice(name, *version, offset)), MarkResult::Ignored);
                            unnotified.entry(name).or_insert(offset);
                        }
                    }
                    TraceStep::MarkList(n) => {
                        offset += 1;
                        list_now = hash(u128::from(n));
                        set.mark_list(ListKind::Tools, list_now, offset);
                    }
                    TraceStep::Pop => match set.pop() {
                        Some(OutboxEntry::Updated(notice)) => {
                            let name: u8 = notice.uri.as_str()["demo://".len()..].parse().unwrap();
                            prop_assert_eq!(notice.etag.version, newest[&name]);
                            prop_assert!(notice.etag.version >= known[&name]);
                            known.insert(name, notice.etag.version);
                            unnotified.remove(&name);
                        }
                        Some(OutboxEntry::ListChanged(_)) => list_known = list_now,
                        None => {
                            prop_assert_eq!(list_known, list_now);
                            prop_assert!(subscribed.iter().all(|n| known[n] == newest.get(n).copied().unwrap_or(0)));
                        }
                    },
                    TraceStep::Rewind(to) => {
                        let before = set.pending();
                        set.rewind(to.min(offset));
                        prop_assert!(set.pending() >= before);
                    }
                }
                prop_assert_eq!(set.subscriptions(), subscribed.len());
                prop_assert!(set.pending() <= subscribed.len() + 1);
                prop_assert!(unnotified.values().all(|first| *first > set.safe_offset()));
            }
        }
    }
}
