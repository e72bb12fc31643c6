//! The sessions of all clients of the older revisions, as rmcp's HTTP service asks for them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::{self, Empty};
use rmcp::ServerHandler;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, ServerJsonRpcMessage, ServerResult};
use rmcp::transport::common::server_side_http::{ServerSseMessage, SessionId, session_id};
use rmcp::transport::streamable_http_server::SessionManager;
use tokio::time::Instant;

use super::connection::SessionConnection;
use super::session::HandlerSession;
use crate::mcp::http::OwnMessages;

/// The time after which a session is forgotten that no session at the bus has begun to keep. The client of
/// such a one left during `initialize`.
const OPENING_MAX: Duration = Duration::from_secs(60);

/// The reason for which a session did not take a message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionFailure {
    /// It has ended or never was.
    #[error("the session has ended or never was")]
    Ended,
    /// Too many of its messages wait.
    #[error("too many messages of the session wait")]
    Busy,
    /// The endpoint serves the streams of sessions, not rmcp.
    #[error("the session has no stream of this kind")]
    NoStream,
}

/// The sessions of wrapped servers, each with the handler of its client.
pub struct HandlerSessions<H: ServerHandler> {
    /// True if the service of an idle session ends.
    rests: bool,
    table: Mutex<HandlerTable<H>>,
}

struct HandlerTable<H: ServerHandler> {
    open: HashMap<SessionId, Arc<HandlerSession<H>>>,
    /// The newest ones, which may be without a session at the bus; the oldest first.
    opening: VecDeque<(Instant, SessionId)>,
}

impl<H: ServerHandler> HandlerSessions<H> {
    /// Makes the table. With `rests` the service of a session ends while no request is under way, so its
    /// handler may use its peer only during requests.
    pub(in crate::mcp::wrap) fn new(rests: bool) -> HandlerSessions<H> {
        let table = HandlerTable {
            open: HashMap::new(),
            opening: VecDeque::new(),
        };
        HandlerSessions {
            rests,
            table: Mutex::new(table),
        }
    }

    fn table(&self) -> MutexGuard<'_, HandlerTable<H>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: &str) -> Result<Arc<HandlerSession<H>>, SessionFailure> {
        self.table().open.get(id).cloned().ok_or(SessionFailure::Ended)
    }

    /// Notes that a session at the bus keeps this one, and ends it.
    pub(in crate::mcp::wrap) fn keep(&self, id: &str) {
        if let Ok(session) = self.get(id) {
            session.keep();
        }
    }

    /// Ends a session and forgets it.
    pub(in crate::mcp::wrap) fn end(&self, id: &str) {
        let removed = self.table().open.remove(id);
        // Unlocked: the handler may go with it.
        if let Some(session) = removed {
            session.end();
        }
    }

    /// Returns the messages of a session that belong to no request.
    pub(in crate::mcp::wrap) fn own_messages(&self, id: &str) -> Option<Arc<OwnMessages>> {
        Some(self.get(id).ok()?.own_messages.clone())
    }

    /// Adds a session. Returns those that were left behind.
    fn insert(&self, id: SessionId, session: Arc<HandlerSession<H>>) -> Vec<Arc<HandlerSession<H>>> {
        let mut left = Vec::new();
        let mut table = self.table();
        let now = Instant::now();
        while let Some((since, oldest)) = table.opening.front().cloned()
            && now.duration_since(since) >= OPENING_MAX
        {
            table.opening.pop_front();
            let is_left = matches!(table.open.get(&oldest), Some(session) if !session.is_kept());
            if is_left {
                left.extend(table.open.remove(&oldest));
            }
        }
        table.opening.push_back((now, id.clone()));
        table.open.insert(id, session);
        left
    }
}

impl<H: ServerHandler> SessionManager for HandlerSessions<H> {
    type Error = SessionFailure;
    type Transport = SessionConnection<H>;

    async fn create_session(&self) -> Result<(SessionId, SessionConnection<H>), SessionFailure> {
        let id = session_id();
        let session = Arc::new(HandlerSession::new(self.rests));
        let connection = session.first_connection();
        for left in self.insert(id.clone(), session) {
            left.end();
        }
        Ok((id, connection))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionFailure> {
        let session = self.get(id)?;
        message.insert_extension(session.opening());
        let introduced = match &message {
            JsonRpcMessage::Request(request) => match &request.request {
                ClientRequest::InitializeRequest(initialize) => Some(initialize.params.clone()),
                _ => None,
            },
            _ => None,
        };
        let messages = session.accept(message)?;
        let (Some(mut messages), Some(mut client)) = (messages, introduced) else {
            return Err(SessionFailure::Ended);
        };
        let answer = messages.recv().await.ok_or(SessionFailure::Ended)?;
        if let JsonRpcMessage::Response(response) = &*answer
            && let ServerResult::InitializeResult(result) = &response.result
        {
            client.protocol_version = result.protocol_version.clone();
            session.introduce(client);
        }
        Ok(Arc::unwrap_or_clone(answer))
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionFailure> {
        Ok(self.get(id).is_ok())
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionFailure> {
        // Called when the first service has ended. An open session goes on without it, until the bus ends it.
        if let Ok(session) = self.get(id)
            && !session.is_open()
        {
            self.end(id);
        }
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionFailure> {
        let Some(mut messages) = self.get(id)?.accept(message)? else {
            return Err(SessionFailure::NoStream);
        };
        Ok(stream::poll_fn(move |cx| {
            let message = messages.poll_recv(cx);
            message.map(|message| message.map(event))
        }))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), SessionFailure> {
        self.get(id)?.accept(message).map(drop)
    }

    async fn create_standalone_stream(
        &self,
        _: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionFailure> {
        Err::<Empty<ServerSseMessage>, _>(SessionFailure::NoStream)
    }

    async fn resume(
        &self,
        _: &SessionId,
        _: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionFailure> {
        Err::<Empty<ServerSseMessage>, _>(SessionFailure::NoStream)
    }
}

fn event(message: Arc<ServerJsonRpcMessage>) -> ServerSseMessage {
    let mut event = ServerSseMessage::default();
    event.message = Some(message);
    event
}

#[cfg(test)]
mod tests {
    use rmcp::transport::Transport;

    use super::*;

    struct NoServer;

    impl ServerHandler for NoServer {}

    #[tokio::test(start_paused = true)]
    async fn session_left_while_it_opens_is_forgotten() {
        let sessions = HandlerSessions::<NoServer>::new(true);
        let (left, mut connection) = sessions.create_session().await.unwrap();
        let (kept, _connection) = sessions.create_session().await.unwrap();
        sessions.keep(&kept);
        tokio::time::advance(OPENING_MAX - Duration::from_millis(1)).await;
        let (early, _connection) = sessions.create_session().await.unwrap();
        assert!(sessions.has_session(&left).await.unwrap());
        tokio::time::advance(Duration::from_millis(1)).await;
        sessions.create_session().await.unwrap();
        assert!(!sessions.has_session(&left).await.unwrap());
        assert!(connection.receive().await.is_none(), "its service ends");
        for id in [&kept, &early] {
            assert!(sessions.has_session(id).await.unwrap());
        }
    }
}
