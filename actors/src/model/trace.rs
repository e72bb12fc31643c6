//! The words of a trace: the steps of one notice, and the subscriber that each step concerns.

use std::sync::Arc;
use std::time::Duration;

use super::end_reason::EndReason;
use super::etag::Etag;
use super::filter::NoticeKind;
use super::list::ListKind;
use super::position::Position;
use super::subscriber::{SubscriberId, SubscriberKind};
use super::uri::ResourceUri;

/// One step of one notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// What it is about.
    pub subject: TraceSubject,
    /// Where the notice stands in the order of the bus; none where nothing was stamped.
    pub position: Option<Position>,
    /// What happened.
    pub step: TraceStep,
}

/// What a notice is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceSubject {
    /// A resource at a version.
    Resource(ResourceUri, Etag),
    /// A list.
    List(ListKind),
}

/// What happened to a notice.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceStep {
    /// It was stamped: there is something to tell.
    Changed(NoticeKind),
    /// The change altered nothing, so nobody is told.
    Unchanged,
    /// It waits in the outbox of this subscriber.
    MarkResult {
        /// Whose outbox.
        who: SubscriberRef,
        /// Whether it took the place of an older one that had not been told.
        conflated: bool,
    },
    /// This subscriber is not told.
    Skipped {
        /// Who.
        who: SubscriberRef,
        /// Why not.
        why: SkipReason,
    },
    /// Every outbox has been marked.
    Fanned {
        /// How many subscribers will be told.
        notified: usize,
    },
    /// The stream of this subscriber took it, to be written.
    HandedOut {
        /// Whose stream.
        who: SubscriberRef,
        /// How long after its change passed the door; none for lists.
        after: Option<Duration>,
    },
    /// This subscriber ended before it was told.
    Dropped {
        /// Who.
        who: SubscriberRef,
        /// Why it ended.
        reason: EndReason,
    },
}

impl TraceStep {
    /// The step as it is written in logs.
    pub fn name(&self) -> &'static str {
        match self {
            TraceStep::Changed(_) => "changed",
            TraceStep::Unchanged => "unchanged",
            TraceStep::MarkResult { conflated: false, .. } => "marked",
            TraceStep::MarkResult { conflated: true, .. } => "conflated",
            TraceStep::Skipped { .. } => "skipped",
            TraceStep::Fanned { .. } => "fanned",
            TraceStep::HandedOut { .. } => "handed_out",
            TraceStep::Dropped { .. } => "dropped",
        }
    }

    /// The subscriber it happened to, if it happened to one.
    pub fn who(&self) -> Option<&SubscriberRef> {
        match self {
            TraceStep::MarkResult { who, .. }
            | TraceStep::Skipped { who, .. }
            | TraceStep::HandedOut { who, .. }
            | TraceStep::Dropped { who, .. } => Some(who),
            TraceStep::Changed(_) | TraceStep::Unchanged | TraceStep::Fanned { .. } => None,
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
pub struct SubscriberRef {
    /// Its name for the life of the bus.
    pub id: SubscriberId,
    /// What it is.
    pub kind: SubscriberKind,
    /// What its opener called it, its road included.
    pub label: Arc<str>,
}
