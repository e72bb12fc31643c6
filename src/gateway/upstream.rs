//! The server behind the gateway: its options, the connection of the watcher, and the limits of all
//! connections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{ClientCapabilities, ClientConfig, ProtocolVersion, ServerPeerInfo};
use tokio::sync::{Notify, Semaphore, watch};

use super::capabilities;
use super::connection::UpstreamConnection;
use super::failure::UpstreamFailure;
use super::known_lists::KnownLists;
use super::one_client::OneClient;
use super::options::{Isolation, UpstreamOptions};
use super::parked::ParkedCalls;
use super::prefix::Prefix;
use super::report;
use super::report::UpstreamHistory;
use super::sole_client::SoleClient;
use super::speakers::Speakers;
use super::task_ids::TaskIds;
use super::views::{ListView, ListViews};
use crate::client::Target;
use crate::http::api::{UpstreamKind, UpstreamReport, UpstreamState};
use crate::metrics::UpstreamMetrics;
use crate::{ListKind, ResourceUri};

/// The time that a request waits for a connection.
const CONNECTION_WAIT: Duration = Duration::from_secs(5);

/// Requests under way at once. Those beyond are refused.
const CALLS_MAX: usize = 1_000;

/// The label of a server that has no name of the configuration.
const UNNAMED: &str = "server";

/// The server behind the gateway.
pub(super) struct Upstream {
    options: UpstreamOptions,
    /// Stands before its tools, prompts and resources.
    prefix: Prefix,
    /// True if the gateway has other servers, too.
    is_one_of_several: bool,
    /// The only client, if the server has one alone and it is known.
    sole_client: Option<SoleClient>,
    /// The way to it, if its revision has sessions.
    one_client: Option<Arc<OneClient>>,
    metrics: Arc<UpstreamMetrics>,
    /// The connection of the watcher, while there is one.
    connection: watch::Sender<Option<Arc<UpstreamConnection>>>,
    /// What the server said of itself last.
    info: Mutex<Arc<ServerPeerInfo>>,
    pub(super) lists: KnownLists,
    /// Asks the watcher for a look at the lists.
    pub(super) lists_due: Notify,
    /// The kinds of which a list of one set of capabilities changed.
    changed_views: [AtomicBool; 3],
    /// The lists of clients whose capabilities are not those of the watcher.
    pub(super) views: ListViews,
    pub(super) tasks: TaskIds,
    /// The events that its report tells.
    history: UpstreamHistory,
    /// Places of requests.
    pub(super) places: Arc<Semaphore>,
    pub(super) speakers: Speakers,
    pub(super) parked: ParkedCalls,
}

impl Upstream {
    pub(super) fn new(
        options: UpstreamOptions,
        is_one_of_several: bool,
        sole_client: Option<SoleClient>,
    ) -> Arc<Upstream> {
        let has_session = matches!(
            &sole_client,
            None | Some(SoleClient {
                has_session: true,
                ..
            })
        );
        let may_be_reached = options.isolation == Isolation::Sole && has_session;
        let metrics = Arc::new(UpstreamMetrics::new(options.name.as_deref().unwrap_or(UNNAMED)));
        let prefix = Prefix::new(options.name.clone().filter(|_| options.has_prefix));
        Arc::new(Upstream {
            lists: KnownLists::new(prefix.clone(), options.stale_lists, options.tool_pinning),
            lists_due: Notify::new(),
            changed_views: Default::default(),
            views: ListViews::default(),
            speakers: Speakers::new(metrics.clone(), options.speaker_idle),
            prefix,
            is_one_of_several,
            one_client: may_be_reached.then(OneClient::new),
            sole_client,
            options,
            connection: watch::Sender::new(None),
            info: Mutex::new(Arc::new(ServerPeerInfo::new(
                ProtocolVersion::default(),
                Default::default(),
            ))),
            tasks: TaskIds::new(),
            history: UpstreamHistory::default(),
            places: Arc::new(Semaphore::new(CALLS_MAX)),
            parked: ParkedCalls::new(metrics.clone()),
            metrics,
        })
    }

    pub(super) fn options(&self) -> &UpstreamOptions {
        &self.options
    }

    pub(super) fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    pub(super) fn is_one_of_several(&self) -> bool {
        self.is_one_of_several
    }

    /// Returns true if a resource may be one of this server's.
    pub(super) fn owns(&self, uri: &ResourceUri) -> bool {
        self.prefix.own_uri(uri.as_str()).is_some()
    }

    /// Returns the name in messages to the operator.
    pub(super) fn label(&self) -> &str {
        self.options.name.as_deref().unwrap_or(UNNAMED)
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

    /// Sets the connection of the watcher.
    pub(super) fn connected(&self, connection: Arc<UpstreamConnection>) {
        self.held_info().clone_from(connection.info());
        self.lists.connected();
        self.views.for_each(KnownLists::connected);
        self.connection.send_replace(Some(connection));
        self.metrics.up.set(1);
    }

    /// Takes the connection of the watcher away.
    pub(super) fn disconnected(&self) {
        // Before anything else: requests wait for the next connection from here on.
        self.connection.send_replace(None);
        self.lists.lost();
        self.views.for_each(KnownLists::lost);
        self.metrics.up.set(0);
    }

    /// Takes note of a connection that was made anew.
    pub(super) fn restarted(&self) {
        self.history.restarted();
        self.metrics.restarts.increment(1);
    }

    /// Takes note of the reason that there is no connection.
    pub(super) fn failed(&self, reason: &str) {
        self.history.failed(reason);
    }

    /// The way to the only client, if the server has one alone, in a session.
    pub(super) fn one_client(&self) -> Option<&Arc<OneClient>> {
        self.one_client.as_ref()
    }

    /// The client of the watcher's connection.
    pub(super) fn watching_client(&self) -> ClientConfig {
        match &self.sole_client {
            Some(client) if self.options.isolation == Isolation::Sole => client.config.clone(),
            _ => capabilities::watcher(),
        }
    }

    /// Makes lists of which nothing is known.
    pub(super) fn unknown_lists(&self) -> KnownLists {
        let options = &self.options;
        KnownLists::new(self.prefix.clone(), options.stale_lists, options.tool_pinning)
    }

    /// Returns the lists of clients with these capabilities; none if they are those of the watcher, unless
    /// calls have changed them.
    pub(super) fn view(&self, capabilities: ClientCapabilities, are_changed: bool) -> Option<Arc<ListView>> {
        if capabilities == capabilities::watcher().capabilities && !are_changed {
            return None;
        }
        let client = ClientConfig::new(capabilities, capabilities::gateway_name());
        self.views.of(client, || self.unknown_lists())
    }

    /// Takes note that a list of one set of capabilities changed, of which the watcher is to tell.
    pub(super) fn note_changed_view(&self, kind: ListKind) {
        self.changed_views[kind as usize].store(true, Ordering::Relaxed);
        self.lists_due.notify_one();
    }

    /// Returns the kinds of which a list of one set of capabilities changed since the last call.
    pub(super) fn take_changed_views(&self) -> impl Iterator<Item = ListKind> {
        ListKind::ALL
            .into_iter()
            .filter(|kind| self.changed_views[*kind as usize].swap(false, Ordering::Relaxed))
    }

    /// Takes note of the number of resources that the server announces.
    pub(super) fn announces(&self, subscriptions: usize) {
        self.history.announces(subscriptions);
        self.metrics.subscriptions.set(subscriptions as f64);
    }

    /// Returns the present state.
    pub(super) fn report(&self) -> UpstreamReport {
        let connection = self.connected_now();
        let info = self.info();
        let target = &self.options.target;
        let name = match &info.server_info {
            _ if self.options.name.is_some() => self.label().to_owned(),
            Some(server) if !server.name.is_empty() => report::shown(&server.name),
            _ => report::shown(&target.to_string()),
        };
        UpstreamReport {
            name,
            kind: match target {
                Target::Command(_) => UpstreamKind::Stdio,
                Target::Http(_) => UpstreamKind::Http,
            },
            revision: info.protocol_version.to_string(),
            state: match connection {
                Some(_) => UpstreamState::Up,
                None => UpstreamState::Down,
            },
            pid: match connection {
                Some(connection) => connection.pid(),
                None => None,
            },
            restarts: self.history.restarts(),
            last_error: self.history.last_error(),
            subscriptions: self.history.subscriptions(),
            speakers: self.speakers.count(),
            inflight: CALLS_MAX - self.places.available_permits(),
            parked: self.parked.count(),
            isolation: self.options.isolation.name(),
        }
    }

    /// Returns the connection of the watcher, if there is one now.
    pub(super) fn connected_now(&self) -> Option<Arc<UpstreamConnection>> {
        // One that has ended stays here until the watcher comes to take it away.
        let connection = self.connection.borrow().clone();
        connection.filter(|connection| !connection.lost().is_set())
    }

    /// Returns the connection of the watcher, for which it waits a while.
    ///
    /// # Errors
    /// There is none now.
    pub(super) async fn connection(&self) -> Result<Arc<UpstreamConnection>, ErrorData> {
        let mut connection = self.connection.subscribe();
        let waiting = connection.wait_for(|connection| match connection {
            Some(connection) => !connection.lost().is_set(),
            None => false,
        });
        let waited = tokio::time::timeout(CONNECTION_WAIT, waiting).await;
        match waited {
            Ok(Ok(connection)) => match &*connection {
                Some(connection) => Ok(connection.clone()),
                None => Err(UpstreamFailure::Unavailable.answer()),
            },
            Ok(Err(_)) | Err(_) => Err(UpstreamFailure::Unavailable.answer()),
        }
    }

    /// Returns true if calls of all clients go over the connection of the watcher.
    pub(super) fn shares_calls(&self, connection: &UpstreamConnection) -> bool {
        match self.options.isolation {
            Isolation::Auto => connection.is_stateless(),
            Isolation::Client => false,
            Isolation::Shared | Isolation::Sole => true,
        }
    }
}
