//! The open readers of one outbox.

use std::sync::Arc;
use std::task::Waker;

use super::WriteProgress;
use crate::model::MonotonicMillis;

/// The state of one reader that the marking side has to see.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) id: u64,
    pub(super) waker: Option<Waker>,
    /// A keep-alive is due.
    pub(super) keep_alive: bool,
    /// The progress of the connection that the reader writes to, if known.
    pub(super) progress: Option<Arc<WriteProgress>>,
    /// The bytes that the connection had taken before this reader was connected to it.
    pub(super) bytes_before: u64,
    /// True if the reader takes nothing while its connection is blocked.
    pub(super) pauses_while_blocked: bool,
}

impl Reader {
    pub(super) fn new(id: u64) -> Reader {
        Reader {
            id,
            waker: None,
            keep_alive: false,
            progress: None,
            bytes_before: 0,
            pauses_while_blocked: false,
        }
    }

    pub(super) fn blocked_since(&self) -> Option<MonotonicMillis> {
        self.progress.as_ref()?.blocked_since()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.pauses_while_blocked && self.blocked_since().is_some()
    }

    pub(super) fn taken_at(&self) -> Option<MonotonicMillis> {
        self.progress.as_ref()?.taken_at()
    }

    /// The bytes written since the reader was connected.
    pub(super) fn bytes(&self) -> u64 {
        match &self.progress {
            Some(progress) => progress.written().saturating_sub(self.bytes_before),
            None => 0,
        }
    }

    pub(super) fn remember(&mut self, waker: &Waker) {
        match &mut self.waker {
            // Saves an allocation if it is the same task, as it nearly always is.
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }
}

/// The open readers in the order in which they were opened. Only the newest is handed entries.
#[derive(Debug, Default)]
pub(super) struct Readers {
    // Nearly every outbox has at most one reader, so that one is kept inline and not on the heap.
    newest: Option<Reader>,
    /// The other readers, oldest first.
    older: Vec<Reader>,
}

impl Readers {
    pub(super) fn push(&mut self, reader: Reader) {
        // The older one stays open and takes over if the newest goes first.
        self.older.extend(self.newest.replace(reader));
    }

    /// Removes a reader. If it was the newest, the one before it is handed entries from now on.
    pub(super) fn remove(&mut self, id: u64) -> Option<Reader> {
        if self.is_newest(id) {
            let next = self.older.pop();
            return std::mem::replace(&mut self.newest, next);
        }
        let place = self.older.iter().position(|reader| reader.id == id)?;
        Some(self.older.remove(place))
    }

    pub(super) fn is_newest(&self, id: u64) -> bool {
        match &self.newest {
            Some(newest) => newest.id == id,
            None => false,
        }
    }

    pub(super) fn newest(&self) -> Option<&Reader> {
        self.newest.as_ref()
    }

    pub(super) fn newest_mut(&mut self) -> Option<&mut Reader> {
        self.newest.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Reader> {
        self.older.iter().chain(&self.newest)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Reader> {
        self.older.iter_mut().chain(&mut self.newest)
    }

    pub(super) fn len(&self) -> usize {
        self.iter().count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.newest.is_none()
    }
}
