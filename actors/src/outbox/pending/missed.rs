//! The changes that a subscriber missed before it subscribed, and the resources that it waits for.

use std::sync::Arc;

use super::{Key, MarkResult, OutboxSet};
use crate::model::{Cause, Notice, ResourceUri};

impl OutboxSet {
    /// Makes the present state of a subscribed resource pending, for a subscriber that holds another one.
    /// Changes nothing if it is pending already.
    pub(crate) fn mark_missed(&mut self, notice: &Arc<Notice>) -> MarkResult {
        let Some(index) = self.find(&notice.uri) else {
            return MarkResult::Ignored;
        };
        let hidden = matches!(self.slots.get(index), Some(slot) if slot.hidden);
        if hidden || self.first_offset(Key::Slot(index)).is_some() {
            return MarkResult::Ignored;
        }
        let local = self.invent_offset(notice.position.offset);
        let Some(slot) = self.slots.get_mut(index) else {
            return MarkResult::Ignored;
        };
        slot.version = slot.version.max(notice.etag.version);
        slot.latest = Some(notice.clone());
        slot.latest_offset = local;
        slot.first_offset = Some(local);
        slot.pending_since = Some(notice.at);
        self.queue.push_back(Key::Slot(index));
        MarkResult::New
    }

    /// Returns a local offset behind all others, for a notice at the offset `at` of a change before it.
    fn invent_offset(&mut self, at: u64) -> u64 {
        // With the offset of that change, a client that was handed the change, lost its stream and resumed
        // there would never be notified.
        self.highest_offset = self.highest_offset.max(at) + 1;
        self.invented_offset = Some(self.highest_offset);
        self.highest_offset
    }

    /// Returns the place of a notice in the order of this outbox.
    pub(super) fn local_offset(&mut self, offset: u64) -> u64 {
        if offset > self.highest_offset {
            self.highest_offset = offset;
            return offset;
        }
        // The order of the bus has not passed the invented offset yet. Its changes are put behind it one by
        // one, since entries that shared an offset could be skipped by a client that resumes.
        if self.invented_offset == Some(self.highest_offset) {
            return self.invent_offset(offset);
        }
        // While a subscriber moves between shards, the shard it left may mark it late, with an offset that
        // the subscriber has passed. That mark is put behind all that was handed out, so that resuming does
        // not skip it.
        if offset < self.highest_offset {
            return self.highest_offset + 1;
        }
        offset
    }

    /// Notes that the resource of a subscription does not exist yet.
    pub(crate) fn await_resource(&mut self, uri: &ResourceUri) {
        if let Some(index) = self.find(uri)
            && let Some(slot) = self.slots.get_mut(index)
            && !std::mem::replace(&mut slot.awaited, true)
        {
            self.awaited += 1;
        }
    }

    /// The number of subscriptions to resources that do not exist yet.
    pub(crate) fn awaited(&self) -> usize {
        self.awaited
    }
}

/// Returns true if a notice ends the wait for its resource: the resource is there, and open to clients.
pub(super) fn ends_wait(notice: &Notice) -> bool {
    notice.cause == Cause::Updated && notice.subscribable
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::model::{Etag, Position};
    use crate::outbox::OutboxEntry;

    fn uri(name: u8) -> ResourceUri {
        ResourceUri::new(&format!("demo://{name}")).unwrap()
    }

    fn etag(version: u64) -> Etag {
        Etag {
            version,
            ..Etag::UNKNOWN
        }
    }

    fn notice(name: u8, version: u64, offset: u64) -> Notice {
        let position = Position { epoch: 1, offset };
        Notice::new(uri(name), etag(version), Cause::Updated, position, Instant::now())
    }

    /// Takes the pending notices, each with its version.
    fn taken(set: &mut OutboxSet) -> Vec<(String, u64)> {
        let mut taken = Vec::new();
        while let Some(OutboxEntry::Updated(notice)) = set.pop() {
            taken.push((notice.uri.to_string(), notice.etag.version));
        }
        taken
    }

    #[test]
    fn missed_change_is_pending_once() {
        let mut set = OutboxSet::default();
        let (slot, _) = set.subscribe(&uri(1), etag(3), 5);
        let missed = Arc::new(notice(1, 3, 5));
        assert_eq!(set.mark_missed(&missed), MarkResult::New);
        assert_eq!(set.mark_missed(&missed), MarkResult::Ignored);
        assert_eq!(set.mark(slot, &Arc::new(notice(1, 4, 6))), MarkResult::Conflated);
        assert_eq!(taken(&mut set), [("demo://1".to_owned(), 4)]);
        // A client that says again that it holds an old version is notified again.
        assert_eq!(set.mark_missed(&Arc::new(notice(1, 4, 6))), MarkResult::New);
        assert_eq!(taken(&mut set), [("demo://1".to_owned(), 4)]);
    }

    #[test]
    fn missed_change_lies_behind_the_last_position() {
        let mut set = OutboxSet::default();
        set.subscribe(&uri(1), etag(3), 5);
        let (other, _) = set.subscribe(&uri(2), etag(0), 5);
        let before = set.safe_offset();
        set.mark_missed(&Arc::new(notice(1, 3, 5)));
        assert_eq!(set.safe_offset(), before);
        assert_eq!(taken(&mut set).len(), 1);
        // Lost with the stream, it comes again to a client that resumes from the position before it.
        set.rewind(before);
        assert_eq!(taken(&mut set), [("demo://1".to_owned(), 3)]);
        let after = set.safe_offset();
        set.rewind(after);
        assert_eq!(taken(&mut set), []);
        // The next change of the bus has the same offset there, and another place here.
        set.mark(other, &Arc::new(notice(2, 1, 6)));
        assert_eq!(taken(&mut set), [("demo://2".to_owned(), 1)]);
        set.rewind(after);
        assert_eq!(taken(&mut set), [("demo://2".to_owned(), 1)]);
        set.rewind(set.safe_offset());
        assert_eq!(taken(&mut set), []);
        // Once the order of the bus is ahead, its offsets count again.
        set.mark(other, &Arc::new(notice(2, 2, 20)));
        taken(&mut set);
        assert_eq!(set.safe_offset(), 20);
    }

    #[test]
    fn awaited_resource_counts_until_it_appears_open() {
        let mut set = OutboxSet::default();
        let (slot, _) = set.subscribe(&uri(1), Etag::UNKNOWN, 5);
        set.await_resource(&uri(1));
        set.await_resource(&uri(1));
        assert_eq!(set.awaited(), 1);
        let mut closed = notice(1, 1, 6);
        closed.subscribable = false;
        assert_eq!(set.mark(slot, &Arc::new(closed)), MarkResult::Ignored);
        let mut removed = notice(1, 2, 7);
        removed.cause = Cause::Removed;
        assert_eq!(set.mark(slot, &Arc::new(removed)), MarkResult::Ignored);
        assert_eq!(set.awaited(), 1);
        assert_eq!(set.mark(slot, &Arc::new(notice(1, 3, 8))), MarkResult::New);
        assert_eq!((set.awaited(), taken(&mut set).len()), (0, 1));
        set.await_resource(&uri(1));
        set.unsubscribe(&uri(1));
        assert_eq!(set.awaited(), 0);
    }
}
