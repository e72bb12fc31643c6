//! One proposal without an end: its state, and the steps that time makes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidings_actors::shared_log::{LogEntry, OperationId, Proposal};

use crate::{Body, Content};

/// The time after which a record without an answer is sent again, with the same identity.
pub(super) const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(1_500);

/// The same while the log answers nothing: it has no leader, and what was sent before the next one is
/// elected is lost, so that each try is a part of the time for which changes wait after an election.
pub(super) const SILENT_TIMEOUT: Duration = Duration::from_millis(250);

/// The state of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProposalStage {
    /// Waits for its turn.
    Waiting,
    /// Sent, without an answer.
    Sent(Instant),
    /// Waits for this time, to be sent again.
    Paused(Instant),
    /// Stored, and not heard yet.
    Stored(u64),
    /// Lost to the record with this sequence number, which is not told yet.
    Lost(u64),
    /// Lost, in a log whose newest record is older than the one that this node has applied.
    Doubted,
}

/// The step of a proposal at a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeStep {
    /// Its time is up.
    Expires,
    /// It waits for its turn again: no answer came, or its pause is over.
    Again {
        /// True if no answer came.
        after_silence: bool,
    },
    /// Nothing until this time.
    Stays(Instant),
}

/// The record of a proposal, as it is sent.
#[derive(Debug, Clone)]
pub(crate) struct RecordToSend {
    pub(crate) subject: Arc<str>,
    pub(crate) frame: Bytes,
    /// True if the frame names a body that is kept apart.
    pub(crate) has_body_apart: bool,
}

/// An attempt to store a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// Names the entry in the subject of the answer.
    pub(crate) token: u64,
    pub(crate) operation: OperationId,
    pub(crate) expected: Option<u64>,
    pub(crate) subject: Arc<str>,
    pub(crate) frame: Bytes,
}

/// A proposal without an end.
#[derive(Debug)]
pub(super) struct InFlightEntry {
    pub(super) operation: OperationId,
    pub(super) entry: LogEntry,
    /// The condition; none for an entry without one.
    pub(super) expected: Option<u64>,
    pub(super) subject: Arc<str>,
    pub(super) frame: Bytes,
    /// True if the frame names a body that is kept apart.
    pub(super) has_body_apart: bool,
    pub(super) stage: ProposalStage,
    pub(super) began: Instant,
    pub(super) expires: Instant,
    pub(super) first_sent: Option<Instant>,
    /// True once an attempt ended without an answer, so that the record may be stored.
    pub(super) is_uncertain: bool,
    /// The lowest version from which on the newest record of the URI that was told names all operations.
    pub(super) named_from: Option<u64>,
}

impl InFlightEntry {
    pub(super) fn new(proposal: Proposal, record: RecordToSend, now: Instant) -> InFlightEntry {
        let expected = match &proposal.entry {
            LogEntry::Resource(_) | LogEntry::Floor { .. } => Some(proposal.expected),
            LogEntry::ResourceList => None,
        };
        InFlightEntry {
            operation: proposal.operation,
            entry: proposal.entry,
            expected,
            subject: record.subject,
            frame: record.frame,
            has_body_apart: record.has_body_apart,
            stage: ProposalStage::Waiting,
            began: now,
            expires: proposal.expires,
            first_sent: None,
            is_uncertain: false,
            named_from: None,
        }
    }

    /// Returns the body that the record names or has.
    pub(super) fn body(&self) -> Option<Body> {
        let LogEntry::Resource(logged) = &self.entry else {
            return None;
        };
        match logged.resource.as_ref()?.content() {
            Content::Held(body) => Some(body.clone()),
            Content::Lazy(_) => None,
        }
    }

    /// True if the delivery of the record has an effect beside its entry: it names a body, or is a floor.
    pub(super) fn needs_delivery(&self) -> bool {
        self.has_body_apart || matches!(self.entry, LogEntry::Floor { .. })
    }

    /// Returns the record to send, which is sent from now on.
    pub(super) fn attempt(&mut self, token: u64, now: Instant) -> Attempt {
        self.stage = ProposalStage::Sent(now);
        self.first_sent.get_or_insert(now);
        Attempt {
            token,
            operation: self.operation,
            expected: self.expected,
            subject: self.subject.clone(),
            frame: self.frame.clone(),
        }
    }

    /// Returns the step that is due. `decided` is the time of the last answer to any record.
    pub(super) fn step(&self, now: Instant, decided: Instant) -> TimeStep {
        if self.expires <= now {
            return TimeStep::Expires;
        }
        let due = match self.stage {
            ProposalStage::Sent(since) => since + self.patience(since, decided),
            ProposalStage::Paused(until) => until,
            ProposalStage::Waiting
            | ProposalStage::Stored(_)
            | ProposalStage::Lost(_)
            | ProposalStage::Doubted => self.expires,
        };
        match due <= now {
            true => TimeStep::Again {
                after_silence: self.is_sent(),
            },
            false => TimeStep::Stays(due.min(self.expires)),
        }
    }

    /// The time for which the answer to an attempt is waited for that was sent at `since`.
    pub(super) fn patience(&self, since: Instant, decided: Instant) -> Duration {
        // The first try is given its time, since a log that had nothing to answer is silent, too.
        let is_first = self.first_sent == Some(since);
        let is_silent = match self.first_sent {
            Some(first) => decided <= first && !is_first,
            None => false,
        };
        match is_silent {
            true => SILENT_TIMEOUT,
            false => ATTEMPT_TIMEOUT,
        }
    }

    /// True if an answer is waited for.
    pub(super) fn is_sent(&self) -> bool {
        matches!(self.stage, ProposalStage::Sent(_))
    }

    /// True if it is tried since `before`, and no server has decided it.
    pub(super) fn is_tried_since(&self, before: Instant) -> bool {
        match self.stage {
            ProposalStage::Waiting
            | ProposalStage::Sent(_)
            | ProposalStage::Paused(_)
            | ProposalStage::Doubted => matches!(self.first_sent, Some(first) if first <= before),
            ProposalStage::Stored(_) | ProposalStage::Lost(_) => false,
        }
    }

    /// True if the newest record of the URI would name this operation, had it been stored.
    pub(super) fn would_be_named(&self) -> bool {
        match (&self.entry, self.named_from) {
            (LogEntry::Resource(logged), Some(from)) => logged.line.etag.version >= from,
            // No record of the URI was told since, so none has replaced this one.
            (_, None) => true,
            (LogEntry::ResourceList | LogEntry::Floor { .. }, Some(_)) => false,
        }
    }
}

/// Returns the earlier of two points in time.
pub(super) fn earlier(one: Option<Instant>, other: Instant) -> Option<Instant> {
    match one {
        Some(one) => Some(one.min(other)),
        None => Some(other),
    }
}
