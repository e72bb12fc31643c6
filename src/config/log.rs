//! The log.

use super::bounded::{Checked, Text};
use serde::{Deserialize, Serialize};

/// The log: the events in it, and their form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "service", derive(schemars::JsonSchema))]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "service", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object for programs.
    Json,
}
