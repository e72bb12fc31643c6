//! The configuration of the service and the options of its parts: one plain struct per section.
//!
//! The structs are values that the parts take as they are; their fields carry documentation, range and
//! default. Loading them from a TOML file, the environment and the command line is the job of `load` and the
//! modules below it.

mod http;
mod session;
mod bus;
mod mcp;
mod workspace;
mod collections;
mod sinks;
mod telemetry;
mod bounded;
mod names;
#[cfg(feature = "service")]
mod load;

pub use bus::{BusConfig, ShutdownConfig, StoreConfig};
pub use collections::{CollectionConfig, FilterConfig, ViewConfig};
pub use http::{EventsConfig, HttpConfig, WsConfig};
#[cfg(feature = "service")]
pub use load::{ConfigError, Mistake, Overrides, Place};
pub use mcp::{CacheScope, McpConfig};
pub use session::SessionConfig;
pub use sinks::{DebugLogConfig, FsyncPolicy, JournalConfig, SinkClass, SinkOverflow, WebhookConfig};
pub use telemetry::{LogConfig, LogFormat, MetricsConfig};
pub use workspace::{RegisterConfig, ToolsConfig, WorkspaceConfig};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The configuration in use; `docs/configuration.md` explains each key.
///
/// `Config::load`, which the feature `service` adds, returns one that is checked in full. Deserializing
/// checks each value alone, and setting fields by hand checks nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The listener: its address, the hosts and origins it admits, and its timeouts.
    pub http: HttpConfig,
    /// Connected MCP clients, and the limits of each.
    pub session: SessionConfig,
    /// The limits of the bus, and of the changes that wait to enter it.
    pub bus: BusConfig,
    /// The presentation of the server, its lists and its tools to MCP clients.
    pub mcp: McpConfig,
    /// The folder whose files are served, and the way files are watched.
    pub workspace: WorkspaceConfig,
    /// The tools of that folder: executables that clients call.
    pub tools: ToolsConfig,
    /// The executable `register` of that folder, which prints further registrations.
    pub register: RegisterConfig,
    /// The durable store, in which versions outlive the process.
    pub store: StoreConfig,
    /// The streams of `GET /v1/events` and the history they read from.
    pub events: EventsConfig,
    /// The connections of `GET /v1/ws`.
    pub ws: WsConfig,
    /// The log: the events in it, and their form.
    pub log: LogConfig,
    /// The metrics for Prometheus, and the address that serves them.
    pub metrics: MetricsConfig,
    /// The end of the service.
    pub shutdown: ShutdownConfig,
    /// JSON files whose items are served.
    pub collection: Vec<CollectionConfig>,
    /// JSON-lines files to which every notice is appended.
    #[schemars(extend("x-reloaded" = true))]
    pub journal: Vec<JournalConfig>,
    /// Receivers of signed POST requests.
    #[schemars(extend("x-reloaded" = true))]
    pub webhook: Vec<WebhookConfig>,
    /// Logs of the steps of notices.
    #[schemars(extend("x-reloaded" = true))]
    pub debug_log: Vec<DebugLogConfig>,
}
