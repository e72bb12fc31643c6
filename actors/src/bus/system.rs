//! The threads of the bus: how the actors start, from the last to the first on the way of a request, and
//! how they end.
//!
//! Registry and Etag actor share one Arbiter, because they work on every request in turn. Each Publisher
//! shard has its own.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use actix::{Actor, Addr, Arbiter, ArbiterHandle, System};
use tokio::sync::{mpsc, watch};

use super::builder::Clock;
use crate::messages::{BatchStored, EndAll, HeardBatch, LogEnded, RegistryRequest};
use crate::metrics::Metrics;
use crate::model::{EndReason, Limits, Lineage, StartError};
use crate::publisher::{Interest, Publisher, PublisherParts};
use crate::registry::{Catalog, PROPOSALS_MAX, Registry, Restart, SharedOrder};
use crate::runtime::{
    Admission, BusState, CoreGuard, Inbox, InboxSender, Shard, Tracer, enter_shard, mailbox,
};
use crate::shared_log::{AskNewest, Heard, LogStatus, SharedLog};
use crate::sink::Attachments;
use crate::versions::{
    ChangeLog, Checkpoint, Commit, EtagActor, EtagIndex, Ledger, Shards, Store, StoreHealth, StoreThread,
    TimeStamp,
};

/// The interval in which the numbers of the shards are handed to the recorder.
const EXPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The most reports of a shared log that wait to be applied; a log that has more to tell waits.
const HEARD_MAX: usize = 1_024;

/// The most reports that are applied in one turn.
const HEARD_BATCH: usize = 256;

/// The running actors.
pub(crate) struct Actors {
    pub(crate) registry: Arc<InboxSender<RegistryRequest>>,
    pub(crate) publishers: Vec<Addr<Publisher>>,
    pub(crate) shards: Vec<Shard>,
    pub(crate) life: watch::Sender<BusState>,
    system: System,
    threads: Mutex<Threads>,
}

/// The threads to wait for.
#[derive(Default)]
struct Threads {
    system: Option<JoinHandle<()>>,
    arbiters: Vec<Arbiter>,
    store: Option<JoinHandle<()>>,
    log: Option<JoinHandle<()>>,
}

/// The parts that the actors are given.
pub(crate) struct CoreParts {
    pub(crate) limits: Arc<Limits>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tracer: Arc<Tracer>,
    pub(crate) attachments: Arc<Attachments>,
    pub(crate) admission: Admission,
    pub(crate) etag_index: Arc<EtagIndex>,
    pub(crate) clock: Clock,
    pub(crate) lineage: Lineage,
    pub(crate) stamp: TimeStamp,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) store: Option<Box<dyn Store>>,
    pub(crate) health: Arc<StoreHealth>,
    pub(crate) log: Option<(Box<dyn SharedLog>, Arc<LogStatus>)>,
    pub(crate) newest: Option<AskNewest>,
}

impl Actors {
    /// Starts the actors on threads of their own. Returns when they run.
    pub(crate) fn start(parts: CoreParts) -> Result<Actors, StartError> {
        let (started, ready) = crossbeam_channel::bounded(1);
        let run = move || {
            let runner = System::new();
            let actors = runner.block_on(async { spawn_all(parts) });
            if actors.is_err() {
                System::current().stop();
            }
            // The receiver waits for this, so it cannot be gone.
            if started.send(actors).is_err() {
                tracing::debug!("nothing waits for the start of the bus");
            }
            if let Err(error) = runner.run() {
                tracing::error!(%error, "the actor system ended badly");
            }
        };
        let thread = std::thread::Builder::new()
            .name("tidings-system".into())
            .spawn(run)?;
        let actors = ready
            .recv()
            .map_err(|_| io::Error::other("the actor system ended before it ran"))??;
        actors
            .threads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .system = Some(thread);
        Ok(actors)
    }

    /// Stops the actors and waits for their threads. Blocks, so it must not run on a thread of a runtime.
    pub(crate) fn stop(&self) {
        self.say_stop();
        // Held until the threads have ended, so that a second caller waits as well.
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let Threads {
            system,
            arbiters,
            store,
            log,
        } = std::mem::take(&mut *threads);
        let ends = system.into_iter().map(JoinHandle::join);
        let ends = ends.chain(arbiters.into_iter().map(Arbiter::join));
        // Last, because it ends when the Etag actor is gone.
        let ends = ends.chain(store.into_iter().chain(log).map(JoinHandle::join));
        if ends.filter(Result::is_err).count() > 0 {
            tracing::error!("a thread of the bus panicked");
        }
    }

    fn say_stop(&self) {
        self.life.send_if_modified(|life| {
            let running = *life == BusState::Running;
            if running {
                *life = BusState::Stopping;
            }
            running
        });
        self.system.stop();
    }
}

impl Drop for Actors {
    fn drop(&mut self) {
        // Without a shutdown no caller waits for the threads. They end by themselves.
        self.say_stop();
    }
}

/// Starts every actor, bottom up. Runs inside the actor system.
fn spawn_all(mut parts: CoreParts) -> Result<Actors, StartError> {
    let (life, _) = watch::channel(BusState::Running);
    let store = parts.store.take();
    let log = parts.log.take();
    let mut starter = Starter {
        // Every request has a permit, and a session has at most its attachment, a few moves, a look at its
        // rights and its end in flight.
        mailbox: parts.admission.max() + 5 * parts.limits.sessions_max + 64,
        parts,
        life,
        threads: Threads::default(),
    };
    let mut catalog = Catalog::new(starter.parts.limits.clone());
    catalog.restore(&mut starter.parts.checkpoint.lines, &starter.parts.etag_index);
    let mut restart = None;
    let mut store_thread = None;
    let (tell_store, registry_addr) = std::sync::mpsc::sync_channel(1);
    if let Some(store) = store {
        restart = Some(starter.restart());
        let observers = (starter.parts.metrics.clone(), starter.parts.health.clone());
        let (handle, ends) = start_store(store, registry_addr, observers)?;
        store_thread = Some(handle);
        starter.threads.store = Some(ends);
    }
    let interest = Arc::new(Interest::new(starter.parts.limits.shard_count()));
    let (publishers, shards) = starter.publishers(&interest)?;
    let core = starter.threads.arbiter()?;
    let etag = starter.etag(&core, &publishers, interest, (store_thread, log.is_some()))?;
    let (shared, heard) = starter.share(log)?.unzip();
    let (registry, addr) = starter.registry(&core, etag, catalog, (restart, shared))?;
    if let Some(heard) = heard {
        // Beside the Registry, so that a batch wakes one thread and not two.
        core.spawn(forward_heard(heard, addr.clone(), starter.guard("log")));
    }
    // Without a store the other end is gone.
    if tell_store.send(addr).is_err() {
        tracing::trace!("versions are kept in memory");
    }
    let Starter {
        parts, life, threads, ..
    } = starter;
    actix::spawn(export_metrics(
        parts.metrics.clone(),
        parts.admission,
        parts.health,
    ));
    actix::spawn(watch_for_death(
        life.subscribe(),
        publishers.clone(),
        parts.metrics,
    ));
    Ok(Actors {
        registry: Arc::new(registry),
        publishers,
        shards,
        life,
        system: System::current(),
        threads: Mutex::new(threads),
    })
}

/// The parts from which the actors are made.
struct Starter {
    parts: CoreParts,
    life: watch::Sender<BusState>,
    threads: Threads,
    /// The capacity of a core actor's mailbox.
    mailbox: usize,
}

impl Starter {
    fn guard(&self, actor: &'static str) -> CoreGuard {
        CoreGuard {
            actor,
            life: self.life.clone(),
            admission: self.parts.admission.clone(),
        }
    }

    /// Starts the thread of a shared log, if there is one. Returns the state of its changes, and the channel
    /// of its reports.
    fn share(
        &mut self,
        log: Option<(Box<dyn SharedLog>, Arc<LogStatus>)>,
    ) -> io::Result<Option<(SharedOrder, mpsc::Receiver<Heard>)>> {
        let Some((log, status)) = log else {
            return Ok(None);
        };
        let (proposals, proposed) = mpsc::channel(PROPOSALS_MAX);
        let (tell, told) = mpsc::channel(HEARD_MAX);
        let checkpoint = Checkpoint::default();
        let ledger = Ledger::new(checkpoint, self.parts.lineage.epoch, self.parts.stamp, usize::MAX);
        // A `RandomState` has random keys, and the hash of nothing depends on them alone.
        let node = RandomState::new().build_hasher().finish();
        let identity = (node, log.publish_timeout());
        let thread = std::thread::Builder::new()
            .name("tidings-log".into())
            .spawn(move || log.run(proposed, tell))?;
        self.threads.log = Some(thread);
        let ask = self.parts.newest.clone();
        let order = SharedOrder::new(proposals, status, ledger, identity, ask);
        Ok(Some((order, told)))
    }

    /// The state in which the Registry continues another life.
    fn restart(&self) -> Restart {
        let Checkpoint { lives, lists, .. } = &self.parts.checkpoint;
        let hashes = lists.map(|list| list.map(|(hash, _)| hash));
        Restart {
            // The first life has nothing to compare with.
            starting: (!lives.is_empty()).then_some(hashes),
            unclaimed_after: self.parts.limits.unclaimed_after,
            clock: self.parts.clock.clone(),
            health: self.parts.health.clone(),
        }
    }

    fn publishers(&mut self, interest: &Arc<Interest>) -> io::Result<(Vec<Addr<Publisher>>, Vec<Shard>)> {
        let shared = PublisherParts {
            limits: self.parts.limits.clone(),
            metrics: self.parts.metrics.clone(),
            tracer: self.parts.tracer.clone(),
            attachments: self.parts.attachments.clone(),
        };
        let mut publishers = Vec::new();
        let mut shards = Vec::new();
        for index in 0..self.parts.limits.shard_count() {
            let arbiter = self.threads.arbiter()?;
            arbiter.spawn_fn(move || enter_shard(index));
            let publisher = Publisher::new(index, interest.clone(), &shared, self.guard("publisher"));
            publishers.push(start(&arbiter, self.mailbox, publisher)?);
            shards.push(Shard { arbiter });
        }
        Ok((publishers, shards))
    }

    fn registry(
        &self,
        core: &ArbiterHandle,
        etag: Addr<EtagActor>,
        catalog: Catalog,
        (restart, shared): (Option<Restart>, Option<SharedOrder>),
    ) -> io::Result<(InboxSender<RegistryRequest>, Addr<Registry>)> {
        let metrics = &self.parts.metrics;
        metrics.set_registered(catalog.counts());
        let (inbox, sender) = Inbox::new(self.mailbox, metrics.clone());
        let registry = Registry::new(
            inbox,
            catalog,
            self.parts.etag_index.clone(),
            etag.recipient(),
            (metrics.clone(), self.guard("registry"), restart),
        );
        let addr = start(core, self.mailbox, registry.with_shared_order(shared))?;
        Ok((sender(addr.clone().recipient()), addr))
    }

    fn etag(
        &mut self,
        core: &ArbiterHandle,
        publishers: &[Addr<Publisher>],
        interest: Arc<Interest>,
        (store, shares): (Option<StoreThread>, bool),
    ) -> io::Result<Addr<EtagActor>> {
        let shards = Shards::new(
            publishers.iter().map(|addr| addr.clone().recipient()).collect(),
            interest,
            self.parts.tracer.clone(),
            self.parts.metrics.clone(),
        );
        let checkpoint = std::mem::take(&mut self.parts.checkpoint);
        let CoreParts {
            lineage,
            stamp,
            limits,
            ..
        } = &self.parts;
        let change_log = ChangeLog::new(
            &checkpoint,
            lineage.clone(),
            limits.change_log_max,
            limits.attached_max,
        );
        let lists = checkpoint.lists;
        let mut ledger = Ledger::new(checkpoint, lineage.epoch, *stamp, limits.removed_max);
        if shares {
            ledger.follow_log();
        }
        let commit = store.map(|store| Commit::new(store, &ledger, lists));
        let index = self.parts.etag_index.clone();
        let etag = EtagActor::new(ledger, index, shards, commit, self.guard("etag"));
        start(core, self.mailbox, etag.with_change_log(change_log))
    }
}

impl Threads {
    fn arbiter(&mut self) -> io::Result<ArbiterHandle> {
        let arbiter = Arbiter::try_new()?;
        let handle = arbiter.handle();
        self.arbiters.push(arbiter);
        Ok(handle)
    }
}

/// Ends all streams after the death of a core actor, since nothing new will come. The threads stay until
/// the bus is shut down or dropped, so that the streams they carry can say why they end.
async fn watch_for_death(
    mut life: watch::Receiver<BusState>,
    publishers: Vec<Addr<Publisher>>,
    metrics: Arc<Metrics>,
) {
    if life
        .wait_for(|life| matches!(life, BusState::Dead(_)))
        .await
        .is_ok()
    {
        for publisher in &publishers {
            mailbox::send(publisher, EndAll(EndReason::Failed), &metrics);
        }
    }
}

/// Hands what a shared log tells to the Registry, in batches, each when the one before is applied.
async fn forward_heard(mut heard: mpsc::Receiver<Heard>, registry: Addr<Registry>, guard: CoreGuard) {
    let mut batch = Vec::with_capacity(HEARD_BATCH);
    while heard.recv_many(&mut batch, HEARD_BATCH).await > 0 {
        // Waits, so that a log that tells more than the bus can apply is slowed down.
        let told = std::mem::replace(&mut batch, Vec::with_capacity(HEARD_BATCH));
        if registry.send(HeardBatch(told)).await.is_err() {
            return;
        }
    }
    // A bus whose log has ended would refuse every change and tell of none.
    drop(guard);
    // It may have ended with the bus, and the Registry before it.
    if let Err(error) = registry.send(LogEnded).await {
        tracing::trace!(%error, "no change waits for the shared log");
    }
}

/// Hands the numbers of the shards to the recorder until the actor system ends.
async fn export_metrics(metrics: Arc<Metrics>, admission: Admission, health: Arc<StoreHealth>) {
    loop {
        tokio::time::sleep(EXPORT_INTERVAL).await;
        metrics.set_store_up(health.check());
        metrics.export(admission.inside());
    }
}

/// Starts `actor` on `arbiter`. Returns when its mailbox has its full capacity; before that it would hold
/// 16 messages.
fn start<A>(arbiter: &ArbiterHandle, mailbox: usize, actor: A) -> io::Result<Addr<A>>
where
    A: Actor<Context = actix::Context<A>> + Send,
{
    let addr = A::start_in_arbiter(arbiter, move |ctx| {
        ctx.set_mailbox_capacity(mailbox);
        actor
    });
    // The arbiter runs its commands in order, so the actor has started when this one runs.
    let (started, ready) = std::sync::mpsc::sync_channel(1);
    arbiter.spawn_fn(move || started.send(()).unwrap_or_default());
    ready
        .recv()
        .map_err(|_| io::Error::other("an actor's thread ended before the actor ran"))?;
    Ok(addr)
}

/// Starts the thread of the store, which reports each batch to the Registry. The actor starts after the
/// thread, so its address comes through a channel.
fn start_store(
    store: Box<dyn Store>,
    registry: std::sync::mpsc::Receiver<Addr<Registry>>,
    observers: (Arc<Metrics>, Arc<StoreHealth>),
) -> io::Result<(StoreThread, JoinHandle<()>)> {
    let address: std::sync::OnceLock<Option<Addr<Registry>>> = std::sync::OnceLock::new();
    let metrics = observers.0.clone();
    StoreThread::start(store, observers, move |result| {
        // Waits at most for the end of the start: the first batch may be done before it.
        let addr = address.get_or_init(|| registry.recv().ok());
        if let Some(addr) = addr {
            mailbox::send(addr, BatchStored(result), &metrics);
        }
    })
}
