//! The requests of a session that change its record. They are answered when the record is written, so that an
//! answered subscription survives the node.

use std::sync::Arc;

use ::http::request::Parts;
use ::http::{HeaderValue, StatusCode};

use super::adoption::principal_of;
use super::endpoint::EndpointState;
use super::reply::{self, Answer, Refusal};
use super::served::EndpointServer;
use super::sessions::{self, HeldBySession};
use super::shared_sessions::SharedSessions;
use crate::ResourceUri;
use crate::auth::Caller;
use crate::http::Place;
use crate::mcp::error;
use crate::mcp::peek::Peek;
use crate::mcp::session::McpSession;
use crate::mcp::session_record::{RecentMoves, RecordHead};
use crate::mcp::shared_session::{SaveProblem, now};

impl<S: EndpointServer> EndpointState<S> {
    /// Adds a session that `initialize` opened, with its record. Returns its id, which is that of the
    /// server's part of it, if there is one.
    ///
    /// # Errors
    /// The refusal where the record cannot be written, or no id be made.
    pub(super) async fn add_session(
        &self,
        parts: &Parts,
        peek: &Peek<'_>,
        session: &Arc<McpSession>,
        (place, kept): (Option<Place>, Option<HeaderValue>),
    ) -> Result<String, Refusal> {
        let key = match kept.as_ref().map(HeaderValue::to_str) {
            Some(Ok(key)) => key.to_owned(),
            _ => sessions::new_id().map_err(|error| {
                let text = format!("no session id could be made: {error}");
                Refusal::from(reply::internal_error(&text))
            })?,
        };
        if let Some(shared) = &self.shared
            && let Err(problem) = begin_record(shared, &key, parts, peek, session).await
        {
            // The client gets no id, so the session would be left behind until its idle time-out.
            session.session.end();
            return Err(reply::session_unavailable(peek.id(), &problem).into());
        }
        let mut held = HeldBySession::new(place, session);
        held.server = self.served.keep_session(&key);
        self.sessions.insert_as(&key, session.clone(), held);
        Ok(key)
    }

    /// Writes the record of a session whose subscriptions a request may have changed, before its answer.
    pub(super) async fn with_record(
        &self,
        session: &Arc<McpSession>,
        peek: &Peek<'_>,
        answer: Answer,
    ) -> Answer {
        let Some(shared) = session.shared.get() else {
            return answer;
        };
        match shared.save(session, false).await {
            Ok(()) => answer,
            Err(SaveProblem::TooLarge) => {
                take_back(session, peek).await;
                let refusal = error::invalid_params(error::RECORD_FULL);
                reply::error(peek.id(), StatusCode::OK, &refusal)
            }
            Err(SaveProblem::Moved) => {
                let text = "another node took the session over meanwhile; repeat the request";
                reply::session_unavailable(peek.id(), text)
            }
            Err(SaveProblem::Unavailable(problem)) => {
                // The subscription is there all the same, and the client is told to repeat the request.
                session.save_soon();
                reply::session_unavailable(peek.id(), &problem)
            }
        }
    }

    /// Notes in the record that the client takes notifications.
    pub(super) async fn note_ready(&self, session: &Arc<McpSession>) {
        let Some(shared) = session.shared.get() else {
            return;
        };
        shared.set_ready();
        if let Err(problem) = shared.save(session, false).await {
            // Not an error of the notification, for which clients have no use.
            tracing::debug!(?problem, "the record of a session is written later");
            session.save_soon();
        }
    }
}

/// Ends the subscription that has no room in the record.
async fn take_back(session: &McpSession, peek: &Peek<'_>) {
    let Some((_, uri)) = peek.used_right() else {
        return;
    };
    if let Ok(uri) = ResourceUri::new(&uri)
        && session.session.unsubscribe(uri).await.is_err()
    {
        tracing::debug!("a session ended while a subscription was taken back");
    }
}

async fn begin_record(
    shared: &SharedSessions,
    key: &str,
    parts: &Parts,
    peek: &Peek<'_>,
    session: &Arc<McpSession>,
) -> Result<(), String> {
    let head = RecordHead {
        revision: session.revision,
        client: peek.client_name(),
        principal: principal_of(Caller::of(&parts.extensions)).map(str::to_owned),
        opened: now(),
        owner: shared.owner().clone(),
        generation: 1,
        moves: RecentMoves::default(),
    };
    match shared.begin(key, session, head).await {
        Ok(state) => {
            session.shared.get_or_init(|| state);
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}
