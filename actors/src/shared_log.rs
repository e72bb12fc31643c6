//! The port to a log that several nodes share: the one order of all their changes.
//!
//! A node judges a change against what it has applied, proposes it under the condition that the newest record
//! of its URI is still the one it has seen, and applies it when it is told of it, in the order of the log. So
//! versions, etags and positions are equal on all nodes without a leader among them.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc};

use crate::model::{BoxFuture, Line, Resource, ResourceUri};
pub use crate::model::{ToldList, ToldResource, ToldState};

/// The identity of a proposal. It is unique in the log, so a proposal that is sent twice is kept once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId {
    /// A number that is random for each start of a node.
    pub node: u64,
    /// The count of proposals of this node.
    pub number: u64,
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.node, self.number)
    }
}

/// The error of a text that is not the identity of a proposal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid operation {0:?}: expected 16 hexadecimal digits, a hyphen and a number")]
pub struct InvalidOperationId(pub String);

impl FromStr for OperationId {
    type Err = InvalidOperationId;

    fn from_str(text: &str) -> Result<OperationId, InvalidOperationId> {
        let parsed = text.split_once('-').and_then(|(node, number)| {
            Some(OperationId {
                node: u64::from_str_radix(node, 16).ok()?,
                number: number.parse().ok()?,
            })
        });
        parsed.ok_or_else(|| InvalidOperationId(text.chars().take(64).collect()))
    }
}

/// One entry of the log.
#[derive(Debug, Clone, PartialEq)]
pub enum LogEntry {
    /// The newest state of a URI, which replaces the entry before.
    Resource(Box<LoggedResource>),
    /// The resource list is told to subscribers as it is at this place. Ends a batch, whose records do not
    /// tell it one by one.
    ResourceList,
    /// No URI without a record has a version above this one: the records of these removed URIs are purged
    /// when all nodes have heard this.
    Floor {
        /// The highest version that is forgotten.
        version: u64,
        /// The newest record that its proposer had applied. A URI whose newest record came later is not
        /// forgotten.
        through: u64,
        /// The sequence number of the floor before, 0 if there was none. The records that it named are gone.
        previous: u64,
        /// The URIs whose records are purged.
        uris: Vec<ResourceUri>,
    },
}

/// The state of a URI at one place of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedResource {
    /// The URI.
    pub uri: ResourceUri,
    /// Its line. The offset is 0: each node derives it from the sequence number of the record.
    pub line: Line,
    /// The description and the held body; none for a URI that is not live or whose body a callback makes.
    pub resource: Option<Arc<Resource>>,
    /// The proposals that made the records before this one, the newest first, at most
    /// [`FORMER_MAX`](Self::FORMER_MAX). A node whose record was replaced before it heard it finds itself
    /// here.
    pub former: Vec<OperationId>,
    /// True if a change of the resource list by this record is told at once, false if a
    /// [`LogEntry::ResourceList`] follows.
    pub announces: bool,
}

impl LoggedResource {
    /// The most former proposals that a record names.
    pub const FORMER_MAX: usize = 4;
}

/// A change that a node asks the log to take.
#[derive(Debug, Clone)]
pub struct Proposal {
    /// Its identity.
    pub operation: OperationId,
    /// For a [`LogEntry::Resource`], the sequence number that the newest record of the URI must have, 0 if
    /// there must be none. For a [`LogEntry::Floor`], that of the floor before. Without meaning for a list.
    pub expected: u64,
    /// The entry.
    pub entry: LogEntry,
    /// The time at which the log gives up and reports [`Verdict::Unknown`].
    pub expires: Instant,
}

/// The end of a proposal that is not heard as a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Another record of the URI came first. Told after that record.
    Lost,
    /// The log cannot take it, and did not.
    Refused {
        /// True if the log has no room left.
        full: bool,
        /// The error, with the remedy.
        reason: Arc<str>,
    },
    /// The log did not answer in time. The proposal may be heard later, or never.
    Unknown,
}

/// The identity of a log's history. A log that was deleted and made anew, or restored from a copy, has
/// another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHistory {
    /// The epoch of positions; grows with each history.
    pub epoch: u64,
    /// The time at which this history began, in seconds since 1970. Later than those of all histories before.
    pub began: u64,
}

/// The next step of forgetting removed URIs, of which one node at a time takes care.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FloorStep {
    /// No more are removed than are kept, or the log was not read yet.
    Nothing,
    /// A floor is proposed, and heard soon.
    Proposed,
    /// The newest floor is not done: these records may be purged once every node has applied it.
    Purge {
        /// The sequence number of the floor.
        floor: u64,
        /// The URIs, with the sequence numbers of the records.
        records: Vec<(ResourceUri, u64)>,
    },
}

/// The connection of a node to its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogHealth {
    /// No server of the log can be reached.
    #[default]
    Disconnected,
    /// A server is reached, but the log takes no changes: it has no leader.
    NoQuorum,
    /// Changes are taken.
    Connected,
}

/// The state of a node's place in its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogState {
    /// The connection.
    pub health: LogHealth,
    /// True once every record that the log had was applied; false again while another history is read.
    pub is_caught_up: bool,
    /// The history that is read; none before the first connection.
    pub history: Option<LogHistory>,
    /// The sequence number of the newest applied record.
    pub applied: u64,
    /// The proposals in flight.
    pub in_flight: usize,
}

impl LogState {
    /// Returns the offset up to which the node has applied its log; none before the first connection.
    pub fn applied_offset(&self) -> Option<u64> {
        Some(self.history?.offset(self.applied))
    }
}

/// Returns the offset of the record to which an offset belongs: the others behind it differ from node to
/// node.
pub fn offset_of_record(offset: u64) -> u64 {
    offset / OFFSETS_PER_RECORD * OFFSETS_PER_RECORD
}

/// The state of the log, shared with the handles of the bus.
#[derive(Debug, Default)]
pub(crate) struct LogStatus {
    state: Mutex<LogState>,
    changed: Notify,
}

impl LogStatus {
    pub(crate) fn get(&self) -> LogState {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, state: LogState) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        self.changed.notify_waiters();
    }

    /// Waits until the record with this sequence number is applied, or a later one.
    pub(crate) async fn until_applied(&self, sequence: u64) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Before the look, so that no change falls between.
            changed.as_mut().enable();
            let state = self.get();
            if state.is_caught_up && state.applied >= sequence {
                return;
            }
            changed.await;
        }
    }
}

/// The offsets per record of a shared log: the record itself, the list that it changes, and changes of the
/// lists of the node until the next record.
pub(crate) const OFFSETS_PER_RECORD: u64 = 64;

/// The binary digits of the sequence numbers that a history may use per second of its age before the offsets
/// of the next history could meet them.
const SEQUENCE_BITS: u32 = 16;

impl LogHistory {
    /// The offset of the record with this sequence number. A later history begins at higher offsets, as long
    /// as the log takes fewer than 65,536 records per second on average.
    pub(crate) fn offset(&self, sequence: u64) -> u64 {
        // In this order, so that the offsets of two histories never meet and stay below 2^53 for a century.
        ((self.began << SEQUENCE_BITS) + sequence) * OFFSETS_PER_RECORD
    }
}

/// A report of the log to its node.
#[derive(Debug, Clone)]
pub enum Heard {
    /// The log is read from here on. Told at the first connection, again whenever the history is another one,
    /// and with the same history if the records that are gone were not all told; then all its records follow.
    Opened(LogHistory),
    /// The record at the next place of the log. Numbers may be missing in between: of the records of one URI,
    /// the newest alone is sure to be heard.
    Record {
        /// Its sequence number, which grows by at least one per record.
        sequence: u64,
        /// The proposal that made it.
        operation: OperationId,
        /// The entry.
        entry: LogEntry,
    },
    /// Every record that the log had when it was opened was told.
    CaughtUp,
    /// The end of a proposal that is not heard as a record.
    Ended(OperationId, Verdict),
    /// The connection changed.
    Health(LogHealth),
}

/// Asks the leader of a shared log for its newest sequence number.
pub type AskNewest = Arc<dyn Fn() -> BoxFuture<Result<u64, String>> + Send + Sync>;

/// A log that several nodes share. It runs on a thread of its own, so it may block.
pub trait SharedLog: Send + 'static {
    /// The epoch of all positions that nodes of this log give, the same on each of them and for ever. A new
    /// history goes on with higher offsets instead, so an old position stays comparable.
    fn position_epoch(&self) -> u64;

    /// The time after which a proposal without an answer ends as [`Verdict::Unknown`].
    fn publish_timeout(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// Takes proposals and tells what the log has, in its order, until either channel is closed. It
    /// reconnects by itself. A sender that has no room waits, so a busy node slows its log down and drops
    /// nothing.
    ///
    /// Every proposal ends in exactly one of three ways: its record is heard, a later record of the URI that
    /// names it among the former ones is heard, or [`Heard::Ended`] is told. Two proposals of one URI are
    /// never in flight at once.
    fn run(self: Box<Self>, proposals: mpsc::Receiver<Proposal>, heard: mpsc::Sender<Heard>);
}
