//! What the far end of one connection took, and whether it takes anything now.
//!
//! Owns: [`WriteProgress`], a few numbers that whoever carries the connection writes and whoever reads an outbox for it looks
//! at. Never: touches a socket or holds a timer. Written on the connection's thread alone, read on any.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::model::MonotonicMillis;

const TIMED_OUT: u8 = 1;
const CUT: u8 = 2;

/// The flow of bytes to the far end of one connection.
///
/// Whoever carries the connection says what became of each write. A reader of an outbox that is
/// [notified of it](crate::OutboxReader::flows_through) takes nothing from its outbox while the connection is blocked, so
/// that repeats become one there instead of growing old in a buffer.
#[derive(Debug, Default)]
pub struct WriteProgress {
    written: AtomicU64,
    /// The moment of the last write that was taken; 0 when there was none.
    taken: AtomicU64,
    /// Since when writes have been refused; 0 while they are not.
    blocked: AtomicU64,
    /// 0 while it stays open.
    fate: AtomicU8,
}

impl WriteProgress {
    /// The far end took `bytes`. Answers whether it had been refusing: whoever waits for it has to look again.
    pub fn took(&self, bytes: usize) -> bool {
        // One thread writes, so these need no read-modify-write.
        let written = self.written.load(Ordering::Relaxed) + bytes as u64;
        self.written.store(written, Ordering::Relaxed);
        self.taken
            .store(MonotonicMillis::now().to_bits(), Ordering::Relaxed);
        let blocked = self.blocked.load(Ordering::Relaxed) != 0;
        if blocked {
            self.blocked.store(0, Ordering::Relaxed);
        }
        blocked
    }

    /// There are bytes for the far end and it takes none.
    pub fn refused(&self) {
        if self.blocked.load(Ordering::Relaxed) == 0 {
            self.blocked
                .store(MonotonicMillis::now().to_bits(), Ordering::Relaxed);
        }
    }

    /// The far end took nothing for too long: the connection is being closed.
    pub fn time_out(&self) {
        self.fate.store(TIMED_OUT, Ordering::Relaxed);
    }

    /// Whether the connection is closed because its far end took nothing for too long.
    pub fn timed_out(&self) -> bool {
        self.fate.load(Ordering::Relaxed) == TIMED_OUT
    }

    /// Asks whoever carries the connection to close it at once.
    pub(crate) fn cut(&self) {
        self.fate.store(CUT, Ordering::Relaxed);
    }

    /// Whether the connection is to be closed at once.
    pub fn is_cut(&self) -> bool {
        self.fate.load(Ordering::Relaxed) == CUT
    }

    /// Bytes taken since the connection began.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// When the far end last took something.
    pub(crate) fn taken_at(&self) -> Option<MonotonicMillis> {
        MonotonicMillis::from_bits(self.taken.load(Ordering::Relaxed))
    }

    /// Returns true while the far end takes nothing of the bytes that are ready for it.
    pub fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed) != 0
    }

    /// Since when the far end has been taking nothing of what there is for it.
    pub(crate) fn blocked_since(&self) -> Option<MonotonicMillis> {
        MonotonicMillis::from_bits(self.blocked.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_blocked_from_the_first_refusal_until_something_is_taken() {
        let progress = WriteProgress::default();
        assert!(!progress.took(7));
        progress.refused();
        let since = progress.blocked_since();
        progress.refused();
        assert!(since.is_some() && progress.blocked_since() == since);
        assert!(progress.took(3), "whoever waits has to look again");
        assert_eq!((progress.written(), progress.blocked_since()), (10, None));
        assert!(progress.taken_at().is_some());
    }
}
