//! The attached subscribers of a bus: their names, their state, and the handle that detaches one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use tokio::sync::oneshot;

use super::ending::{EndDeadlines, wait_for_end};
use super::{AttachError, AttachOptions, AttachedInfo, Delivery, DeliveryClass, Health, Queue};
use crate::metrics::{AttachedMetrics, LossReason};
use crate::model::{Filter, Position, Trace};
use crate::outbox::Outbox;
use crate::runtime::TraceTarget;

/// The state of one attached subscriber, shared by its thread and by the actors that offer deliveries.
#[derive(Debug)]
pub(crate) struct AttachmentState {
    name: Arc<str>,
    filter: Arc<Filter>,
    class: DeliveryClass,
    stall_timeout: Duration,
    /// The queue of the class *every*.
    queue: Option<Arc<Queue>>,
    /// The outbox of the class *latest*.
    outbox: OnceLock<Arc<Outbox>>,
    /// The position after which every notice is delivered; not set for the class *latest* and for traces.
    position: OnceLock<Position>,
    attached: Instant,
    /// The start of the current call in milliseconds since `attached`, plus one; 0 between calls.
    call_started: AtomicU64,
    health: AtomicU8,
    /// The health that was last logged.
    logged_health: AtomicU8,
    closed: AtomicBool,
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
        AttachmentState {
            name: options.name.clone(),
            filter: Arc::new(options.filter.clone()),
            class: options.class,
            stall_timeout: options.stall_timeout,
            queue,
            outbox: OnceLock::new(),
            position: OnceLock::new(),
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

    pub(crate) fn set_position(&self, position: Position) {
        self.position.get_or_init(|| position);
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

    /// Wakes the thread if it waits for a delivery that is there.
    pub(crate) fn wake(&self) {
        if let Some(queue) = &self.queue {
            queue.wake();
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

    fn info(&self) -> AttachedInfo {
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
    fn report_health(&self) {
        let health = self.health();
        let pending = self.pending();
        self.metrics.pending.set(pending as f64);
        self.metrics
            .up
            .set(f64::from(u8::from(health == Health::Running)));
        if self.logged_health.swap(health as u8, Ordering::Relaxed) == health as u8 {
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
            _ => tracing::info!(subscriber = %name, pending, state = health.name(), "a subscriber's state"),
        }
    }
}

/// The session of an attached subscriber, which ends when it is dropped.
pub(crate) trait HeldSession: std::fmt::Debug + Send + Sync {
    /// Ends the session.
    fn end(&self);
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
        self.wake();
    }
}

/// The entry of one attached subscriber.
#[derive(Debug)]
struct Attached {
    state: Arc<AttachmentState>,
    /// Dropped to end the thread.
    closing: Option<Sender<Infallible>>,
    /// The session of the class *latest*.
    session: Option<Box<dyn HeldSession>>,
    /// Resolves when the thread has ended.
    done: Option<oneshot::Receiver<()>>,
}

impl Attached {
    /// Accepts no more deliveries. Those that wait are still delivered.
    fn close(&mut self) {
        // Marked first, so that nothing is offered to a queue that its thread has left.
        self.state.closed.store(true, Ordering::Relaxed);
        self.closing = None;
        if let Some(queue) = &self.state.queue {
            queue.close();
        }
        if let Some(session) = &self.session {
            session.end();
        }
    }
}

/// The attached subscribers of one bus, by name.
#[derive(Debug)]
pub(crate) struct Attachments {
    max: usize,
    attached: Mutex<BTreeMap<Arc<str>, Attached>>,
}

impl Attachments {
    pub(crate) fn new(max: usize) -> Attachments {
        Attachments {
            max,
            attached: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Attached>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the subscriber of `state`. Its thread runs until `closing` is dropped and then drops the sender
    /// of `done`.
    pub(crate) fn reserve(
        self: &Arc<Attachments>,
        state: &Arc<AttachmentState>,
        closing: Sender<Infallible>,
        done: oneshot::Receiver<()>,
    ) -> Result<Attachment, AttachError> {
        // The name is reserved before the subscriber is created, which may take any time.
        let mut attached = self.lock();
        let name = state.name.clone();
        if attached.contains_key(&name) {
            return Err(AttachError::NameTaken(name));
        }
        if attached.len() >= self.max {
            return Err(AttachError::TooMany(self.max));
        }
        let entry = Attached {
            state: state.clone(),
            closing: Some(closing),
            session: None,
            done: Some(done),
        };
        attached.insert(name, entry);
        Ok(Attachment {
            state: state.clone(),
            attachments: self.clone(),
        })
    }

    pub(crate) fn set_session(&self, name: &str, session: Box<dyn HeldSession>) {
        if let Some(attached) = self.lock().get_mut(name) {
            attached.session = Some(session);
        }
    }

    /// Describes all attached subscribers, in the order of their names.
    pub(crate) fn infos(&self) -> Vec<AttachedInfo> {
        self.lock()
            .values()
            .map(|attached| attached.state.info())
            .collect()
    }

    /// Sets the gauges of all subscribers and logs changes of their health. Called about once a second.
    pub(crate) fn report_health(&self) {
        for attached in self.lock().values() {
            attached.state.report_health();
        }
    }

    /// Closes all subscribers. Returns receivers that resolve when their threads have ended.
    pub(crate) fn close_all(&self) -> Vec<(Arc<AttachmentState>, oneshot::Receiver<()>)> {
        let mut closed = Vec::new();
        for attached in self.lock().values_mut() {
            attached.close();
            if let Some(done) = attached.done.take() {
                closed.push((attached.state.clone(), done));
            }
        }
        closed
    }

    fn close(&self, name: &str) -> Option<oneshot::Receiver<()>> {
        let mut attached = self.lock();
        let entry = attached.get_mut(name)?;
        entry.close();
        entry.done.take()
    }
}

/// The handle of one attached subscriber. Dropping it detaches the subscriber without waiting.
#[derive(Debug)]
pub struct Attachment {
    state: Arc<AttachmentState>,
    attachments: Arc<Attachments>,
}

impl Attachment {
    /// The name of the subscriber.
    pub fn name(&self) -> &Arc<str> {
        &self.state.name
    }

    /// The position of the bus when the subscriber was attached. It gets every notice after it that passes
    /// its filter, and none before. `None` for the class *latest* and for traces.
    pub fn position(&self) -> Option<Position> {
        self.state.position.get().copied()
    }

    /// Describes the subscriber.
    pub fn info(&self) -> AttachedInfo {
        self.state.info()
    }

    /// Detaches the subscriber: it gets the waiting deliveries and is then closed. Waits for that at most
    /// `timeout`, and at most a second while the subscriber fails or stalls. Returns false if it took longer;
    /// its thread then ends after the current call.
    pub async fn detach(self, timeout: Duration) -> bool {
        let deadlines = EndDeadlines::until(tokio::time::Instant::now() + timeout);
        match self.attachments.close(&self.state.name) {
            Some(done) => wait_for_end(&self.state, done, deadlines).await,
            None => true,
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // The name is free at once; the thread ends by itself after the waiting deliveries.
        let _done = self.attachments.close(&self.state.name);
        self.attachments.lock().remove(&self.state.name);
    }
}
