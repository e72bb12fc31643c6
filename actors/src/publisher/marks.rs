//! The fan-out of one change in one shard: marks outboxes and counts the marks.

use std::sync::Arc;
use std::time::Instant;

use super::Publisher;
use crate::messages::{FanOut, StampedSubscription};
use crate::metrics::Metrics;
use crate::model::{ListHash, ListKind, MonotonicMillis, Notice, Position, SkipReason, TraceStep};
use crate::outbox::{MarkResult, Outbox, SlotId};

/// The number of subscribers from which on a shard copies a notice, so that shards do not share its
/// reference count.
const APART_MIN: usize = 8;

/// Marks that are made together. Counted here first, because a shared counter per outbox would make the
/// shards wait for each other.
pub(super) struct MarkCounts {
    /// The time of the marks, read once, because the clock costs more than a mark.
    pub(super) at: MonotonicMillis,
    new: usize,
    conflated: usize,
    /// The lists among `new`.
    lists: usize,
    /// The lists among `conflated`.
    lists_conflated: usize,
    /// Lists whose hash the subscriber knows already.
    known: usize,
}

impl MarkCounts {
    /// Makes counts of marks that are made now.
    pub(super) fn now() -> MarkCounts {
        MarkCounts {
            at: MonotonicMillis::now(),
            new: 0,
            conflated: 0,
            lists: 0,
            lists_conflated: 0,
            known: 0,
        }
    }

    fn add(&mut self, marked: MarkResult) {
        self.new += usize::from(marked == MarkResult::New);
        self.conflated += usize::from(marked == MarkResult::Conflated);
    }

    pub(super) fn add_list(&mut self, marked: MarkResult) {
        self.add(marked);
        self.lists += usize::from(marked == MarkResult::New);
        self.lists_conflated += usize::from(marked == MarkResult::Conflated);
        self.known += usize::from(marked == MarkResult::Ignored);
    }

    pub(super) fn report(&self, metrics: &Metrics) {
        metrics.notified.add(self.new);
        metrics.pending.change(0, self.new);
        metrics.conflated.add(self.conflated);
        metrics.lists_due.add(self.lists);
        metrics.lists_known.add(self.known);
    }
}

/// A list that changed, with its hash and its place in the order.
type ChangedList = (ListKind, ListHash, Position);

impl Publisher {
    /// Marks all outboxes that want the notice or the list.
    pub(super) fn tell_all(&self, fan_out: &FanOut) {
        let mut count = MarkCounts::now();
        if let Some(notice) = &fan_out.notice {
            for (outbox, slot) in self.table.subscribers(&notice.uri) {
                self.mark_slot(outbox, slot, notice, &mut count);
            }
            for member in &self.watching {
                if let Some(outbox) = self.table.get(*member) {
                    self.mark_watching(outbox, notice, &mut count);
                }
            }
        }
        if let Some(list) = fan_out.list {
            let (kind, ..) = list;
            for member in &self.lists[kind.index()] {
                if let Some(outbox) = self.table.get(*member) {
                    self.mark_listed(outbox, list, self.shown[kind.index()].as_deref(), &mut count);
                }
            }
        }
        self.report(fan_out, &count);
    }

    /// Gives a notice for many subscribers a copy of this shard.
    pub(super) fn separate(&self, fan_out: &mut FanOut) {
        if let Some(notice) = &mut fan_out.notice
            && self.table.subscribers(&notice.uri).len() >= APART_MIN
        {
            *notice = Arc::new(notice.copy_for_shard(self.table.shared(&notice.uri)));
        }
    }

    /// Adds marks to the metrics, and to the numbers that the publisher is answered.
    pub(super) fn report(&self, fan_out: &FanOut, count: &MarkCounts) {
        let listed = count.lists + count.lists_conflated;
        let notified = count.new + count.conflated - listed;
        fan_out.completion.add(notified, listed);
        count.report(&self.metrics);
    }

    /// Counts the members that do not watch a list that changed.
    pub(super) fn count_unasked(&self, kind: ListKind) {
        let unasked = self.members.len() - self.lists[kind.index()].len();
        self.metrics.lists_unasked.add(unasked);
    }

    /// Marks the outbox of a subscription.
    pub(super) fn mark_slot(
        &self,
        outbox: &Outbox,
        slot: SlotId,
        notice: &Arc<Notice>,
        count: &mut MarkCounts,
    ) {
        let marked = outbox.mark(slot, notice, count.at);
        self.count_mark(outbox, notice, marked, count);
    }

    /// Marks an outbox that takes resources by filter.
    pub(super) fn mark_watching(&self, outbox: &Outbox, notice: &Arc<Notice>, count: &mut MarkCounts) {
        let marked = outbox.mark_filtered(notice, count.at);
        self.count_mark(outbox, notice, marked, count);
    }

    /// Marks an outbox that watches a list, of which `shown` has the hash for each audience.
    pub(super) fn mark_listed(
        &self,
        outbox: &Outbox,
        (kind, hash, position): ChangedList,
        shown: Option<&[(u64, ListHash)]>,
        count: &mut MarkCounts,
    ) {
        let hash = outbox.shown_hash(hash, shown.unwrap_or_default());
        let marked = outbox.mark_list(kind, hash, position, count.at);
        count.add_list(marked);
        self.tracer
            .trace_list(kind, Some(position), || marked_step(outbox, marked));
    }

    /// Marks the state that a new subscriber does not have.
    pub(super) fn mark_missed(
        &self,
        outbox: &Outbox,
        subscription: &StampedSubscription,
        at: Position,
        count: &mut MarkCounts,
    ) {
        let Some(cause) = subscription.missed else {
            return;
        };
        // The last change of the bus is not this one, but the state that it left is the one to tell.
        let uri = self.table.shared(&subscription.uri);
        let mut notice = Notice::new(uri, subscription.etag, cause, at, Instant::now());
        notice.traced = self.tracer.wants(&notice.uri, at);
        let notice = Arc::new(notice);
        let marked = outbox.mark_missed(&notice, count.at);
        self.count_mark(outbox, &notice, marked, count);
    }

    /// Takes the newest notice of a subscription that began at another node.
    pub(super) fn resume(
        &self,
        outbox: &Outbox,
        subscription: &StampedSubscription,
        at: Position,
        count: &mut MarkCounts,
    ) {
        let Some(resumed) = &subscription.resumed else {
            return;
        };
        let uri = self.table.shared(&subscription.uri);
        let position = Position {
            offset: resumed.offset,
            ..at
        };
        let notice = Notice::new(uri, subscription.etag, resumed.cause, position, Instant::now());
        let notice = Arc::new(notice);
        let marked = outbox.resume(&notice, resumed.is_pending, resumed.is_sure, count.at);
        count.add(marked);
    }

    fn count_mark(&self, outbox: &Outbox, notice: &Notice, marked: MarkResult, count: &mut MarkCounts) {
        count.add(marked);
        if notice.traced {
            self.tracer.trace_notice(notice, marked_step(outbox, marked));
        }
    }
}

/// The step of a trace for a marked outbox.
fn marked_step(outbox: &Outbox, marked: MarkResult) -> TraceStep {
    let subscriber = outbox.subscriber_ref();
    match (marked, outbox.ended()) {
        (MarkResult::New, _) => TraceStep::Marked {
            subscriber,
            conflated: false,
        },
        (MarkResult::Conflated, _) => TraceStep::Marked {
            subscriber,
            conflated: true,
        },
        (MarkResult::Ignored, None) => TraceStep::Skipped {
            subscriber,
            reason: SkipReason::Known,
        },
        (MarkResult::Ignored, Some(end)) => TraceStep::Skipped {
            subscriber,
            reason: SkipReason::Ended(end),
        },
    }
}
