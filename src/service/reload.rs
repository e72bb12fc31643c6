//! Reading the configuration again while the service runs: SIGHUP.
//!
//! Owns: the attached sinks, which alone change then; whatever else changed in the file is named in the log, as waiting
//! for a restart. Never: ends the service; a file that is wrong changes nothing. Started by the service, which ends
//! this after the bus has handed everything over.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::Signal;
use tracing::{error, info, warn};

use crate::config::{Config, ConfigError};
use crate::sink::Sinks;

/// How long a sink that goes may take to write what it has been handed.
const DETACH_PATIENCE: Duration = Duration::from_secs(5);

/// The keys that take effect without a restart.
const SINKS: [&str; 3] = ["journal", "webhook", "debug_log"];

/// Reads the configuration again, from where it came from the first time.
#[derive(Clone)]
pub struct Reload(Arc<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>);

impl Reload {
    /// What `load` answers is what is configured from then on.
    pub fn new(load: impl Fn() -> Result<Config, ConfigError> + Send + Sync + 'static) -> Reload {
        Reload(Arc::new(load))
    }
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reload(…)")
    }
}

/// Keeps the sinks as the configuration has them, reading it again on each signal.
pub(super) async fn keep(mut sinks: Sinks, mut config: Config, following: Option<(Signal, Reload)>) {
    let Some((mut hangup, reload)) = following else {
        return std::future::pending().await;
    };
    while hangup.recv().await.is_some() {
        // A thread of its own, since the file may stand on a disk that does not answer.
        let load = reload.0.clone();
        match tokio::task::spawn_blocking(move || load()).await {
            Ok(Ok(read)) => {
                if follow(&mut sinks, &config, &read).await {
                    config = read;
                }
            }
            Ok(Err(error)) => {
                error!(error = %with_cause(&error), "the configuration cannot be used; nothing was changed");
            }
            Err(error) => error!(%error, "the configuration could not be read; nothing was changed"),
        }
    }
}

/// False when nothing was changed.
async fn follow(sinks: &mut Sinks, before: &Config, read: &Config) -> bool {
    let changes = match sinks.follow(read, DETACH_PATIENCE).await {
        Ok(changes) => changes,
        Err(error) => {
            error!(%error, "the configuration cannot be used; nothing was changed");
            return false;
        }
    };
    info!(attached = ?changes.attached, detached = ?changes.detached, "the configuration was read again");
    for (subscriber, error) in &changes.failed {
        error!(%subscriber, %error, "a sink could not be attached");
    }
    let waiting = changed(before, read);
    if !waiting.is_empty() {
        warn!(keys = %waiting.join(", "), "these keys have changed and take effect at the next start");
    }
    true
}

/// An error and what it came from.
fn with_cause(error: &ConfigError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The keys outside of the sinks whose values differ.
fn changed(before: &Config, after: &Config) -> Vec<String> {
    let values =
        |config| serde_json::to_value(config).expect("sections hold plain values, which JSON can carry");
    let (before, after): (Value, Value) = (values(before), values(after));
    let mut keys = Vec::new();
    for (section, value) in after.as_object().into_iter().flatten() {
        let old = &before[section];
        if SINKS.contains(&section.as_str()) || old == value {
            continue;
        }
        match value.as_object() {
            Some(fields) => keys.extend(
                fields
                    .iter()
                    .filter(|(name, value)| old[name.as_str()] != **value)
                    .map(|(name, _)| format!("{section}.{name}")),
            ),
            None => keys.push(section.clone()),
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_changed_are_named() {
        let before = Config::default();
        let mut after = before.clone();
        assert_eq!(changed(&before, &after), [""; 0]);
        after.http.connections_max += 1;
        after.log.level = "debug".to_owned();
        after.session.max += 1;
        assert_eq!(
            changed(&before, &after),
            ["http.connections_max", "log.level", "session.max"]
        );
    }
}
