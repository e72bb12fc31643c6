//! Starting, draining and ending the actors.
//!
//! Owns: the threads (one Arbiter for Registry and Etag, one per Publisher shard), the order in which actors start
//! (bottom up) and end (door first). Never: is reached after start except to stop. Called by the bus alone.

use std::cell::Cell;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use actix::{Actor, Addr, Arbiter, ArbiterHandle, System};
use tokio::sync::watch;

use crate::catalog::Catalog;
use crate::door::Door;
use crate::error::StartError;
use crate::etag_actor::{EtagActor, Shards};
use crate::ledger::{Checkpoint, Ledger};
use crate::limits::Limits;
use crate::message::BatchStored;
use crate::metric::Metrics;
use crate::post::{Guard, Life, post};
use crate::publisher::Publisher;
use crate::registry::Registry;
use crate::store::{Store, StoreThread};

thread_local! {
    static SHARD: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The shard whose thread this is.
pub(crate) fn current_shard() -> Option<usize> {
    SHARD.get()
}

/// One Publisher shard's thread, on which connections may be carried too: a stream that lives on the thread of the
/// shard that marks it is woken without leaving it.
#[derive(Debug, Clone)]
pub struct Shard {
    pub(crate) arbiter: ArbiterHandle,
}

impl Shard {
    /// Runs what `start` makes on the shard's thread, which has a tokio runtime of its own. It must never block.
    /// False when the bus has stopped.
    pub fn spawn<F, R>(&self, start: F) -> bool
    where
        F: FnOnce() -> R + Send + 'static,
        R: Future<Output = ()> + 'static,
    {
        self.arbiter.spawn_fn(move || drop(actix::spawn(start())))
    }
}

/// The running actors.
pub(crate) struct Actors {
    pub(crate) registry: Addr<Registry>,
    pub(crate) publishers: Vec<Addr<Publisher>>,
    pub(crate) shards: Vec<Shard>,
    pub(crate) life: watch::Sender<Life>,
    system: System,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What every actor is given.
pub(crate) struct Parts {
    pub(crate) limits: Arc<Limits>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) door: Door,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) store: Option<Box<dyn Store>>,
}

impl Actors {
    /// Starts them on threads of their own; returns when they run.
    pub(crate) fn start(parts: Parts) -> Result<Actors, StartError> {
        let (started, ready) = crossbeam_channel::bounded(1);
        let run = move || {
            let runner = System::new();
            let actors = runner.block_on(async { spawn_all(parts) });
            drop(started.send(actors));
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
        *actors.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(actors)
    }

    /// Stops them and waits for their threads. Blocks; call it off the async threads.
    pub(crate) fn stop(&self) {
        self.life
            .send_if_modified(|life| std::mem::replace(life, Life::Stopping) == Life::Running);
        self.system.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the actor system's thread panicked");
        }
    }
}

impl Drop for Actors {
    fn drop(&mut self) {
        // Without a shutdown there is nobody to wait for the threads; they end by themselves.
        self.life
            .send_if_modified(|life| std::mem::replace(life, Life::Stopping) == Life::Running);
        self.system.stop();
    }
}

/// Starts every actor, bottom up. Runs inside the actor system.
fn spawn_all(parts: Parts) -> Result<Actors, StartError> {
    let Parts {
        limits,
        metrics,
        door,
        checkpoint,
        store,
    } = parts;
    let (life, _) = watch::channel(Life::Running);
    // Every request has a permit, and a session has at most its attachment, a few moves and its end in flight.
    let mailbox = limits.in_flight_max + 4 * limits.sessions_max + 64;
    let guard = |actor| Guard {
        actor,
        life: life.clone(),
        door: door.clone(),
    };

    let mut publishers = Vec::new();
    let mut shards = Vec::new();
    for index in 0..limits.shard_count() {
        let arbiter = Arbiter::try_new()?.handle();
        arbiter.spawn_fn(move || SHARD.set(Some(index)));
        let publisher = Publisher::new(limits.keep_alive, metrics.clone(), guard("publisher"));
        publishers.push(start(&arbiter, mailbox, publisher)?);
        shards.push(Shard { arbiter });
    }

    let core = Arbiter::try_new()?.handle();
    let (tell_store, etag_addr) = std::sync::mpsc::sync_channel::<Addr<EtagActor>>(1);
    let store = store
        .map(|store| store_thread(store, etag_addr, metrics.clone()))
        .transpose()?;
    let ledger = Ledger::new(checkpoint, limits.removed_max);
    let shard_addrs = Shards {
        addrs: publishers.clone(),
        metrics: metrics.clone(),
    };
    let etag = EtagActor {
        ledger,
        shards: shard_addrs,
        store,
        in_flight: None,
        waiting: Vec::new(),
        guard: guard("etag"),
    };
    let etag = start(&core, mailbox, etag)?;
    drop(tell_store.send(etag.clone()));

    let registry = Registry {
        catalog: Catalog::new(limits),
        etag,
        metrics,
        _guard: guard("registry"),
    };
    let registry = start(&core, mailbox, registry)?;
    Ok(Actors {
        registry,
        publishers,
        shards,
        life,
        system: System::current(),
        thread: Mutex::new(None),
    })
}

/// Starts `actor` on `arbiter` and returns when its mailbox has its full size; until then it would hold 16 messages.
fn start<A>(arbiter: &ArbiterHandle, mailbox: usize, actor: A) -> io::Result<Addr<A>>
where
    A: Actor<Context = actix::Context<A>> + Send,
{
    let addr = A::start_in_arbiter(arbiter, move |ctx| {
        ctx.set_mailbox_capacity(mailbox);
        actor
    });
    // The arbiter runs what it is given in order.
    let (started, ready) = std::sync::mpsc::sync_channel(1);
    arbiter.spawn_fn(move || started.send(()).unwrap_or_default());
    ready
        .recv()
        .map_err(|_| io::Error::other("an actor's thread ended before the actor ran"))?;
    Ok(addr)
}

/// The store's thread, which reports each batch to the Etag actor. The actor starts after the thread, so its address
/// comes through a channel.
fn store_thread(
    store: Box<dyn Store>,
    etag: std::sync::mpsc::Receiver<Addr<EtagActor>>,
    metrics: Arc<Metrics>,
) -> io::Result<StoreThread> {
    let address = std::sync::OnceLock::new();
    StoreThread::start(store, move |result| {
        if address.get().is_none()
            && let Ok(addr) = etag.recv()
        {
            drop(address.set(addr));
        }
        if let Some(addr) = address.get() {
            post(addr, BatchStored(result), &metrics);
        }
    })
}
