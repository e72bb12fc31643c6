//! The end of a change: the last shard that is done answers the publisher.
//!
//! Each [`FanOut`](super::FanOut) has a share of the completion. A change that no shard wants is answered
//! by the Etag actor without one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::metrics::Metrics;
use crate::model::{ListOutcome, Notice, Outcome, PublishError, TraceStep};
use crate::runtime::{Reply, Tracer};

/// The reply to a publisher.
pub(crate) enum Finish {
    Change(Reply<Result<Outcome, PublishError>>, Outcome),
    List(Reply<Result<ListOutcome, PublishError>>, ListOutcome),
    /// The last of this many removals of unclaimed URIs.
    Unclaimed(Reply<usize>, usize),
    /// No publisher waits.
    Silent,
}

impl Finish {
    /// Sends the reply with the numbers of notified subscribers, of the resource and of a list.
    pub(crate) fn answer(self, notified: usize, listed: usize, metrics: &Metrics) {
        match self {
            Finish::Change(reply, outcome) => {
                // The same content again reaches no outbox, and would only make the fan-out look fast.
                if outcome.changed {
                    metrics.record_fan_out(reply.at());
                }
                reply.answer(Ok(Outcome { notified, ..outcome }));
            }
            Finish::List(reply, outcome) => {
                metrics.record_fan_out(reply.at());
                let notified = listed;
                reply.answer(Ok(ListOutcome { notified, ..outcome }));
            }
            Finish::Unclaimed(reply, removed) => reply.answer(removed),
            Finish::Silent => {}
        }
    }
}

/// The completion of one change, shared by its shards. Dropping the last share answers the publisher.
pub(crate) struct Completion {
    notified: AtomicUsize,
    listed: AtomicUsize,
    finish: Option<Finish>,
    /// The notice, if a tracer follows it.
    traced: Option<(Arc<Notice>, Arc<Tracer>)>,
    metrics: Arc<Metrics>,
}

impl Completion {
    pub(crate) fn new(finish: Finish, metrics: Arc<Metrics>) -> Completion {
        Completion {
            notified: AtomicUsize::new(0),
            listed: AtomicUsize::new(0),
            finish: Some(finish),
            traced: None,
            metrics,
        }
    }

    /// Reports the number of notified subscribers to the tracer.
    pub(crate) fn traced(mut self, notice: &Arc<Notice>, tracer: &Arc<Tracer>) -> Completion {
        self.traced = Some((notice.clone(), tracer.clone()));
        self
    }

    /// Adds the subscribers that one shard notified, of the resource and of a list.
    pub(crate) fn add(&self, notified: usize, listed: usize) {
        self.notified.fetch_add(notified, Ordering::Relaxed);
        self.listed.fetch_add(listed, Ordering::Relaxed);
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        let notified = *self.notified.get_mut();
        let listed = *self.listed.get_mut();
        if let Some((notice, tracer)) = &self.traced {
            tracer.trace_notice(notice, TraceStep::Fanned { notified });
        }
        if let Some(finish) = self.finish.take() {
            finish.answer(notified, listed, &self.metrics);
        }
    }
}
