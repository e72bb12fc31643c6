//! The outbox of one subscriber: marked by a Publisher shard, read by a stream.
//!
//! An outbox conflates, so its size is bounded by the subscriptions and it never waits for a reader. It is
//! used by two threads at most, so a mutex held for a few instructions guards it. It knows no actor: a
//! callback ends the session.

mod audience;
#[cfg(test)]
mod count_wakes;
mod held;
mod home;
mod listing;
mod pending;
mod reader;
mod readers;
mod rights;
mod slots;
mod timeouts;
mod told;
mod trace;
mod write_progress;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

pub(crate) use audience::{AudienceHashes, JoinedAudience, ListAudience};
use held::Held;
pub use pending::OutboxEntry;
pub(crate) use pending::{MarkResult, OutboxSet};
pub use reader::OutboxReader;
use readers::Readers;
use rights::{Judged, OnJudged};
pub(crate) use slots::SlotId;
pub(crate) use timeouts::SessionTimeouts;
pub use write_progress::WriteProgress;

use crate::metrics::{Metrics, TransportLabels};
use crate::model::{
    EndReason, ListHash, ListKind, MonotonicMillis, Notice, Position, SessionOptions, SubscriberId,
    SubscriberKind, SubscriberRef, Viewer,
};
use crate::runtime::{ForMany, Tracer};

/// The characters of a client's name that are kept.
const CLIENT_LEN_MAX: usize = 200;

/// The callback that ends the session of an outbox.
pub(crate) type OnEvict = Box<dyn Fn(EndReason) + Send + Sync>;

/// The result of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Entries were handed out. A peer that received them all may resume after this position.
    Entries(Position),
    /// The stream has been silent for a while: write something, so that a broken connection is noticed.
    KeepAlive,
    /// The outbox has ended, and everything was handed out.
    Ended(EndReason),
}

#[derive(Debug)]
struct OutboxState {
    set: OutboxSet,
    readers: Readers,
    /// The time at which a reader was last closed.
    last_reader_closed: Option<MonotonicMillis>,
    ended: Option<EndReason>,
    /// Dropped when the outbox ends.
    held: Option<Held>,
    /// The time since which the set has not been empty.
    pending_since: Option<MonotonicMillis>,
    judged: Judged,
    /// The audience that the lists were last compared for; none without a viewer.
    audience: Option<JoinedAudience>,
    /// The start of the stall time-out: the last time that the set became pending, that entries were handed
    /// out, or that a reader was opened or closed.
    stall_start: MonotonicMillis,
    /// The time at which entries were last taken, except by open readers with a [`WriteProgress`], which
    /// knows better.
    last_taken: Option<MonotonicMillis>,
    /// The number of entries handed out.
    notified: u64,
    conflated: u64,
    /// The bytes of readers that are closed.
    closed_bytes: u64,
}

impl OutboxState {
    /// Wakes the reader that is handed entries. It keeps its waker, since a new one costs more than to wake
    /// in vain.
    fn wake(&mut self) {
        if let Some(reader) = self.readers.newest_mut()
            && let Some(waker) = reader.waker.take()
        {
            waker.wake_by_ref();
            // Not after a panic: the end of the outbox would run into it again.
            reader.waker = Some(waker);
        }
    }

    fn wake_all(&mut self) {
        let wakers = self.readers.iter_mut().flat_map(|reader| reader.waker.take());
        wakers.for_each(Waker::wake);
    }
}

/// The entries that one subscriber has not been handed yet.
pub(crate) struct Outbox {
    id: SubscriberId,
    kind: SubscriberKind,
    label: Arc<str>,
    /// The name that the client gives itself.
    client: Option<Arc<str>>,
    labels: Arc<TransportLabels>,
    metrics: Arc<Metrics>,
    opened: MonotonicMillis,
    /// The time of the last request of the client.
    last_activity: AtomicU64,
    timeouts: SessionTimeouts,
    /// Ends the session when the bus ends the outbox.
    on_evict: OnceLock<OnEvict>,
    // The Etag actor alone writes it, so that every notice is routed by one order of moves and changes.
    shard: AtomicUsize,
    /// The shard whose thread opened the newest reader.
    wanted_shard: AtomicUsize,
    // One move at a time: moves take no permit of admission, so more of them could fill a mailbox.
    moving: AtomicBool,
    /// The number of requests that the Etag actor has forwarded and the shard has not completed.
    open_requests: AtomicUsize,
    /// True once the Etag actor, which alone uses it, has seen the end of the subscriber.
    closed: AtomicBool,
    epoch: AtomicU64,
    next_reader_id: AtomicU64,
    tracer: Arc<Tracer>,
    /// The rights of the subscriber; none if it sees everything.
    viewer: Option<Arc<dyn Viewer>>,
    /// Asks the session to settle the rights after they were judged.
    on_judged: OnceLock<OnJudged>,
    /// True while that is under way.
    settling: AtomicBool,
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
    /// Creates an empty outbox that `shard` marks.
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
            client: options.client.as_ref().map(shorten_client),
            labels: metrics.labels(options.protocol, options.transport),
            metrics,
            opened,
            last_activity: AtomicU64::new(opened.to_bits()),
            timeouts: SessionTimeouts::default(),
            on_evict: OnceLock::new(),
            shard: AtomicUsize::new(shard),
            wanted_shard: AtomicUsize::new(shard),
            moving: AtomicBool::new(false),
            open_requests: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            next_reader_id: AtomicU64::new(0),
            tracer,
            viewer: options.viewer.clone(),
            on_judged: OnceLock::new(),
            settling: AtomicBool::new(false),
            state: Mutex::new(OutboxState {
                set: OutboxSet::new(options.allowance.clone()),
                readers: Readers::default(),
                last_reader_closed: None,
                ended: None,
                held: None,
                pending_since: None,
                judged: Judged::new(options.viewer.as_ref()),
                audience: None,
                stall_start: opened,
                last_taken: None,
                notified: 0,
                conflated: 0,
                closed_bytes: 0,
            }),
        }
    }

    /// Sets the time-outs.
    pub(crate) fn with_timeouts(mut self, timeouts: SessionTimeouts) -> Outbox {
        self.timeouts = timeouts;
        self
    }

    /// Describes the subscriber for traces.
    pub(crate) fn subscriber_ref(&self) -> SubscriberRef {
        SubscriberRef {
            id: self.id,
            kind: self.kind,
            label: self.label.clone(),
        }
    }

    pub(crate) fn id(&self) -> SubscriberId {
        self.id
    }

    pub(crate) fn kind(&self) -> SubscriberKind {
        self.kind
    }

    pub(crate) fn label(&self) -> &Arc<str> {
        &self.label
    }

    pub(crate) fn labels(&self) -> &TransportLabels {
        &self.labels
    }

    pub(crate) fn timeouts(&self) -> SessionTimeouts {
        self.timeouts
    }

    /// Sets the callback that ends the session when the bus ends the outbox. Only the first one is kept.
    pub(crate) fn set_on_evict(&self, on_evict: OnEvict) {
        self.on_evict.get_or_init(|| on_evict);
    }

    /// Restarts the idle time-out, because the client made a request.
    pub(crate) fn record_activity(&self) {
        self.last_activity
            .store(MonotonicMillis::now().to_bits(), Ordering::Relaxed);
    }

    /// Marks the subscriber as ended, so that no later message of it brings it back.
    pub(crate) fn mark_closed(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Returns true if the Etag actor has seen the end of the subscriber.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        // While the lock is held, only the callback of a reader can panic, and the set is whole whenever it
        // runs.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `f` on the set. For changes that need not wake a reader.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut OutboxSet) -> R) -> R {
        self.count_pending(&mut self.lock().set, f)
    }

    /// Runs `f` on the set and updates the gauge of pending entries.
    fn count_pending<R>(&self, set: &mut OutboxSet, f: impl FnOnce(&mut OutboxSet) -> R) -> R {
        let before = set.pending();
        let result = f(set);
        self.metrics.pending.change(before, set.pending());
        result
    }

    /// Runs a mark and wakes the reader if its entry is the first. The caller updates the gauge of pending
    /// entries once for all its marks, and reads the clock once, because each costs more than a mark.
    fn mark_with(&self, now: MonotonicMillis, mark: impl FnOnce(&mut OutboxSet) -> MarkResult) -> MarkResult {
        let mut state = self.lock();
        if state.ended.is_some() {
            return MarkResult::Ignored;
        }
        let marked = mark(&mut state.set);
        if marked == MarkResult::New {
            let is_first = state.set.pending() == 1;
            if is_first {
                state.pending_since = Some(now);
                state.stall_start = now;
            }
            // A reader takes all entries that are pending when it runs, but it may wait among very many for
            // the first one.
            if is_first || !ForMany::is_under_way() {
                state.wake();
            }
        }
        state.conflated += u64::from(marked == MarkResult::Conflated);
        marked
    }

    /// Marks the resource of `slot` as changed.
    pub(crate) fn mark(&self, slot: SlotId, notice: &Arc<Notice>, now: MonotonicMillis) -> MarkResult {
        self.mark_with(now, |set| set.mark(slot, notice))
    }

    /// Makes the present state of a subscribed resource pending, for a subscriber that holds another one.
    pub(crate) fn mark_missed(&self, notice: &Arc<Notice>, now: MonotonicMillis) -> MarkResult {
        self.mark_with(now, |set| set.mark_missed(notice))
    }

    /// Takes the newest notice of a subscription as another node left it.
    pub(crate) fn resume(
        &self,
        notice: &Arc<Notice>,
        is_pending: bool,
        is_sure: bool,
        now: MonotonicMillis,
    ) -> MarkResult {
        self.mark_with(now, |set| set.resume(notice, is_pending, is_sure))
    }

    /// Marks a resource as changed if the filter of the outbox lets its notice through.
    pub(crate) fn mark_filtered(&self, notice: &Arc<Notice>, now: MonotonicMillis) -> MarkResult {
        self.epoch.store(notice.position.epoch, Ordering::Relaxed);
        // Asked only where a change is lost, so that marking costs nothing.
        self.mark_with(now, |set| set.mark_filtered(notice, |uri| self.may_be_told(uri)))
    }

    /// Marks a list as changed.
    pub(crate) fn mark_list(
        &self,
        kind: ListKind,
        hash: ListHash,
        position: Position,
        now: MonotonicMillis,
    ) -> MarkResult {
        self.mark_with(now, |set| {
            let before = set.pending();
            let marked = set.mark_list(kind, hash, position.offset);
            if marked == MarkResult::Ignored {
                // A list that changed back is no longer pending, which the caller cannot see in the result.
                self.metrics.pending.change(before, set.pending());
            }
            marked
        })
    }

    /// Sets the epoch of all offsets; called before the first mark.
    pub(crate) fn set_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    /// Makes every open reader write a keep-alive. Returns the time for which the oldest resource entry has
    /// been pending.
    pub(crate) fn keep_alive(&self) -> Duration {
        let mut state = self.lock();
        for reader in state.readers.iter_mut() {
            reader.keep_alive = true;
        }
        state.wake_all();
        match state.set.oldest_since() {
            Some(since) => since.elapsed(),
            None => Duration::ZERO,
        }
    }

    /// Ends the outbox: readers are handed the pending entries, then the reason. Only the first reason is
    /// kept.
    pub(crate) fn end(&self, reason: EndReason) {
        let mut state = self.lock();
        state.ended.get_or_insert(reason);
        let held = state.held.take();
        state.wake_all();
        // Its drop may take locks of its own.
        drop(state);
        drop(held);
    }

    /// Ends the outbox and its session for a reason of the bus. Returns false if it has already ended.
    pub(crate) fn evict(&self, reason: EndReason) -> bool {
        let mut state = self.lock();
        if state.ended.is_some() {
            return false;
        }
        state.ended = Some(reason);
        for reader in state.readers.iter() {
            // A blocked connection would never take the pending entries and the reason.
            if let Some(progress) = &reader.progress
                && progress.is_blocked()
            {
                progress.cut();
            }
        }
        let held = state.held.take();
        state.wake_all();
        // The held value, the log and the callback take locks of their own.
        drop(state);
        drop(held);
        self.log_end(reason);
        if let Some(on_evict) = self.on_evict.get() {
            on_evict(reason);
        }
        true
    }

    /// Logs the end of a stream whose connection took nothing. A subscriber that is one stream ends with it.
    fn end_timed_out_stream(&self) {
        self.log_end(EndReason::WriteTimeout);
        if self.kind == SubscriberKind::Stream {
            self.end(EndReason::WriteTimeout);
        }
    }

    /// Returns the reason of the end, if the outbox has ended.
    pub(crate) fn ended(&self) -> Option<EndReason> {
        self.lock().ended
    }

    /// The number of open readers.
    pub(crate) fn readers(&self) -> usize {
        self.lock().readers.len()
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        // Pending entries that are never handed out must leave the gauge.
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.metrics.pending.change(state.set.pending(), 0);
    }
}

/// Returns the beginning of a client's name: names have no length of their own, and every session keeps one.
fn shorten_client(name: &Arc<str>) -> Arc<str> {
    match name.char_indices().nth(CLIENT_LEN_MAX) {
        Some((end, _)) => Arc::from(&name[..end]),
        None => name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::count_wakes::CountWakes;
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
        notice_of(ResourceUri::new("demo://a").unwrap(), version)
    }

    fn notice_of(uri: ResourceUri, version: u64) -> Arc<Notice> {
        let position = Position {
            epoch: 9,
            offset: version,
        };
        let etag = Etag {
            version,
            updated_at: 0,
            life: 0,
        };
        Arc::new(Notice::new(uri, etag, Cause::Updated, position, Instant::now()))
    }

    fn poll(reader: &mut OutboxReader) -> (Poll<Drained>, Vec<u64>) {
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
    fn older_reader_takes_over_from_the_newest() {
        let (outbox, slot) = outbox();
        let mut old = OutboxReader::open(outbox.clone(), 8);
        let mut new = OutboxReader::open(outbox.clone(), 8);
        outbox.mark(slot, &notice(1), MonotonicMillis::now());
        assert_eq!(poll(&mut old), (Poll::Pending, vec![]));
        let at_1 = Drained::Entries(Position { epoch: 9, offset: 1 });
        assert_eq!(poll(&mut new), (Poll::Ready(at_1), vec![1]));
        drop(new);
        outbox.mark(slot, &notice(2), MonotonicMillis::now());
        assert_eq!(poll(&mut old).1, [2]);
    }

    #[test]
    fn reader_that_waits_is_woken_again_for_few_alone() {
        let (outbox, slot) = outbox();
        let uri = ResourceUri::new("demo://b").unwrap();
        let (other, _) = outbox.with(|set| set.subscribe(&uri, Etag::UNKNOWN, 0));
        let mut reader = OutboxReader::open(outbox.clone(), 8);
        let wakes = Arc::new(CountWakes::default());
        let waker = Waker::from(wakes.clone());
        assert!(
            reader
                .poll_drain(&mut Context::from_waker(&waker), |_| {})
                .is_pending()
        );
        let now = MonotonicMillis::now();
        let many = ForMany::begin();
        outbox.mark(slot, &notice(1), now);
        outbox.mark(slot, &notice(2), now);
        outbox.mark(other, &notice_of(uri, 3), now);
        assert_eq!(wakes.count(), 1);
        drop(many);
        let uri = ResourceUri::new("demo://c").unwrap();
        let (few, _) = outbox.with(|set| set.subscribe(&uri, Etag::UNKNOWN, 0));
        outbox.mark(few, &notice_of(uri, 4), now);
        assert_eq!(wakes.count(), 2);
    }

    #[test]
    fn ended_outbox_hands_out_pending_entries_first() {
        let (outbox, slot) = outbox();
        let mut reader = OutboxReader::open(outbox.clone(), 8);
        outbox.mark(slot, &notice(1), MonotonicMillis::now());
        outbox.end(EndReason::Shutdown);
        outbox.end(EndReason::Closed);
        assert_eq!(
            outbox.mark(slot, &notice(2), MonotonicMillis::now()),
            MarkResult::Ignored
        );
        assert_eq!(poll(&mut reader).1, [1]);
        assert_eq!(
            poll(&mut reader).0,
            Poll::Ready(Drained::Ended(EndReason::Shutdown))
        );
    }

    #[test]
    fn position_of_another_epoch_repeats_everything() {
        let (outbox, slot) = outbox();
        let mut reader = OutboxReader::open(outbox.clone(), 8);
        outbox.mark(slot, &notice(1), MonotonicMillis::now());
        assert_eq!(poll(&mut reader).1, [1]);
        reader.resume_after(Position { epoch: 9, offset: 1 });
        assert_eq!(poll(&mut reader), (Poll::Pending, vec![]));
        reader.resume_after(Position { epoch: 8, offset: 1 });
        assert_eq!(poll(&mut reader).1, [1]);
    }

    #[test]
    fn keep_alive_is_due_once_and_not_after_entries() {
        let (outbox, slot) = outbox();
        outbox.keep_alive();
        let mut reader = OutboxReader::open(outbox.clone(), 8);
        assert_eq!(poll(&mut reader).0, Poll::Pending, "it was opened later");
        outbox.keep_alive();
        assert_eq!(poll(&mut reader).0, Poll::Ready(Drained::KeepAlive));
        assert_eq!(poll(&mut reader).0, Poll::Pending);
        outbox.keep_alive();
        outbox.mark(slot, &notice(1), MonotonicMillis::now());
        assert_eq!(poll(&mut reader).1, [1]);
        assert_eq!(poll(&mut reader).0, Poll::Pending);
    }
}
