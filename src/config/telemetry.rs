//! The log and the metrics.

use super::bounded::{Address, Checked, OrNone, Text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The log: the events in it, and their form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// Filter directives such as `info` or `warn,tidings=debug`.
    #[serde(with = "Checked::<Text<1, 4096>>")]
    pub level: String,
    /// One line of text, or one JSON object, per event.
    pub format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            level: "info".to_owned(),
            format: LogFormat::Text,
        }
    }
}

/// Form of one logged event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object for programs.
    Json,
}

/// The metrics for Prometheus, and the address that serves them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Collects metrics for Prometheus and serves them as `/metrics`.
    pub enabled: bool,
    /// Address that serves `/metrics` alone; empty serves it on `http.listen`.
    /// At the limit: An address other machines can reach needs `http.allowed_hosts`, or the service does not
    /// start.
    #[serde(with = "Checked::<OrNone<Address>>")]
    pub listen: Option<SocketAddr>,
}

impl Default for MetricsConfig {
    fn default() -> MetricsConfig {
        MetricsConfig {
            enabled: true,
            listen: None,
        }
    }
}
