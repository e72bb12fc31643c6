//! The reading end of an outbox, polled by the task that writes to a stream.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use super::pending::OutboxEntry;
use super::readers::Reader;
use super::write_progress::WriteProgress;
use super::{Drained, EndReason, Outbox, OutboxState};
use crate::model::{MonotonicMillis, Position};

/// A reader of an outbox. If it is dropped, the next reader is handed the entries that it did not take.
#[derive(Debug)]
pub struct OutboxReader {
    outbox: Arc<Outbox>,
    id: u64,
    drain_max: usize,
}

impl OutboxReader {
    pub(crate) fn open(outbox: Arc<Outbox>, drain_max: usize) -> OutboxReader {
        let id = outbox.next_reader_id.fetch_add(1, Ordering::Relaxed);
        outbox.labels.streams.increment(1.0);
        let mut state = outbox.lock();
        // A new stream gets the full stall time-out.
        state.stall_start = MonotonicMillis::now();
        state.readers.push(Reader::new(id));
        drop(state);
        OutboxReader {
            outbox,
            id,
            drain_max,
        }
    }

    /// Takes no entries while the connection of `progress` is blocked, and counts its bytes. For a reader
    /// polled by the task that writes to the connection: repeated changes are conflated in the outbox instead
    /// of waiting in a buffer.
    pub fn pause_while_blocked(&self, progress: Arc<WriteProgress>) {
        self.connect(progress, true);
    }

    /// Counts the bytes of `progress` as those of this reader. For a reader whose entries are written by
    /// another task, which takes no more of them than it can write.
    pub fn count_bytes_of(&self, progress: Arc<WriteProgress>) {
        self.connect(progress, false);
    }

    fn connect(&self, progress: Arc<WriteProgress>, pauses_while_blocked: bool) {
        let mut state = self.outbox.lock();
        if let Some(reader) = state.readers.iter_mut().find(|reader| reader.id == self.id) {
            reader.bytes_before = progress.written();
            reader.progress = Some(progress);
            reader.pauses_while_blocked = pauses_while_blocked;
        }
    }

    /// Resumes after `position`, the last one that the peer received: all later entries are pending again.
    pub fn resume_after(&self, position: Position) {
        // A position of another epoch says nothing about this history, so everything is pending again.
        let known = self.outbox.epoch.load(Ordering::Relaxed) == position.epoch;
        let offset = if known { position.offset } else { 0 };
        let mut state = self.outbox.lock();
        self.outbox
            .count_pending(&mut state.set, |set| set.rewind(offset));
        if state.set.pending() > 0 {
            let now = MonotonicMillis::now();
            state.pending_since.get_or_insert(now);
            state.stall_start = now;
        }
        state.wake();
    }

    /// The maximum number of entries of one drain; see [`Limits::drain_max`](crate::Limits::drain_max).
    pub fn drain_max(&self) -> usize {
        self.drain_max
    }

    /// Returns the position up to which everything has been handed out.
    pub fn position(&self) -> Position {
        let epoch = self.outbox.epoch.load(Ordering::Relaxed);
        Position {
            epoch,
            offset: self.outbox.lock().set.safe_offset(),
        }
    }

    /// Hands at most [`drain_max`](Self::drain_max) pending entries to `take`. If it hands out fewer, nothing
    /// more is pending, and the next entry wakes `cx`, just as after `Poll::Pending`.
    pub fn poll_drain(&mut self, cx: &mut Context<'_>, take: impl FnMut(OutboxEntry)) -> Poll<Drained> {
        let mut state = self.outbox.lock();
        if self.outbox.is_outdated(&state) {
            drop(state);
            self.outbox.recheck();
            state = self.outbox.lock();
        }
        let state = &mut *state;
        if state.judged.ended && state.ended.is_none() {
            return Poll::Ready(Drained::Ended(EndReason::Unauthorized));
        }
        let is_newest = state.readers.is_newest(self.id);
        let Some(reader) = state.readers.iter_mut().find(|reader| reader.id == self.id) else {
            return Poll::Ready(Drained::Ended(state.ended.unwrap_or(EndReason::Closed)));
        };
        if state.ended.is_none() && reader.is_paused() {
            // The task of the connection polls again once the peer takes bytes. The waker is for the end of
            // the outbox.
            reader.remember(cx.waker());
            return Poll::Pending;
        }
        if is_newest
            && state.set.pending() > 0
            && let Some(drained) = self.hand_out(state, cx, take)
        {
            return Poll::Ready(drained);
        }
        if let Some(reason) = state.ended {
            return Poll::Ready(Drained::Ended(reason));
        }
        let Some(reader) = state.readers.iter_mut().find(|reader| reader.id == self.id) else {
            return Poll::Ready(Drained::Ended(EndReason::Closed));
        };
        if std::mem::take(&mut reader.keep_alive) {
            return Poll::Ready(Drained::KeepAlive);
        }
        reader.remember(cx.waker());
        Poll::Pending
    }

    /// Returns none if the subscriber may be told of nothing that was pending.
    fn hand_out(
        &self,
        state: &mut OutboxState,
        cx: &Context<'_>,
        mut take: impl FnMut(OutboxEntry),
    ) -> Option<Drained> {
        let mut taken = 0;
        let mut lists = 0;
        self.outbox.count_pending(&mut state.set, |set| {
            while taken < self.drain_max
                && let Some(entry) = set.pop()
            {
                if self.outbox.withholds(set, &entry) {
                    continue;
                }
                taken += 1;
                lists += usize::from(matches!(entry, OutboxEntry::ListChanged(_)));
                self.outbox.trace_handed_out(&entry);
                take(entry);
            }
        });
        // Counted once per drain, because a counter costs more than an entry.
        self.outbox.labels.delivered.add(taken);
        self.outbox.labels.lists_sent.add(lists);
        state.forget_empty();
        if taken == 0 {
            return None;
        }
        let now = MonotonicMillis::now();
        state.notified += taken as u64;
        state.stall_start = now;
        if let Some(reader) = state.readers.newest_mut() {
            reader.keep_alive = false;
            if reader.progress.is_none() {
                state.last_taken = Some(now);
            }
            if taken < self.drain_max {
                // Registers the waker now, so that the caller can write without polling again first.
                reader.remember(cx.waker());
            }
        }
        Some(Drained::Entries(Position {
            epoch: self.outbox.epoch.load(Ordering::Relaxed),
            offset: state.set.safe_offset(),
        }))
    }

    /// Returns the number of changes dropped since the last call because too many resources were pending (see
    /// [`Session::watch`](crate::Session::watch)); always 0 without a filter.
    pub fn take_lost(&self) -> u64 {
        self.outbox.lock().set.take_lost()
    }

    /// Waits for entries, a keep-alive or the end.
    pub async fn drain(&mut self, entries: &mut Vec<OutboxEntry>) -> Drained {
        std::future::poll_fn(|cx| self.poll_drain(cx, |entry| entries.push(entry))).await
    }
}

impl Drop for OutboxReader {
    fn drop(&mut self) {
        self.outbox.labels.streams.decrement(1.0);
        let mut state = self.outbox.lock();
        let mut timed_out = false;
        if let Some(reader) = state.readers.remove(self.id)
            && let Some(progress) = &reader.progress
        {
            state.closed_bytes += reader.bytes();
            state.last_taken = state.last_taken.max(reader.taken_at());
            timed_out = progress.timed_out();
        }
        let now = MonotonicMillis::now();
        state.last_reader_closed = Some(now);
        // The reader before this one takes over and gets the full stall time-out.
        state.stall_start = now;
        // A wake-up that this reader did not act on is passed to the next one.
        state.wake();
        drop(state);
        if timed_out {
            self.outbox.end_timed_out_stream();
        }
    }
}
