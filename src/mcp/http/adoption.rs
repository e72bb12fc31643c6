//! The take-over of a session from another node.
//!
//! The record is taken under the condition that it is the one that was read, so of several nodes one has the
//! session. Then its former owner is asked what it has told; it tells nothing more after its answer.

use std::sync::Arc;
use std::time::Duration;

use ::http::request::Parts;
use rmcp::ErrorData;
use serde_json::value::RawValue;

use super::endpoint::EndpointState;
use super::reply::{self, Refusal};
use super::served::EndpointServer;
use super::sessions::HeldBySession;
use super::shared_sessions::SharedSessions;
use crate::auth::Caller;
use crate::http::{Counted, Exceeded, Place};
use crate::mcp::error;
use crate::mcp::session::{McpSession, SessionLifetime};
use crate::mcp::session_record::{RecordHead, SessionRecord};
use crate::mcp::session_records::RecordError;
use crate::mcp::shared_session::{SharedSession, now};
use crate::shared_log::offset_of_record;
use crate::{EndReason, Position};

/// The tries to take a session that other nodes take at the same time.
const TRIES: u32 = 16;

/// The pause before the second of them; it grows with each.
const PAUSE: Duration = Duration::from_millis(10);

/// The time for which a node that is behind the former owner waits until it has caught up.
const CATCH_UP_MAX: Duration = Duration::from_secs(5);

/// The time between two looks at that.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The characters of a session's id.
const ID_LEN: usize = 32;

/// The reason for which a session was not taken over.
enum NotTaken {
    /// There is none, or none of this caller.
    Unknown,
    /// The records are not reached.
    Unavailable(String),
    /// The caller has reached a limit.
    Exceeded(Exceeded),
    /// The bus is full or stopping.
    Refused(ErrorData),
}

impl From<RecordError> for NotTaken {
    fn from(error: RecordError) -> NotTaken {
        NotTaken::Unavailable(error.to_string())
    }
}

impl NotTaken {
    fn refusal(self, id: Option<&RawValue>) -> Refusal {
        let refusal = match self {
            NotTaken::Unknown => reply::session_not_found(id, None),
            NotTaken::Unavailable(problem) => reply::session_unavailable(id, &problem),
            NotTaken::Exceeded(exceeded) => reply::too_many_requests(id, exceeded),
            NotTaken::Refused(refusal) => reply::session_unavailable(id, &refusal.message),
        };
        refusal.into()
    }
}

/// A session that was opened here to go on with one of another node.
struct OpenedHere {
    session: Arc<McpSession>,
    place: Option<Place>,
}

impl<S: EndpointServer> EndpointState<S> {
    /// Takes a session over that this node does not have.
    ///
    /// # Errors
    /// The refusal of a request whose session no node has, or that cannot be taken now.
    pub(super) async fn adopt(
        &self,
        shared: &SharedSessions,
        key: &str,
        parts: &Parts,
        id: Option<&RawValue>,
    ) -> Result<Arc<McpSession>, Refusal> {
        // No session has such an id, so no server needs to be asked.
        if key.len() != ID_LEN || !key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NotTaken::Unknown.refusal(id));
        }
        let turn = shared.turn(key);
        let _turn = turn.lock().await;
        // Another request may have brought it meanwhile, also one of another principal.
        match self.sessions.get(key, Caller::of(&parts.extensions)) {
            Ok(session) => return Ok(session),
            Err(Some(EndReason::Moved)) => self.sessions.forget(key),
            Err(_) if self.sessions.has(key) => return Err(NotTaken::Unknown.refusal(id)),
            Err(_) => {}
        }
        // Behind the turn, so that many requests of one session take one place.
        let _place = shared.move_place().await;
        let taken = self.take(shared, key, parts).await;
        taken.map_err(|problem| problem.refusal(id))
    }

    async fn take(
        &self,
        shared: &SharedSessions,
        key: &str,
        parts: &Parts,
    ) -> Result<Arc<McpSession>, NotTaken> {
        let mut opened = None;
        for number in 0..TRIES {
            // A write of another node that is under way refuses all others until it is decided.
            tokio::time::sleep(PAUSE * number).await;
            let Some(stored) = shared.place.records.load(key).await? else {
                return Err(NotTaken::Unknown);
            };
            let Some(record) = SessionRecord::read(&stored.value) else {
                tracing::warn!("the record of a session has another form; update all nodes to one version");
                return Err(NotTaken::Unknown);
            };
            // Before anything is written: a request of another principal moves nothing.
            if record.principal.as_deref() != principal_of(Caller::of(&parts.extensions)) {
                return Err(NotTaken::Unknown);
            }
            let own = match opened.take() {
                Some(own) => own,
                None => self.open_like(&record, parts).await?,
            };
            let next = record.taken_by(shared.owner(), now());
            let records = &shared.place.records;
            let written = records
                .write(key, next.text(), Some(stored.revision), shared.place.ttl)
                .await;
            match written {
                Ok(revision) => return self.go_on(shared, key, own, (record, next, revision)).await,
                // Another node was faster, and this one takes the session from there.
                Err(RecordError::Conflict) => opened = Some(own),
                Err(error) => return Err(error.into()),
            }
        }
        Err(NotTaken::Unavailable(
            "other nodes take the session at the same time".to_owned(),
        ))
    }

    /// Opens a session like the one of a record, with its place in all limits.
    async fn open_like(&self, record: &SessionRecord, parts: &Parts) -> Result<OpenedHere, NotTaken> {
        let revision = record.revision().ok_or(NotTaken::Unknown)?;
        let place = self.limits.session(&Counted::of(&parts.extensions));
        let place = place.map_err(NotTaken::Exceeded)?;
        let caller = match Caller::of(&parts.extensions) {
            Some(caller) => caller.clone(),
            None => self.server.caller.next_request(),
        };
        let age = Duration::from_secs(now().saturating_sub(record.opened));
        let lifetime = SessionLifetime::Resumed { age };
        let opened = self
            .server
            .open_session(revision, lifetime, &caller, &record.client)
            .await;
        let session = opened.map_err(NotTaken::Refused)?;
        // Before any request: a tool that is called next may log.
        session.log_threshold.set_place(record.level);
        Ok(OpenedHere { session, place })
    }

    /// Goes on with a session whose record this node has taken: `before` it was another node's.
    async fn go_on(
        &self,
        shared: &SharedSessions,
        key: &str,
        opened: OpenedHere,
        (before, taken, revision): (SessionRecord, SessionRecord, u64),
    ) -> Result<Arc<McpSession>, NotTaken> {
        let OpenedHere { session, place } = opened;
        let (told, is_sure) = shared.told_before(key, &before, taken.generation).await;
        // Else a change that the client was told of there would be told again when it is heard here.
        self.has_applied(told.position).await;
        let resumed = session.session.resume(told.resources, is_sure).await;
        resumed.map_err(|closed| NotTaken::Refused(error::stopping(closed)))?;
        if taken.is_ready {
            let resumed = session.session.resume_lists(told.lists, is_sure).await;
            resumed.map_err(|closed| NotTaken::Refused(error::stopping(closed)))?;
        }
        let head = RecordHead {
            revision: session.revision,
            client: taken.client.clone(),
            principal: taken.principal.clone(),
            opened: taken.opened,
            owner: taken.owner.clone(),
            generation: taken.generation,
            moves: taken.moves,
        };
        let state = SharedSession::new(key, head, &shared.place, revision, taken.is_ready);
        let state = session.shared.get_or_init(|| state);
        self.sessions
            .insert_as(key, session.clone(), HeldBySession::new(place, &session));
        // The record still says what the former owner had told, and names it.
        state.save_soon(&session);
        shared.count_move(taken.moves.count);
        Ok(session)
    }

    /// Waits until this node has applied the log up to a position of another node. Returns false if it has
    /// not within some seconds, or if there is no such position.
    pub(super) async fn has_applied(&self, position: Position) -> bool {
        let offset = offset_of_record(position.offset);
        let begin = tokio::time::Instant::now();
        loop {
            let log = self.server.bus.log_state();
            let Some(applied) = log.and_then(|log| log.applied_offset()) else {
                return true;
            };
            if applied >= offset {
                return true;
            }
            if begin.elapsed() >= CATCH_UP_MAX {
                return false;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Returns the principal that a session of this caller belongs to; none where the service has no border.
pub(super) fn principal_of(caller: Option<&Caller>) -> Option<&str> {
    let caller = caller?;
    caller.border().map(|_| caller.principal().id())
}
