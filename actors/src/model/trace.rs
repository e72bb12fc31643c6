//! Traces: the steps of a notice on its way to the subscribers.

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
    /// The subject of the notice.
    pub subject: TraceSubject,
    /// The position of the notice; none if no new version was made.
    pub position: Option<Position>,
    /// The step.
    pub step: TraceStep,
}

/// The subject of a notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceSubject {
    /// A resource at a version.
    Resource(ResourceUri, Etag),
    /// A list.
    List(ListKind),
}

/// A step of a notice.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceStep {
    /// The Etag actor gave it a version and a position.
    Changed(NoticeKind),
    /// The change altered nothing, so there is no notice.
    Unchanged,
    /// It became pending in the outbox of a subscriber.
    Marked {
        /// The subscriber.
        subscriber: SubscriberRef,
        /// True if it replaced an older notice that was still pending.
        conflated: bool,
    },
    /// A subscriber is not notified.
    Skipped {
        /// The subscriber.
        subscriber: SubscriberRef,
        /// The reason.
        reason: SkipReason,
    },
    /// It was marked in every outbox.
    Fanned {
        /// The number of subscribers notified.
        notified: usize,
    },
    /// A stream took it from the outbox of a subscriber, to write it.
    HandedOut {
        /// The subscriber.
        subscriber: SubscriberRef,
        /// The time since its change was admitted to the bus; none for lists.
        after: Option<Duration>,
    },
    /// A subscriber ended before a stream took it.
    Dropped {
        /// The subscriber.
        subscriber: SubscriberRef,
        /// The reason of its end.
        reason: EndReason,
    },
}

impl TraceStep {
    /// The step as written in logs.
    pub fn name(&self) -> &'static str {
        match self {
            TraceStep::Changed(_) => "changed",
            TraceStep::Unchanged => "unchanged",
            TraceStep::Marked { conflated: false, .. } => "marked",
            TraceStep::Marked { conflated: true, .. } => "conflated",
            TraceStep::Skipped { .. } => "skipped",
            TraceStep::Fanned { .. } => "fanned",
            TraceStep::HandedOut { .. } => "handed_out",
            TraceStep::Dropped { .. } => "dropped",
        }
    }

    /// The subscriber whose outbox the step concerns.
    pub fn subscriber(&self) -> Option<&SubscriberRef> {
        match self {
            TraceStep::Marked { subscriber, .. }
            | TraceStep::Skipped { subscriber, .. }
            | TraceStep::HandedOut { subscriber, .. }
            | TraceStep::Dropped { subscriber, .. } => Some(subscriber),
            TraceStep::Changed(_) | TraceStep::Unchanged | TraceStep::Fanned { .. } => None,
        }
    }
}

/// The reason for which a subscriber is not notified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkipReason {
    /// The subscriber has ended.
    Ended(EndReason),
    /// It already knows this version or a newer one, or this list hash, or its subscription has just ended.
    Known,
}

/// The subscriber that a step concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriberRef {
    /// Its name.
    pub id: SubscriberId,
    /// Its kind.
    pub kind: SubscriberKind,
    /// The label given when it was opened.
    pub label: Arc<str>,
}
