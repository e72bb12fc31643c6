//! The marks of one change in one shard, summed before they are reported.

use crate::metrics::Metrics;
use crate::outbox::MarkResult;

/// The marks of one change. Counted here first, because a shared counter per outbox would make the shards
/// wait for each other.
#[derive(Default)]
pub(super) struct MarkCounts {
    new: usize,
    conflated: usize,
    /// The lists among `new`.
    lists: usize,
    /// Lists whose hash the subscriber knows already.
    known: usize,
}

impl MarkCounts {
    pub(super) fn add(&mut self, marked: MarkResult) {
        self.new += usize::from(marked == MarkResult::New);
        self.conflated += usize::from(marked == MarkResult::Conflated);
    }

    pub(super) fn add_list(&mut self, marked: MarkResult) {
        self.add(marked);
        self.lists += usize::from(marked == MarkResult::New);
        self.known += usize::from(marked == MarkResult::Ignored);
    }

    pub(super) fn notified(&self) -> usize {
        self.new + self.conflated
    }

    pub(super) fn report(&self, metrics: &Metrics) {
        metrics.notified.add(self.new);
        metrics.pending.change(0, self.new);
        metrics.conflated.add(self.conflated);
        metrics.lists_due.add(self.lists);
        metrics.lists_known.add(self.known);
    }
}
