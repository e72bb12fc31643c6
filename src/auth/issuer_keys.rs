//! The keys of one issuer over time: fetched at the start, when they age, and when a token names one that is
//! not there.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use super::discovery;
use super::jwks::KeySet;
use crate::config::IssuerConfig;

/// The least time between two attempts to fetch the keys, whatever tokens come. A failed one counts.
const FETCH_INTERVAL: Duration = Duration::from_secs(30);
/// The time for an attempt with all its requests.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// The keys of one issuer. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(super) struct IssuerKeys(Arc<Shared>);

struct Shared {
    issuer: String,
    /// The address or the file of the keys; empty finds them by the metadata.
    jwks: String,
    /// False if the issuer may have no keys at all.
    needs_keys: bool,
    keys: RwLock<Arc<KeySet>>,
    /// Held by the one attempt that is under way.
    attempts: Arc<Mutex<Attempts>>,
    /// The runtime of the attempts, since the caller of one may be gone before its end.
    runtime: Handle,
}

/// Checks a file of keys. Blocks while it reads.
///
/// # Errors
/// The reason, for a person.
pub(super) fn check_file(path: &Path) -> Result<(), String> {
    let text = discovery::read_file_now(path)?;
    let read = KeySet::read(&text).map_err(|reason| format!("{}: {reason}", path.display()));
    read.map(|_| ())
}

#[derive(Default)]
struct Attempts {
    last: Option<Instant>,
    /// The reason of the last failure, so that each is reported once.
    failure: Option<String>,
}

impl Attempts {
    /// The time until the next attempt is allowed; nothing if it is allowed now.
    fn rest(&self) -> Option<Duration> {
        let rest = FETCH_INTERVAL.checked_sub(self.last?.elapsed())?;
        (!rest.is_zero()).then_some(rest)
    }
}

impl IssuerKeys {
    /// Begins with no keys. Must be called on a runtime, which makes the attempts.
    pub(super) fn new(config: &IssuerConfig) -> IssuerKeys {
        IssuerKeys(Arc::new(Shared {
            issuer: config.url.clone(),
            jwks: config.jwks.clone(),
            needs_keys: config.introspect.is_none(),
            keys: RwLock::default(),
            attempts: Arc::default(),
            runtime: Handle::current(),
        }))
    }

    /// Returns the keys as they are.
    pub(super) fn current(&self) -> Arc<KeySet> {
        self.0.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fetches the keys again, unless they are other ones than `seen` already or an attempt was made within
    /// the last 30 seconds. Calls at the same time share one attempt. Returns the keys as they are then.
    pub(super) async fn newer_than(&self, seen: &Arc<KeySet>) -> Arc<KeySet> {
        let attempts = self.0.attempts.clone().lock_owned().await;
        let current = self.current();
        if attempts.rest().is_some() || !Arc::ptr_eq(&current, seen) {
            return current;
        }
        let keys = self.clone();
        // A task of its own: a caller that leaves must not end the attempt that others wait for.
        let attempt = self.0.runtime.spawn(async move {
            let mut attempts = attempts;
            keys.attempt(&mut attempts).await;
        });
        if let Err(error) = attempt.await {
            warn!(%error, issuer = %self.0.issuer, "its keys could not be fetched");
        }
        self.current()
    }

    /// Fetches the keys now and whenever they have aged, until the last clone is dropped. An attempt that a
    /// token caused within the last 30 seconds counts.
    pub(super) fn keep_fresh(&self) {
        let kept: Weak<Shared> = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            loop {
                let Some(shared) = kept.upgrade() else {
                    return;
                };
                let keys = IssuerKeys(shared);
                let mut attempts = keys.0.attempts.clone().lock_owned().await;
                // A token that came first may have fetched them a moment ago.
                let age = match attempts.rest() {
                    Some(rest) => rest,
                    None => {
                        let age = keys.attempt(&mut attempts).await;
                        // A key that was made since then may be asked for at once. One that cannot be fetched
                        // waits.
                        if attempts.failure.is_none() {
                            attempts.last = None;
                        }
                        age
                    }
                };
                drop((attempts, keys));
                tokio::time::sleep(age).await;
            }
        });
    }

    /// Fetches the keys. Returns the time after which to fetch them again. The old ones stay if it fails.
    async fn attempt(&self, attempts: &mut Attempts) -> Duration {
        attempts.last = Some(Instant::now());
        let read = match tokio::time::timeout(FETCH_TIMEOUT, self.read()).await {
            Ok(read) => read,
            Err(_) => Err("there was no answer in time".to_owned()),
        };
        let issuer = &self.0.issuer;
        let (read, age) = match read {
            Ok(read) => read,
            Err(reason) => {
                if attempts.failure.as_ref() != Some(&reason) {
                    warn!(%issuer, %reason, "the keys of an issuer cannot be fetched; those from before stay");
                    attempts.failure = Some(reason);
                }
                return FETCH_INTERVAL;
            }
        };
        attempts.failure = None;
        let mut keys = self.0.keys.write().unwrap_or_else(PoisonError::into_inner);
        if !keys.is_same(&read) {
            info!(%issuer, "the keys of an issuer are others now");
            *keys = Arc::new(read);
        }
        age
    }

    async fn read(&self) -> Result<(KeySet, Duration), String> {
        let jwks = match self.0.jwks.is_empty() {
            false => self.0.jwks.clone(),
            true => {
                let metadata = discovery::metadata(&self.0.issuer).await?;
                match metadata.get("jwks_uri").and_then(Value::as_str) {
                    Some(uri) => uri.to_owned(),
                    None if !self.0.needs_keys => return Ok((KeySet::default(), discovery::AGE_MAX)),
                    None => return Err("its metadata names no jwks_uri".into()),
                }
            }
        };
        let is_file = !jwks.contains("://") && !self.0.jwks.is_empty();
        let document = match is_file {
            true => discovery::read_file(Path::new(&jwks)).await?,
            false => discovery::fetch(&jwks).await?,
        };
        let keys = KeySet::read(&document.text).map_err(|reason| format!("{jwks}: {reason}"))?;
        Ok((keys, document.age))
    }
}
