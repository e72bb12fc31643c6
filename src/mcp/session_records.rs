//! The port to the records of sessions that several nodes share.
//!
//! A record has all that another node needs to go on with a session. Who holds it last is its owner; a node
//! becomes the owner by writing the record under the condition that it is the one it has read.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The future of an operation on records.
pub type RecordFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One start of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordOwner {
    /// The name of the node.
    pub node: String,
    /// A number that is random for each start.
    pub boot: u32,
}

/// A record as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its content.
    pub value: Bytes,
    /// A number that grows with each write.
    pub revision: u64,
}

/// The reason for which a record was not read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The record is another one than expected.
    #[error("another node has written the record")]
    Conflict,
    /// The records cannot be reached. A write may have been made.
    #[error("the records of sessions are not reached: {0}")]
    Unavailable(String),
    /// There is no room for the record.
    #[error("the record of the session cannot be kept: {0}")]
    Refused(String),
}

/// The records of sessions that several nodes share.
pub trait SessionRecords: Send + Sync + 'static {
    /// This node.
    fn node(&self) -> RecordOwner;

    /// Reads the newest record of a session.
    fn load<'a>(&'a self, id: &'a str) -> RecordFuture<'a, Result<Option<StoredRecord>, RecordError>>;

    /// Writes a record, which ends by itself after `ttl`, in place of the one with the revision `expected`,
    /// or where there is none. Returns its revision.
    fn write<'a>(
        &'a self,
        id: &'a str,
        value: Bytes,
        expected: Option<u64>,
        ttl: Duration,
    ) -> RecordFuture<'a, Result<u64, RecordError>>;

    /// Deletes the record of this revision.
    fn delete<'a>(&'a self, id: &'a str, revision: u64) -> RecordFuture<'a, Result<(), RecordError>>;

    /// Asks another node, and returns its answer; none if it gives none in time.
    fn ask<'a>(&'a self, owner: &'a RecordOwner, question: Bytes) -> RecordFuture<'a, Option<Bytes>>;

    /// Leaves a note for a node that did not answer: this session moved. It reads the note when it is back.
    fn leave_note<'a>(
        &'a self,
        owner: &'a RecordOwner,
        id: &'a str,
        generation: u64,
    ) -> RecordFuture<'a, Result<(), RecordError>>;

    /// Passes the questions and notes of other nodes on to `sessions`. Called once.
    fn serve(&self, sessions: Arc<dyn OwnedSessions>);
}

/// The sessions of this node, as other nodes ask for them.
pub trait OwnedSessions: Send + Sync + 'static {
    /// Answers the question of a node that takes a session over.
    fn answer(&self, question: Bytes) -> RecordFuture<'_, Option<Bytes>>;

    /// Ends a session here that another node has taken over.
    fn moved(&self, id: &str, generation: u64);

    /// Writes down how far each session is, because this node stops.
    fn release(&self) -> RecordFuture<'_, ()>;
}
