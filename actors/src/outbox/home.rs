//! The shard of an outbox, and its moves to the shard that carries its newest stream.

use std::sync::atomic::Ordering;

use super::Outbox;

impl Outbox {
    pub(crate) fn shard(&self) -> usize {
        self.shard.load(Ordering::Relaxed)
    }

    pub(crate) fn set_shard(&self, shard: usize) {
        self.shard.store(shard, Ordering::Relaxed);
    }

    /// Asks for a move to `shard`, whose thread carries the newest stream. Returns true if the caller has to
    /// start it.
    pub(crate) fn want_shard(&self, shard: usize) -> bool {
        self.wanted_shard.store(shard, Ordering::Relaxed);
        // Pairs with `end_move`: if a move is under way, its end sees the shard stored above.
        shard != self.shard() && !self.moving.swap(true, Ordering::AcqRel)
    }

    /// Ends the move under way. Returns the shard that is wanted now.
    pub(crate) fn end_move(&self) -> usize {
        self.moving.swap(false, Ordering::AcqRel);
        self.wanted_shard.load(Ordering::Relaxed)
    }

    /// Counts a request of the subscriber that is on its way to its shard.
    pub(crate) fn begin_request(&self) {
        self.open_requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the completion of such a request, before it is answered.
    pub(crate) fn end_request(&self) {
        self.open_requests.fetch_sub(1, Ordering::Release);
    }

    /// Returns true if requests are on their way to the shard. Another shard could not take over their
    /// effects.
    pub(crate) fn has_open_requests(&self) -> bool {
        self.open_requests.load(Ordering::Acquire) > 0
    }
}
