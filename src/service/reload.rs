//! Reading the configuration again while the service runs: SIGHUP.
//!
//! Owns: the attached sinks, which alone change then; whatever else changed in the file is named in the log, as waiting
//! for a restart. Never: ends the service; a file that is wrong changes nothing. Started by the service, which ends
//! this after the bus has handed everything over.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;
use tracing::{error, info, warn};

use crate::config::{Config, ConfigError};
use crate::sink::Sinks;

/// How long a sink that goes may take to write what it has been handed.
const DETACH_PATIENCE: Duration = Duration::from_secs(5);

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
                for mistake in error.mistakes() {
                    error!(error = %mistake, "the configuration cannot be used; nothing was changed");
                }
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
    let waiting = before.keys_for_restart(read);
    if !waiting.is_empty() {
        warn!(keys = %waiting.join(", "), "these keys have changed and take effect at the next start");
    }
    true
}
