//! A store in memory that outlives buses, holds appends back, and fails when it is told to.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};

use tidings::{
    Batch, Checkpoint, KeptContent, KeptLine, Life, Record, Resource, ResourceUri, Store, StoreError,
};

use crate::support::{DEADLINE, until};

/// The behaviour of the next appends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Keep,
    /// Waits until the mode changes.
    Hold,
    Fail,
    /// Fails although it keeps the batch, as after a failed sync.
    FailKept,
    /// Fails for lack of room.
    Full,
    Panic,
}

struct State {
    mode: Mode,
    /// True while an append waits for the mode to change.
    held: bool,
    batches: Vec<Batch>,
}

/// The store. Clones share what they keep.
#[derive(Clone)]
pub(crate) struct MemoryStore(Arc<(Mutex<State>, Condvar)>);

impl MemoryStore {
    pub(crate) fn new() -> MemoryStore {
        let state = State {
            mode: Mode::Keep,
            held: false,
            batches: Vec::new(),
        };
        MemoryStore(Arc::new((Mutex::new(state), Condvar::new())))
    }

    /// A store with the first `count` batches of this one, as a process that was killed after them left it.
    pub(crate) fn killed_after(&self, count: usize) -> MemoryStore {
        let killed = MemoryStore::new();
        killed.0.0.lock().unwrap().batches = self.batches()[..count].to_vec();
        killed
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.0.0.lock().unwrap().mode = mode;
        self.0.1.notify_all();
    }

    /// The number of clones, of which a running bus has one.
    pub(crate) fn clones(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    pub(crate) fn batches(&self) -> Vec<Batch> {
        self.0.0.lock().unwrap().batches.clone()
    }

    /// Everything appended so far.
    pub(crate) fn records(&self) -> Vec<Record> {
        let batches = self.batches().into_iter();
        batches.flat_map(|batch| batch.records).collect()
    }

    pub(crate) async fn until_held(&self) {
        until("an append that waits", async || self.0.0.lock().unwrap().held).await;
    }

    /// The state that a bus finds at its next start.
    pub(crate) fn checkpoint(&self) -> Checkpoint {
        let mut kept = Kept::default();
        for batch in self.batches() {
            for record in batch.records {
                kept.add(record);
            }
            kept.checkpoint.offset = batch.offset;
            kept.checkpoint.floor = batch.floor;
            kept.checkpoint
                .changes
                .retain(|change| change.offset > batch.log_start);
        }
        kept.finish()
    }
}

/// The state while batches are read.
#[derive(Default)]
struct Kept {
    checkpoint: Checkpoint,
    /// The epoch of the life whose batches are read.
    epoch: Option<u64>,
    contents: BTreeMap<ResourceUri, Resource>,
}

impl Kept {
    fn add(&mut self, record: Record) {
        let checkpoint = &mut self.checkpoint;
        match record {
            Record::Line { uri, line, content } => {
                match content {
                    KeptContent::Resource(resource) => {
                        self.contents.insert(uri.clone(), (*resource).clone());
                    }
                    KeptContent::None => drop(self.contents.remove(&uri)),
                    KeptContent::Same => {}
                }
                checkpoint.lines.retain(|kept| kept.uri != uri);
                let resource = None;
                checkpoint.lines.push(KeptLine { uri, line, resource });
            }
            Record::List(kind, hash, offset) => checkpoint.lists[kind as usize] = Some((hash, offset)),
            Record::Change(change) => checkpoint.changes.push(change),
            Record::Cursor(name, at) => {
                checkpoint.cursors.retain(|(known, _)| *known != name);
                checkpoint.cursors.extend(at.map(|at| (name, at)));
            }
            Record::Forget(uri) => {
                self.contents.remove(&uri);
                checkpoint.lines.retain(|kept| kept.uri != uri);
            }
            Record::Life(epoch) => self.begin(epoch),
        }
    }

    /// Begins the life with this epoch, or ends the last one.
    fn begin(&mut self, epoch: u64) {
        let end = self.checkpoint.offset;
        if let Some(epoch) = self.epoch.replace(epoch) {
            self.checkpoint.lives.push(Life { epoch, end });
        }
    }

    fn finish(mut self) -> Checkpoint {
        self.begin(0);
        for kept in &mut self.checkpoint.lines {
            kept.resource = self.contents.remove(&kept.uri);
        }
        self.checkpoint.lines.sort_by_key(|kept| kept.line.offset);
        self.checkpoint
    }
}

impl Store for MemoryStore {
    fn load(&mut self) -> Result<Checkpoint, StoreError> {
        Ok(self.checkpoint())
    }

    fn append(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        state.held = true;
        while state.mode == Mode::Hold {
            state = changed.wait_timeout(state, DEADLINE).unwrap().0;
        }
        state.held = false;
        match state.mode {
            Mode::Fail => return Err(StoreError::new("broken")),
            Mode::FailKept => {
                state.batches.push(batch.clone());
                return Err(StoreError::new("not synced"));
            }
            Mode::Full => {
                return Err(StoreError {
                    full: true,
                    ..StoreError::new("no space left")
                });
            }
            Mode::Panic => {
                drop(state);
                panic!("a store that panics");
            }
            Mode::Keep | Mode::Hold => state.batches.push(batch.clone()),
        }
        Ok(())
    }
}
