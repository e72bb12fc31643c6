//! The port to a store that keeps versions and content beyond the life of the process, and the thread that
//! runs it.
//!
//! The Etag actor sends batches of records through a bounded channel, and the thread reports each batch to
//! the Registry when it is durable.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::health::StoreHealth;
use crate::metrics::Metrics;
use crate::model::{Cause, Etag, Life, Line, ListHash, ListKind, Resource, ResourceUri, StoreError};

/// The content of a resource, as far as a store is to keep it.
#[derive(Debug, Clone, PartialEq)]
pub enum KeptContent {
    /// No content: the resource is removed, or its owner publishes it again after a restart.
    None,
    /// The content of the record before of this URI.
    Same,
    /// The description and the body of this resource, which the bus holds.
    Resource(Arc<Resource>),
}

/// One fact that a store keeps.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// The line of a URI, with the content of the resource.
    Line {
        /// The URI.
        uri: ResourceUri,
        /// Its newest line, which replaces the one before.
        line: Line,
        /// The content at that line.
        content: KeptContent,
    },
    /// The hash of a list, and the offset at which it became this one.
    List(ListKind, ListHash, u64),
    /// A change in the change log: a resource or a list as a subscriber is told of it.
    Change(LoggedChange),
    /// The offset up to which the attached subscriber of this name has everything; none when it is forgotten.
    Cursor(Arc<str>, Option<u64>),
    /// Removes the line of a URI, its content with it: a change that was taken back.
    Forget(ResourceUri),
    /// A new life with this epoch begins; the one before ended at the offset that was kept last.
    Life(u64),
}

/// A change in the change log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedChange {
    /// Its offset.
    pub offset: u64,
    /// The change.
    pub change: ChangeKind,
}

/// The kind of a change in the change log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeKind {
    /// A resource moved to this etag.
    Resource(ResourceUri, Etag, Cause),
    /// A list changed.
    List(ListKind),
}

/// The records of one durable step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// The records in order.
    pub records: Vec<Record>,
    /// The offset of the bus after them.
    pub offset: u64,
    /// The floor of the ledger after them: the highest version that was forgotten.
    pub floor: u64,
    /// The changes of the change log up to this offset may be dropped.
    pub log_start: u64,
}

/// A line that a store kept.
#[derive(Debug, Clone)]
pub struct KeptLine {
    /// The URI.
    pub uri: ResourceUri,
    /// Its line.
    pub line: Line,
    /// The resource, if the store keeps the content of its owner's.
    pub resource: Option<Resource>,
}

/// The state that a store keeps from one life of the bus to the next.
#[derive(Debug, Clone, Default)]
pub struct Checkpoint {
    /// The lives before this one, the oldest first, at most [`Lineage::FORMER_MAX`](crate::Lineage). Empty
    /// for a new history.
    pub lives: Vec<Life>,
    /// The last offset.
    pub offset: u64,
    /// The highest version that was forgotten.
    pub floor: u64,
    /// The lines of all remembered URIs, the oldest offset first.
    pub lines: Vec<KeptLine>,
    /// The hashes of the lists, and the offsets at which they became these, in the order of
    /// [`ListKind::ALL`].
    pub lists: [Option<(ListHash, u64)>; 3],
    /// The change log, the oldest change first.
    pub changes: Vec<LoggedChange>,
    /// The cursors of attached subscribers.
    pub cursors: Vec<(Arc<str>, u64)>,
}

/// A store of everything the bus must keep. It is called on a thread of its own, so it may block.
pub trait Store: Send + 'static {
    /// Returns everything kept so far, an empty checkpoint the first time.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read; the bus then does not start.
    fn load(&mut self) -> Result<Checkpoint, StoreError>;

    /// Keeps a batch, completely or not at all. It is durable when this returns.
    ///
    /// # Errors
    /// [`StoreError`] if it may not be durable. A panic counts as one. The bus then refuses the changes of
    /// the batch and calls again until it succeeds; an implementation reopens its files first if it cannot
    /// trust them any more.
    fn append(&mut self, batch: &Batch) -> Result<(), StoreError>;
}

/// The handle of the store's thread.
pub(crate) struct StoreThread {
    batches: Sender<Batch>,
}

impl StoreThread {
    /// Runs `store` on a thread that ends with the handle. Calls `done` there after each batch.
    pub(crate) fn start(
        store: Box<dyn Store>,
        (metrics, health): (Arc<Metrics>, Arc<StoreHealth>),
        done: impl Fn(Result<(), StoreError>) + Send + 'static,
    ) -> std::io::Result<(StoreThread, JoinHandle<()>)> {
        // The Etag actor has one batch in flight, so one place is enough and a send never waits.
        let (batches, work) = bounded(1);
        let thread = std::thread::Builder::new()
            .name("tidings-store".into())
            .spawn(move || run(store, &work, (&metrics, &health), &done))?;
        Ok((StoreThread { batches }, thread))
    }

    /// Hands over a batch. Returns false if the thread has ended.
    pub(crate) fn append(&self, batch: Batch) -> bool {
        self.batches.try_send(batch).is_ok()
    }
}

fn run(
    mut store: Box<dyn Store>,
    work: &Receiver<Batch>,
    (metrics, health): (&Metrics, &StoreHealth),
    done: &dyn Fn(Result<(), StoreError>),
) {
    while let Ok(batch) = work.recv() {
        // Changes without an effect need no step of the store.
        if batch.records.is_empty() {
            done(Ok(()));
            continue;
        }
        let began = Instant::now();
        health.append_began(began);
        // A panic must reach the actors too, or the publishers of this batch would wait for ever.
        let appended = catch_unwind(AssertUnwindSafe(|| store.append(&batch)));
        health.append_ended();
        metrics.store_seconds.record(began.elapsed());
        metrics.store_records.record(batch.records.len() as f64);
        let appended = appended.unwrap_or_else(|_panic| Err(StoreError::new("it panicked")));
        metrics.store_failures.add(u64::from(appended.is_err()));
        done(appended);
    }
}
