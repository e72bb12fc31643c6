//! The end of a change: whoever made it is answered when the last shard has told its share.
//!
//! Owns: who is answered, and the sum of how many are told. Never: is sent anywhere itself; each shard's [`FanOut`] has a
//! share of it, and the last share that goes answers. A change that no shard wants is answered by the Etag actor.
//!
//! [`FanOut`]: crate::message::Fan

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::metrics::Metrics;
use crate::model::{ListOutcome, Notice, Outcome, PublishError, TraceStep};
use crate::runtime::{Reply, Tracer};

/// Who is answered when the last shard has marked its share.
pub(crate) enum Finish {
    Change(Reply<Result<Outcome, PublishError>>, Outcome),
    List(Reply<Result<ListOutcome, PublishError>>, ListOutcome),
}

impl Finish {
    /// Answers that so many are told: of the resource, and of a list.
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
        }
    }
}

/// Shared by the shards that work on one change. Dropping the last share answers the caller.
pub(crate) struct Completion {
    notified: AtomicUsize,
    listed: AtomicUsize,
    finish: Option<Finish>,
    /// The notice that is told, when somebody wants to know what becomes of it.
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

    /// Has the tracer told how many were told of `notice`.
    pub(crate) fn traced(mut self, notice: &Arc<Notice>, tracer: &Arc<Tracer>) -> Completion {
        self.traced = Some((notice.clone(), tracer.clone()));
        self
    }

    /// Adds what one shard did: how many it told of the resource, and how many of a list.
    pub(crate) fn add(&self, notified: usize, listed: usize) {
        self.notified.fetch_add(notified, Ordering::Relaxed);
        self.listed.fetch_add(listed, Ordering::Relaxed);
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        let (notified, listed) = (*self.notified.get_mut(), *self.listed.get_mut());
        if let Some((notice, tracer)) = &self.traced {
            tracer.trace_notice(notice, TraceStep::Fanned { notified });
        }
        if let Some(finish) = self.finish.take() {
            finish.answer(notified, listed, &self.metrics);
        }
    }
}
