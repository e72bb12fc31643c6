//! Traces of notices for the subscribers that asked for them. Without such a subscriber a step costs one load
//! of a flag.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::model::{
    Etag, Filter, ListKind, Notice, NoticeKind, Position, ResourceUri, Trace, TraceStep, TraceSubject,
};

/// A subscriber that asked for traces.
pub(crate) trait TraceTarget: std::fmt::Debug + Send + Sync {
    /// Returns the filter of the notices to trace.
    fn filter(&self) -> &Filter;
    /// Returns true if it takes no more traces.
    fn is_closed(&self) -> bool;
    /// Adds a trace to its queue without waiting.
    fn offer(&self, trace: Arc<Trace>);
}

#[derive(Debug)]
struct Target {
    to: Arc<dyn TraceTarget>,
    /// The sampling interval: one notice of so many is traced.
    every: u64,
}

impl Target {
    fn wants(&self, uri: &ResourceUri, count: u64) -> bool {
        count.is_multiple_of(self.every) && self.to.filter().wants_uri(uri)
    }
}

/// Distributes traces to the subscribers that asked for them.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    on: AtomicBool,
    targets: RwLock<Vec<Target>>,
    // Changes that alter nothing have no position, so they are sampled by this count.
    unchanged: AtomicU64,
}

impl Tracer {
    /// Adds a target that gets every `every`-th notice that its filter lets through.
    pub(crate) fn add(&self, to: Arc<dyn TraceTarget>, every: u64) {
        // With an interval of 0 only the count 0 would be a multiple.
        let every = every.max(1);
        let mut targets = self.targets.write().unwrap_or_else(PoisonError::into_inner);
        targets.push(Target { to, every });
        self.on.store(true, Ordering::Relaxed);
    }

    /// Removes the targets that are closed.
    pub(crate) fn prune(&self) {
        let mut targets = self.targets.write().unwrap_or_else(PoisonError::into_inner);
        targets.retain(|target| !target.to.is_closed());
        self.on.store(!targets.is_empty(), Ordering::Relaxed);
    }

    /// Returns true if there is a target.
    pub(crate) fn is_on(&self) -> bool {
        // Relaxed, because a trace may start a notice earlier or later.
        self.on.load(Ordering::Relaxed)
    }

    /// Returns true if the notice of `uri` at `position` is to be traced. It is decided once, when the notice
    /// is made, so that all its steps are traced or none.
    pub(crate) fn wants(&self, uri: &ResourceUri, position: Position) -> bool {
        if !self.is_on() {
            return false;
        }
        let targets = self.targets.read().unwrap_or_else(PoisonError::into_inner);
        targets.iter().any(|target| target.wants(uri, position.offset))
    }

    /// Traces a step of a notice.
    pub(crate) fn trace_notice(&self, notice: &Notice, step: TraceStep) {
        let trace = Arc::new(Trace {
            subject: TraceSubject::Resource(notice.uri.clone(), notice.etag),
            position: Some(notice.position),
            step,
        });
        self.offer(&trace, |target| target.wants(&notice.uri, notice.position.offset));
    }

    /// Traces a step of a list change. All are traced, because they are few.
    pub(crate) fn trace_list(
        &self,
        kind: ListKind,
        position: Option<Position>,
        step: impl FnOnce() -> TraceStep,
    ) {
        if !self.is_on() {
            return;
        }
        let trace = Arc::new(Trace {
            subject: TraceSubject::List(kind),
            position,
            step: step(),
        });
        self.offer(&trace, |target| {
            target.to.filter().wants_kind(NoticeKind::List(kind))
        });
    }

    /// Traces a change that altered nothing.
    pub(crate) fn trace_unchanged(&self, uri: &ResourceUri, etag: Etag) {
        if !self.is_on() {
            return;
        }
        let count = self.unchanged.fetch_add(1, Ordering::Relaxed);
        let trace = Arc::new(Trace {
            subject: TraceSubject::Resource(uri.clone(), etag),
            position: None,
            step: TraceStep::Unchanged,
        });
        self.offer(&trace, |target| target.wants(uri, count));
    }

    fn offer(&self, trace: &Arc<Trace>, wants: impl Fn(&Target) -> bool) {
        let targets = self.targets.read().unwrap_or_else(PoisonError::into_inner);
        for target in targets.iter().filter(|target| wants(target)) {
            target.to.offer(trace.clone());
        }
    }
}
