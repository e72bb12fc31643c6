//! Who is attached, and how each fares.
//!
//! Owns: the names, the state that a subscriber's thread leaves for others to see, and the handle that detaches.
//! Never: calls a subscriber. Told by workers; asked by the bus, and once a second by the watch of a publisher shard,
//! which logs what changed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use tokio::sync::oneshot;

use super::{AttachError, AttachOptions, AttachedInfo, Delivery, DeliveryClass, Health, Queue};
use crate::metrics::{AttachedMetrics, LossReason};
use crate::model::{Filter, Position, Trace};
use crate::outbox::Outbox;
use crate::runtime::TraceTarget;

/// How one subscriber fares. Written by its thread and by whoever offers to it.
#[derive(Debug)]
pub(crate) struct AttachmentState {
    name: Arc<str>,
    filter: Arc<Filter>,
    class: DeliveryClass,
    stall_timeout: Duration,
    /// Where every notice waits; none for the class *latest*.
    queue: Option<Arc<Queue>>,
    /// Where the newest waits; set for the class *latest*.
    outbox: OnceLock<Arc<Outbox>>,
    /// After which position it is handed everything; set for the class *every*, except for one that traces.
    position: OnceLock<Position>,
    born: Instant,
    /// When the call under way began, in milliseconds since `born`, plus one; 0 when none is under way.
    busy: AtomicU64,
    health: AtomicU8,
    /// What the watch last logged.
    shown: AtomicU8,
    closed: AtomicBool,
    abandoned: AtomicBool,
    error: Mutex<Option<Arc<str>>>,
    metrics: AttachedMetrics,
}

const HEALTHS: [Health; 5] = [
    Health::Starting,
    Health::Running,
    Health::Failing,
    Health::Stalled,
    Health::Ended,
];

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
            born: Instant::now(),
            busy: AtomicU64::new(0),
            health: AtomicU8::new(Health::Starting as u8),
            shown: AtomicU8::new(Health::Starting as u8),
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

    /// Adds a delivery to its queue.
    pub(crate) fn offer(&self, delivery: Delivery) {
        if let Some(queue) = self.queue.as_ref().filter(|_| !self.is_closed()) {
            self.lost(queue.offer(delivery), LossReason::Full);
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Whether nobody waits for its end any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    pub(crate) fn busy(&self) {
        let since = self.born.elapsed().as_millis() as u64 + 1;
        self.busy.store(since, Ordering::Relaxed);
    }

    pub(crate) fn free(&self) {
        self.busy.store(0, Ordering::Relaxed);
    }

    fn set_health(&self, health: Health) -> bool {
        self.health.swap(health as u8, Ordering::Relaxed) != health as u8
    }

    fn error(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn running(&self) {
        if self.set_health(Health::Running) {
            *self.error() = None;
        }
    }

    pub(crate) fn failing(&self, error: &str) {
        *self.error() = Some(Arc::from(error));
        self.set_health(Health::Failing);
    }

    /// Notes that it will be made anew because it panicked.
    pub(crate) fn restarting(&self, twice: bool) {
        let text = if twice {
            "it panicked, and again when it was dropped"
        } else {
            "it panicked"
        };
        self.failing(text);
        self.metrics.restarts.add(1);
    }

    pub(crate) fn retried(&self) {
        self.metrics.retries.add(1);
    }

    /// Notes that it refused a delivery. Logged each time it begins to, like a failure.
    pub(crate) fn refused(&self, error: &str) {
        self.failing(error);
    }

    pub(crate) fn delivered(&self) {
        self.metrics.delivered.add(1);
    }

    pub(crate) fn lost(&self, count: u64, reason: LossReason) {
        self.metrics.count_lost(count, reason);
    }

    pub(crate) fn ended(&self) {
        self.set_health(Health::Ended);
    }

    pub(crate) fn ended_badly(&self, error: &str) {
        tracing::warn!(subscriber = %self.name, error, "a subscriber ended badly");
    }

    pub(crate) fn pending(&self) -> usize {
        match (&self.queue, self.outbox.get()) {
            (Some(queue), _) => queue.len(),
            (None, Some(outbox)) => outbox.with(|set| set.pending()),
            (None, None) => 0,
        }
    }

    fn health(&self) -> Health {
        let health = HEALTHS[usize::from(self.health.load(Ordering::Relaxed)) % HEALTHS.len()];
        let busy = self.busy.load(Ordering::Relaxed);
        if busy == 0 {
            return health;
        }
        let since = self.born + Duration::from_millis(busy - 1);
        if since.elapsed() >= self.stall_timeout {
            Health::Stalled
        } else {
            health
        }
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

    /// Sets its gauges, and logs when it fares differently from when it was last looked at.
    fn watch(&self) {
        let health = self.health();
        self.metrics.pending.set(self.pending() as f64);
        self.metrics
            .up
            .set(f64::from(u8::from(health == Health::Running)));
        if self.shown.swap(health as u8, Ordering::Relaxed) == health as u8 {
            return;
        }
        let (name, pending) = (&self.name, self.pending());
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
    /// Ends it.
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
    }
}

/// One that is attached.
#[derive(Debug)]
struct Running {
    state: Arc<AttachmentState>,
    /// Dropped to have its thread end.
    closing: Option<Sender<Infallible>>,
    /// Its session, for the class *latest*.
    session: Option<Box<dyn HeldSession>>,
    /// Answered when its thread has ended.
    done: Option<oneshot::Receiver<()>>,
}

impl Running {
    /// Lets nothing more in; what waits is still handed over.
    fn close(&mut self) {
        self.state.closed.store(true, Ordering::Relaxed);
        drop(self.closing.take());
        if let Some(session) = &self.session {
            session.end();
        }
    }
}

/// All that are attached to one bus.
#[derive(Debug)]
pub(crate) struct Attachments {
    max: usize,
    running: Mutex<BTreeMap<Arc<str>, Running>>,
}

impl Attachments {
    pub(crate) fn new(max: usize) -> Attachments {
        Attachments {
            max,
            running: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the name of `state`, which runs from now on until `closing` is dropped.
    pub(crate) fn reserve(
        self: &Arc<Attachments>,
        state: &Arc<AttachmentState>,
        closing: Sender<Infallible>,
        done: oneshot::Receiver<()>,
    ) -> Result<Attachment, AttachError> {
        let mut running = self.lock();
        let name = state.name.clone();
        if running.contains_key(&name) {
            return Err(AttachError::NameTaken(name));
        }
        if running.len() >= self.max {
            return Err(AttachError::TooMany(self.max));
        }
        let entry = Running {
            state: state.clone(),
            closing: Some(closing),
            session: None,
            done: Some(done),
        };
        running.insert(name, entry);
        Ok(Attachment {
            state: state.clone(),
            attachments: self.clone(),
        })
    }

    pub(crate) fn set_session(&self, name: &str, session: Box<dyn HeldSession>) {
        if let Some(running) = self.lock().get_mut(name) {
            running.session = Some(session);
        }
    }

    /// Each, as it stands, by name.
    pub(crate) fn infos(&self) -> Vec<AttachedInfo> {
        self.lock().values().map(|running| running.state.info()).collect()
    }

    /// Looks after all of them: once a second, on a shard's thread.
    pub(crate) fn watch(&self) {
        self.lock().values().for_each(|running| running.state.watch());
    }

    /// Closes all; answers what ends when each has.
    pub(crate) fn close_all(&self) -> Vec<(Arc<AttachmentState>, oneshot::Receiver<()>)> {
        let mut running = self.lock();
        let close = |running: &mut Running| {
            running.close();
            Some((running.state.clone(), running.done.take()?))
        };
        running.values_mut().filter_map(close).collect()
    }

    fn close(&self, name: &str) -> Option<oneshot::Receiver<()>> {
        let mut running = self.lock();
        let entry = running.get_mut(name)?;
        entry.close();
        entry.done.take()
    }
}

/// Waits until the thread of `state` has ended, at most until `deadline`, then leaves it to itself.
pub(crate) async fn wait_for_end(
    state: &AttachmentState,
    done: oneshot::Receiver<()>,
    deadline: tokio::time::Instant,
) -> bool {
    // Its end drops the sender.
    let ended = tokio::time::timeout_at(deadline, done).await.is_ok();
    if !ended {
        state.abandoned.store(true, Ordering::Relaxed);
        let pending = state.pending();
        tracing::warn!(subscriber = %state.name, pending, "a subscriber did not end in time; it is left to itself");
    }
    ended
}

/// The handle of one attached subscriber. Dropping it detaches the subscriber without waiting for it.
#[derive(Debug)]
pub struct Attachment {
    state: Arc<AttachmentState>,
    attachments: Arc<Attachments>,
}

impl Attachment {
    /// What it is called.
    pub fn name(&self) -> &Arc<str> {
        &self.state.name
    }

    /// Where the bus stood when it was attached: it is handed everything its filter wants after that, and nothing
    /// before. None for the class *latest*, and for one that traces.
    pub fn position(&self) -> Option<Position> {
        self.state.position.get().copied()
    }

    /// How it fares.
    pub fn info(&self) -> AttachedInfo {
        self.state.info()
    }

    /// Detaches it: nothing new comes, what waits is handed over, then it is closed. Waits for that at most `timeout`;
    /// false when it was not enough. Its thread is then left to itself and ends after the call it is in.
    pub async fn detach(self, timeout: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + timeout;
        match self.attachments.close(&self.state.name) {
            Some(done) => wait_for_end(&self.state, done, deadline).await,
            None => true,
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        drop(self.attachments.close(&self.state.name));
        self.attachments.lock().remove(&self.state.name);
    }
}
