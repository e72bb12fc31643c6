//! The reading end of an outbox.
//!
//! Owns: [`OutboxReader`], which takes entries out and is woken when there are some. Never: writes bytes. Held by
//! whoever carries a stream; while the connection it was [notified of](OutboxReader::flows_through) is blocked, it takes
//! nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use super::pending::OutboxEntry;
use super::write_progress::WriteProgress;
use super::{Drained, EndReason, Outbox, Reader};
use crate::model::{MonotonicMillis, Position};

/// One reader of an outbox. Dropping it leaves what it was not handed for the next reader.
#[derive(Debug)]
pub struct OutboxReader {
    outbox: Arc<Outbox>,
    id: u64,
    drain_max: usize,
}

fn remember(slot: &mut Option<Waker>, waker: &Waker) {
    match slot {
        Some(known) => known.clone_from(waker),
        none => *none = Some(waker.clone()),
    }
}

impl OutboxReader {
    pub(crate) fn open(outbox: Arc<Outbox>, drain_max: usize) -> OutboxReader {
        let id = outbox.next_reader.fetch_add(1, Ordering::Relaxed);
        outbox.labels.streams.increment(1.0);
        let mut state = outbox.lock();
        state.patient = MonotonicMillis::now();
        state.readers.push(Reader {
            id,
            waker: None,
            keep_alive: false,
            progress: None,
            bytes_before: 0,
            waits: false,
        });
        drop(state);
        OutboxReader {
            outbox,
            id,
            drain_max,
        }
    }

    /// Says over which connection goes what is taken out, for a reader that is polled by the task that writes to it:
    /// while the connection is blocked nothing is taken, so that repeats become one in the outbox.
    pub fn flows_through(&self, progress: Arc<WriteProgress>) {
        self.connect(progress, true);
    }

    /// Says whose progress its own is: the bytes of `progress` are counted as its bytes. For a reader whose entries are
    /// written by another task, which by itself takes no more of them than it can write.
    pub fn counts(&self, progress: Arc<WriteProgress>) {
        self.connect(progress, false);
    }

    fn connect(&self, progress: Arc<WriteProgress>, waits: bool) {
        let mut state = self.outbox.lock();
        if let Some(reader) = state.readers.iter_mut().find(|reader| reader.id == self.id) {
            reader.bytes_before = progress.written();
            reader.progress = Some(progress);
            reader.waits = waits;
        }
    }

    /// Says that the far end got everything up to `offset` of `epoch` and nothing after: what it missed is pending
    /// again. A position of another epoch proves nothing, so everything told is pending again.
    pub fn resume_after(&self, position: Position) {
        let known = self.outbox.epoch.load(Ordering::Relaxed) == position.epoch;
        let mut state = self.outbox.lock();
        let offset = if known { position.offset } else { 0 };
        self.outbox.changing(&mut state.set, |set| set.rewind(offset));
        if state.set.pending() > 0 {
            let now = MonotonicMillis::now();
            state.waiting.get_or_insert(now);
            state.patient = now;
        }
        state.wake();
    }

    /// How many entries are handed out at a time (see [`Limits::drain_max`](crate::Limits::drain_max)).
    pub fn drain_max(&self) -> usize {
        self.drain_max
    }

    /// The position up to which everything has been handed out.
    pub fn position(&self) -> Position {
        let epoch = self.outbox.epoch.load(Ordering::Relaxed);
        Position {
            epoch,
            offset: self.outbox.lock().set.safe_offset(),
        }
    }

    /// Hands what is pending to `take`, at most as many entries as one write should carry
    /// ([`drain_max`](Self::drain_max)); the rest comes with the next call. When it hands out fewer, nothing is pending
    /// any more, and `cx` is woken by what comes next, as it is after an answer that is pending.
    pub fn poll_drain(&mut self, cx: &mut Context<'_>, mut take: impl FnMut(OutboxEntry)) -> Poll<Drained> {
        let mut state = self.outbox.lock();
        let state = &mut *state;
        let is_last = state.readers.newest().is_some_and(|reader| reader.id == self.id);
        let Some(reader) = state.readers.iter_mut().find(|reader| reader.id == self.id) else {
            return Poll::Ready(Drained::Ended(state.ended.unwrap_or(EndReason::Closed)));
        };
        if state.ended.is_none() && reader.is_held_up() {
            // Whoever carries the connection is woken when it takes something again; the end still comes by itself.
            remember(&mut reader.waker, cx.waker());
            return Poll::Pending;
        }
        if is_last && state.set.pending() > 0 {
            let mut lists = 0;
            let mut hand_out = |entry: OutboxEntry| {
                lists += usize::from(matches!(entry, OutboxEntry::ListChanged(_)));
                self.outbox.trace_handed_out(&entry);
                take(entry);
            };
            let taken = self.outbox.changing(&mut state.set, |set| {
                let entries = (0..self.drain_max).map_while(|_| set.pop());
                entries.map(&mut hand_out).count()
            });
            self.outbox.labels.delivered.add(taken);
            self.outbox.labels.lists_sent.add(lists);
            debug_assert!(taken > 0, "a pending set hands out at least one entry");
            reader.keep_alive = false;
            let now = MonotonicMillis::now();
            if reader.progress.is_none() {
                state.last = Some(now);
            }
            state.notified += taken as u64;
            state.patient = now;
            state.waiting = state.waiting.filter(|_| state.set.pending() > 0);
            if taken < self.drain_max {
                // So that whoever writes these needs no second look to be woken.
                remember(&mut reader.waker, cx.waker());
            }
            let offset = state.set.safe_offset();
            let epoch = self.outbox.epoch.load(Ordering::Relaxed);
            return Poll::Ready(Drained::Entries(Position { epoch, offset }));
        }
        if let Some(reason) = state.ended {
            return Poll::Ready(Drained::Ended(reason));
        }
        if std::mem::take(&mut reader.keep_alive) {
            return Poll::Ready(Drained::KeepAlive);
        }
        remember(&mut reader.waker, cx.waker());
        Poll::Pending
    }

    /// How many changes were not taken in since this was last asked, because as many resources waited as may (see
    /// [`Session::watch`](crate::Session::watch)); always 0 for one that only subscribes.
    pub fn take_lost(&self) -> u64 {
        self.outbox.lock().set.take_lost()
    }

    /// Waits for entries, a keep-alive or the end; for pumps that own no poll function.
    pub async fn drain(&mut self, entries: &mut Vec<OutboxEntry>) -> Drained {
        std::future::poll_fn(|cx| self.poll_drain(cx, |entry| entries.push(entry))).await
    }
}

impl Drop for OutboxReader {
    fn drop(&mut self) {
        self.outbox.labels.streams.decrement(1.0);
        let mut state = self.outbox.lock();
        let gone = state.readers.remove(self.id);
        let progress = gone.as_ref().and_then(|reader| reader.progress.as_ref());
        if let Some((progress, reader)) = progress.zip(gone.as_ref()) {
            state.bytes += progress.written().saturating_sub(reader.bytes_before);
            state.last = state.last.max(progress.taken_at());
        }
        let timed_out = progress.is_some_and(|progress| progress.timed_out());
        let now = MonotonicMillis::now();
        state.left = Some(now);
        // A reader that stood behind this one begins to be handed entries.
        state.patient = now;
        // What this reader was woken for may now be the business of the next one.
        state.wake();
        drop(state);
        if timed_out {
            self.outbox.stream_timed_out();
        }
    }
}
