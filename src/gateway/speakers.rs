//! The connections that are a single client's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rmcp::{ErrorData, RoleServer, service::RequestContext};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::capabilities;
use super::connect::connect;
use super::connection::UpstreamConnection;
use super::failure::UpstreamFailure;
use super::introduction::Introduction;
use super::known_lists::KnownLists;
use super::own_speaker::OwnSpeaker;
use super::upstream::Upstream;
use crate::mcp::caller_beside;
use crate::metrics::UpstreamMetrics;

/// Connections of clients at once. A call that needs one more is refused: another client's would show it
/// that client's state.
const SPEAKERS_MAX: usize = 200;

/// Connections of one named principal.
const PER_PRINCIPAL_MAX: usize = 8;

/// Connections that wait for the next call of a client without a session, and the time for which they do.
const IDLE_MAX: usize = 16;
const IDLE_TIME: Duration = Duration::from_secs(60);

/// A client, as far as two calls may share a connection: of one principal, with the same capabilities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientKey {
    /// The principal; none for a caller without a name.
    pub(super) principal: Option<String>,
    capabilities: String,
}

impl ClientKey {
    pub(super) fn of(context: &RequestContext<RoleServer>) -> ClientKey {
        let client = capabilities::client_of(context);
        ClientKey {
            principal: principal_of(context),
            // A client whose capabilities cannot be written has none in common with others.
            capabilities: serde_json::to_string(&client.capabilities).unwrap_or_default(),
        }
    }
}

/// Returns the principal of a request; none for a caller without a name.
pub(super) fn principal_of(context: &RequestContext<RoleServer>) -> Option<String> {
    match caller_beside(&context.extensions) {
        Some(caller) if !caller.principal().is_anonymous() => Some(caller.principal().id().to_owned()),
        _ => None,
    }
}

/// A connection that is a single client's.
pub(super) struct Speaker {
    pub(super) connection: Arc<UpstreamConnection>,
    /// The client that it was opened for.
    key: ClientKey,
    _place: SpeakerPlace,
}

/// A place for a connection, given back when dropped.
struct SpeakerPlace {
    principal: Option<String>,
    counts: Arc<Mutex<HashMap<String, usize>>>,
    metrics: Arc<UpstreamMetrics>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for SpeakerPlace {
    fn drop(&mut self) {
        self.metrics.speakers.decrement(1);
        if let Some(principal) = &self.principal {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(count) = counts.get_mut(principal) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(principal);
                }
            }
        }
    }
}

struct IdleSpeaker {
    speaker: Speaker,
    since: Instant,
}

/// The connections of all clients.
pub(super) struct Speakers {
    places: Arc<Semaphore>,
    counts: Arc<Mutex<HashMap<String, usize>>>,
    /// The longest idle first.
    idle: Mutex<Vec<IdleSpeaker>>,
    /// Those of clients with a session.
    own: Mutex<Vec<Weak<OwnSpeaker>>>,
    /// The time without a call after which these are closed.
    idle_time: Duration,
    metrics: Arc<UpstreamMetrics>,
}

impl Speakers {
    pub(super) fn new(metrics: Arc<UpstreamMetrics>, idle_time: Duration) -> Speakers {
        Speakers {
            places: Arc::new(Semaphore::new(SPEAKERS_MAX)),
            counts: Arc::default(),
            idle: Mutex::default(),
            own: Mutex::default(),
            idle_time,
            metrics,
        }
    }

    /// The number of connections that are open, or about to be.
    pub(super) fn count(&self) -> usize {
        SPEAKERS_MAX - self.places.available_permits()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<IdleSpeaker>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a connection; an idle connection makes room.
    fn place(&self, principal: Option<String>) -> Option<SpeakerPlace> {
        // The clients that wait for nothing now give way to one that has a call.
        let permit = match self.places.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let mut idle = self.idle();
                if idle.is_empty() {
                    return None;
                }
                drop(idle.remove(0));
                self.places.clone().try_acquire_owned().ok()?
            }
        };
        if let Some(principal) = &principal {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            let count = counts.entry(principal.clone()).or_default();
            // One principal must not keep all others out.
            if *count == PER_PRINCIPAL_MAX {
                return None;
            }
            *count += 1;
        }
        self.metrics.speakers.increment(1);
        Some(SpeakerPlace {
            principal,
            counts: self.counts.clone(),
            metrics: self.metrics.clone(),
            _permit: permit,
        })
    }

    /// Opens a connection for a client.
    ///
    /// # Errors
    /// The limit is reached, or the server cannot be reached in this way.
    pub(super) async fn open(
        &self,
        upstream: &Upstream,
        key: ClientKey,
        caller: Introduction,
    ) -> Result<Speaker, ErrorData> {
        // Before the process is started, so that a crowd of clients starts no more than there are places.
        let Some(place) = self.place(key.principal.clone()) else {
            return Err(UpstreamFailure::TooManySpeakers.answer());
        };
        match connect(upstream, &caller).await {
            Ok(connection) => Ok(Speaker {
                connection: Arc::new(connection),
                key,
                _place: place,
            }),
            Err(error) => {
                tracing::debug!(%error, "a connection for a client could not be made");
                Err(UpstreamFailure::Unavailable.answer())
            }
        }
    }

    /// Returns an idle connection of a client of this kind.
    pub(super) fn take_idle(&self, key: &ClientKey) -> Option<Speaker> {
        let mut idle = self.idle();
        loop {
            // The newest: the others may then stay idle until they are closed.
            let index = idle.iter().rposition(|entry| entry.speaker.key == *key)?;
            let found = idle.remove(index).speaker;
            if !found.connection.lost().is_set() {
                return Some(found);
            }
        }
    }

    /// Returns the connection that the next call of a client of this kind would take.
    pub(super) fn idle_connection(&self, key: &ClientKey) -> Option<Arc<UpstreamConnection>> {
        let idle = self.idle();
        let mut newest_first = idle.iter().rev();
        let next =
            newest_first.find(|entry| entry.speaker.key == *key && !entry.speaker.connection.lost().is_set());
        next.map(|entry| entry.speaker.connection.clone())
    }

    /// Keeps a connection for the next call of a client of its kind.
    pub(super) fn give_back(&self, speaker: Speaker) {
        // A connection that has ended would only hold a place until its next client finds that out.
        if speaker.connection.lost().is_set() {
            return;
        }
        let mut idle = self.idle();
        if idle.len() == IDLE_MAX {
            drop(idle.remove(0));
        }
        let since = Instant::now();
        idle.push(IdleSpeaker { speaker, since });
    }

    /// Makes the place of a client's own connection, which is closed while the client makes no call.
    pub(super) fn register(&self, lists: KnownLists) -> Arc<OwnSpeaker> {
        let own = OwnSpeaker::new(lists);
        let mut all = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::downgrade(&own));
        own
    }

    /// Closes connections that have been idle for long.
    pub(super) fn close_idle(&self) {
        self.idle().retain(|entry| entry.since.elapsed() < IDLE_TIME);
        // Those of sessions that have ended are forgotten.
        let mut all = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|own| own.strong_count() > 0);
        let all: Vec<Arc<OwnSpeaker>> = all.iter().flat_map(Weak::upgrade).collect();
        for own in all {
            own.close_if_idle(self.idle_time);
        }
    }
}
