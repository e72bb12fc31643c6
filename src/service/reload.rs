//! Reads the configuration again on SIGHUP, while the service runs; the rules and tokens in it also when its
//! file changes.
//!
//! Only the sinks, the rules and the static tokens change then, and the files of TLS are read again. Other
//! keys that differ are named in the log, as they take effect at the next start; a file with mistakes
//! changes nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::Signal;
use tracing::{error, info, warn};

use crate::auth::ConfiguredBorder;
use crate::config::{Config, ConfigError};
use crate::file_watch::{FileStamps, Looks};
use crate::http::Tls;
use crate::sink::Sinks;

use super::supervisor::Supervisor;

/// The lists of the configuration that are read again.
const SINKS: [&str; 3] = ["journal", "webhook", "debug_log"];

/// The lists of sections that are read again.
const REPLACED: [&str; 2] = ["auth.rule", "auth.token"];

/// Time for a sink that is removed to write the notices in its queue.
const DETACH_TIMEOUT: Duration = Duration::from_secs(5);

/// The time between two looks at the configuration file. It is read once two looks have found it the same, so
/// that one which is being written is not.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Reads the configuration again, from the same file, environment and command line as at the start.
#[derive(Clone)]
pub struct Reload {
    load: Arc<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>,
    file: PathBuf,
}

impl Reload {
    /// Calls `load` on each SIGHUP, and when `file` has changed.
    pub fn new(
        file: impl Into<PathBuf>,
        load: impl Fn() -> Result<Config, ConfigError> + Send + Sync + 'static,
    ) -> Reload {
        Reload {
            load: Arc::new(load),
            file: file.into(),
        }
    }

    /// Reads the configuration; none if it cannot be used, which the log tells.
    async fn read(&self) -> Option<Config> {
        // On a thread of its own: the file may be on a disk that does not answer.
        let load = self.load.clone();
        match tokio::task::spawn_blocking(move || load()).await {
            Ok(Ok(read)) => return Some(read),
            Ok(Err(error)) => {
                for mistake in &error.mistakes {
                    error!(error = %mistake, "the configuration cannot be used; nothing was changed");
                }
            }
            Err(error) => error!(%error, "the configuration could not be read; nothing was changed"),
        }
        None
    }
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reload(…)")
    }
}

/// The configuration file, and its state when it was read last.
struct WatchedFile {
    file: PathBuf,
    read: FileStamps,
}

impl WatchedFile {
    async fn look(&self) -> FileStamps {
        let file = self.file.clone();
        // On a thread of its own: the file may be on a disk that does not answer.
        let looked = tokio::task::spawn_blocking(move || FileStamps::at([file.as_path()]));
        // A look that failed is like one at a file that is gone for a moment.
        looked.await.unwrap_or_default()
    }

    /// Waits until the file is another one than was read last, and rests.
    async fn changed(&mut self) {
        let mut looks = Looks::default();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = self.look().await;
            let is_there = now.are_all_there();
            // One that is gone is being replaced. It is not read, as the defaults would take its place.
            if looks.is_due(now.clone(), &self.read) && is_there {
                self.read = now;
                return;
            }
        }
    }
}

/// The parts in front of the listeners that are read again.
pub(super) struct Reloaded {
    pub(super) tls: Option<Tls>,
    pub(super) border: ConfiguredBorder,
}

/// The parts that are replaced while the service runs, and the configuration that they have.
pub(super) struct Kept {
    sinks: Sinks,
    front: Reloaded,
    config: Config,
}

impl Kept {
    pub(super) fn new(sinks: Sinks, front: Reloaded, config: Config) -> Kept {
        Kept { sinks, front, config }
    }

    /// Holds the sinks, and replaces them on each signal by those of the configuration as it is then. Has the
    /// files of TLS read again first.
    pub(super) async fn keep(mut self, hangup: Option<(Signal, Reload)>, supervisor: Supervisor) {
        let Some((mut hangup, reload)) = hangup else {
            // Returning would drop the sinks, which detaches them.
            return std::future::pending().await;
        };
        let mut watched = WatchedFile {
            file: reload.file.clone(),
            read: FileStamps::default(),
        };
        watched.read = watched.look().await;
        loop {
            let is_signal = tokio::select! {
                received = hangup.recv() => match received {
                    Some(()) => true,
                    None => return,
                },
                () = watched.changed() => false,
            };
            if !is_signal {
                self.follow_file(&reload).await;
                continue;
            }
            supervisor.reloading().await;
            // Seen before it is read, so that this change is not read a second time, and a later one is.
            watched.read = watched.look().await;
            let is_used = self.reload(&reload).await;
            supervisor.reloaded(is_used).await;
        }
    }

    /// Takes the rules and tokens of a file that has changed. Sinks wait for the signal: their files and
    /// receivers are an operator's business.
    async fn follow_file(&self, reload: &Reload) {
        if let Some(read) = reload.read().await
            && replace_border(&self.front.border, &read).await
        {
            info!(file = %reload.file.display(), "the configuration file has changed; its rules and tokens are in use");
            warn_of_restart(&self.config, &read);
            let before = &self.config;
            if (&before.journal, &before.webhook, &before.debug_log)
                != (&read.journal, &read.webhook, &read.debug_log)
            {
                warn!("the sinks of the file are others; they take effect with SIGHUP");
            }
        }
    }

    /// Reads everything again that is replaced on a signal. Returns false if the configuration cannot be
    /// used.
    async fn reload(&mut self, reload: &Reload) -> bool {
        if let Some(tls) = &self.front.tls {
            tls.reload().await;
        }
        let Some(read) = reload.read().await else {
            return false;
        };
        if !replace_border(&self.front.border, &read).await
            || !replace_sinks(&mut self.sinks, &self.config, &read).await
        {
            return false;
        }
        self.config = read;
        true
    }
}

/// Replaces the rules and the tokens by those of `read`. Returns false if they cannot be used and nothing was
/// changed.
async fn replace_border(border: &ConfiguredBorder, read: &Config) -> bool {
    let border = border.clone();
    let auth = read.auth.clone();
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
    warn_of_restart(before, read);
    true
}

/// Returns the keys that have other values in `after`, apart from the sinks.
fn keys_for_restart(before: &Config, after: &Config) -> Vec<String> {
    let before = values(before);
    let mut after = values(after);
    after.retain(|path, value| before.get(path) != Some(value) && !REPLACED.contains(&path.as_str()));
    after.into_keys().collect()
}

/// Warns of the keys that have changed and are not in use.
fn warn_of_restart(before: &Config, read: &Config) {
    let waiting = keys_for_restart(before, read);
    if !waiting.is_empty() {
        warn!(keys = %waiting.join(", "), "these keys have changed and take effect at the next start");
    }
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
