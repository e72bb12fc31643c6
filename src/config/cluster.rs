//! The cluster: the engine that gives the changes of several nodes one order, and the place of this node in
//! it.

use super::bounded::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// The engine that orders the changes of several nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClusterEngine {
    /// None: this node is alone.
    #[default]
    #[serde(rename = "")]
    None,
    /// NATS JetStream.
    #[serde(rename = "nats")]
    Nats,
}

/// The node that may answer the requests of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClusterSessions {
    /// The one that opened it; another one answers 404, and the client initializes anew.
    Sticky,
    /// Any; the node that gets a request takes the session over.
    #[default]
    Resume,
}

/// The state from which a node answers reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClusterRead {
    /// What this node has applied.
    #[default]
    Applied,
    /// What the log had when the request came; the node asks its leader first.
    Latest,
}

table! { ClusterConfig = "Several nodes with one order of changes. Without an engine, this node is alone.";
    /// The engine that orders the changes; empty for a node that is alone. Excludes `store.dir`, since the
    /// engine keeps the changes. The program needs the feature `nats`.
    engine: ClusterEngine = ClusterEngine::default();
    /// Addresses of its servers; the node takes one, and another when that fails.
    urls: Vec<String> = Vec::new(), "Checked::<List<BrokerUrl, 0, 64>>";
    /// Name of the cluster: nodes with the same one share all resources.
    namespace: String = String::from("default"), "Checked::<Namespace>";
    /// Servers that keep each change. Used when the first node of a cluster makes its streams; others find
    /// them made.
    replicas: usize = 3, "Checked::<Count<1, 5>>";
    /// Name of this node, which no other node may have; empty takes the first part of the
    /// host name.
    node: Option<String> = None, "Checked::<OrNone<NodeName>>";
    /// File with a JWT and its nkey seed, as `nsc generate creds` writes it. A relative path starts at the
    /// folder of the configuration file.
    #[schemars(extend("x-path" = "read"))]
    credentials: Option<PathBuf> = None, "Checked::<OrNone<File>>";
    /// User of the servers.
    user: Option<String> = None, "Checked::<OrNone<Text<0, 256>>>";
    /// File with the password of that user. A relative path starts at the folder of the configuration file.
    #[schemars(extend("x-path" = "read"))]
    password_file: Option<PathBuf> = None, "Checked::<OrNone<File>>";
    /// File with a token of the servers, in place of user and password. A relative path starts at the folder
    /// of the configuration file.
    #[schemars(extend("x-path" = "read"))]
    token_file: Option<PathBuf> = None, "Checked::<OrNone<File>>";
    /// PEM file with the authorities of the servers' certificates; empty takes those of the system. A
    /// relative path starts at the folder of the configuration file.
    #[schemars(extend("x-path" = "read"))]
    tls_ca: Option<PathBuf> = None, "Checked::<OrNone<File>>";
    /// PEM file with the certificate of this node. A relative path starts at the folder of the configuration
    /// file.
    #[schemars(extend("x-path" = "read"))]
    tls_cert: Option<PathBuf> = None, "Checked::<OrNone<File>>";
    /// PEM file with the private key of that certificate. A relative path starts at the folder of the
    /// configuration file.
    #[schemars(extend("x-path" = "read"))]
    tls_key: Option<PathBuf> = None, "Checked::<OrNone<File>>";
    /// Changes of this node that the engine has not answered.
    /// At the limit: Further ones wait behind them, and publishers with them.
    in_flight_max: usize = 256, "Checked::<Count<1, 4096>>";
    /// Time for the answer to a change, also while the servers choose a leader.
    /// At the limit: The change gets 503 and may have been made or not; it can be repeated.
    publish_timeout: Duration = Duration::from_secs(10), "Checked::<Time<SECOND, { 5 * MINUTE }>>";
    /// Silence of the log between two signs of life.
    /// At the limit: After two of them without a sign the log is read anew from where it stood.
    heartbeat: Duration = Duration::from_millis(500), "Checked::<Time<100, { 30 * SECOND }>>";
    /// Time without a leader after which the node looks for another server; further ones get half a second.
    leave_after: Duration = Duration::from_secs(3), "Checked::<Time<SECOND, MINUTE>>";
    /// Largest body within a record of the log; a larger one is kept in parts beside it, which takes one more
    /// step to write and to read.
    inline_bytes_max: usize = 64 << 10, "Checked::<Bytes<KIB, { 512 * KIB }>>";
    /// Size of the log and of its bodies on each server.
    /// At the limit: Changes are refused with 507, and reads go on.
    max_bytes: u64 = GIB, "Checked::<Bytes<{ 16 * MIB }, { 1024 * GIB }>>";
    /// Time after which a body that is kept beside the log is removed, when no record of the log has named it
    /// since. Longer than a change may take on any node.
    sweep_after: Duration = Duration::from_secs(600), "Checked::<Time<SECOND, { 24 * HOUR }>>";
    /// The node that may answer the requests of a session of revisions before 2026-07-28: any, which takes
    /// the session over with its subscriptions, or the one that opened it, to which a balancer must send
    /// them.
    sessions: ClusterSessions = ClusterSessions::default();
    /// The state from which reads are answered: what this node has applied, or what the log had when the
    /// request came, for which it asks the leader of the log. That costs a round trip, which reads share.
    /// At the limit: After 5 s without an answer, or behind the log, `latest` gets 503 and can be repeated.
    read: ClusterRead = ClusterRead::default();
    /// Addresses of the servers' monitoring (`http_port`), from which the node reads whether they sync every
    /// change to the disk; empty leaves that unknown.
    monitoring: Vec<String> = Vec::new(), "Checked::<List<HttpUrl, 0, 64>>";
    /// Starts only if the servers are known to keep every answered change through a loss of power: three
    /// replicas, `sync_interval: always`, version 2.15 or later. Otherwise the log warns.
    require_durable: bool = false;
}

#[cfg(feature = "service")]
impl ClusterConfig {
    /// Returns true if the changes of this node are ordered by an engine.
    pub(crate) fn is_on(&self) -> bool {
        self.engine != ClusterEngine::None
    }
}
