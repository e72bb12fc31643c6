//! The state of one attached subscriber, with the cursor of one that resumes.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::{AttachOptions, AttachedInfo, Delivery, DeliveryClass, Health, NewestChanges, Queue};
use crate::metrics::{AttachedMetrics, LossReason};
use crate::model::{Filter, Lineage, Position, Trace};
use crate::outbox::Outbox;
use crate::runtime::TraceTarget;

/// The offset up to which a subscriber has everything that is for it. Its thread moves the cursor, and the
/// Etag actor reads it, to keep it and to know which changes may still be wanted.
#[derive(Debug, Default)]
pub(crate) struct Cursor(AtomicU64);

impl Cursor {
    pub(crate) fn new(offset: u64) -> Cursor {
        Cursor(AtomicU64::new(offset))
    }

    pub(crate) fn offset(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Moves the cursor to `offset`, unless it is there or further already.
    pub(crate) fn advance(&self, offset: u64) {
        self.0.fetch_max(offset, Ordering::Relaxed);
    }
}

/// The state of one attached subscriber, shared by its thread and by the actors that offer deliveries.
#[derive(Debug)]
pub(crate) struct AttachmentState {
    pub(super) name: Arc<str>,
    filter: Arc<Filter>,
    class: DeliveryClass,
    stall_timeout: Duration,
    /// The queue of the class *every*.
    pub(super) queue: Option<Arc<Queue>>,
    /// The outbox of the class *latest*.
    outbox: OnceLock<Arc<Outbox>>,
    /// The position after which every notice is delivered; not set for the class *latest* and for traces.
    pub(super) position: OnceLock<Position>,
    /// The cursor of a subscriber that resumes.
    cursor: Option<Arc<Cursor>>,
    /// The newest changes from before, until they are asked for.
    pub(super) newest: Mutex<NewestChanges>,
    attached: Instant,
    /// The start of the current call in milliseconds since `attached`, plus one; 0 between calls.
    call_started: AtomicU64,
    health: AtomicU8,
    /// The health that was last logged.
    logged_health: AtomicU8,
    pub(super) closed: AtomicBool,
    /// True once the end of the thread is no longer waited for.
    abandoned: AtomicBool,
    error: Mutex<Option<Arc<str>>>,
    metrics: AttachedMetrics,
}

impl AttachmentState {
    pub(crate) fn new(options: &AttachOptions) -> AttachmentState {
        let queue = match options.class {
            DeliveryClass::Every { capacity, overflow } => Some(Arc::new(Queue::new(capacity, overflow))),
            DeliveryClass::Latest { .. } => None,
        };
        // The entries of an outbox are not in the order of the bus, in which cursors are kept.
        let resumes = options.resume && queue.is_some();
        AttachmentState {
            name: options.name.clone(),
            filter: Arc::new(options.filter.clone()),
            class: options.class,
            stall_timeout: options.stall_timeout,
            queue,
            outbox: OnceLock::new(),
            position: OnceLock::new(),
            cursor: resumes.then(Arc::default),
            newest: Mutex::default(),
            attached: Instant::now(),
            call_started: AtomicU64::new(0),
            health: AtomicU8::new(Health::Starting as u8),
            logged_health: AtomicU8::new(Health::Starting as u8),
            closed: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            error: Mutex::default(),
            metrics: AttachedMetrics::register(&options.name),
        }
    }

    pub(crate) fn filter(&self) -> &Arc<Filter> {
        &self.filter
    }

    pub(crate) fn queue(&self) -> Option<&Arc<Queue>> {
        self.queue.as_ref()
    }

    pub(crate) fn set_outbox(&self, outbox: Arc<Outbox>) {
        self.outbox.get_or_init(|| outbox);
    }

    pub(crate) fn set_attached(&self, position: Position, newest: NewestChanges) {
        self.position.get_or_init(|| position);
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = newest;
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn cursor(&self) -> Option<&Arc<Cursor>> {
        self.cursor.as_ref()
    }

    /// Moves the cursor, if there is one, to an offset up to which nothing is outstanding.
    pub(crate) fn advance_cursor(&self, offset: Option<u64>) {
        if let Some(cursor) = &self.cursor
            && let Some(offset) = offset
        {
            cursor.advance(offset);
        }
    }

    /// Puts the changes that the subscriber missed into its queue before anything is offered: those after the
    /// offset `after`, up to `upto`, that its filter accepts. Where offsets are missing, newer changes of the
    /// same resources follow, and the subscriber is told of a loss in their place.
    pub(crate) fn resume(
        &self,
        after: u64,
        upto: Position,
        missed: impl Iterator<Item = Delivery>,
        lineage: &Lineage,
    ) {
        let Some(queue) = &self.queue else { return };
        // Each gap stands in its place, so that the cursor passes it with the delivery behind it. After a
        // crash on the way, the gaps that were told are not counted again.
        let mut next = after + 1;
        let mut lost = 0;
        let mut overwritten = 0;
        for delivery in missed {
            let offset = match delivery.position() {
                Some(position) => position.offset,
                None => next,
            };
            lost += lineage.changes_between(next - 1, offset).saturating_sub(1);
            next = offset + 1;
            if self.wants(&delivery) {
                overwritten += lost;
                queue.preload(std::mem::take(&mut lost), Some(delivery));
            }
        }
        lost += lineage.changes_between(next - 1, upto.offset);
        queue.preload(lost, None);
        overwritten += lost;
        if overwritten > 0 {
            self.count_lost(overwritten, LossReason::Overwritten);
        }
        queue.wake(upto);
    }

    fn wants(&self, delivery: &Delivery) -> bool {
        match (delivery, delivery.kind()) {
            (Delivery::Notice(notice), _) => self.filter.wants(notice),
            (_, Some(kind)) => self.filter.wants_kind(kind),
            (_, None) => true,
        }
    }

    /// Adds a delivery to the queue, for which the thread is not woken before [`wake`](Self::wake) is called.
    /// Never waits: a full queue drops a delivery, which is counted.
    pub(crate) fn offer(&self, delivery: Delivery) {
        if let Some(queue) = &self.queue
            && !self.is_closed()
        {
            let lost = queue.offer(delivery);
            if lost > 0 {
                self.count_lost(lost, LossReason::Full);
            }
        }
    }

    /// Wakes the thread if it waits for a delivery that is there. Every notice up to `seen` was offered.
    pub(crate) fn wake(&self, seen: Position) {
        if let Some(queue) = &self.queue {
            queue.wake(seen);
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Returns true if the end of the thread is no longer waited for.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Notes that the end of the thread is no longer waited for. A thread cannot be ended from outside, but
    /// it checks this mark after each call.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
        let name = &self.name;
        let pending = self.pending();
        tracing::warn!(subscriber = %name, pending, "a subscriber did not end in time; it is left to itself");
    }

    /// Returns true while deliveries fail or a call hangs.
    pub(super) fn is_failing(&self) -> bool {
        matches!(self.health(), Health::Failing | Health::Stalled)
    }

    pub(crate) fn begin_call(&self) {
        // Plus one, so that 0 can stand for no call.
        let started = self.attached.elapsed().as_millis() as u64 + 1;
        self.call_started.store(started, Ordering::Relaxed);
    }

    pub(crate) fn end_call(&self) {
        self.call_started.store(0, Ordering::Relaxed);
    }

    fn set_health(&self, health: Health) -> bool {
        self.health.swap(health as u8, Ordering::Relaxed) != health as u8
    }

    fn error(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_running(&self) {
        // Runs after every delivery, so the lock is taken only if the state changes.
        if self.set_health(Health::Running) {
            *self.error() = None;
        }
    }

    pub(crate) fn set_failing(&self, error: &str) {
        *self.error() = Some(Arc::from(error));
        self.set_health(Health::Failing);
    }

    /// Counts a panic, after which the subscriber is recreated. `twice` means that its destructor panicked
    /// too.
    pub(crate) fn count_restart(&self, twice: bool) {
        self.set_failing(match twice {
            true => "it panicked, and again when it was dropped",
            false => "it panicked",
        });
        self.metrics.restarts.add(1);
    }

    pub(crate) fn count_retry(&self) {
        self.metrics.retries.add(1);
    }

    pub(crate) fn count_delivered(&self) {
        self.metrics.delivered.add(1);
    }

    pub(crate) fn count_lost(&self, count: u64, reason: LossReason) {
        self.metrics.count_lost(count, reason);
    }

    /// Counts deliveries that a subscriber had not taken when it ended. One that resumes gets them later.
    pub(crate) fn count_unfinished(&self, count: u64) {
        if self.cursor.is_none() {
            self.count_lost(count, LossReason::Closed);
        }
    }

    pub(crate) fn set_ended(&self) {
        self.set_health(Health::Ended);
    }

    pub(crate) fn log_bad_end(&self, error: &str) {
        tracing::warn!(subscriber = %self.name, error, "a subscriber ended badly");
    }

    /// The number of waiting deliveries.
    pub(crate) fn pending(&self) -> usize {
        match (&self.queue, self.outbox.get()) {
            (Some(queue), _) => queue.len(),
            (None, Some(outbox)) => outbox.pending(),
            (None, None) => 0,
        }
    }

    fn health(&self) -> Health {
        let started = self.call_started.load(Ordering::Relaxed);
        if started > 0 {
            let since = self.attached + Duration::from_millis(started - 1);
            if since.elapsed() >= self.stall_timeout {
                return Health::Stalled;
            }
        }
        Health::ALL[usize::from(self.health.load(Ordering::Relaxed)) % Health::ALL.len()]
    }

    pub(super) fn info(&self) -> AttachedInfo {
        AttachedInfo {
            name: self.name.clone(),
            class: self.class,
            health: self.health(),
            pending: self.pending(),
            delivered: self.metrics.delivered.get(),
            lost: self.metrics.lost(),
            retries: self.metrics.retries.get(),
            restarts: self.metrics.restarts.get(),
            error: self.error().clone(),
        }
    }

    /// Sets the gauges, and logs the health if it changed since the last call.
    pub(super) fn report_health(&self) {
        let health = self.health();
        let pending = self.pending();
        self.metrics.pending.set(pending as f64);
        self.metrics
            .up
            .set(f64::from(u8::from(health == Health::Running)));
        let logged = self.logged_health.swap(health as u8, Ordering::Relaxed);
        if logged == health as u8 {
            return;
        }
        let name = &self.name;
        match health {
            Health::Failing => {
                let error = self.error().clone().unwrap_or_default();
                tracing::warn!(subscriber = %name, %error, pending, "a subscriber fails; it is tried again");
            }
            Health::Stalled => {
                tracing::warn!(subscriber = %name, pending, timeout = ?self.stall_timeout, "a subscriber stalls");
            }
            // A sink that starts in order is no news to an operator.
            Health::Running if logged == Health::Starting as u8 => {
                tracing::debug!(subscriber = %name, "a subscriber runs");
            }
            Health::Running => tracing::info!(subscriber = %name, pending, "a subscriber runs again"),
            _ => tracing::info!(subscriber = %name, pending, state = health.name(), "a subscriber's state"),
        }
    }
}

impl TraceTarget for AttachmentState {
    fn filter(&self) -> &Filter {
        &self.filter
    }

    fn is_closed(&self) -> bool {
        self.is_closed()
    }

    fn offer(&self, trace: Arc<Trace>) {
        self.offer(Delivery::Trace(trace));
        // Traces have no place in the order of the bus.
        self.wake(Position { epoch: 0, offset: 0 });
    }
}
