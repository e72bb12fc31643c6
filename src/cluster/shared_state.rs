//! The state that the nodes of a cluster share beside the log: who is there, who does which task, and how far
//! it got. Entries are few and small, are written under a condition, and may end by themselves.
//!
//! It has a stream of its own, so that its writes take no place in the order of changes. No part of a change
//! waits for it.

mod key;
mod entries;
mod questions;
mod upkeep;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use entries::HeardEntries;
pub use entries::{HeardEntry, SharedEntry};
pub use key::{StateKey, StateKind};
use key::{StateNames, StateStream};
pub use questions::NodeQuestion;
use questions::Questions;

use super::error::ClusterError;
use super::names::LogNames;
use super::record_answer::RecordAnswer;
use super::servers::{REQUEST_TIMEOUT, ServerRing};
use super::settings::ClusterSettings;

/// The time for which a deleted entry is told to those that listen.
const TOLD_DELETED: Duration = Duration::from_secs(2);

/// The largest content of an entry in bytes.
const VALUE_LEN_MAX: usize = 64 << 10;

/// The condition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// None.
    Any,
    /// There is no entry.
    Absent,
    /// The entry has this revision.
    Revision(u64),
}

/// The reason for which the state was not read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The condition does not hold.
    #[error("another node was faster")]
    Conflict,
    /// No server answered. A write may have been made.
    #[error("the state of the cluster is not reached: {0}")]
    Unavailable(String),
    /// The servers refuse it.
    #[error("the state of the cluster cannot be written: {0}; check the limits of its stream")]
    Refused(String),
}

/// The state that the nodes of a cluster share. Clones share one connection, which ends with the last of
/// them.
#[derive(Clone)]
pub struct SharedState(Arc<Connected>);

impl std::fmt::Debug for SharedState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedState").finish_non_exhaustive()
    }
}

struct Connected {
    inner: Arc<Inner>,
    upkeep: JoinHandle<()>,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.upkeep.abort();
    }
}

struct Inner {
    settings: ClusterSettings,
    stream: StateStream,
    names: StateNames,
    /// Random for each start.
    boot: u32,
    /// The server that is asked; none while there is none.
    context: watch::Sender<Option<Context>>,
    entries: Mutex<HeardEntries>,
    /// Grows with each change of the entries.
    changes: watch::Sender<u64>,
    /// The failed requests since the last one that was answered.
    failures: AtomicU32,
    /// Told when a request failed.
    failed: Notify,
    /// The newest sequence number of the log, once it is known.
    head: watch::Sender<Option<u64>>,
    /// The questions of other nodes.
    questions: Questions,
}

impl SharedState {
    /// Connects, in the background, and goes on until the last clone is dropped. It must be called within a
    /// tokio runtime.
    ///
    /// # Errors
    /// [`ClusterError`] for settings that cannot be used, and for a system without random numbers.
    pub fn open(settings: ClusterSettings) -> Result<SharedState, ClusterError> {
        let boot = getrandom::u32().map_err(ClusterError::Random)?;
        SharedState::open_stream(settings, StateStream::Nodes, boot)
    }

    /// Connects to the state of sessions, for the start of a node that has this number.
    ///
    /// # Errors
    /// [`ClusterError`] for settings that cannot be used.
    pub fn open_sessions(settings: ClusterSettings, boot: u32) -> Result<SharedState, ClusterError> {
        SharedState::open_stream(settings, StateStream::Sessions, boot)
    }

    fn open_stream(
        settings: ClusterSettings,
        stream: StateStream,
        boot: u32,
    ) -> Result<SharedState, ClusterError> {
        settings.check()?;
        let servers = settings.server_addresses()?;
        let inner = Arc::new(Inner {
            names: StateNames::new(&settings.namespace, stream),
            stream,
            settings,
            boot,
            context: watch::Sender::default(),
            entries: Mutex::default(),
            changes: watch::Sender::default(),
            failures: AtomicU32::new(0),
            failed: Notify::new(),
            head: watch::Sender::default(),
            questions: Questions::default(),
        });
        // A connection of its own: leases are renewed also while the log is read from its beginning.
        let ring = ServerRing::new(servers, boot);
        let upkeep = tokio::spawn(upkeep::run(inner.clone(), ring));
        Ok(SharedState(Arc::new(Connected { inner, upkeep })))
    }

    /// Returns a number that is random for each start.
    pub fn boot(&self) -> u32 {
        self.0.inner.boot
    }

    /// Returns the name of this node.
    pub fn node(&self) -> &str {
        self.0.inner.settings.node_name()
    }

    pub(super) fn namespace(&self) -> &str {
        &self.0.inner.settings.namespace
    }

    pub(super) fn settings(&self) -> &ClusterSettings {
        &self.0.inner.settings
    }

    /// Returns the connection, once there is one.
    ///
    /// # Errors
    /// [`StateError::Unavailable`].
    pub(super) async fn context(&self) -> Result<Context, StateError> {
        self.0.inner.context().await
    }

    /// Returns the copies that the servers keep of each record; none before the log is made.
    ///
    /// # Errors
    /// [`StateError::Unavailable`].
    pub async fn log_replicas(&self) -> Result<Option<usize>, StateError> {
        let context = self.context().await?;
        let names = LogNames::new(self.namespace());
        match context.get_stream(&names.records).await {
            Ok(log) => Ok(Some(log.cached_info().config.num_replicas)),
            Err(error) if upkeep::is_missing(&error.kind()) => Ok(None),
            Err(error) => Err(StateError::Unavailable(error.to_string())),
        }
    }

    /// Returns the newest sequence number of the log as of the last look, which is every 2 s.
    pub fn head(&self) -> Option<u64> {
        *self.0.inner.head.borrow()
    }

    /// Returns the entry of a key as it was heard, which may be late.
    pub fn heard(&self, key: &StateKey) -> Option<HeardEntry> {
        self.0.inner.entries().get(key)
    }

    /// Returns the entries of a kind that were heard within `age`, by name.
    pub fn heard_of(&self, kind: StateKind, age: Duration) -> Vec<(String, HeardEntry)> {
        self.0.inner.entries().of_kind(kind, age, Instant::now())
    }

    /// Returns a receiver that is told when an entry was heard.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.inner.changes.subscribe()
    }

    /// Reads an entry from the leader, so that it is the newest.
    ///
    /// # Errors
    /// [`StateError::Unavailable`].
    pub async fn load(&self, key: &StateKey) -> Result<Option<SharedEntry>, StateError> {
        let found = self.0.inner.last(key).await?;
        Ok(found.filter(|entry| !entry.value.is_empty()))
    }

    /// Writes an entry, which ends by itself after `ttl`, counted in whole seconds. Returns its revision.
    ///
    /// # Errors
    /// [`StateError`].
    pub async fn write(
        &self,
        key: &StateKey,
        value: Bytes,
        expected: Expected,
        ttl: Option<Duration>,
    ) -> Result<u64, StateError> {
        if value.is_empty() || value.len() > VALUE_LEN_MAX {
            let len = value.len();
            return Err(StateError::Refused(format!(
                "an entry of {len} bytes, of {VALUE_LEN_MAX} at most"
            )));
        }
        let inner = &self.0.inner;
        let first = inner.publish(key, value.clone(), expected, ttl).await;
        if expected != Expected::Absent || first != Err(StateError::Conflict) {
            return first;
        }
        // A deleted entry leaves a mark for a while, which stands for none.
        match inner.last(key).await? {
            Some(mark) if mark.value.is_empty() => {
                inner
                    .publish(key, value, Expected::Revision(mark.revision), ttl)
                    .await
            }
            _ => first,
        }
    }

    /// Deletes an entry. Deleting none is no error.
    ///
    /// # Errors
    /// [`StateError`].
    pub async fn delete(&self, key: &StateKey, expected: Expected) -> Result<(), StateError> {
        let inner = &self.0.inner;
        let deleted = inner
            .publish(key, Bytes::new(), expected, Some(TOLD_DELETED))
            .await;
        deleted.map(|_revision| ())
    }
}

impl Inner {
    fn entries(&self) -> std::sync::MutexGuard<'_, HeardEntries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection, which is waited for as long as a request may take.
    async fn context(&self) -> Result<Context, StateError> {
        let mut context = self.context.subscribe();
        let connected = context.wait_for(Option::is_some);
        match tokio::time::timeout(REQUEST_TIMEOUT, connected).await {
            // It may be gone again since it was there.
            Ok(Ok(context)) => match &*context {
                Some(context) => Ok(context.clone()),
                None => Err(StateError::Unavailable("no server is connected".to_owned())),
            },
            _ => Err(StateError::Unavailable("no server is connected".to_owned())),
        }
    }

    /// Returns the last entry of a key, which may be the mark of a deleted one.
    async fn last(&self, key: &StateKey) -> Result<Option<SharedEntry>, StateError> {
        let context = self.context().await?;
        let stream = context.get_stream_no_info(&self.names.stream).await;
        let stream = stream.map_err(|error| self.failed(error.to_string()))?;
        match stream
            .get_last_raw_message_by_subject(&self.names.subject(key))
            .await
        {
            Ok(message) => {
                self.answered();
                Ok(Some(SharedEntry {
                    value: message.payload,
                    revision: message.sequence,
                }))
            }
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {
                self.answered();
                Ok(None)
            }
            Err(error) => Err(self.failed(error.to_string())),
        }
    }

    async fn publish(
        &self,
        key: &StateKey,
        value: Bytes,
        expected: Expected,
        ttl: Option<Duration>,
    ) -> Result<u64, StateError> {
        // Taken for each request: the connection may be another one than for the last.
        let context = self.context().await?;
        let mut headers = HeaderMap::new();
        let revision = match expected {
            Expected::Any => None,
            Expected::Absent => Some(0),
            Expected::Revision(revision) => Some(revision),
        };
        if let Some(revision) = revision {
            headers.insert(
                async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE,
                revision.to_string(),
            );
        }
        if let Some(ttl) = ttl {
            headers.insert(
                async_nats::header::NATS_MESSAGE_TTL,
                ttl.as_secs().max(1).to_string(),
            );
        }
        // Not by the context, whose acknowledgements hide some of the codes of the server.
        let client = context.client();
        let sent = client.request_with_headers(self.names.subject(key), headers, value);
        let answered: Message = match tokio::time::timeout(REQUEST_TIMEOUT, sent).await {
            Ok(Ok(message)) => message,
            Ok(Err(error)) => return Err(self.failed(error.to_string())),
            Err(_late) => return Err(self.failed("no answer in time".to_owned())),
        };
        match RecordAnswer::of(&answered) {
            RecordAnswer::Stored { sequence, .. } => {
                self.answered();
                Ok(sequence)
            }
            RecordAnswer::Conflict { .. } | RecordAnswer::InProcess => {
                self.answered();
                Err(StateError::Conflict)
            }
            RecordAnswer::Refused { reason, .. } => Err(StateError::Refused(reason)),
            RecordAnswer::Unavailable => Err(self.failed("its stream has no leader".to_owned())),
        }
    }

    fn answered(&self) {
        // A server that answers at all is as good as another one, whatever it says.
        self.failures.store(0, Ordering::Relaxed);
    }

    fn failed(&self, problem: String) -> StateError {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.failed.notify_one();
        StateError::Unavailable(problem)
    }
}
