//! Reads the configuration again on SIGHUP, while the service runs.
//!
//! Only the sinks, the rules and the static tokens change then, and the files of TLS are read again. Other keys
//! that differ are named in the log, as they take effect at the next start; a file with mistakes changes
//! nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::Signal;
use tracing::{error, info, warn};

use crate::auth::ConfiguredBorder;
use crate::config::{Config, ConfigError};
use crate::http::Tls;
use crate::sink::Sinks;

/// The lists of the configuration that are read again.
const SINKS: [&str; 3] = ["journal", "webhook", "debug_log"];

/// The lists of sections that are read again.
const REPLACED: [&str; 2] = ["auth.rule", "auth.token"];

/// Time for a sink that is removed to write the notices in its queue.
const DETACH_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the configuration again, from the same file, environment and command line as at the start.
#[derive(Clone)]
pub struct Reload(Arc<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>);

impl Reload {
    /// Calls `load` on each SIGHUP.
    pub fn new(load: impl Fn() -> Result<Config, ConfigError> + Send + Sync + 'static) -> Reload {
        Reload(Arc::new(load))
    }
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reload(…)")
    }
}

/// The parts in front of the listeners that are read again.
pub(super) struct Reloaded {
    pub(super) tls: Option<Tls>,
    pub(super) border: ConfiguredBorder,
}

/// Holds the sinks, and replaces them on each signal by those of the configuration as it is then. Has the
/// files of TLS read again first.
pub(super) async fn keep(
    mut sinks: Sinks,
    front: Reloaded,
    mut config: Config,
    hangup: Option<(Signal, Reload)>,
) {
    let Some((mut hangup, reload)) = hangup else {
        // Returning would drop the sinks, which detaches them.
        return std::future::pending().await;
    };
    while hangup.recv().await.is_some() {
        if let Some(tls) = &front.tls {
            tls.reload().await;
        }
        // On a thread of its own: the file may be on a disk that does not answer.
        let load = reload.0.clone();
        match tokio::task::spawn_blocking(move || load()).await {
            Ok(Ok(read)) => {
                if replace_border(&front.border, &read).await
                    && replace_sinks(&mut sinks, &config, &read).await
                {
                    config = read;
                }
            }
            Ok(Err(error)) => {
                for mistake in &error.mistakes {
                    error!(error = %mistake, "the configuration cannot be used; nothing was changed");
                }
            }
            Err(error) => error!(%error, "the configuration could not be read; nothing was changed"),
        }
    }
}

/// Replaces the rules and the tokens by those of `read`. Returns false if they cannot be used and nothing was
/// changed.
async fn replace_border(border: &ConfiguredBorder, read: &Config) -> bool {
    let (border, auth) = (border.clone(), read.auth.clone());
    // On a thread of its own: token files may be on a disk that does not answer.
    match tokio::task::spawn_blocking(move || border.follow(&auth)).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            error!(%error, "the section [auth] cannot be used; nothing was changed");
            false
        }
        Err(error) => {
            error!(%error, "the section [auth] could not be read; nothing was changed");
            false
        }
    }
}

/// Replaces the sinks by those of `read`. Returns false if it cannot be used and nothing was changed.
async fn replace_sinks(sinks: &mut Sinks, before: &Config, read: &Config) -> bool {
    let changes = match sinks.follow(read, DETACH_TIMEOUT).await {
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
    let waiting = keys_for_restart(before, read);
    if !waiting.is_empty() {
        warn!(keys = %waiting.join(", "), "these keys have changed and take effect at the next start");
    }
    true
}

/// Returns the keys that have other values in `after`, apart from the sinks.
fn keys_for_restart(before: &Config, after: &Config) -> Vec<String> {
    let before = values(before);
    let mut after = values(after);
    after.retain(|path, value| before.get(path) != Some(value) && !REPLACED.contains(&path.as_str()));
    after.into_keys().collect()
}

/// Returns the values of all keys by their paths. A list of tables stands as a whole: its tables have no
/// fixed paths.
fn values(config: &Config) -> BTreeMap<String, Value> {
    let mut values = BTreeMap::new();
    let sections = serde_json::to_value(config).expect("sections hold plain values, which JSON can carry");
    for (section, value) in sections.as_object().into_iter().flatten() {
        match value {
            Value::Object(keys) => {
                let keys = keys
                    .iter()
                    .map(|(key, value)| (format!("{section}.{key}"), value.clone()));
                values.extend(keys);
            }
            _ if SINKS.contains(&section.as_str()) => {}
            list => {
                values.insert(section.clone(), list.clone());
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CollectionConfig, JournalConfig, RuleConfig};

    #[test]
    fn keys_that_changed_are_named() {
        let before = Config::default();
        let mut after = before.clone();
        assert_eq!(keys_for_restart(&before, &after), [""; 0]);
        after.http.connections_max += 1;
        after.log.level = "debug".to_owned();
        after.session.max += 1;
        after.journal = vec![JournalConfig::default()];
        after.auth.rule = vec![RuleConfig::default()];
        after.collection = vec![CollectionConfig::default()];
        assert_eq!(
            keys_for_restart(&before, &after),
            ["collection", "http.connections_max", "log.level", "session.max"]
        );
    }
}
