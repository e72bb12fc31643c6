//! The builder that starts a bus.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::Semaphore;

use super::system::{Actors, CoreParts};
use super::{Bus, Inner};
use crate::metrics::Metrics;
use crate::model::{Etag, Limits, Lineage, Owner, StartError, StoreError};
use crate::runtime::{Admission, Tracer};
use crate::shared_log::{AskNewest, LogStatus, OFFSETS_PER_RECORD, SharedLog};
use crate::sink::Attachments;
use crate::versions::{Batch, Checkpoint, EtagIndex, Record, Store, StoreHealth, TimeStamp};

/// Tells the time for etags, in seconds since 1970-01-01 UTC.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Builds a [`Bus`].
pub struct Builder {
    limits: Limits,
    store: Option<Box<dyn Store>>,
    log: Option<Box<dyn SharedLog>>,
    newest: Option<AskNewest>,
    reads_latest: bool,
    clock: Clock,
    /// True if the embedder set the clock.
    own_clock: bool,
}

impl Default for Builder {
    /// Returns a builder with default limits, versions in memory and the clock of the system.
    fn default() -> Builder {
        Builder {
            limits: Limits::default(),
            store: None,
            log: None,
            newest: None,
            reads_latest: false,
            clock: Arc::new(unix_seconds),
            own_clock: false,
        }
    }
}

/// The seconds since 1970. A clock before that counts as 1970: etags need no more than to differ.
fn unix_seconds() -> u64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_secs(),
        Err(_) => 0,
    }
}

impl Builder {
    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Builder {
        self.limits = limits;
        self
    }

    /// Keeps versions in `store`, and the content of [`Owner::Api`], so that they outlive the process.
    /// Without a store they live in memory.
    #[must_use]
    pub fn store(mut self, store: impl Store) -> Builder {
        self.store = Some(Box::new(store));
        self
    }

    /// Shares the order of all changes of resources with other nodes, through `log`. Tools, prompts and
    /// templates stay those of this node, and so do their lists. A resource whose body a callback makes
    /// exists at the nodes that register it. A log takes the place of a store: with both, the bus does not
    /// start.
    ///
    /// Changes wait until the log was read, and fail with
    /// [`PublishError::LogUnavailable`](crate::PublishError::LogUnavailable) when it does not answer.
    #[must_use]
    pub fn shared_log(mut self, log: impl SharedLog) -> Builder {
        self.log = Some(Box::new(log));
        self
    }

    /// Asks the leader of a shared log for its newest record before a change of [`Owner::Api`] or
    /// [`Owner::Embedder`] is refused for what this node has applied, or is found to alter nothing. Without
    /// it a change that follows one of another node may be judged on the state before that one.
    #[must_use]
    pub fn ask_newest(mut self, newest: AskNewest) -> Builder {
        self.newest = Some(newest);
        self
    }

    /// Answers reads, too, from what a shared log has when they come, if [`ask_newest`](Self::ask_newest) is
    /// set. Those who read call [`Bus::until_latest`] first; the parts of this program do.
    #[must_use]
    pub fn read_latest(mut self) -> Builder {
        self.reads_latest = true;
        self
    }

    /// Takes the time of etags from `clock`, in seconds since 1970, and leaves out the nine digits that tell
    /// two lives of the process apart. So the clock must never repeat a second of a former life: neither
    /// without a store nor after an older copy of the store was put back.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Builder {
        self.clock = Arc::new(clock);
        self.own_clock = true;
        self
    }

    /// Starts the bus on threads of its own, inside or outside a tokio runtime. Returns when the bus runs.
    ///
    /// # Errors
    /// [`StartError`] if the store cannot be read, a thread cannot be started, or there are both a store and
    /// a shared log.
    pub fn start(self) -> Result<Bus, StartError> {
        let Builder {
            limits,
            mut store,
            log,
            newest,
            reads_latest,
            clock,
            own_clock,
        } = self;
        let (checkpoint, lineage) = begin(&mut store, log.as_deref())?;
        let log_status = log.is_some().then(Arc::<LogStatus>::default);
        let stamp = time_stamp(&checkpoint, own_clock);
        let limits = Arc::new(limits.at_least_minimum());
        let metrics = Metrics::register(limits.shard_count());
        let admission = Admission::counted(limits.in_flight_max, store.is_some() || log.is_some(), &metrics);
        let health = StoreHealth::new(store.is_some());
        let tracer = Arc::new(Tracer::default());
        let attachments = Arc::new(Attachments::new(limits.attached_max));
        let etag_index = Arc::new(EtagIndex::default());
        let parts = CoreParts {
            tracer: tracer.clone(),
            attachments: attachments.clone(),
            limits: limits.clone(),
            metrics: metrics.clone(),
            admission: admission.clone(),
            etag_index: etag_index.clone(),
            clock: clock.clone(),
            lineage: lineage.clone(),
            stamp,
            checkpoint,
            store,
            health: health.clone(),
            log: log.zip(log_status.clone()),
            newest: newest.clone(),
        };
        let actors = Actors::start(parts)?;
        let inner = Inner {
            actors,
            admission,
            places: Arc::new(Semaphore::new(limits.sessions_max)),
            limits,
            metrics,
            clock,
            next_id: AtomicU64::new(1),
            next_shard: AtomicUsize::new(0),
            lister_runs: AtomicU64::new(0),
            tracer,
            attachments,
            ended_subscribers: Arc::default(),
            unready: Arc::default(),
            etag_index,
            lineage,
            health,
            log_status,
            reads_latest: reads_latest && newest.is_some(),
            newest,
        };
        Ok(Bus::of(inner))
    }
}

impl Bus {
    fn of(inner: Inner) -> Bus {
        Bus {
            inner: Arc::new(inner),
            owner: Owner::default(),
        }
    }
}

/// Loads what the store has kept, and decides the epoch of positions.
fn begin(
    store: &mut Option<Box<dyn Store>>,
    log: Option<&dyn SharedLog>,
) -> Result<(Checkpoint, Lineage), StartError> {
    if store.is_some() && log.is_some() {
        return Err(StartError::StoreAndLog);
    }
    let (checkpoint, mut lineage) = load(store)?;
    if let Some(log) = log {
        lineage.epoch = log.position_epoch();
        lineage.offsets_per_change = OFFSETS_PER_RECORD;
    }
    Ok((checkpoint, lineage))
}

/// Loads what the store has kept, and begins a life in it.
fn load(store: &mut Option<Box<dyn Store>>) -> Result<(Checkpoint, Lineage), StoreError> {
    let mut checkpoint = Checkpoint::default();
    if let Some(store) = store {
        checkpoint = store.load()?;
    }
    let lineage = next_life(&checkpoint);
    if let Some(store) = store {
        begin_life(store.as_mut(), lineage.epoch, &checkpoint)?;
    }
    Ok((checkpoint, lineage))
}

/// Begins a life in the store, before any position of it is given to a client.
fn begin_life(store: &mut dyn Store, epoch: u64, checkpoint: &Checkpoint) -> Result<(), StoreError> {
    store.append(&Batch {
        records: vec![Record::Life(epoch)],
        offset: checkpoint.offset,
        floor: checkpoint.floor,
        log_start: 0,
    })
}

fn next_life(checkpoint: &Checkpoint) -> Lineage {
    Lineage {
        epoch: next_epoch(checkpoint),
        former: checkpoint.lives.clone(),
        offsets_per_change: 1,
    }
}

/// The epoch of a life: the milliseconds since 1970, and above all epochs before, also after the clock was
/// set back.
fn next_epoch(checkpoint: &Checkpoint) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let last = checkpoint.lives.iter().map(|life| life.epoch).max();
    (now.as_millis() as u64).max(last.unwrap_or(0) + 1)
}

/// Decides the times and the tag of etags, so that two lives never give one etag to two contents.
fn time_stamp(checkpoint: &Checkpoint, own_clock: bool) -> TimeStamp {
    let kept = checkpoint.lines.iter().map(|kept| kept.line.etag.updated_at);
    let first = match kept.max() {
        Some(last) => last + 1,
        None => 0,
    };
    let life = match own_clock {
        true => 0,
        // Also with a store: it may be an older copy, whose lost future gave the same versions to other
        // contents, maybe in this very second. A `RandomState` has random keys, and the hash of nothing
        // depends on them alone.
        false => 1 + (RandomState::new().build_hasher().finish() % u64::from(Etag::LIVES - 1)) as u32,
    };
    TimeStamp { first, life }
}
