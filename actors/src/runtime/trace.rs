//! What became of a notice: for whom, by which road, conflated or not, and why not.
//!
//! Owns: the words of a trace, and the [`Tracer`] that every actor and every outbox may tell. Never: costs anything but
//! one look at a flag while nobody traces. Told by the Etag actor, the publisher and the readers of outboxes; offers to
//! the queues of the subscribers that asked for traces.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::model::{
    Etag, Filter, ListKind, Notice, NoticeKind, Position, ResourceUri, Trace, TraceStep, TraceSubject,
};

/// A subscriber that asked for traces, as the tracer sees it.
pub(crate) trait TraceTarget: std::fmt::Debug + Send + Sync {
    /// The notices whose traces it wants.
    fn filter(&self) -> &Filter;
    /// Returns whether it takes no more traces.
    fn is_closed(&self) -> bool;
    /// Adds a trace to its queue.
    fn offer(&self, trace: Arc<Trace>);
}

#[derive(Debug)]
struct Target {
    to: Arc<dyn TraceTarget>,
    /// Of every so many notices one is traced.
    every: u64,
}

/// Tells what becomes of notices to those who asked.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    on: AtomicBool,
    targets: RwLock<Vec<Target>>,
    /// Counts changes that altered nothing; they have no position to sample by.
    unchanged: AtomicU64,
}

impl Tracer {
    /// Tells `to` of every `every`-th notice that its filter wants.
    pub(crate) fn add(&self, to: Arc<dyn TraceTarget>, every: u64) {
        let every = every.max(1);
        let mut targets = self.targets.write().unwrap_or_else(PoisonError::into_inner);
        targets.push(Target { to, every });
        self.on.store(true, Ordering::Relaxed);
    }

    /// Forgets those that have ended.
    pub(crate) fn prune(&self) {
        let mut targets = self.targets.write().unwrap_or_else(PoisonError::into_inner);
        targets.retain(|target| !target.to.is_closed());
        self.on.store(!targets.is_empty(), Ordering::Relaxed);
    }

    /// Whether anybody traces anything.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Whether anybody wants to know what becomes of the notice of `uri` at `position`.
    pub(crate) fn wants(&self, uri: &ResourceUri, position: Position) -> bool {
        self.is_on() && self.any(|target| target.wants(uri, position.offset))
    }

    fn any(&self, wants: impl Fn(&Target) -> bool) -> bool {
        let targets = self.targets.read().unwrap_or_else(PoisonError::into_inner);
        targets.iter().any(wants)
    }

    /// Tells of a step of a notice that is traced.
    pub(crate) fn notice(&self, notice: &Notice, step: TraceStep) {
        let trace = Arc::new(Trace {
            subject: TraceSubject::Resource(notice.uri.clone(), notice.etag),
            position: Some(notice.position),
            step,
        });
        self.tell(&trace, |target| target.wants(&notice.uri, notice.position.offset));
    }

    /// Tells of a step of a list's change; every one is traced, since they are few.
    pub(crate) fn list(&self, kind: ListKind, position: Option<Position>, step: impl FnOnce() -> TraceStep) {
        if !self.is_on() {
            return;
        }
        let trace = Arc::new(Trace {
            subject: TraceSubject::List(kind),
            position,
            step: step(),
        });
        self.tell(&trace, |target| {
            target.to.filter().wants_kind(NoticeKind::List(kind))
        });
    }

    /// Tells of a change that altered nothing.
    pub(crate) fn unchanged(&self, uri: &ResourceUri, etag: Etag) {
        if !self.is_on() {
            return;
        }
        let count = self.unchanged.fetch_add(1, Ordering::Relaxed);
        let trace = Arc::new(Trace {
            subject: TraceSubject::Resource(uri.clone(), etag),
            position: None,
            step: TraceStep::Unchanged,
        });
        self.tell(&trace, |target| target.wants(uri, count));
    }

    fn tell(&self, trace: &Arc<Trace>, wants: impl Fn(&Target) -> bool) {
        let targets = self.targets.read().unwrap_or_else(PoisonError::into_inner);
        for target in targets.iter().filter(|target| wants(target)) {
            target.to.offer(trace.clone());
        }
    }
}

impl Target {
    fn wants(&self, uri: &ResourceUri, count: u64) -> bool {
        count.is_multiple_of(self.every) && self.to.filter().wants_uri(uri)
    }
}
