//! The outbox of one subscriber: the pure set, the wake-up of whoever reads it, and its end.
//!
//! Owns: [`Outbox`] (marked by a publisher shard, read by a stream or pump) and [`OutboxReader`]. Never: writes
//! bytes, waits for a reader, or grows beyond its keys. Lives on two threads at most, so one short lock guards it.
//!
//! Several readers may be open at once (a client may hold several streams): only the newest is handed entries, the
//! others are kept alive and take over when it goes.

mod pending;
mod reader;
mod readers;
mod write_progress;
mod timeouts;
mod listing;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

pub use pending::OutboxEntry;
pub(crate) use pending::{MarkResult, OutboxSet, SlotId};
pub use reader::OutboxReader;
use readers::Readers;
pub(crate) use timeouts::SessionTimeouts;
pub use write_progress::WriteProgress;

use crate::metrics::{Metrics, TransportLabels};
use crate::model::{
    EndReason, ListHash, ListKind, MonotonicMillis, Notice, Position, SessionOptions, SubscriberId,
    SubscriberKind, SubscriberRef, TraceStep,
};
use crate::runtime::Tracer;

/// Ends the session of an outbox that the bus has ended.
pub(crate) type OnEvict = Box<dyn Fn(EndReason) + Send + Sync>;

/// What a reader gets when it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Entries were handed out; a reader that has them all may resume after this position.
    Entries(Position),
    /// The stream has been silent for a while; write something that shows whether the far end is there.
    KeepAlive,
    /// Nothing more will come.
    Ended(EndReason),
}

#[derive(Debug)]
struct OutboxState {
    set: OutboxSet,
    readers: Readers,
    /// When the last reader so far went.
    left: Option<MonotonicMillis>,
    ended: Option<EndReason>,
    /// Since when anything has been pending.
    waiting: Option<MonotonicMillis>,
    /// The last time at which patience with what is pending began anew: something was pending newly or handed out, or
    /// a reader came.
    patient: MonotonicMillis,
    /// When something was last taken, as far as no open reader's flow knows it.
    last: Option<MonotonicMillis>,
    /// Entries handed out.
    notified: u64,
    conflated: u64,
    /// Bytes that went through readers that are gone, or that no flow counts.
    bytes: u64,
}

#[derive(Debug)]
struct Reader {
    id: u64,
    waker: Option<Waker>,
    keep_alive: bool,
    /// The connection it writes to, if that is known, and what had been written to it before.
    progress: Option<Arc<WriteProgress>>,
    bytes_before: u64,
    /// Whether it takes nothing while that connection is blocked.
    waits: bool,
}

impl Reader {
    fn blocked_since(&self) -> Option<MonotonicMillis> {
        self.progress.as_ref()?.blocked_since()
    }

    fn is_held_up(&self) -> bool {
        self.waits && self.blocked_since().is_some()
    }
}

impl OutboxState {
    /// Wakes the reader that is handed entries.
    fn wake(&mut self) {
        if let Some(waker) = self.readers.newest_mut().and_then(|reader| reader.waker.take()) {
            waker.wake();
        }
    }

    fn wake_all(&mut self) {
        self.readers
            .iter_mut()
            .filter_map(|reader| reader.waker.take())
            .for_each(Waker::wake);
    }
}

/// What one subscriber has not been told yet.
pub(crate) struct Outbox {
    id: SubscriberId,
    kind: SubscriberKind,
    label: Arc<str>,
    labels: Arc<TransportLabels>,
    metrics: Arc<Metrics>,
    opened: MonotonicMillis,
    /// When its client last did something.
    active: AtomicU64,
    timeouts: SessionTimeouts,
    /// Ends the session when the bus ends the outbox.
    on_evict: OnceLock<OnEvict>,
    /// The shard that marks it. Written by the Etag actor alone, which is the one place where routes are decided.
    shard: AtomicUsize,
    /// The shard whose thread opened the newest reader.
    wanted: AtomicUsize,
    /// Whether a move is on its way to the Etag actor. One at a time, since moves take no permit of the door.
    moving: AtomicBool,
    /// Requests of its subscriber that the Etag actor has seen and the shard has not done yet.
    open_requests: AtomicUsize,
    /// Whether the Etag actor has seen the end of its subscriber. Written and read by that one alone.
    closed: AtomicBool,
    epoch: AtomicU64,
    next_reader: AtomicU64,
    tracer: Arc<Tracer>,
    state: Mutex<OutboxState>,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox")
            .field("id", &self.id)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

impl Outbox {
    /// An empty outbox, to be marked by `shard`.
    pub(crate) fn new(
        id: SubscriberId,
        shard: usize,
        options: &SessionOptions,
        metrics: Arc<Metrics>,
        tracer: Arc<Tracer>,
    ) -> Outbox {
        let opened = MonotonicMillis::now();
        Outbox {
            id,
            kind: options.kind,
            label: options.label.clone(),
            labels: metrics.labels(options.protocol, options.transport),
            metrics,
            opened,
            active: AtomicU64::new(opened.to_bits()),
            timeouts: SessionTimeouts::default(),
            on_evict: OnceLock::new(),
            shard: AtomicUsize::new(shard),
            wanted: AtomicUsize::new(shard),
            moving: AtomicBool::new(false),
            open_requests: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            next_reader: AtomicU64::new(0),
            tracer,
            state: Mutex::new(OutboxState {
                set: OutboxSet::default(),
                readers: Readers::default(),
                left: None,
                ended: None,
                waiting: None,
                patient: opened,
                last: None,
                notified: 0,
                conflated: 0,
                bytes: 0,
            }),
        }
    }

    /// With times after which it is ended.
    pub(crate) fn with_timeouts(mut self, timeouts: SessionTimeouts) -> Outbox {
        self.timeouts = timeouts;
        self
    }

    /// The subscriber, as a trace names it.
    pub(crate) fn subscriber_ref(&self) -> SubscriberRef {
        SubscriberRef {
            id: self.id,
            kind: self.kind,
            label: self.label.clone(),
        }
    }

    /// Whose outbox it is.
    pub(crate) fn id(&self) -> SubscriberId {
        self.id
    }

    /// What its subscriber is.
    pub(crate) fn kind(&self) -> SubscriberKind {
        self.kind
    }

    /// What its subscriber was called when it came.
    pub(crate) fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// What its subscriber speaks, and what carries it.
    pub(crate) fn labels(&self) -> &TransportLabels {
        &self.labels
    }

    /// How long its subscriber may be what it is.
    pub(crate) fn timeouts(&self) -> SessionTimeouts {
        self.timeouts
    }

    /// Sets the callback that ends the session when the bus ends the outbox. The first one stands.
    pub(crate) fn set_on_evict(&self, on_evict: OnEvict) {
        self.on_evict.get_or_init(|| on_evict);
    }

    /// Notes that its client did something.
    pub(crate) fn active(&self) {
        self.active
            .store(MonotonicMillis::now().to_bits(), Ordering::Relaxed);
    }

    pub(crate) fn shard(&self) -> usize {
        self.shard.load(Ordering::Relaxed)
    }

    pub(crate) fn set_shard(&self, shard: usize) {
        self.shard.store(shard, Ordering::Relaxed);
    }

    /// Notes that its newest stream is carried by `shard`. Answers whether a move has to be sent on its way.
    pub(crate) fn want_shard(&self, shard: usize) -> bool {
        self.wanted.store(shard, Ordering::Relaxed);
        // Pairs with `end_move`: whoever finds a move under way has its wish seen when that move arrives.
        shard != self.shard() && !self.moving.swap(true, Ordering::AcqRel)
    }

    /// A request that changes what its subscriber asks for is on its way to its shard.
    pub(crate) fn begin_request(&self) {
        self.open_requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Its shard has done such a request, and has not answered it yet.
    pub(crate) fn end_request(&self) {
        self.open_requests.fetch_sub(1, Ordering::Release);
    }

    /// Whether its shard has such requests to do. While it has, another would take over less than was asked for.
    pub(crate) fn has_open_requests(&self) -> bool {
        self.open_requests.load(Ordering::Acquire) > 0
    }

    /// Its subscriber ends: nothing that comes later in the order of the bus may bring it back.
    pub(crate) fn mark_closed(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Whether its subscriber has ended, as the Etag actor sees it.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Ends the move under way; answers the shard that is wanted now.
    pub(crate) fn end_move(&self) -> usize {
        self.moving.swap(false, Ordering::AcqRel);
        self.wanted.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        // A panic while the lock was held can only come from a reader's own encoder; the set itself stays whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `f` on the set, for changes that need no wake-up.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut OutboxSet) -> R) -> R {
        self.changing(&mut self.lock().set, f)
    }

    /// Runs `f` on the set and counts what is pending after it. Marks are counted by who marks many at a time.
    fn changing<R>(&self, set: &mut OutboxSet, f: impl FnOnce(&mut OutboxSet) -> R) -> R {
        let before = set.pending();
        let result = f(set);
        self.metrics.pending.moved(before, set.pending());
        result
    }

    /// `now` is read by who marks many at a time: reading a clock costs more than a mark.
    fn marking(&self, now: MonotonicMillis, mark: impl FnOnce(&mut OutboxSet) -> MarkResult) -> MarkResult {
        let mut state = self.lock();
        if state.ended.is_some() {
            return MarkResult::Ignored;
        }
        let marked = mark(&mut state.set);
        if marked == MarkResult::New && state.set.pending() == 1 {
            (state.waiting, state.patient) = (Some(now), now);
            state.wake();
        }
        state.conflated += u64::from(marked == MarkResult::Conflated);
        marked
    }

    /// Notes that the resource behind `slot` changed, and wakes the reader when that is the first thing to tell.
    pub(crate) fn mark(&self, slot: SlotId, notice: &Arc<Notice>, now: MonotonicMillis) -> MarkResult {
        self.marking(now, |set| set.mark(slot, notice))
    }

    pub(crate) fn mark_any(&self, notice: &Arc<Notice>, now: MonotonicMillis) -> MarkResult {
        self.epoch.store(notice.position.epoch, Ordering::Relaxed);
        self.marking(now, |set| set.mark_any(notice))
    }

    pub(crate) fn mark_list(
        &self,
        kind: ListKind,
        hash: ListHash,
        position: Position,
        now: MonotonicMillis,
    ) -> MarkResult {
        self.marking(now, |set| {
            let before = set.pending();
            let marked = set.mark_list(kind, hash, position.offset);
            if marked == MarkResult::Ignored {
                // A list that is back at what was told is pending no longer.
                self.metrics.pending.moved(before, set.pending());
            }
            marked
        })
    }

    /// Says which history its offsets belong to; before it is first marked.
    pub(crate) fn set_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    fn trace_handed_out(&self, entry: &OutboxEntry) {
        match entry {
            OutboxEntry::Updated(notice) if notice.traced => {
                let subscriber = self.subscriber_ref();
                let after = Some(notice.at.elapsed());
                self.tracer
                    .notice(notice, TraceStep::HandedOut { subscriber, after });
            }
            OutboxEntry::Updated(_) => {}
            OutboxEntry::ListChanged(kind) => self.tracer.list(*kind, None, || {
                let subscriber = self.subscriber_ref();
                TraceStep::HandedOut {
                    subscriber,
                    after: None,
                }
            }),
        }
    }

    /// Tells the tracer what this subscriber will never be told, now that it has ended.
    pub(crate) fn trace_dropped(&self, reason: EndReason) {
        if !self.tracer.is_on() {
            return;
        }
        let state = self.lock();
        for notice in state.set.pending_notices().filter(|notice| notice.traced) {
            let subscriber = self.subscriber_ref();
            self.tracer
                .notice(notice, TraceStep::Dropped { subscriber, reason });
        }
        for kind in state.set.pending_lists() {
            self.tracer.list(kind, None, || {
                let subscriber = self.subscriber_ref();
                TraceStep::Dropped { subscriber, reason }
            });
        }
    }

    /// Asks every open reader for a sign of life. Answers how long its oldest resource entry has been pending.
    pub(crate) fn keep_alive(&self) -> Duration {
        let mut state = self.lock();
        state
            .readers
            .iter_mut()
            .for_each(|reader| reader.keep_alive = true);
        state.wake_all();
        state
            .set
            .oldest_since()
            .map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Ends it: readers get what is pending, then the reason. The first reason stands.
    pub(crate) fn end(&self, reason: EndReason) {
        let mut state = self.lock();
        state.ended.get_or_insert(reason);
        state.wake_all();
    }

    /// Ends it and the session it belongs to, though nobody of its own asked for it. What can be written is: what is
    /// pending, then the reason; a connection that takes nothing is cut. Answers whether it was still there.
    pub(crate) fn evict(&self, reason: EndReason) -> bool {
        let mut state = self.lock();
        if state.ended.is_some() {
            return false;
        }
        state.ended = Some(reason);
        for reader in state.readers.iter() {
            if let Some(progress) = reader
                .progress
                .as_ref()
                .filter(|progress| progress.blocked_since().is_some())
            {
                progress.cut();
            }
        }
        state.wake_all();
        drop(state);
        self.report(reason);
        if let Some(on_evict) = self.on_evict.get() {
            on_evict(reason);
        }
        true
    }

    /// Notes that a stream of it was closed because its connection took nothing. A subscriber that is one stream ends
    /// with it, and for that reason.
    fn stream_timed_out(&self) {
        self.report(EndReason::WriteTimeout);
        if self.kind == SubscriberKind::Stream {
            self.end(EndReason::WriteTimeout);
        }
    }

    /// Why it ended, if it did.
    pub(crate) fn ended(&self) -> Option<EndReason> {
        self.lock().ended
    }

    /// How many readers are open.
    pub(crate) fn readers(&self) -> usize {
        self.lock().readers.len()
    }
}

impl Drop for Outbox {
    /// What nobody will be told any more is pending no longer.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.metrics.pending.moved(state.set.pending(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Cause, Etag, ResourceUri};
    use std::task::{Context, Poll};
    use std::time::Instant;

    fn outbox() -> (Arc<Outbox>, SlotId) {
        let options = SessionOptions::new(SubscriberKind::Local, "test");
        let metrics = Metrics::register(1);
        let outbox = Arc::new(Outbox::new(SubscriberId(1), 0, &options, metrics, Arc::default()));
        let uri = ResourceUri::new("demo://a").unwrap();
        outbox.set_epoch(9);
        let (slot, _) = outbox.with(|set| set.subscribe(&uri, Etag::UNKNOWN, 0));
        (outbox, slot)
    }

    fn notice(version: u64) -> Arc<Notice> {
        let uri = ResourceUri::new("demo://a").unwrap();
        let position = Position {
            epoch: 9,
            offset: version,
        };
        let etag = Etag {
            version,
            updated_at: 0,
        };
        Arc::new(Notice::new(uri, etag, Cause::Updated, position, Instant::now()))
    }

    fn look(reader: &mut OutboxReader) -> (Poll<Drained>, Vec<u64>) {
        let mut versions = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        let drained = reader.poll_drain(&mut cx, |entry| {
            if let OutboxEntry::Updated(notice) = entry {
                versions.push(notice.etag.version);
            }
        });
        (drained, versions)
    }

    #[test]
    fn the_newest_reader_is_handed_entries_and_the_older_takes_over() {
        let (outbox, slot) = outbox();
        let mut old = OutboxReader::open(outbox.clone(), 8);
        let mut new = OutboxReader::open(outbox.clone(), 8);
        outbox.mark(slot, &notice(1), MonotonicMillis::now());
        assert_eq!(look(&mut old), (Poll::Pending, vec![]));
        let at_1 = Drained::Entries(Position { epoch: 9, offset: 1 });
        assert_eq!(look(&mut new), (Poll::Ready(at_1), vec![1]));
        drop(new);
        outbox.mark(slot, &notice(2), MonotonicMillis::now());
        assert_eq!(look(&mut old).1, [2]);
    }

    #[test]
    fn an_ended_outbox_hands_out_what_is_pending_first() {
        let (outbox, slot) = outbox();
        let mut reader = OutboxReader::open(outbox.clone(), 8);
        outbox.mark(slot, &notice(1), MonotonicMillis::now());
        outbox.end(EndReason::Shutdown);
        outbox.end(EndReason::Closed);
        assert_eq!(
            outbox.mark(slot, &notice(2), MonotonicMillis::now()),
            MarkResult::Ignored
        );
        assert_eq!(look(&mut reader).1, [1]);
        assert_eq!(
            look(&mut reader).0,
            Poll::Ready(Drained::Ended(EndReason::Shutdown))
        );
    }

    #[test]
    fn a_foreign_position_brings_everything_back_and_a_known_one_only_the_rest() {
        let (outbox, slot) = outbox();
        let mut reader = OutboxReader::open(outbox.clone(), 8);
        outbox.mark(slot, &notice(1), MonotonicMillis::now());
        assert_eq!(look(&mut reader).1, [1]);
        reader.resume_after(Position { epoch: 9, offset: 1 });
        assert_eq!(look(&mut reader), (Poll::Pending, vec![]));
        reader.resume_after(Position { epoch: 8, offset: 1 });
        assert_eq!(look(&mut reader).1, [1]);
    }

    #[test]
    fn keep_alive_is_asked_once_and_dropped_when_something_was_written() {
        let (outbox, slot) = outbox();
        outbox.keep_alive();
        let mut reader = OutboxReader::open(outbox.clone(), 8);
        assert_eq!(look(&mut reader).0, Poll::Pending, "asked before it was open");
        outbox.keep_alive();
        assert_eq!(look(&mut reader).0, Poll::Ready(Drained::KeepAlive));
        assert_eq!(look(&mut reader).0, Poll::Pending);
        outbox.keep_alive();
        outbox.mark(slot, &notice(1), MonotonicMillis::now());
        assert_eq!(look(&mut reader).1, [1]);
        assert_eq!(look(&mut reader).0, Poll::Pending);
    }
}
