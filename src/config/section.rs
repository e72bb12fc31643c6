//! The configuration as used: one struct per section, one field per key of the table in `key`.
//!
//! These are plain values for the parts of the service, which receive their section in their constructor.
//! Ranges and defaults are not repeated here: a value that came out of `Config::load` is within them, and
//! `docs/configuration.md` lists them. Nothing here reads a file or a variable.

use super::{Config, address, folder, time};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The listener.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// Address to accept connections on; loopback, unless `allowed_hosts` is not empty.
    pub listen: SocketAddr,
    /// Hosts besides the loopback ones: lower case, no port, IPv6 in brackets. Others get 403.
    pub allowed_hosts: Vec<String>,
    /// Origins besides the loopback ones: lower case, no port where it is the scheme's own. Others get 403.
    pub allowed_origins: Vec<String>,
    /// Largest request body in bytes. A larger one gets 413.
    pub body_bytes_max: usize,
    /// Open connections. Further ones are closed at once and counted.
    pub connections_max: usize,
    /// Time to send the headers of a request. A slower connection is closed.
    #[serde(with = "time")]
    pub header_timeout: Duration,
    /// Interval of comments on an idle stream.
    #[serde(with = "time")]
    pub keep_alive: Duration,
    /// Time a write to a stream may make no progress. Then the stream is closed.
    #[serde(with = "time")]
    pub write_timeout: Duration,
    /// `TCP_NOTSENT_LOWAT` of streams, in bytes.
    pub not_sent_low_water: usize,
}

/// Connected MCP clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionConfig {
    /// Sessions at a time. Beyond, `initialize` and `subscriptions/listen` get an error with status 503.
    pub max: usize,
    /// Subscriptions of one session or listen stream. Beyond, an error names the limit.
    pub subscriptions_max: usize,
    /// Life of a session with neither stream nor request. Its next request gets 404.
    #[serde(with = "time")]
    pub idle_timeout: Duration,
    /// Time a session or listen stream with a stream open may take nothing of what waits for it; zero is for ever.
    #[serde(with = "time")]
    pub stall_timeout: Duration,
    /// Greatest age of a session or listen stream; zero is none. Each ends up to a tenth earlier.
    #[serde(with = "time")]
    pub age_max: Duration,
    /// Sessions and listen streams of one address; 0 is no limit. Beyond, 429.
    pub per_peer_max: usize,
    /// Whether a fresh session is told once of every list that is not empty.
    pub announce_on_connect: bool,
    /// Open streams in all. Beyond, 503.
    pub streams_max: usize,
}

/// What the bus keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusConfig {
    /// Permits of the door. Without a free one, publishers wait.
    pub in_flight_max: usize,
    /// Registered resources. Beyond, a registration is refused.
    pub resources_max: usize,
    /// Largest body of one resource in bytes. A larger one is refused, over HTTP with 413.
    pub body_bytes_max: usize,
    /// Tools, prompts and templates, each. Beyond, a registration is refused.
    pub list_items_max: usize,
    /// Shards; 0 means one per core, 64 at most.
    pub shards: usize,
    /// Removed URIs with a version of their own. Beyond, the oldest share a floor.
    pub removed_max: usize,
}

/// What MCP clients are told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpConfig {
    /// Items on one page of a list.
    pub page_size: usize,
    /// The `ttlMs` hint of revision 2026-07-28.
    #[serde(with = "time")]
    pub ttl: Duration,
    /// The `cacheScope` hint of revision 2026-07-28.
    pub cache_scope: CacheScope,
    /// Ceiling of the wait in `wait_for_resource_change`. Longer wishes are cut to it.
    #[serde(with = "time")]
    pub wait_max: Duration,
    /// Items of one `get_resource_etags` or `wait_for_resource_change` call. Beyond, a tool error.
    pub items_max: usize,
    /// Name of the server.
    pub name: String,
    /// Instructions for models; empty sends none.
    pub instructions: String,
}

/// Who may keep a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheScope {
    /// Only the cache of the user who asked.
    Private,
    /// Any cache on the way.
    Public,
}

/// The folder whose files are served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceConfig {
    /// The folder, or none. Whether it exists is for the source to find out.
    #[serde(with = "folder")]
    pub dir: Option<PathBuf>,
    /// Scheme of its URIs, in lower case.
    pub scheme: String,
    /// Quiet time after an event before the folder is read.
    #[serde(with = "time")]
    pub debounce: Duration,
    /// Longest wait while a burst goes on; at least `debounce`.
    #[serde(with = "time")]
    pub debounce_max: Duration,
    /// Interval of readings without any event.
    #[serde(with = "time")]
    pub rescan: Duration,
    /// Largest file in bytes. Larger ones are skipped and reported.
    pub file_bytes_max: u64,
    /// Files in all. Further ones are skipped and reported.
    pub files_max: usize,
    /// Whether names that start with a dot are served.
    pub hidden: bool,
    /// Largest file of a collection in bytes. A larger one is reported and not read.
    pub collection_bytes_max: u64,
    /// Items of one collection. A file with more is reported and not taken.
    pub collection_items_max: usize,
}

/// The tools of the folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolsConfig {
    /// Time of one call, unless the sidecar has another. Then its processes are killed.
    #[serde(with = "time")]
    pub timeout: Duration,
    /// Bytes one call may print. Then its processes are killed.
    pub output_bytes_max: u64,
    /// Calls that run at a time. Further ones wait, at most their timeout.
    pub concurrency_max: usize,
}

/// The executable `register` of the folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisterConfig {
    /// Pause between two runs.
    #[serde(with = "time")]
    pub refresh: Duration,
    /// Time of one run. Then it is killed and what it last printed stays.
    #[serde(with = "time")]
    pub timeout: Duration,
}

/// Where versions outlive the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreConfig {
    /// Folder of the durable store; none keeps versions in memory.
    #[serde(with = "folder")]
    pub dir: Option<PathBuf>,
}

/// The streams of `GET /v1/events`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsConfig {
    /// Events kept. Beyond, the oldest are forgotten, and who still wanted them is told.
    pub history_max: usize,
    /// Bytes of those events.
    pub history_bytes_max: usize,
    /// Open streams; 0 turns them off. Beyond, 503.
    pub streams_max: usize,
    /// Pause before a browser connects again.
    #[serde(with = "time")]
    pub retry: Duration,
}

/// The connections of `GET /v1/ws`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WsConfig {
    /// Open connections; 0 turns them off. Beyond, they are closed with code 1013.
    pub connections_max: usize,
    /// Largest message of a client in bytes. A larger one closes with code 1009.
    pub message_bytes_max: usize,
    /// Time to answer a ping. Then the connection is closed with code 1008.
    #[serde(with = "time")]
    pub pong_timeout: Duration,
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// Filter directives. Their syntax is checked by whoever installs the logger.
    pub level: String,
    /// Shape of one event.
    pub format: LogFormat,
}

/// Shape of one logged event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// A JSON object for programs.
    Json,
}

/// What is measured, and where it is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricsConfig {
    /// Whether numbers are kept for Prometheus and served as `/metrics`.
    pub enabled: bool,
    /// Address that serves `/metrics` alone; none serves it on that of `http`.
    #[serde(with = "address")]
    pub listen: Option<SocketAddr>,
}

/// How the service ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShutdownConfig {
    /// Time to deliver what is pending. What is left is dropped with a warning.
    #[serde(with = "time")]
    pub drain_timeout: Duration,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Config::default().http
    }
}

impl Default for SessionConfig {
    fn default() -> Self {
        Config::default().session
    }
}

impl Default for BusConfig {
    fn default() -> Self {
        Config::default().bus
    }
}

impl Default for McpConfig {
    fn default() -> Self {
        Config::default().mcp
    }
}

impl Default for WorkspaceConfig {
    fn default() -> Self {
        Config::default().workspace
    }
}

impl Default for ToolsConfig {
    fn default() -> Self {
        Config::default().tools
    }
}

impl Default for RegisterConfig {
    fn default() -> Self {
        Config::default().register
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Config::default().store
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Config::default().log
    }
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Config::default().metrics
    }
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        Config::default().shutdown
    }
}
