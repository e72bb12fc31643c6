//! What one shard did with one change, summed before it is told.
//!
//! Owns: the sums. Never: outlives the handling of one message. Reported to the bus's metrics by the publisher.

use crate::metric::Metrics;
use crate::outbox_set::Marked;

/// What marking did, counted here first: a shared counter per outbox would make the shards wait for each other.
#[derive(Default)]
pub(super) struct Count {
    new: usize,
    conflated: usize,
    /// Those of `new` that are lists.
    lists: usize,
    /// Lists that the subscriber knows already.
    known: usize,
}

impl Count {
    pub(super) fn add(&mut self, marked: Marked) {
        self.new += usize::from(marked == Marked::New);
        self.conflated += usize::from(marked == Marked::Conflated);
    }

    pub(super) fn add_list(&mut self, marked: Marked) {
        self.add(marked);
        self.lists += usize::from(marked == Marked::New);
        self.known += usize::from(marked == Marked::Ignored);
    }

    pub(super) fn told(&self) -> usize {
        self.new + self.conflated
    }

    pub(super) fn report(&self, metrics: &Metrics) {
        metrics.told.add(self.new);
        metrics.pending.moved(0, self.new);
        metrics.conflated.add(self.conflated);
        metrics.lists_due.add(self.lists);
        metrics.lists_known.add(self.known);
    }
}
