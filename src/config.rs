//! The configuration of the service and the options of its parts: one plain struct per section.
//!
//! The structs are values that the parts take as they are. A key is declared in one place: a line of `table!`
//! with its type, default and rule, below its documentation. `load` reads them from a TOML file, the
//! environment and the command line, and takes the rest from the JSON Schema of the structs.

mod http;
mod bus;
mod cluster;
mod mcp;
mod workspace;
mod collections;
mod sinks;
mod auth;
mod gateway;
mod bounded;
#[cfg(feature = "service")]
mod load;

pub use auth::{
    Anonymous, AuditConfig, AuthConfig, AuthTokenConfig, CertificateConfig, IssuerConfig, RuleConfig,
};
pub use bus::{BusConfig, ShutdownConfig, StoreConfig};
pub use cluster::{ClusterConfig, ClusterEngine, ClusterRead, ClusterSessions};
pub use collections::{CollectionConfig, FilterConfig, ViewConfig};
pub use gateway::{GatewayConfig, ToolPinning, UpstreamConfig, UpstreamIsolation};
pub use http::{EventsConfig, HttpConfig, PageConfig, PageEnabled, QuotaConfig, TlsConfig, WsConfig};
#[cfg(feature = "service")]
pub use load::{ConfigError, Mistake, Overrides, Place};
pub use mcp::{CacheScope, McpConfig, SessionConfig};
pub use sinks::{DebugLogConfig, FsyncPolicy, JournalConfig, LogConfig, LogFormat, MetricsConfig};
pub use sinks::{SinkClass, SinkOverflow, WebhookConfig};
pub use workspace::{RegisterConfig, ToolsConfig, WorkspaceConfig};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The configuration in use; `docs/configuration.md` explains each key.
///
/// `Config::load`, which the feature `service` adds, returns one that is checked in full. Deserializing
/// checks each value alone, and setting fields by hand checks nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "each section is described at its type")]
pub struct Config {
    pub http: HttpConfig,
    pub session: SessionConfig,
    pub bus: BusConfig,
    pub mcp: McpConfig,
    pub workspace: WorkspaceConfig,
    pub tools: ToolsConfig,
    pub register: RegisterConfig,
    pub store: StoreConfig,
    pub cluster: ClusterConfig,
    pub gateway: GatewayConfig,
    pub events: EventsConfig,
    pub ws: WsConfig,
    pub page: PageConfig,
    pub tls: TlsConfig,
    pub log: LogConfig,
    pub metrics: MetricsConfig,
    pub auth: AuthConfig,
    pub quota: QuotaConfig,
    pub audit: AuditConfig,
    pub shutdown: ShutdownConfig,
    /// JSON files whose items are served.
    pub collection: Vec<CollectionConfig>,
    /// JSON-lines files to which every notice is appended.
    pub journal: Vec<JournalConfig>,
    /// Receivers of signed POST requests.
    pub webhook: Vec<WebhookConfig>,
    /// Logs of the steps of notices.
    pub debug_log: Vec<DebugLogConfig>,
}
