//! The cluster of the service: the log that orders the changes of all nodes, and what they tell each other.

mod durability;
mod lists;
mod node_settings;
mod session_records;
mod sink_turn;
mod usage;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::Bus;
use crate::Store as _;
use crate::auth::ConfiguredBorder;
use crate::cluster::{
    ClusterSettings, Expected, ImportReport, Janitor, Lease, LeaseHolder, NamedBodies, NatsLog, NodeLists,
    NodePresence, NodeReport, SharedState, StateKey, StateKind, ask_newest, import, present_nodes,
};
use crate::config::{ClusterSessions, Config};
use crate::http::SharedLimits;
use crate::http::api::{ClusterHealth, ClusterLease, ClusterNode, ClusterReport, ClusterView};
use crate::mcp::SessionRecords;
use crate::shared_log::{AskNewest, LogHealth, LogState};
use crate::sink::MakeTurn;
use crate::source::SourceTurn;
use crate::store::{self, RedbStore};
use durability::Durability;
use node_settings::{name_of, settings};
use session_records::StateRecords;
use sink_turn::SinkTurns;

/// The time between two looks at whether the node has caught up.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The tries to get the key of event ids, each of which may wait for a server for some seconds.
const POSITION_KEY_TRIES: usize = 30;

/// The time after which a start says that it still waits.
const TELL_AFTER: Duration = Duration::from_secs(10);

/// The time for which a lease is shown after it was heard last.
const LEASE_SHOWN: Duration = crate::cluster::LEASE_TTL;

/// The cluster of this node.
pub(super) struct NodeCluster {
    settings: ClusterSettings,
    state: SharedState,
    /// The leases of the sources.
    leases: Mutex<Vec<Lease>>,
    sinks: SinkTurns,
    /// The records of sessions; none where a session stays on its node.
    sessions: Option<Arc<StateRecords>>,
    /// The address of the listener, once it is known.
    address: Arc<OnceLock<String>>,
    presence: Option<NodePresence>,
    janitor: Option<Janitor>,
    /// The removed URIs that are kept.
    removed_max: usize,
    /// The larger bodies that the log names, once it is made.
    named: OnceLock<NamedBodies>,
    /// True once event ids are those of all nodes.
    has_key: Arc<AtomicBool>,
    /// The hashes of the lists of this node.
    lists: watch::Receiver<NodeLists>,
    durability: watch::Receiver<Durability>,
}

impl NodeCluster {
    /// Reads the settings, and connects in the background; none without an engine.
    pub(super) fn prepare(config: &Config) -> anyhow::Result<Option<NodeCluster>> {
        if !config.cluster.is_on() {
            return Ok(None);
        }
        let settings = settings(&config.cluster).context("the section [cluster] cannot be used")?;
        let state = SharedState::open(settings.clone()).context("the section [cluster] cannot be used")?;
        let sessions = match config.cluster.sessions {
            ClusterSessions::Sticky => None,
            ClusterSessions::Resume => {
                let sessions = SharedState::open_sessions(settings.clone(), state.boot());
                let sessions = sessions.context("the section [cluster] cannot be used")?;
                Some(Arc::new(StateRecords::new(sessions)))
            }
        };
        let cluster = NodeCluster {
            sessions,
            sinks: SinkTurns::new(&state),
            durability: durability::follow(&state, settings.monitoring.clone()),
            settings,
            state,
            leases: Mutex::default(),
            address: Arc::default(),
            presence: None,
            janitor: None,
            removed_max: config.bus.removed_max,
            named: OnceLock::new(),
            has_key: Arc::default(),
            // Replaced when the node joins.
            lists: watch::channel(NodeLists::default()).1,
        };
        Ok(Some(cluster))
    }

    /// Returns the name of this node; none without an engine.
    pub(super) fn name_of(config: &Config) -> Option<String> {
        config.cluster.is_on().then(|| name_of(&config.cluster))
    }

    /// Returns the log for the bus.
    pub(super) fn log(&self) -> anyhow::Result<NatsLog> {
        let log = NatsLog::new(self.settings.clone());
        let log = log.context("the section [cluster] cannot be used")?;
        if self.named.set(log.named_bodies()).is_err() {
            warn!("the log of the cluster is made twice");
        }
        Ok(log)
    }

    /// Returns the question for the newest place of the log.
    pub(super) fn newest(&self) -> AskNewest {
        ask_newest(&self.state)
    }

    /// Tells the other nodes that this one is there. Until [`listens`](NodeCluster::listens) is called, its
    /// address is not known.
    pub(super) fn join(&mut self, bus: &Bus, limits: &SharedLimits) {
        usage::follow(&self.state, bus, limits);
        let limits = limits.clone();
        let lists = lists::follow(bus);
        let named = self.named.get().cloned().unwrap_or_default();
        self.janitor = Some(Janitor::start(&self.state, bus, self.removed_max, named));
        self.lists = lists.clone();
        let node = self.state.node().to_owned();
        let boot = self.state.boot();
        let address = self.address.clone();
        let bus = bus.downgrade();
        self.presence = Some(NodePresence::start(&self.state, move || NodeReport {
            node: node.clone(),
            boot,
            address: address.get().cloned().unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            applied: match bus.upgrade() {
                Ok(bus) => bus.log_state().unwrap_or_default().applied,
                Err(_closed) => 0,
            },
            lists: lists.borrow().clone(),
            usage: usage::of_this_node(&limits),
        }));
    }

    /// Tells the address of the listener.
    pub(super) fn listens(&self, address: String) {
        if self.address.set(address).is_err() {
            warn!("the address of the listener is told twice");
        }
    }

    /// Returns the view of the cluster for the API.
    pub(super) fn view(&self, bus: &Bus) -> ClusterView {
        let state = self.state.clone();
        let namespace = self.settings.namespace.clone();
        let lists = self.lists.clone();
        let durability = self.durability.clone();
        let must_be_durable = self.settings.require_durable;
        let has_key = self.has_key.clone();
        let bus = bus.downgrade();
        ClusterView::new(move || {
            let log = match bus.upgrade() {
                Ok(bus) => bus.log_state().unwrap_or_default(),
                Err(_closed) => LogState::default(),
            };
            let mut report = report(&state, &namespace, log, &lists.borrow());
            report.durable = durability.borrow().shown();
            report.must_be_durable = must_be_durable;
            // The key is asked for only after the log is known to be durable enough.
            report.caught_up &= !report.is_durable_enough() || has_key.load(Ordering::Acquire);
            report
        })
    }

    /// True unless the log must be known to be durable, and is not.
    fn is_durable_enough(&self) -> bool {
        match &*self.durability.borrow() {
            Durability::Durable => true,
            Durability::NotDurable(_) | Durability::Unknown(_) => !self.settings.require_durable,
        }
    }

    /// Waits until the node has caught up for the first time, or the bus stops.
    pub(super) async fn caught_up(&self, bus: &Bus) {
        // The state of the log is read, not told: a look costs less than a channel through the actors.
        let begin = tokio::time::Instant::now();
        let mut told = begin;
        while bus.is_running() {
            let log = bus.log_state().unwrap_or_default();
            if log.is_caught_up && self.is_durable_enough() {
                info!(
                    applied = log.applied,
                    node = self.state.node(),
                    "this node has caught up with its cluster"
                );
                return;
            }
            if told.elapsed() >= TELL_AFTER {
                told = tokio::time::Instant::now();
                warn!(
                    health = ?log.health, applied = log.applied, head = self.state.head(),
                    "this node waits for the log of its cluster, and answers nothing but health checks meanwhile"
                );
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Returns the records of sessions; none where a session stays on its node.
    pub(super) fn session_records(&self) -> Option<Arc<dyn SessionRecords>> {
        let sessions = self.sessions.clone()?;
        Some(sessions)
    }

    /// Takes the key of event ids that all nodes share, so that the ids of callers with rights are good on
    /// each of them. Until then no client is served.
    pub(super) async fn share_event_ids(&self, border: &ConfiguredBorder) -> anyhow::Result<()> {
        if border.border().is_some() {
            border.use_position_key(&self.position_key().await?);
        }
        self.has_key.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns the key of event ids, which the first of all nodes makes.
    async fn position_key(&self) -> anyhow::Result<[u8; 32]> {
        let key = StateKey::new(StateKind::Secret, "positions");
        for _ in 0..POSITION_KEY_TRIES {
            if let Ok(Some(found)) = self.state.load(&key).await {
                let found: Result<[u8; 32], _> = found.value.as_ref().try_into();
                return found.context("the key of event ids in the cluster has another length");
            }
            let mut made = [0; 32];
            getrandom::fill(&mut made)
                .map_err(|error| anyhow::anyhow!("no key of event ids could be made: {error}"))?;
            let value = made.to_vec().into();
            match self.state.write(&key, value, Expected::Absent, None).await {
                Ok(_revision) => return Ok(made),
                // Another node was faster, or no server leads at the moment.
                Err(error) => tracing::debug!(%error, "the key of event ids is asked for again"),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        anyhow::bail!(
            "the servers of the cluster give no key of event ids; see whether its streams have a leader"
        )
    }

    /// Returns the turn of a source, which this node seeks from now on.
    pub(super) fn source_turn(&self, name: &str) -> SourceTurn {
        let lease = Lease::seek(&self.state, &format!("source.{name}"));
        let turn = SourceTurn::until(lease.turns());
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        leases.push(lease);
        turn
    }

    /// Returns the turns of the sinks.
    pub(super) fn sink_turns(&self) -> MakeTurn {
        self.sinks.maker()
    }

    /// Gives the leases of the sources up, which have stopped, and leaves what waits for the turn of a sink
    /// to the other nodes.
    pub(super) async fn stop_sources(&self) {
        self.sinks.stop_waiting();
        release(&self.leases).await;
    }

    /// Tells the other nodes how far the sinks are, and that this node is gone.
    pub(super) async fn leave(self) {
        if let Some(janitor) = self.janitor {
            janitor.stop().await;
        }
        // The sources have stopped unless the start was cut off.
        release(&self.leases).await;
        if let Some(sessions) = &self.sessions {
            sessions.leave().await;
        }
        self.sinks.finish().await;
        if let Some(presence) = self.presence {
            presence.stop().await;
        }
    }
}

/// Gives leases up.
async fn release(leases: &Mutex<Vec<Lease>>) {
    let leases = std::mem::take(&mut *leases.lock().unwrap_or_else(PoisonError::into_inner));
    for lease in leases {
        lease.release().await;
    }
}

/// Makes the report of the API.
fn report(state: &SharedState, namespace: &str, log: LogState, lists: &NodeLists) -> ClusterReport {
    let mut nodes = Vec::new();
    for node in present_nodes(state) {
        let own = node.report.node == state.node();
        nodes.push(ClusterNode {
            // Its lists may be others than in its last report.
            differs: match own {
                true => Vec::new(),
                false => lists.differing(&node.report.lists),
            },
            // Its own place is known better than its last report.
            applied: if own { log.applied } else { node.report.applied },
            heard_ms: u64::try_from(node.age.as_millis()).unwrap_or(u64::MAX),
            node: node.report.node,
            address: node.report.address,
            version: node.report.version,
            own,
        });
    }
    let mut leases = Vec::new();
    for (name, heard) in state.heard_of(StateKind::Lease, LEASE_SHOWN) {
        let holder = LeaseHolder::read(&heard.entry.value);
        let own = matches!(&holder, Some(holder) if holder.boot == state.boot());
        let holder = holder.map(|holder| holder.node);
        leases.push(ClusterLease { name, holder, own });
    }
    ClusterReport {
        node: state.node().to_owned(),
        namespace: namespace.to_owned(),
        health: match log.health {
            LogHealth::Connected => ClusterHealth::Connected,
            LogHealth::NoQuorum => ClusterHealth::NoQuorum,
            LogHealth::Disconnected => ClusterHealth::Disconnected,
        },
        caught_up: log.is_caught_up,
        epoch: log.history.map(|history| history.epoch),
        applied: log.applied,
        // The look at the log may be older than what was applied since.
        head: state.head().map(|head| head.max(log.applied)),
        in_flight: log.in_flight,
        durable: None,
        must_be_durable: false,
        nodes,
        leases,
    }
}

/// Takes the content of the store in the folder `dir` into the empty cluster that the configuration names.
///
/// # Errors
/// A configuration without a cluster, a store that is not there or in use, a cluster that is not empty or is
/// not reached.
pub async fn import_store(config: &Config, dir: &Path) -> anyhow::Result<ImportReport> {
    anyhow::ensure!(
        config.cluster.is_on(),
        "the configuration has no cluster; set cluster.engine and cluster.urls"
    );
    // First of all: opening a store makes one where there is none.
    store::check(dir)?;
    let kept = RedbStore::open(dir, config.bus.removed_max)?.load()?;
    let log = NatsLog::new(settings(&config.cluster)?)?;
    Ok(import(log, kept).await?)
}
