//! GET and DELETE: the streams of sessions, and their ends. 2026-07-28 has neither.

use ::http::HeaderMap;
use ::http::header::ACCEPT;
use ::http::request::Parts;

use super::endpoint::EndpointState;
use super::headers::{self, EVENT_STREAM, LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID};
use super::outbox_stream::{OutboxStream, StreamOwner, follow_connection};
use super::own_messages::WithOwnMessages;
use super::reply::{self, Answer, Refusal};
use super::served::EndpointServer;
use crate::Position;
use crate::mcp::frames::{FrameFormat, event_ids};
use crate::mcp::revision::Revision;
use crate::mcp::session::McpSession;
use crate::metrics::{self, Limit};

/// The number of streams that one session may have open at once; a further GET is answered 409. More than
/// one, because a client may open its new stream before the server has noticed that the old one broke.
const STREAMS_PER_SESSION_MAX: usize = 4;

impl<S: EndpointServer> EndpointState<S> {
    /// Opens the stream of a session.
    pub(super) async fn get(&self, parts: &Parts) -> Result<Answer, Refusal> {
        check_version(&parts.headers)?;
        let accepts = headers::text(&parts.headers, &ACCEPT).unwrap_or_default();
        if !accepts.contains(EVENT_STREAM) && !accepts.contains("*/*") {
            return Err(reply::not_acceptable().into());
        }
        let session = self.session(parts, None).await?;
        if session.session.readers() >= STREAMS_PER_SESSION_MAX {
            metrics::limit_reached(Limit::StreamsOfSession);
            return Err(reply::too_many_streams_of_session(STREAMS_PER_SESSION_MAX).into());
        }
        let open = self.open_stream(None)?;
        let after = self.position_to_resume(parts, &session).await;
        let reader = session.session.reader();
        if let Some(position) = after {
            reader.resume_after(position);
        }
        follow_connection(&reader, parts);
        let format = FrameFormat::Session(session.revision, session.grant.clone());
        let first_frame = format.first_frame(reader.position());
        let owner = StreamOwner::Session(session);
        let stream = OutboxStream::new(reader, format, first_frame, owner, open);
        if S::KEEPS_SESSIONS
            && let Some(key) = headers::text(&parts.headers, &SESSION_ID)
            && let Some(messages) = self.served.own_messages(key)
        {
            let stream = WithOwnMessages::new(stream, messages);
            return Ok(reply::events(stream, parts.extensions.get()));
        }
        Ok(reply::events(stream, parts.extensions.get()))
    }

    /// Returns the position after which the client wants to go on; none if it names none.
    async fn position_to_resume(&self, parts: &Parts, session: &McpSession) -> Option<Position> {
        let id = headers::text(&parts.headers, &LAST_EVENT_ID)?;
        // An id that the server never sent proves nothing, so everything is sent again.
        let unknown = Position { epoch: 0, offset: 0 };
        let Some(position) = event_ids(session.grant.as_deref()).read(id) else {
            return Some(unknown);
        };
        // Another node may be ahead of this one. An id beyond the log is none of its history.
        match self.shared.is_none() || self.has_applied(position).await {
            true => Some(position),
            false => Some(unknown),
        }
    }

    /// Ends a session, on whichever node it is.
    pub(super) async fn delete(&self, parts: &Parts) -> Result<Answer, Refusal> {
        check_version(&parts.headers)?;
        let session = self.session(parts, None).await?;
        session.session.end();
        session.calls.cancel_all();
        // Removed at once, so that the next request learns the reason without waiting for a sweep.
        if let Some(key) = headers::text(&parts.headers, &SESSION_ID) {
            self.sessions.remove(key);
        }
        if let Some(shared) = session.shared.get()
            && let Err(error) = shared.delete().await
        {
            // The keeper of the records tries again.
            tracing::debug!(%error, "the record of an ended session is deleted later");
        }
        Ok(reply::no_content())
    }
}

/// Refuses a GET or DELETE whose revision has neither, or is unknown.
fn check_version(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(version) = headers.get(&PROTOCOL_VERSION) else {
        return Ok(());
    };
    let version = version.to_str().unwrap_or_default();
    match Revision::parse(version.trim()) {
        Some(revision) if revision.is_stateless() => Err(reply::post_only().into()),
        Some(_) => Ok(()),
        None => Err(reply::unknown_version(version).into()),
    }
}
