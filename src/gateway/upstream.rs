//! The server behind the gateway: its options, the connection of the watcher, and the limits of all
//! connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{ProtocolVersion, ServerPeerInfo, Tool};
use tokio::sync::{Semaphore, watch};

use super::connection::Connection;
use super::failure::Failure;
use super::options::{GatewayOptions, Isolation};
use super::parked::ParkedCalls;
use super::road::Road;
use super::speakers::Speakers;
use crate::metrics::UpstreamMetrics;

/// The time that a request waits for a connection.
const CONNECTION_WAIT: Duration = Duration::from_secs(5);

/// Requests under way at once. Those beyond are refused.
const CALLS_MAX: usize = 1_000;

/// The server behind the gateway.
pub(super) struct Upstream {
    options: GatewayOptions,
    metrics: Arc<UpstreamMetrics>,
    /// The connection of the watcher, while there is one.
    connection: watch::Sender<Option<Arc<Connection>>>,
    /// What the server said of itself last.
    info: Mutex<Arc<ServerPeerInfo>>,
    /// The tools as they were listed last, by name: the schema of a tool says which of its arguments are
    /// headers, too.
    tools: Mutex<HashMap<String, Tool>>,
    /// True once the server has refused to begin with `initialize`.
    refuses_initialize: AtomicBool,
    /// Places of requests.
    pub(super) places: Arc<Semaphore>,
    pub(super) speakers: Speakers,
    pub(super) parked: ParkedCalls,
}

impl Upstream {
    pub(super) fn new(options: GatewayOptions) -> Arc<Upstream> {
        let metrics = Arc::new(UpstreamMetrics::new());
        Arc::new(Upstream {
            options,
            connection: watch::Sender::new(None),
            info: Mutex::new(Arc::new(ServerPeerInfo::new(
                ProtocolVersion::default(),
                Default::default(),
            ))),
            tools: Mutex::default(),
            refuses_initialize: AtomicBool::new(false),
            places: Arc::new(Semaphore::new(CALLS_MAX)),
            speakers: Speakers::new(metrics.clone()),
            parked: ParkedCalls::new(metrics.clone()),
            metrics,
        })
    }

    pub(super) fn options(&self) -> &GatewayOptions {
        &self.options
    }

    pub(super) fn metrics(&self) -> &Arc<UpstreamMetrics> {
        &self.metrics
    }

    fn held_info(&self) -> MutexGuard<'_, Arc<ServerPeerInfo>> {
        self.info.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the server says of itself; after the end of a connection, what it said last.
    pub(super) fn info(&self) -> Arc<ServerPeerInfo> {
        self.held_info().clone()
    }

    /// Takes note of the list of tools.
    pub(super) fn listed_tools(&self, tools: &[Tool]) {
        let tools = tools.iter().map(|tool| (tool.name.to_string(), tool.clone()));
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = tools.collect();
    }

    /// Returns a tool as it was listed last.
    pub(super) fn tool(&self, name: &str) -> Option<Tool> {
        let tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        tools.get(name).cloned()
    }

    /// Sets the connection of the watcher.
    pub(super) fn connected(&self, connection: Arc<Connection>) {
        self.held_info().clone_from(connection.info());
        self.connection.send_replace(Some(connection));
        self.metrics.up.set(1);
    }

    /// Takes the connection of the watcher away.
    pub(super) fn disconnected(&self) {
        self.connection.send_replace(None);
        self.metrics.up.set(0);
    }

    /// Returns the connection of the watcher, for which it waits a while.
    ///
    /// # Errors
    /// There is none now.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, ErrorData> {
        let mut connection = self.connection.subscribe();
        let waiting = connection.wait_for(|connection| match connection {
            Some(connection) => !connection.lost().is_set(),
            None => false,
        });
        let waited = tokio::time::timeout(CONNECTION_WAIT, waiting).await;
        match waited {
            Ok(Ok(connection)) => match &*connection {
                Some(connection) => Ok(connection.clone()),
                None => Err(Failure::Unavailable.answer()),
            },
            Ok(Err(_)) | Err(_) => Err(Failure::Unavailable.answer()),
        }
    }

    /// Returns true if the server speaks no revision that begins with `initialize`, as far as is known.
    pub(super) fn refuses_initialize(&self) -> bool {
        self.refuses_initialize.load(Ordering::Relaxed)
    }

    pub(super) fn note_refused_initialize(&self) {
        self.refuses_initialize.store(true, Ordering::Relaxed);
    }

    /// Returns true if the client of a call over this road may be asked: if no other client is meant.
    pub(super) fn may_ask(&self, road: &Road) -> bool {
        match road {
            Road::Watcher(_) => self.options.isolation == Isolation::Sole,
            Road::Own(_) | Road::Leased(_) => true,
        }
    }

    /// Returns true if calls of all clients go over the connection of the watcher.
    pub(super) fn shares_calls(&self, connection: &Connection) -> bool {
        match self.options.isolation {
            Isolation::Auto => connection.is_stateless(),
            Isolation::Client => false,
            Isolation::Shared | Isolation::Sole => true,
        }
    }
}
