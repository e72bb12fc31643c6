//! The port to a store that keeps versions beyond the life of the process, and the thread that runs it.
//!
//! The Etag actor sends batches of records through a bounded channel, and the thread reports each batch
//! when it is durable.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::ledger::{Checkpoint, Line};
use crate::metrics::Metrics;
use crate::model::{ResourceUri, StoreError};

/// A record that must be durable before any subscriber is notified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The offset of the bus with this record.
    pub offset: u64,
    /// The floor of the ledger with this record: the highest version that was forgotten.
    pub floor: u64,
    /// The line that changed; none for a change of a list, which only takes an offset.
    pub line: Option<(ResourceUri, Line)>,
}

/// A store of the ledger. It is called on a thread of its own, so it may block.
pub trait Store: Send + 'static {
    /// Returns everything kept so far, an empty checkpoint the first time. A store that lost its history
    /// returns a new epoch.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read; the bus then does not start.
    fn load(&mut self) -> Result<Checkpoint, StoreError>;

    /// Keeps `records`. They are durable when it returns.
    ///
    /// # Errors
    /// [`StoreError`] if they may not be durable. A panic counts as one. The bus then stops, since no
    /// subscriber may learn of a version that a restart could take back.
    fn append(&mut self, records: &[Record]) -> Result<(), StoreError>;
}

/// The handle of the store's thread.
pub(crate) struct StoreThread {
    batches: Sender<Vec<Record>>,
}

impl StoreThread {
    /// Runs `store` on a thread that ends with the handle. Calls `done` there after each batch.
    pub(crate) fn start(
        store: Box<dyn Store>,
        metrics: Arc<Metrics>,
        done: impl Fn(Result<(), StoreError>) + Send + 'static,
    ) -> std::io::Result<(StoreThread, JoinHandle<()>)> {
        // The Etag actor has one batch in flight, so one place is enough and a send never waits.
        let (batches, work) = bounded(1);
        let thread = std::thread::Builder::new()
            .name("tidings-store".into())
            .spawn(move || run(store, &work, &metrics, &done))?;
        Ok((StoreThread { batches }, thread))
    }

    /// Hands over a batch. Returns false if the thread has ended.
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
        // A panic must reach the Etag actor too, or the publishers of this batch would wait for ever.
        let appended = catch_unwind(AssertUnwindSafe(|| store.append(&records)));
        metrics.store_seconds.record(began.elapsed());
        metrics.store_records.record(records.len() as f64);
        done(appended.unwrap_or_else(|_panic| Err(StoreError("it panicked".into()))));
    }
}
