//! The log that several nodes share, kept by NATS JetStream.
//!
//! A stream holds the newest record of each URI; its sequence numbers are the one order of all nodes. A node
//! proposes a record under the condition that the newest one of the URI is the one that it has applied, and
//! applies its own records, like all others, at their place in that order: when they are delivered, or when
//! the servers say that they are stored at the next place.
//!
//! `node_state` outlives connections and `session` works with one server: `opening` recognizes the log,
//! `reader` tells its records through a `consumer`, or `direct` while there is none, `publisher` sends
//! proposals, and `in_flight` knows how each of them ends.
//! Everything runs on one thread with a runtime of its own.

mod settings;
mod session;
mod asking;
mod opening;
mod reader;
mod consumer;
mod direct;
mod publisher;
mod intake;
mod node_state;
mod in_flight;
mod record_answer;
mod identity;
mod stream;
mod servers;
mod record;
mod bodies;
mod names;
mod error;
mod shared_state;
mod lease;
mod presence;
mod janitor;
mod newest;
mod import;

use std::time::Duration;

use tidings_actors::shared_log::{Heard, LogHealth, Proposal, SharedLog};
use tokio::runtime;
use tokio::sync::mpsc;

pub use bodies::NamedBodies;
pub use error::ClusterError;
pub use import::{ImportError, ImportReport, import};
pub use janitor::Janitor;
pub use lease::{LEASE_TTL, Lease, LeaseHolder};
pub use newest::ask_newest;
pub use presence::{CallerUsage, NodeLists, NodePresence, NodeReport, PresentNode, present_nodes};
pub use settings::{ClusterLogin, ClusterSettings};
pub use shared_state::{
    Expected, HeardEntry, NodeQuestion, SharedEntry, SharedState, StateError, StateKey, StateKind,
};

use async_nats::ServerAddr;
use node_state::{NodeState, Stopped, spread};
use servers::{ServerRing, shown};
use session::SessionEnd;

/// A shared log in NATS JetStream.
///
/// ```
/// use tidings::cluster::{ClusterSettings, NatsLog};
/// let settings = ClusterSettings {
///     urls: vec!["nats://127.0.0.1:4222".to_owned()],
///     ..ClusterSettings::default()
/// };
/// let log = NatsLog::new(settings)?;
/// # drop(log);
/// # Ok::<(), tidings::cluster::ClusterError>(())
/// ```
#[derive(Debug)]
pub struct NatsLog {
    settings: ClusterSettings,
    servers: Vec<ServerAddr>,
    random: u32,
    named: NamedBodies,
}

impl NatsLog {
    /// Checks the settings. Servers are connected when the log runs, and as long as none answers, it says so
    /// and goes on trying.
    ///
    /// # Errors
    /// [`ClusterError`], naming the setting and the remedy.
    pub fn new(settings: ClusterSettings) -> Result<NatsLog, ClusterError> {
        settings.check()?;
        let servers = settings.server_addresses()?;
        let random = getrandom::u32().map_err(ClusterError::Random)?;
        Ok(NatsLog {
            settings,
            servers,
            random,
            named: NamedBodies::default(),
        })
    }

    /// Returns the large bodies that the records name, as far as they are heard when the log runs.
    pub fn named_bodies(&self) -> NamedBodies {
        self.named.clone()
    }
}

impl SharedLog for NatsLog {
    fn position_epoch(&self) -> u64 {
        names::position_epoch(&self.settings.namespace)
    }

    fn publish_timeout(&self) -> Duration {
        self.settings.publish_timeout
    }

    fn run(self: Box<Self>, proposals: mpsc::Receiver<Proposal>, heard: mpsc::Sender<Heard>) {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => {
                let error = ClusterError::Runtime(error);
                tracing::error!(%error, "the shared log cannot begin");
                return;
            }
        };
        runtime.block_on(async {
            let node = NodeState::new(self.settings, self.random, (heard, self.named));
            let ring = ServerRing::new(self.servers, self.random);
            let Stopped = tokio::select! {
                stopped = intake::run(&node, proposals) => stopped,
                stopped = visit(&node, ring) => stopped,
            };
        });
        // A request that is being resolved must not hold up the end of the process.
        runtime.shutdown_background();
    }
}

/// Connects to one server after the other and works with each as long as it can.
async fn visit(node: &NodeState, mut ring: ServerRing) -> Stopped {
    let mut failures: u32 = 0;
    loop {
        // Another one each time, so that one that hangs is tried again after all others.
        let end = match servers::connect_next(&node.settings, &mut ring).await {
            Ok(connection) => {
                failures = 0;
                let server = &connection.server;
                let info = connection.client.server_info();
                ring.discover(&info.connect_urls);
                let name = &info.server_name;
                tracing::info!(server = %shown(server), %name, version = %info.version, "connected to the shared log");
                let was_searching = node.is_searching();
                let end = session::run(node, &connection).await;
                if let SessionEnd::Leave(reason) = &end {
                    node.metrics.left.increment(1);
                    let server = shown(server);
                    // Said once, and not of each server that is tried while the log has no leader.
                    match was_searching {
                        true => tracing::debug!(%server, %reason, "left a server of the shared log"),
                        false => tracing::warn!(%server, %reason, "left a server of the shared log"),
                    }
                }
                end
            }
            // Credentials that are refused may be put right on the server, so they are tried again, too.
            Err(error) => {
                if failures == 0 {
                    tracing::warn!(%error, "no server of the shared log answers");
                }
                failures = failures.saturating_add(1);
                SessionEnd::Lost
            }
        };
        let told = match end {
            SessionEnd::Stopped => Err(Stopped),
            SessionEnd::Leave(_) => node.tell_untold().await,
            SessionEnd::Lost => node.tell_health(LogHealth::Disconnected).await,
        };
        if let Err(stopped) = told {
            return stopped;
        }
        if failures > 0 {
            tokio::time::sleep(spread(50, 500)).await;
        }
    }
}
