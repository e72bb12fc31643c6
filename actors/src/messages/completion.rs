//! The end of a change: the last shard that is done answers the publisher.
//!
//! Each [`FanOut`](super::FanOut) has a share of the completion. A change that no shard wants is answered
//! by the Etag actor without one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::metrics::Metrics;
use crate::model::{Closed, ListOutcome, Notice, Outcome, PublishError, TraceStep};
use crate::runtime::{Reply, Tracer};

/// The reply to a publisher.
pub(crate) enum Finish {
    Change(Reply<Result<Outcome, PublishError>>, Outcome),
    List(Reply<Result<ListOutcome, PublishError>>, ListOutcome),
    /// The last of this many removals of unclaimed URIs.
    Unclaimed(Reply<usize>, usize),
    /// No publisher waits.
    Silent,
    /// The change at this place of a batch.
    OneOfMany(Arc<ManyCompletion>, usize),
    /// The change of the list that a batch causes.
    ListOfMany(Arc<ManyCompletion>),
    /// The record of the change at this place of a batch, which a shared log takes one by one.
    Counted(Arc<BatchAnswer>, usize),
    /// The end of such a batch.
    Batch(Arc<BatchAnswer>, Reply<Vec<Result<Outcome, PublishError>>>),
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
            Finish::OneOfMany(completion, place) => completion.add(place, notified),
            // The subscribers of the list count for no single change. The share is dropped here all the same,
            // so the publisher is answered after they were notified.
            Finish::ListOfMany(_share) => {}
            Finish::Counted(answer, place) => answer.add(place, notified),
            Finish::Batch(answer, reply) => {
                metrics.record_fan_out(reply.at());
                reply.answer(answer.take());
            }
        }
    }

    /// Sends the reply to a change that the store could not keep. Changes of lists need no store, and the
    /// removal of unclaimed resources is made up for when it works again.
    pub(crate) fn refuse(self, error: &PublishError, metrics: &Metrics) {
        match self {
            Finish::Change(reply, _) => {
                metrics.count_refusal(error);
                reply.answer(Err(error.clone()));
            }
            Finish::List(reply, outcome) => reply.answer(Ok(outcome)),
            Finish::Unclaimed(reply, removed) => reply.answer(removed),
            // Batches get theirs once they are durable.
            Finish::OneOfMany(..) | Finish::ListOfMany(_) | Finish::Silent => {}
            // A bus has a store or a shared log, not both.
            Finish::Counted(..) | Finish::Batch(..) => {}
        }
    }
}

/// The results of a batch whose changes become records of a shared log one by one.
pub(crate) struct BatchAnswer {
    results: Mutex<Vec<Result<Outcome, PublishError>>>,
    /// The notified subscribers of each change.
    notified: Box<[AtomicUsize]>,
}

impl BatchAnswer {
    /// Creates the answer of a batch of `len` changes, each of them refused until its result is set.
    pub(crate) fn new(len: usize) -> BatchAnswer {
        BatchAnswer {
            results: Mutex::new(vec![Err(PublishError::Closed(Closed)); len]),
            notified: (0..len).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Result<Outcome, PublishError>>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the result of the change at `place`.
    pub(crate) fn set(&self, place: usize, result: Result<Outcome, PublishError>) {
        if let Some(slot) = self.lock().get_mut(place) {
            *slot = result;
        }
    }

    fn add(&self, place: usize, notified: usize) {
        if let Some(count) = self.notified.get(place) {
            count.fetch_add(notified, Ordering::Relaxed);
        }
    }

    fn take(&self) -> Vec<Result<Outcome, PublishError>> {
        // The last share: nothing is added any more.
        let mut results = std::mem::take(&mut *self.lock());
        for (result, notified) in std::iter::zip(&mut results, &self.notified) {
            if let Ok(outcome) = result {
                outcome.notified = notified.load(Ordering::Relaxed);
            }
        }
        results
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

/// The completion of the changes of one batch. Dropping the last share answers the publisher.
pub(crate) struct ManyCompletion {
    results: Vec<Result<Outcome, PublishError>>,
    /// The notified subscribers of each change.
    notified: Box<[AtomicUsize]>,
    reply: Option<Reply<Vec<Result<Outcome, PublishError>>>>,
    metrics: Arc<Metrics>,
}

impl ManyCompletion {
    /// Made when every change of the batch is durable, since its drop reports them as made.
    pub(crate) fn new(
        results: Vec<Result<Outcome, PublishError>>,
        reply: Reply<Vec<Result<Outcome, PublishError>>>,
        metrics: Arc<Metrics>,
    ) -> ManyCompletion {
        ManyCompletion {
            notified: results.iter().map(|_| AtomicUsize::new(0)).collect(),
            results,
            reply: Some(reply),
            metrics,
        }
    }

    fn add(&self, place: usize, notified: usize) {
        if notified > 0 {
            self.notified[place].fetch_add(notified, Ordering::Relaxed);
        }
    }
}

impl Drop for ManyCompletion {
    fn drop(&mut self) {
        let mut results = std::mem::take(&mut self.results);
        for (result, notified) in std::iter::zip(&mut results, &mut self.notified) {
            if let Ok(outcome) = result {
                outcome.notified = *notified.get_mut();
            }
        }
        if let Some(reply) = self.reply.take() {
            self.metrics.record_fan_out(reply.at());
            reply.answer(results);
        }
    }
}
