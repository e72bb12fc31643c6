//! What became of a notice: for whom, by which road, conflated or not, and why not.
//!
//! Owns: the words of a trace, and the [`Tracer`] that every actor and every outbox may tell. Never: costs anything but
//! one look at a flag while nobody traces. Told by the Etag actor, the publisher and the readers of outboxes; offers to
//! the queues of the subscribers that asked for traces.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::attach::{Delivery, State};
use crate::outbox::{EndReason, Outbox};
use crate::subscriber::{SubscriberId, SubscriberKind};
use crate::{Etag, ListKind, Notice, NoticeKind, Position, ResourceUri};

/// One step of one notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// What it is about.
    pub subject: Subject,
    /// Where the notice stands in the order of the bus; none where nothing was stamped.
    pub position: Option<Position>,
    /// What happened.
    pub step: Step,
}

/// What a notice is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A resource at a version.
    Resource(ResourceUri, Etag),
    /// A list.
    List(ListKind),
}

/// What happened to a notice.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// It was stamped: there is something to tell.
    Changed(NoticeKind),
    /// The change altered nothing, so nobody is told.
    Unchanged,
    /// It waits in the outbox of this subscriber.
    Marked {
        /// Whose outbox.
        who: Who,
        /// Whether it took the place of an older one that had not been told.
        conflated: bool,
    },
    /// This subscriber is not told.
    Skipped {
        /// Who.
        who: Who,
        /// Why not.
        why: SkipReason,
    },
    /// Every outbox has been marked.
    Fanned {
        /// How many subscribers will be told.
        told: usize,
    },
    /// The stream of this subscriber took it, to be written.
    HandedOut {
        /// Whose stream.
        who: Who,
        /// How long after its change passed the door; none for lists.
        after: Option<Duration>,
    },
    /// This subscriber ended before it was told.
    Dropped {
        /// Who.
        who: Who,
        /// Why it ended.
        reason: EndReason,
    },
}

impl Step {
    /// The step as it is written in logs.
    pub fn name(&self) -> &'static str {
        match self {
            Step::Changed(_) => "changed",
            Step::Unchanged => "unchanged",
            Step::Marked { conflated: false, .. } => "marked",
            Step::Marked { conflated: true, .. } => "conflated",
            Step::Skipped { .. } => "skipped",
            Step::Fanned { .. } => "fanned",
            Step::HandedOut { .. } => "handed_out",
            Step::Dropped { .. } => "dropped",
        }
    }

    /// The subscriber it happened to, if it happened to one.
    pub fn who(&self) -> Option<&Who> {
        match self {
            Step::Marked { who, .. }
            | Step::Skipped { who, .. }
            | Step::HandedOut { who, .. }
            | Step::Dropped { who, .. } => Some(who),
            Step::Changed(_) | Step::Unchanged | Step::Fanned { .. } => None,
        }
    }
}

/// Why a subscriber is not told of a notice that was looked at for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkipReason {
    /// It has ended.
    Ended(EndReason),
    /// It knows this version or a newer one, or this list hash, already; or its subscription has just ended.
    Known,
}

/// A subscriber, as a trace names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// Its name for the life of the bus.
    pub id: SubscriberId,
    /// What it is.
    pub kind: SubscriberKind,
    /// What its opener called it, its road included.
    pub label: Arc<str>,
}

impl Who {
    pub(crate) fn of(outbox: &Outbox) -> Who {
        Who {
            id: outbox.id(),
            kind: outbox.kind(),
            label: outbox.label().clone(),
        }
    }
}

#[derive(Debug)]
struct Target {
    to: Arc<State>,
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
    pub(crate) fn add(&self, to: Arc<State>, every: u64) {
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
    pub(crate) fn notice(&self, notice: &Notice, step: Step) {
        let trace = Arc::new(Trace {
            subject: Subject::Resource(notice.uri.clone(), notice.etag),
            position: Some(notice.position),
            step,
        });
        self.tell(&trace, |target| target.wants(&notice.uri, notice.position.offset));
    }

    /// Tells of a step of a list's change; every one is traced, since they are few.
    pub(crate) fn list(&self, kind: ListKind, position: Option<Position>, step: impl FnOnce() -> Step) {
        if !self.is_on() {
            return;
        }
        let trace = Arc::new(Trace {
            subject: Subject::List(kind),
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
            subject: Subject::Resource(uri.clone(), etag),
            position: None,
            step: Step::Unchanged,
        });
        self.tell(&trace, |target| target.wants(uri, count));
    }

    fn tell(&self, trace: &Arc<Trace>, wants: impl Fn(&Target) -> bool) {
        let targets = self.targets.read().unwrap_or_else(PoisonError::into_inner);
        for target in targets.iter().filter(|target| wants(target)) {
            target.to.offer(Delivery::Trace(trace.clone()));
        }
    }
}

impl Target {
    fn wants(&self, uri: &ResourceUri, count: u64) -> bool {
        count.is_multiple_of(self.every) && self.to.filter().wants_uri(uri)
    }
}
