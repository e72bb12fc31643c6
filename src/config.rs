//! The configuration of the service and the options of its parts: one plain struct per section.
//!
//! The structs are values that the parts take as they are; their fields carry documentation, range and default.
//! Loading them from a TOML file, the environment and the command line is the job of `load` and the modules below it.

mod http;
mod session;
mod bus;
mod mcp;
mod workspace;
mod collections;
mod sinks;
mod log;
mod bounded;
mod syntax;
mod names;
mod units;
#[cfg(feature = "service")]
mod schema;
#[cfg(feature = "service")]
mod load;
#[cfg(feature = "service")]
mod document;
#[cfg(feature = "service")]
mod environment;
#[cfg(feature = "service")]
mod hint;
#[cfg(feature = "service")]
mod print;
#[cfg(feature = "service")]
mod error;
#[cfg(feature = "service")]
#[cfg(test)]
mod tests;

pub use bus::{BusConfig, ShutdownConfig, StoreConfig};
pub use collections::{CollectionConfig, FilterConfig, FilterTest, ViewConfig, ViewKind};
#[cfg(feature = "service")]
pub use error::{ConfigError, Mistake, Place};
pub use http::{EventsConfig, HttpConfig, MetricsConfig, WsConfig};
pub use log::{LogConfig, LogFormat};
pub use mcp::{CacheScope, McpConfig};
pub use session::SessionConfig;
pub use sinks::{DebugLogConfig, FsyncPolicy, JournalConfig, SinkClass, SinkOverflow, WebhookConfig};
#[cfg(any(feature = "service", feature = "workspace"))]
pub(crate) use units::{size, time};
pub use workspace::{RegisterConfig, ToolsConfig, WorkspaceConfig};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
#[cfg(feature = "service")]
use std::path::Path;
use std::path::PathBuf;

/// The configuration in use; `docs/configuration.md` explains each key.
///
/// [`Config::load`] returns one that is checked in full. Deserializing checks each value alone, and setting fields by
/// hand checks nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The listener: its address, the hosts and origins it admits, and its timeouts.
    pub http: HttpConfig,
    /// Connected MCP clients, and the limits of each.
    pub session: SessionConfig,
    /// The limits of the bus, and of the changes that wait to enter it.
    pub bus: BusConfig,
    /// The server, its lists and its tools, as MCP clients are told of them.
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
    /// The numbers for Prometheus, and the address that shows them.
    pub metrics: MetricsConfig,
    /// The end of the service.
    pub shutdown: ShutdownConfig,
    /// JSON files whose items are served.
    pub collection: Vec<CollectionConfig>,
    /// JSON-lines files that are told of every change.
    #[schemars(extend("x-reloaded" = true))]
    pub journal: Vec<JournalConfig>,
    /// Receivers of signed POST requests.
    #[schemars(extend("x-reloaded" = true))]
    pub webhook: Vec<WebhookConfig>,
    /// Logs of the steps of notices.
    #[schemars(extend("x-reloaded" = true))]
    pub debug_log: Vec<DebugLogConfig>,
}

/// Values that the caller, usually a command line, sets over file and environment; `None` leaves a key alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// `http.listen`.
    pub listen: Option<SocketAddr>,
    /// `workspace.dir`.
    pub workspace_dir: Option<PathBuf>,
    /// `store.dir`.
    pub data_dir: Option<PathBuf>,
    /// `log.level`.
    pub log_level: Option<String>,
}

impl Config {
    /// Reads and checks the configuration: defaults, over them the file, the environment, the overrides.
    ///
    /// `env` is usually the part of `std::env::vars_os` that is UTF-8; variables of other programs are ignored.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, a key or variable that does not exist, a value of the wrong type or out
    /// of range, and values that do not go together: all of them at once. The text of each names key, value, place
    /// and the allowed values.
    #[cfg(feature = "service")]
    pub fn load(
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        overrides: &Overrides,
    ) -> Result<Config, ConfigError> {
        load::load(file, env, overrides)
    }

    /// The whole configuration as a TOML file with a comment per key.
    ///
    /// Loading the text yields this configuration again, provided it came out of [`Config::load`]; values that
    /// no file can have (parts of a millisecond, paths outside UTF-8) are printed as near as possible.
    #[cfg(feature = "service")]
    pub fn to_toml(&self) -> String {
        print::toml(self)
    }

    /// The JSON Schema (2020-12) of the file: description, default and range of each key.
    #[cfg(feature = "service")]
    pub fn json_schema() -> String {
        print::json_schema()
    }

    /// The keys whose values differ in `after`, apart from those that take effect without a restart.
    #[cfg(feature = "service")]
    pub(crate) fn keys_for_restart(&self, after: &Config) -> Vec<String> {
        schema::keys_for_restart(self, after)
    }
}
