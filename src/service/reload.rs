//! Reads the configuration again on SIGHUP, while the service runs.
//!
//! Only the sinks change then. Other keys that differ are named in the log, as they take effect at the next
//! start; a file with mistakes changes nothing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;
use tracing::{error, info, warn};

use crate::config::{Config, ConfigError};
use crate::sink::Sinks;

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

/// Holds the sinks, and replaces them on each signal by those of the configuration as it is then.
pub(super) async fn keep(mut sinks: Sinks, mut config: Config, hangup: Option<(Signal, Reload)>) {
    let Some((mut hangup, reload)) = hangup else {
        // Returning would drop the sinks, which detaches them.
        return std::future::pending().await;
    };
    while hangup.recv().await.is_some() {
        // On a thread of its own: the file may be on a disk that does not answer.
        let load = reload.0.clone();
        match tokio::task::spawn_blocking(move || load()).await {
            Ok(Ok(read)) => {
                if replace_sinks(&mut sinks, &config, &read).await {
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
    let waiting = before.keys_for_restart(read);
    if !waiting.is_empty() {
        warn!(keys = %waiting.join(", "), "these keys have changed and take effect at the next start");
    }
    true
}
