//! The log and the metrics.

use super::bounded::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

table! { LogConfig = "The log: the events in it, and their form.";
    /// Filter directives such as `info` or `warn,tidings=debug`.
    level: String = "info".to_owned(), "Checked::<Text<1, 4096>>";
    /// One line of text, or one JSON object, per event.
    format: LogFormat = LogFormat::Text;
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

table! { MetricsConfig = "The metrics for Prometheus, and the address that serves them.";
    /// Collects metrics for Prometheus and serves them as `/metrics`.
    enabled: bool = true;
    /// Address that serves `/metrics` alone; empty serves it on `http.listen`.
    /// At the limit: An address other machines can reach needs `http.allowed_hosts`, or the service does not
    /// start.
    listen: Option<SocketAddr> = None, "Checked::<OrNone<Address>>";
}
