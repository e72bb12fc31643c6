//! The port behind which versions outlive the process.
//!
//! Owns: the [`Store`] trait, and the thread that runs one. Never: knows what a store writes to. Receives batches of
//! records from the Etag actor through a bounded channel; reports each batch back when it is durable.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::ledger::{Checkpoint, Line};
use crate::metrics::Metrics;
use crate::model::{ResourceUri, StoreError};

/// What must be durable before anybody is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The offset the bus has reached with this record.
    pub offset: u64,
    /// The floor the ledger has reached: every version it has forgotten is at most this.
    pub floor: u64,
    /// The line that changed; none for a list change, which only takes an offset.
    pub line: Option<(ResourceUri, Line)>,
}

/// Keeps the ledger. Called from one thread of its own, so it may block.
pub trait Store: Send + 'static {
    /// Everything kept so far; an empty checkpoint the first time. A store whose history is lost answers a new
    /// epoch.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read; the bus then does not start.
    fn load(&mut self) -> Result<Checkpoint, StoreError>;

    /// Keeps `records`; durable when it returns.
    ///
    /// # Errors
    /// [`StoreError`] when they may not be durable; the bus then stops loudly, since it must not tell anybody of a
    /// version that a restart could take back. A panic counts as one.
    fn append(&mut self, records: &[Record]) -> Result<(), StoreError>;
}

/// The handle of a store's thread.
pub(crate) struct StoreThread {
    batches: Sender<Vec<Record>>,
}

impl StoreThread {
    /// Runs `store` on a thread of its own, which ends with the handle; `done` is called there after each batch.
    pub(crate) fn start(
        store: Box<dyn Store>,
        metrics: Arc<Metrics>,
        done: impl Fn(Result<(), StoreError>) + Send + 'static,
    ) -> std::io::Result<(StoreThread, JoinHandle<()>)> {
        // The Etag actor sends one batch at a time, so one place is enough and a send never waits.
        let (batches, work) = bounded(1);
        let thread = std::thread::Builder::new()
            .name("tidings-store".into())
            .spawn(move || run(store, &work, &metrics, &done))?;
        Ok((StoreThread { batches }, thread))
    }

    /// Hands over a batch. False when the thread has ended.
    pub(crate) fn append(&self, records: Vec<Record>) -> bool {
        self.batches.try_send(records).is_ok()
    }
}

fn run(
    mut store: Box<dyn Store>,
    work: &Receiver<Vec<Record>>,
    metrics: &Metrics,
    done: &dyn Fn(Result<(), StoreError>),
) {
    while let Ok(records) = work.recv() {
        let began = Instant::now();
        let appended = catch_unwind(AssertUnwindSafe(|| store.append(&records)));
        metrics.store_seconds.record(began.elapsed());
        metrics.store_records.record(records.len() as f64);
        done(appended.unwrap_or_else(|_panic| Err(StoreError("it panicked".into()))));
    }
}
