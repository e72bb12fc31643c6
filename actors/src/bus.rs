//! The handle that publishers and subscribers hold.
//!
//! It admits requests, sends them to the actors and waits for their replies. Each module below has the
//! requests of one kind.

mod builder;
mod burst;
mod resources;
mod floors;
mod latest;
mod lists;
mod pages;
mod sessions;
mod rights;
mod sinks;
mod shutdown;
mod system;

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Weak};

use actix::{Actor, Addr, Handler, Message};
use tokio::sync::{Semaphore, oneshot};

pub use builder::{Builder, Clock};
pub use burst::Burst;
pub use latest::NotLatest;
pub use pages::Page;
pub use resources::Snapshot;
pub use shutdown::{DrainReport, Stats};

use crate::messages::RegistryRequest;
use crate::metrics::Metrics;
use crate::model::{Closed, Limits, Lineage, Owner};
use crate::runtime::{Admission, Permit, Reply, Tracer, mailbox};
use crate::session::{EndedSubscribers, UnreadySessions};
use crate::shared_log::{AskNewest, LogState, LogStatus};
use crate::sink::Attachments;
use crate::versions::{EtagIndex, StoreHealth};
use system::Actors;

struct Inner {
    actors: Actors,
    admission: Admission,
    limits: Arc<Limits>,
    metrics: Arc<Metrics>,
    clock: Clock,
    places: Arc<Semaphore>,
    next_id: AtomicU64,
    next_shard: AtomicUsize,
    /// The runs of listers that have begun.
    lister_runs: AtomicU64,
    tracer: Arc<Tracer>,
    attachments: Arc<Attachments>,
    ended_subscribers: Arc<EndedSubscribers>,
    unready: Arc<UnreadySessions>,
    etag_index: Arc<EtagIndex>,
    lineage: Lineage,
    /// The place in a shared log; none without one.
    log_status: Option<Arc<LogStatus>>,
    /// Asks a shared log for its newest record.
    newest: Option<AskNewest>,
    /// True if reads are answered from what the shared log has.
    reads_latest: bool,
    health: Arc<StoreHealth>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Nothing waits for the threads of attached subscribers: they end when their feeds are closed.
        drop(self.attachments.close_all());
    }
}

/// The handle of a bus. It is cheap to clone and works on any tokio task.
///
/// ```
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use tidings_actors::{Bus, Resource};
/// let bus = Bus::builder().start()?;
/// bus.register(Resource::text("demo://greeting", "hello")?).await?;
/// let again = bus.update(Resource::text("demo://greeting", "hello")?).await?;
/// assert!(!again.changed);
/// let outcome = bus.update(Resource::text("demo://greeting", "good day")?).await?;
/// assert_eq!(outcome.etag.version, 2);
/// assert_eq!(bus.read("demo://greeting").await?.etag, outcome.etag);
/// # Ok(()) }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run()).unwrap();
/// ```
#[derive(Clone)]
pub struct Bus {
    inner: Arc<Inner>,
    owner: Owner,
}

impl Bus {
    /// Returns a builder with default limits, versions in memory and the clock of the system.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The limits of the bus.
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// Returns a handle whose changes are made by `owner`. Resources that it creates belong to that owner,
    /// and another owner's cannot be changed with it.
    #[must_use]
    pub fn owned_by(&self, owner: Owner) -> Bus {
        Bus {
            inner: self.inner.clone(),
            owner,
        }
    }

    /// The owner of the changes that are made with this handle: [`Owner::Embedder`] unless set.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The lives of the history of this bus. It tells whether a position that a client kept is one of it.
    pub fn lineage(&self) -> &Lineage {
        &self.inner.lineage
    }

    /// The place of this node in its shared log; none without one.
    pub fn log_state(&self) -> Option<LogState> {
        self.inner.log_status.as_ref().map(|status| status.get())
    }

    /// Returns a handle that does not keep the bus running.
    pub fn downgrade(&self) -> WeakBus {
        WeakBus {
            inner: Arc::downgrade(&self.inner),
            owner: self.owner.clone(),
        }
    }

    async fn ask<T, M>(&self, request: impl FnOnce(Reply<T>) -> M) -> Result<T, Closed>
    where
        RegistryRequest: From<M>,
    {
        self.ask_with(self.inner.admission.enter().await?, request).await
    }

    /// Asks for a change, which has a place of its own with a store.
    async fn ask_change<T, M>(&self, request: impl FnOnce(Reply<T>) -> M) -> Result<T, Closed>
    where
        RegistryRequest: From<M>,
    {
        self.ask_with(self.inner.admission.enter_change().await?, request)
            .await
    }

    async fn ask_with<T, M>(&self, permit: Permit, request: impl FnOnce(Reply<T>) -> M) -> Result<T, Closed>
    where
        RegistryRequest: From<M>,
    {
        let (reply, answer) = permit.reply();
        self.inner.actors.registry.push(request(reply).into());
        // The reply is dropped unsent only when an actor on its way has died.
        answer.await.map_err(|_dropped| Closed)
    }

    async fn ask_at<A, T, M>(&self, to: &Addr<A>, message: impl FnOnce(Reply<T>) -> M) -> Result<T, Closed>
    where
        A: Actor<Context = actix::Context<A>> + Handler<M>,
        M: Message<Result = ()> + Send + 'static,
    {
        let (reply, answer): (_, oneshot::Receiver<T>) = self.inner.admission.enter().await?.reply();
        mailbox::send(to, message(reply), &self.inner.metrics);
        answer.await.map_err(|_dropped| Closed)
    }
}

/// A handle that does not keep the bus running, for callbacks that the bus itself holds.
#[derive(Clone)]
pub struct WeakBus {
    inner: Weak<Inner>,
    owner: Owner,
}

impl WeakBus {
    /// Returns the bus while another handle keeps it running.
    ///
    /// # Errors
    /// [`Closed`] after the last such handle was dropped.
    pub fn upgrade(&self) -> Result<Bus, Closed> {
        let inner = self.inner.upgrade().ok_or(Closed)?;
        let owner = self.owner.clone();
        Ok(Bus { inner, owner })
    }
}

impl std::fmt::Debug for WeakBus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WeakBus")
    }
}

impl std::fmt::Debug for Bus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bus")
            .field("running", &self.is_running())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
