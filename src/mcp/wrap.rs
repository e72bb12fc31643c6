//! The wrapper for programs that have an rmcp server already: it adds subscriptions, listen, etags, the etag
//! tools and list notifications to a `ServerHandler`, and forwards everything else.
//!
//! The wrapper learns the state of the wrapped server from its answers. It changes those answers only by
//! `_meta` and by the bus's own items.

mod client_view;
mod absent_client;
mod content;
mod listed;
mod learn;
mod wrapped;
mod forward;
mod rights;
mod sessions;
mod wrapped_servers;
mod serve;
mod follow;
#[cfg(feature = "service")]
mod client_line;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use rmcp::ServerHandler;

use self::absent_client::AbsentClient;
#[cfg(feature = "service")]
pub(crate) use self::client_line::ClientLine;
use self::client_view::ClientView;
use self::content::KnownContent;
#[cfg(feature = "service")]
pub(crate) use self::follow::FollowSubscriptions;
use self::listed::ListedItems;
pub use self::wrapped::Wrapped;
pub use self::wrapped_servers::WrappedServers;
use super::etag_tools;
use super::handler::Handler;
use super::options::McpOptions;
use super::session::McpContext;
use crate::auth::Caller;
use crate::metrics::McpMetrics;
use crate::{Bus, Closed, Etag, ListKind, PublishError, ResourceUri, SubscriberId};

/// The shortest time between two rounds of [`Wrap::refresh_every`].
const REFRESH_MIN: Duration = Duration::from_millis(10);

tokio::task_local! {
    /// The client on whose behalf a tool of the bus runs: the tool's reads of the wrapped server carry that
    /// client's name.
    static CALLING_CLIENT: ClientView;
}

/// Adds a bus to rmcp servers. Make one per server, and a [`Wrapped`] handler per client of it.
///
/// The wrapped server is taken to hold the same resources for all its clients: the first read of a resource
/// gives it version 1, and every other content that is read later is a change that all its subscribers
/// receive. The digest is of the contents without their `_meta`. As many resources can have a version as the
/// bus may hold ([`Limits::resources_max`](crate::Limits::resources_max)); those beyond are served without an
/// etag, and clients cannot subscribe to them.
///
/// A server that sends `list_changed` or `resources/updated` by itself continues to do so, beside the
/// notifications of the wrapper.
///
/// ```
/// # use rmcp::ServerHandler;
/// # #[derive(Clone)] struct MyServer; impl ServerHandler for MyServer {}
/// # async fn run(my_server: MyServer) -> Result<(), Box<dyn std::error::Error>> {
/// use tidings::mcp::{McpOptions, Wrap};
/// let wrap = Wrap::new(tidings::Bus::builder().start()?, McpOptions::default()).await?;
/// // Wherever the handler went, for each client:
/// let handler = wrap.handler(my_server.clone());
/// // From anywhere in the program:
/// wrap.notify_resource_changed("demo://report").await?;
/// # drop(handler); Ok(()) }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run(MyServer)).unwrap();
/// ```
#[derive(Clone)]
pub struct Wrap {
    state: Arc<WrapState>,
}

struct WrapState {
    bus: Bus,
    options: Arc<McpOptions>,
    metrics: McpMetrics,
    /// The contents that were read so far. Locked while one answer is learned from, so that the versions of a
    /// resource follow the order of its answers. No handler runs under this lock, so a handler may hold a
    /// `Wrap` and use it.
    known: tokio::sync::Mutex<HashMap<ResourceUri, KnownContent>>,
    /// The lists as they were listed last; locked until the bus knows them too.
    listed: tokio::sync::Mutex<ListedItems>,
    /// The number of changes seen of each kind of list; moves only under the lock of `listed`.
    list_changes: [AtomicU64; 3],
    /// The handlers that have a client now, the oldest first. An entry goes with its [`Wrapped`], so a
    /// handler that holds a `Wrap` makes no cycle.
    clients: Mutex<BTreeMap<u64, ClientView>>,
    next_id: AtomicU64,
    /// The handlers of the sessions that an endpoint has, by the ids of the sessions at the bus.
    handlers_of_sessions: Mutex<HashMap<SubscriberId, u64>>,
    /// Is told of the resources that clients subscribe to.
    follower: follow::FollowerSlot,
    /// Stands for clients that rmcp has no connection to.
    absent_client: AbsentClient,
}

impl Wrap {
    /// Makes a wrapper over `bus`, and registers the etag tools there.
    ///
    /// # Errors
    /// [`PublishError`] when the bus has stopped.
    pub async fn new(bus: Bus, options: McpOptions) -> Result<Wrap, PublishError> {
        etag_tools::install(&bus, options.mcp.clone()).await?;
        let state = WrapState {
            bus,
            options: Arc::new(options),
            metrics: McpMetrics::new("wrapped"),
            known: tokio::sync::Mutex::default(),
            listed: tokio::sync::Mutex::default(),
            list_changes: Default::default(),
            clients: Mutex::default(),
            next_id: AtomicU64::new(1),
            handlers_of_sessions: Mutex::default(),
            follower: follow::FollowerSlot::default(),
            absent_client: AbsentClient::start(),
        };
        Ok(Wrap {
            state: Arc::new(state),
        })
    }

    /// Wraps the handler of one client; its session ends when the handler is dropped. On rmcp's HTTP service
    /// that is one per session, and one per request on 2026-07-28: call this in the service's factory.
    pub fn handler<H: ServerHandler>(&self, inner: H) -> Wrapped<H> {
        let bus_handler = Handler {
            server: McpContext {
                bus: self.state.bus.clone(),
                options: self.state.options.clone(),
                transport: "wrapped",
                metrics: self.state.metrics.clone(),
                write_progress: None,
                caller: Caller::unlimited(None),
                limits: None,
            },
            own_session: Some(Arc::new(OnceLock::new())),
        };
        self.handler_over(bus_handler, Arc::new(inner), Weak::new())
    }

    /// Wraps the handler of one client beside a handler of the bus that its transport made. `own` is the
    /// handler itself where it is shared.
    fn handler_over<H: ServerHandler>(
        &self,
        bus_handler: Handler,
        inner: Arc<H>,
        own: Weak<Wrapped<H>>,
    ) -> Wrapped<H> {
        let id = self.state.next_id.fetch_add(1, Ordering::Relaxed);
        Wrapped::new(id, inner, bus_handler, (self.clone(), own))
    }

    /// Returns the bus. Resources, tools and prompts that are registered there are served beside those of the
    /// wrapped server; of two with the same name, the wrapped server's is served.
    pub fn bus(&self) -> &Bus {
        &self.state.bus
    }

    /// Announces that a resource of the wrapped server changed. A resource that no client has read or
    /// subscribed to yet has no version that could move, so nothing happens.
    ///
    /// # Errors
    /// [`PublishError::InvalidUri`] and [`PublishError::Closed`].
    pub async fn notify_resource_changed(&self, uri: &str) -> Result<(), PublishError> {
        // Not read here: the next reader's answer is recorded at the version that this makes.
        match self.state.bus.touch(uri).await {
            Ok(_) | Err(PublishError::NotFound(_)) => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// Asks the wrapped server for its lists again, and notifies clients of those that differ now. For
    /// servers whose lists change without a client having listed them. The server is asked in the name of the
    /// client that has been connected longest; without a client there is nothing to do. A list that it fails
    /// to answer, or does not answer within 10 s, is left as it was.
    ///
    /// # Errors
    /// [`PublishError::Closed`] when the bus has stopped.
    pub async fn refresh_lists(&self) -> Result<(), PublishError> {
        match self.oldest_client() {
            Some(client) => self.learn_lists(&client).await,
            None => Ok(()),
        }
    }

    /// Reads every subscribed resource of the wrapped server again, and notifies subscribers of those that
    /// differ now. For servers that cannot say when a resource changes. A resource that the server fails to
    /// answer, or does not answer within 10 s, is left as it was.
    ///
    /// # Errors
    /// [`PublishError::Closed`] when the bus has stopped.
    pub async fn refresh_subscribed(&self) -> Result<(), PublishError> {
        let Some(client) = self.oldest_client() else {
            return Ok(());
        };
        let subscribed = self.subscribed().await?;
        self.learn_all(&client, subscribed).await
    }

    /// Returns the resources of the wrapped server that clients are subscribed to.
    ///
    /// # Errors
    /// [`PublishError::Closed`] when the bus has stopped.
    pub(crate) async fn subscribed(&self) -> Result<Vec<ResourceUri>, PublishError> {
        let known: Vec<(ResourceUri, KnownContent)> = {
            let known = self.state.known.lock().await;
            known.iter().map(|(uri, known)| (uri.clone(), *known)).collect()
        };
        let mut subscribed = Vec::new();
        // The lock is free again: the bus may be busy, and reads of clients need it.
        for (uri, known) in known {
            if !self.state.bus.subscribers(&uri).await?.is_empty() {
                subscribed.push(uri);
            } else if known == KnownContent::Gone {
                // The last subscriber has left, so no one waits for the resource to return.
                self.state.known.lock().await.remove(&uri);
            }
        }
        Ok(subscribed)
    }

    /// Does [`refresh_subscribed`](Self::refresh_subscribed) and [`refresh_lists`](Self::refresh_lists) every
    /// `interval` (at least 10 ms), until the bus stops or the last `Wrap` is gone.
    pub fn refresh_every(&self, interval: Duration) {
        let weak = Arc::downgrade(&self.state);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(interval.max(REFRESH_MIN)).await;
                let Some(state) = weak.upgrade() else { return };
                let wrap = Wrap { state };
                if wrap.refresh_subscribed().await.is_err() || wrap.refresh_lists().await.is_err() {
                    return;
                }
            }
        });
    }

    fn handlers_of_sessions(&self) -> MutexGuard<'_, HashMap<SubscriberId, u64>> {
        let handlers = &self.state.handlers_of_sessions;
        handlers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clients(&self) -> MutexGuard<'_, BTreeMap<u64, ClientView>> {
        self.state.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the client in whose name the wrapped server is asked. The oldest one: it stays the same for
    /// longest, and a server that shows clients different lists must not seem to change them.
    fn oldest_client(&self) -> Option<ClientView> {
        let followed = self.state.follower.view();
        followed.or_else(|| {
            let clients = self.clients();
            clients.values().find(|client| client.is_connected()).cloned()
        })
    }

    async fn etag(&self, uri: &ResourceUri) -> Result<Option<Etag>, Closed> {
        let etags = self.state.bus.etags(vec![uri.clone()]).await?;
        Ok(etags.first().copied().flatten())
    }

    /// Returns true when the wrapped server is known to hold a resource.
    async fn is_known(&self, uri: &ResourceUri) -> bool {
        self.state.known.lock().await.contains_key(uri)
    }

    /// Returns true when the wrapped server must be asked for a resource before the bus can name its version.
    async fn must_be_read(&self, uri: &ResourceUri) -> Result<bool, Closed> {
        // Locked before the bus is asked: a resource that the bus knows and this map does not was then
        // registered there by another publisher, not by a read that is under way.
        let known = self.state.known.lock().await;
        Ok(known.contains_key(uri) || self.etag(uri).await?.is_none())
    }

    /// Returns the number of changes seen of each kind of list.
    fn list_changes(&self) -> [u64; 3] {
        ListKind::ALL.map(|kind| self.state.list_changes[kind as usize].load(Ordering::SeqCst))
    }
}
