//! The steps of entries that a tracer follows.

use super::{Outbox, OutboxEntry};
use crate::model::{EndReason, TraceStep};

impl Outbox {
    pub(super) fn trace_handed_out(&self, entry: &OutboxEntry) {
        match entry {
            OutboxEntry::Updated(notice) if notice.traced => {
                let subscriber = self.subscriber_ref();
                let after = Some(notice.at.elapsed());
                self.tracer
                    .trace_notice(notice, TraceStep::HandedOut { subscriber, after });
            }
            OutboxEntry::Updated(_) => {}
            OutboxEntry::ListChanged(kind) => self.tracer.trace_list(*kind, None, || TraceStep::HandedOut {
                subscriber: self.subscriber_ref(),
                after: None,
            }),
        }
    }

    /// Traces the entries that the subscriber, which has ended, will never be handed.
    pub(crate) fn trace_dropped(&self, reason: EndReason) {
        if !self.tracer.is_on() {
            return;
        }
        let state = self.lock();
        for notice in state.set.pending_notices().filter(|notice| notice.traced) {
            let subscriber = self.subscriber_ref();
            self.tracer
                .trace_notice(notice, TraceStep::Dropped { subscriber, reason });
        }
        for kind in state.set.pending_lists() {
            self.tracer.trace_list(kind, None, || TraceStep::Dropped {
                subscriber: self.subscriber_ref(),
                reason,
            });
        }
    }
}
