//! The fan-out of one change in one shard: marks outboxes and counts the marks.

use std::sync::Arc;
use std::time::Instant;

use super::Publisher;
use crate::messages::{FanOut, StampedSubscription};
use crate::metrics::Metrics;
use crate::model::{MonotonicMillis, Notice, Position, SkipReason, TraceStep};
use crate::outbox::{MarkResult, Outbox};

/// The number of subscribers from which on a shard copies a notice, so that shards do not share its
/// reference count.
const APART_MIN: usize = 8;

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
    fn add(&mut self, marked: MarkResult) {
        self.new += usize::from(marked == MarkResult::New);
        self.conflated += usize::from(marked == MarkResult::Conflated);
    }

    pub(super) fn add_list(&mut self, marked: MarkResult) {
        self.add(marked);
        self.lists += usize::from(marked == MarkResult::New);
        self.known += usize::from(marked == MarkResult::Ignored);
    }

    fn notified(&self) -> usize {
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

impl Publisher {
    /// Marks the outboxes that want the notice or the list.
    pub(super) fn fan_out(&self, fan_out: &FanOut) {
        let mut count = MarkCounts::default();
        let now = MonotonicMillis::now();
        if let Some(notice) = &fan_out.notice {
            self.mark_notice(notice, now, &mut count);
        }
        let notified = count.notified();
        if let Some((kind, hash, position)) = fan_out.list {
            for member in &self.lists[kind.index()] {
                let Some(outbox) = self.table.get(*member) else {
                    continue;
                };
                let shown = self.shown[kind.index()].as_deref().unwrap_or_default();
                let hash = outbox.shown_hash(hash, shown);
                let marked = outbox.mark_list(kind, hash, position, now);
                count.add_list(marked);
                self.tracer
                    .trace_list(kind, Some(position), || marked_step(outbox, marked));
            }
            let unasked = self.members.len() - self.lists[kind.index()].len();
            self.metrics.lists_unasked.add(unasked);
        }
        fan_out.completion.add(notified, count.notified() - notified);
        count.report(&self.metrics);
    }

    fn mark_notice(&self, notice: &Arc<Notice>, now: MonotonicMillis, count: &mut MarkCounts) {
        let subscribers = self.table.subscribers(&notice.uri);
        let mut copy = None;
        if subscribers.len() >= APART_MIN {
            copy = Some(Arc::new(notice.copy_for_shard(self.table.shared(&notice.uri))));
        }
        let notice = copy.as_ref().unwrap_or(notice);
        for (outbox, slot) in subscribers {
            let marked = outbox.mark(slot, notice, now);
            self.count_mark(outbox, notice, marked, count);
        }
        for member in &self.watching {
            if let Some(outbox) = self.table.get(*member) {
                let marked = outbox.mark_filtered(notice, now);
                self.count_mark(outbox, notice, marked, count);
            }
        }
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
        let marked = outbox.mark_missed(&notice, MonotonicMillis::now());
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
        let now = MonotonicMillis::now();
        let marked = outbox.resume(&notice, resumed.is_pending, resumed.is_sure, now);
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
