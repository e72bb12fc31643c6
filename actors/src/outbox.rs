//! The outbox of one subscriber: the pure set, the wake-up of whoever reads it, and its end.
//!
//! Owns: [`Outbox`] (marked by a publisher shard, read by a stream or pump) and [`OutboxReader`]. Never: writes
//! bytes, waits for a reader, or grows beyond its keys. Lives on two threads at most, so one short lock guards it.
//!
//! Several readers may be open at once (a client may hold several streams): only the newest is handed entries, the
//! others are kept alive and take over when it goes.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::metric::{Metrics, Road};
use crate::outbox_set::{Entry, Marked, OutboxSet};
use crate::session::SessionOptions;
use crate::subscriber::{Pending, SubscriberId, SubscriberKind};
use crate::table::SlotId;
use crate::trace::{Step, Tracer, Who};
use crate::{ListHash, ListKind, Notice, Position};

/// Why a subscriber's outbox ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndReason {
    /// The subscriber said so, or dropped its handle.
    Closed,
    /// It had neither a stream nor a request for too long.
    Idle,
    /// The bus is shutting down; everything pending was handed out first.
    Shutdown,
    /// An actor died.
    Failed,
}

impl EndReason {
    /// Every reason, in the order of the variants.
    pub(crate) const ALL: [EndReason; 4] = [
        EndReason::Closed,
        EndReason::Idle,
        EndReason::Shutdown,
        EndReason::Failed,
    ];

    /// The reason as it is written in labels and logs.
    pub fn name(self) -> &'static str {
        match self {
            EndReason::Closed => "closed",
            EndReason::Idle => "idle",
            EndReason::Shutdown => "shutdown",
            EndReason::Failed => "failed",
        }
    }
}

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

#[derive(Debug, Default)]
struct State {
    set: OutboxSet,
    readers: Vec<Reader>,
    /// When the last reader so far went.
    left: Option<Instant>,
    ended: Option<EndReason>,
}

#[derive(Debug)]
struct Reader {
    id: u64,
    waker: Option<Waker>,
    keep_alive: bool,
}

impl State {
    /// Wakes the reader that is handed entries.
    fn wake(&mut self) {
        if let Some(waker) = self.readers.last_mut().and_then(|reader| reader.waker.take()) {
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
#[derive(Debug)]
pub struct Outbox {
    id: SubscriberId,
    kind: SubscriberKind,
    label: Arc<str>,
    road: Arc<Road>,
    metrics: Arc<Metrics>,
    /// The shard that marks it. Written by the Etag actor alone, which is the one place where routes are decided.
    shard: AtomicUsize,
    /// The shard whose thread opened the newest reader.
    wanted: AtomicUsize,
    /// Whether a move is on its way to the Etag actor. One at a time, since moves take no permit of the door.
    moving: AtomicBool,
    epoch: AtomicU64,
    next_reader: AtomicU64,
    tracer: Arc<Tracer>,
    state: Mutex<State>,
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
        Outbox {
            id,
            kind: options.kind,
            label: options.label.clone(),
            road: metrics.road(options.protocol, options.transport),
            metrics,
            shard: AtomicUsize::new(shard),
            wanted: AtomicUsize::new(shard),
            moving: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            next_reader: AtomicU64::new(0),
            tracer,
            state: Mutex::default(),
        }
    }

    /// Whose outbox it is.
    pub fn id(&self) -> SubscriberId {
        self.id
    }

    /// What its subscriber is.
    pub fn kind(&self) -> SubscriberKind {
        self.kind
    }

    /// What its subscriber was called when it came.
    pub fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// What its subscriber speaks, and what carries it.
    pub(crate) fn road(&self) -> &Road {
        &self.road
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

    /// Ends the move under way; answers the shard that is wanted now.
    pub(crate) fn end_move(&self) -> usize {
        self.moving.swap(false, Ordering::AcqRel);
        self.wanted.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
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

    fn marking(&self, mark: impl FnOnce(&mut OutboxSet) -> Marked) -> Marked {
        let mut state = self.lock();
        if state.ended.is_some() {
            return Marked::Ignored;
        }
        let marked = mark(&mut state.set);
        if marked == Marked::New && state.set.pending() == 1 {
            state.wake();
        }
        marked
    }

    /// Notes that the resource behind `slot` changed, and wakes the reader when that is the first thing to tell.
    pub(crate) fn mark(&self, slot: SlotId, notice: &Arc<Notice>) -> Marked {
        self.epoch.store(notice.position.epoch, Ordering::Relaxed);
        self.marking(|set| set.mark(slot, notice))
    }

    pub(crate) fn mark_any(&self, notice: &Arc<Notice>) -> Marked {
        self.epoch.store(notice.position.epoch, Ordering::Relaxed);
        self.marking(|set| set.mark_any(notice))
    }

    pub(crate) fn mark_list(&self, kind: ListKind, hash: ListHash, position: Position) -> Marked {
        self.epoch.store(position.epoch, Ordering::Relaxed);
        self.marking(|set| {
            let before = set.pending();
            let marked = set.mark_list(kind, hash, position.offset);
            if marked == Marked::Ignored {
                // A list that is back at what was told is pending no longer.
                self.metrics.pending.moved(before, set.pending());
            }
            marked
        })
    }

    pub(crate) fn set_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    fn trace_handed_out(&self, entry: &Entry) {
        match entry {
            Entry::Updated(notice) if notice.traced => {
                let (who, after) = (Who::of(self), Some(notice.at.elapsed()));
                self.tracer.notice(notice, Step::HandedOut { who, after });
            }
            Entry::Updated(_) => {}
            Entry::ListChanged(kind) => self.tracer.list(*kind, None, || {
                let who = Who::of(self);
                Step::HandedOut { who, after: None }
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
            let who = Who::of(self);
            self.tracer.notice(notice, Step::Dropped { who, reason });
        }
        for kind in state.set.pending_lists() {
            self.tracer.list(kind, None, || {
                let who = Who::of(self);
                Step::Dropped { who, reason }
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

    /// Why it ended, if it did.
    pub fn ended(&self) -> Option<EndReason> {
        self.lock().ended
    }

    /// How many readers are open.
    pub fn readers(&self) -> usize {
        self.lock().readers.len()
    }

    /// How long it has had no reader since it last had one; none while it has one or never had.
    pub(crate) fn unread_for(&self) -> Option<Duration> {
        let state = self.lock();
        let left = state.left.filter(|_| state.readers.is_empty());
        left.map(|left| left.elapsed())
    }

    /// What is pending, for those who ask what a session has not been told.
    pub(crate) fn pending(&self) -> Pending {
        let state = self.lock();
        Pending {
            subscriptions: state.set.subscriptions(),
            entries: state.set.pending(),
            uris: state.set.pending_uris().cloned().collect(),
            oldest: state.set.oldest().map(|notice| notice.at.elapsed()),
            lists_told: ListKind::ALL.map(|kind| state.set.list_told(kind)),
            streams: state.readers.len(),
        }
    }
}

impl Drop for Outbox {
    /// What nobody will be told any more is pending no longer.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.metrics.pending.moved(state.set.pending(), 0);
    }
}

/// One reader of an outbox. Dropping it leaves what it was not handed for the next reader.
#[derive(Debug)]
pub struct OutboxReader {
    outbox: Arc<Outbox>,
    id: u64,
    drain_max: usize,
}

impl OutboxReader {
    pub(crate) fn open(outbox: Arc<Outbox>, drain_max: usize) -> OutboxReader {
        let id = outbox.next_reader.fetch_add(1, Ordering::Relaxed);
        outbox.road.streams.increment(1.0);
        let mut state = outbox.lock();
        state.readers.reserve_exact(1);
        state.readers.push(Reader {
            id,
            waker: None,
            keep_alive: false,
        });
        drop(state);
        OutboxReader {
            outbox,
            id,
            drain_max,
        }
    }

    /// Says that the far end got everything up to `offset` of `epoch` and nothing after: what it missed is pending
    /// again. A position of another epoch proves nothing, so everything told is pending again.
    pub fn resume_after(&self, position: Position) {
        let known = self.outbox.epoch.load(Ordering::Relaxed) == position.epoch;
        let mut state = self.outbox.lock();
        let offset = if known { position.offset } else { 0 };
        self.outbox.changing(&mut state.set, |set| set.rewind(offset));
        state.wake();
    }

    /// The position up to which everything has been handed out.
    pub fn position(&self) -> Position {
        let epoch = self.outbox.epoch.load(Ordering::Relaxed);
        Position {
            epoch,
            offset: self.outbox.lock().set.safe_offset(),
        }
    }

    /// Hands what is pending to `take`, at most as many entries as one write should carry (see
    /// [`Limits::drain_max`](crate::Limits::drain_max)); the rest comes with the next call.
    pub fn poll_drain(&mut self, cx: &mut Context<'_>, mut take: impl FnMut(Entry)) -> Poll<Drained> {
        let mut state = self.outbox.lock();
        let is_last = state.readers.last().is_some_and(|reader| reader.id == self.id);
        if is_last && state.set.pending() > 0 {
            let mut lists = 0;
            let mut hand_out = |entry: Entry| {
                lists += usize::from(matches!(entry, Entry::ListChanged(_)));
                self.outbox.trace_handed_out(&entry);
                take(entry);
            };
            let taken = self.outbox.changing(&mut state.set, |set| {
                let entries = (0..self.drain_max).map_while(|_| set.pop());
                entries.map(&mut hand_out).count()
            });
            self.outbox.road.delivered.add(taken);
            self.outbox.road.lists_sent.add(lists);
            debug_assert!(taken > 0, "a pending set hands out at least one entry");
            let offset = state.set.safe_offset();
            let epoch = self.outbox.epoch.load(Ordering::Relaxed);
            if let Some(reader) = state.readers.last_mut() {
                reader.keep_alive = false;
            }
            return Poll::Ready(Drained::Entries(Position { epoch, offset }));
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
        match &mut reader.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// How many changes were not taken in since this was last asked, because as many resources waited as may (see
    /// [`Session::watch`](crate::Session::watch)); always 0 for one that only subscribes.
    pub fn take_lost(&self) -> u64 {
        self.outbox.lock().set.take_lost()
    }

    /// Waits for entries, a keep-alive or the end; for pumps that own no poll function.
    pub async fn drain(&mut self, entries: &mut Vec<Entry>) -> Drained {
        std::future::poll_fn(|cx| self.poll_drain(cx, |entry| entries.push(entry))).await
    }
}

impl Drop for OutboxReader {
    fn drop(&mut self) {
        self.outbox.road.streams.decrement(1.0);
        let mut state = self.outbox.lock();
        state.readers.retain(|reader| reader.id != self.id);
        state.left = Some(Instant::now());
        // What this reader was woken for may now be the business of the next one.
        state.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cause, Etag, ResourceUri};
    use std::time::Instant;

    fn outbox() -> (Arc<Outbox>, SlotId) {
        let options = SessionOptions::new(SubscriberKind::Local, "test");
        let metrics = Metrics::register(1);
        let outbox = Arc::new(Outbox::new(SubscriberId(1), 0, &options, metrics, Arc::default()));
        let uri = ResourceUri::new("demo://a").unwrap();
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
            if let Entry::Updated(notice) = entry {
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
        outbox.mark(slot, &notice(1));
        assert_eq!(look(&mut old), (Poll::Pending, vec![]));
        let at_1 = Drained::Entries(Position { epoch: 9, offset: 1 });
        assert_eq!(look(&mut new), (Poll::Ready(at_1), vec![1]));
        drop(new);
        outbox.mark(slot, &notice(2));
        assert_eq!(look(&mut old).1, [2]);
    }

    #[test]
    fn an_ended_outbox_hands_out_what_is_pending_first() {
        let (outbox, slot) = outbox();
        let mut reader = OutboxReader::open(outbox.clone(), 8);
        outbox.mark(slot, &notice(1));
        outbox.end(EndReason::Shutdown);
        outbox.end(EndReason::Closed);
        assert_eq!(outbox.mark(slot, &notice(2)), Marked::Ignored);
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
        outbox.mark(slot, &notice(1));
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
        outbox.mark(slot, &notice(1));
        assert_eq!(look(&mut reader).1, [1]);
        assert_eq!(look(&mut reader).0, Poll::Pending);
    }
}
