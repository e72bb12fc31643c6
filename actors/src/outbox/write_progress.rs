//! Write progress of one connection: written by the task of the connection, read by the readers of outboxes.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use crate::model::MonotonicMillis;

const TIMED_OUT: u8 = 1;
const CUT: u8 = 2;

/// The write progress of one connection.
///
/// The task of the connection reports each write. An outbox reader that is [connected to
/// it](crate::OutboxReader::pause_while_blocked) takes no entries while the connection is blocked, so that
/// repeated changes are conflated in the outbox instead of growing old in a buffer.
#[derive(Debug, Default)]
pub struct WriteProgress {
    written: AtomicU64,
    /// The time of the last successful write; 0 if there was none.
    taken: AtomicU64,
    /// The time since which writes have been refused; 0 if the connection is not blocked.
    blocked: AtomicU64,
    /// [`TIMED_OUT`], [`CUT`], or 0 while the connection is open.
    end: AtomicU8,
    /// The task to wake when the connection is cut.
    task: Mutex<Option<Waker>>,
}

impl WriteProgress {
    /// Reports that the peer took `bytes`. Returns true if the connection was blocked until now, in which
    /// case the reader has to be polled again.
    pub fn took(&self, bytes: usize) -> bool {
        // Only one thread writes these, so plain loads and stores replace the costlier read-modify-write.
        let written = self.written.load(Ordering::Relaxed) + bytes as u64;
        self.written.store(written, Ordering::Relaxed);
        self.taken
            .store(MonotonicMillis::now().to_bits(), Ordering::Relaxed);
        let blocked = self.is_blocked();
        if blocked {
            self.blocked.store(0, Ordering::Relaxed);
        }
        blocked
    }

    /// Reports that the peer takes nothing although bytes are ready.
    pub fn refused(&self) {
        if !self.is_blocked() {
            self.blocked
                .store(MonotonicMillis::now().to_bits(), Ordering::Relaxed);
        }
    }

    /// Reports that the connection is being closed because the peer took nothing for too long.
    pub fn time_out(&self) {
        self.end.store(TIMED_OUT, Ordering::Relaxed);
    }

    /// Returns true if the connection was closed because the peer took nothing for too long.
    pub fn timed_out(&self) -> bool {
        self.end.load(Ordering::Relaxed) == TIMED_OUT
    }

    /// Asks the task of the connection to close it at once.
    pub(crate) fn cut(&self) {
        // The task of the connection checks the mark itself, since the outbox cannot close a socket.
        self.end.store(CUT, Ordering::Release);
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.wake();
        }
    }

    /// Has `task` woken when the connection is to be closed at once. For a task that does not poll the reader
    /// while the connection is blocked; it looks at [`is_cut`](Self::is_cut) afterwards.
    pub fn wake_when_cut(&self, task: &Waker) {
        let mut known = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *known {
            Some(known) => known.clone_from(task),
            none => *none = Some(task.clone()),
        }
    }

    /// Returns true if the connection is to be closed at once.
    pub fn is_cut(&self) -> bool {
        self.end.load(Ordering::Acquire) == CUT
    }

    /// The number of bytes that the peer has taken.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// The time of the last successful write.
    pub(crate) fn taken_at(&self) -> Option<MonotonicMillis> {
        MonotonicMillis::from_bits(self.taken.load(Ordering::Relaxed))
    }

    /// Returns true while the peer takes nothing although bytes are ready.
    pub fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed) != 0
    }

    /// The time since which the peer has taken nothing although bytes are ready.
    pub(crate) fn blocked_since(&self) -> Option<MonotonicMillis> {
        MonotonicMillis::from_bits(self.blocked.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::count_wakes::CountWakes;
    use std::sync::Arc;

    #[test]
    fn cut_wakes_the_task_that_waits_for_it() {
        let woken = Arc::new(CountWakes::default());
        let progress = WriteProgress::default();
        progress.wake_when_cut(&woken.clone().into());
        assert!(!progress.is_cut());
        progress.cut();
        progress.cut();
        assert!(progress.is_cut() && woken.count() == 1);
    }

    #[test]
    fn blocked_from_first_refusal_to_next_write() {
        let progress = WriteProgress::default();
        assert!(!progress.took(7));
        progress.refused();
        let since = progress.blocked_since();
        progress.refused();
        assert!(since.is_some() && progress.blocked_since() == since);
        assert!(progress.took(3), "the reader has to be polled again");
        assert_eq!((progress.written(), progress.blocked_since()), (10, None));
        assert!(progress.taken_at().is_some());
    }
}
