//! A session of an older revision: its handler, and rmcp's service of it.
//!
//! Such a service holds room for many messages, some ten times the rest of a session. So it may end while the
//! client has no request under way; the next message starts another one for the same handler.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, GetExtensions, InitializeRequestParams, JsonRpcMessage,
    ServerJsonRpcMessage,
};
use rmcp::service::{RunningService, serve_directly};
use rmcp::{RoleServer, ServerHandler};
use tokio::sync::mpsc::error::TrySendError;

use super::connection::SessionConnection;
use super::routes::{MessageReceiver, MessageRoute, MessageRoutes, QuestionIds};
use super::table::SessionFailure;
use crate::mcp::http::OwnMessages;
use crate::mcp::wrap::Wrapped;
use crate::metrics::{self, Limit};

/// The messages of a client that its service has not taken. The service takes each at once, so more are only
/// there while it has no turn on its thread. At the limit a message is refused and counted.
const WAITING_MAX: usize = 1_024;

/// A session and its handler.
pub(super) struct HandlerSession<H: ServerHandler> {
    /// True if its service ends while no request is under way.
    rests: bool,
    handler: OnceLock<Arc<Wrapped<H>>>,
    /// The client as it introduced itself, with the revision that was agreed on.
    client: OnceLock<InitializeRequestParams>,
    /// True once the session at the bus keeps this one.
    kept: AtomicBool,
    pub(super) own_messages: Arc<OwnMessages>,
    exchange: Mutex<SessionExchange<H>>,
}

/// The messages between the client and the service.
struct SessionExchange<H: ServerHandler> {
    /// Those of the client that the service has not taken.
    waiting: VecDeque<ClientJsonRpcMessage>,
    routes: MessageRoutes,
    ids: QuestionIds,
    /// Those of the handler that wait for their client to take others.
    untaken: usize,
    /// Wakes the service.
    waker: Option<Waker>,
    /// The number of the service that was started last.
    turn: u64,
    state: ServiceState,
    /// The running service, unless it is the first one, which rmcp keeps.
    service: Option<RunningService<RoleServer, Arc<Wrapped<H>>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServiceState {
    /// It was started, and has taken no message.
    Started,
    /// It has taken a message.
    Running,
    /// It has ended.
    Resting,
    /// The session has ended.
    Ended,
}

/// The session that a request `initialize` opens; it travels beside the request to its handler.
pub(in crate::mcp::wrap) struct OpeningSession<H: ServerHandler>(Weak<HandlerSession<H>>);

impl<H: ServerHandler> Clone for OpeningSession<H> {
    fn clone(&self) -> OpeningSession<H> {
        OpeningSession(self.0.clone())
    }
}

impl<H: ServerHandler> OpeningSession<H> {
    /// Leaves the handler to the session, which keeps it.
    pub(in crate::mcp::wrap) fn keep(&self, handler: Arc<Wrapped<H>>) {
        if let Some(session) = self.0.upgrade() {
            session.handler.get_or_init(|| handler);
        }
    }
}

impl<H: ServerHandler> HandlerSession<H> {
    /// Makes a session whose first service is about to be started.
    pub(super) fn new(rests: bool) -> HandlerSession<H> {
        HandlerSession {
            rests,
            handler: OnceLock::new(),
            client: OnceLock::new(),
            kept: AtomicBool::new(false),
            own_messages: Arc::default(),
            exchange: Mutex::new(SessionExchange {
                waiting: VecDeque::new(),
                routes: MessageRoutes::default(),
                ids: QuestionIds::default(),
                untaken: 0,
                waker: None,
                turn: 0,
                state: ServiceState::Started,
                service: None,
            }),
        }
    }

    fn exchange(&self) -> MutexGuard<'_, SessionExchange<H>> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the extension by which the handler of `initialize` finds this session.
    pub(super) fn opening(self: &Arc<Self>) -> OpeningSession<H> {
        OpeningSession(Arc::downgrade(self))
    }

    /// Notes the client of the session.
    pub(super) fn introduce(&self, client: InitializeRequestParams) {
        self.client.get_or_init(|| client);
    }

    pub(super) fn is_open(&self) -> bool {
        self.handler.get().is_some()
    }

    pub(super) fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// Returns the connection of the first service.
    pub(super) fn first_connection(self: &Arc<Self>) -> SessionConnection<H> {
        SessionConnection::new(self.clone(), 0)
    }

    /// Hands a message of the client to the handler. Returns the messages of the response if it is a request.
    ///
    /// # Errors
    /// The session has ended, or too many of its messages wait.
    pub(super) fn accept(
        self: &Arc<Self>,
        mut message: ClientJsonRpcMessage,
    ) -> Result<Option<MessageReceiver>, SessionFailure> {
        let mut exchange = self.exchange();
        let starts = match exchange.state {
            ServiceState::Ended => return Err(SessionFailure::Ended),
            // The request that it answers has ended with its service.
            ServiceState::Resting if is_answer(&message) => return Ok(None),
            ServiceState::Resting => true,
            ServiceState::Started | ServiceState::Running => false,
        };
        if starts && (self.handler.get().is_none() || self.client.get().is_none()) {
            return Err(SessionFailure::Ended);
        }
        if exchange.waiting.len() >= WAITING_MAX {
            metrics::limit_reached(Limit::SessionMessages);
            return Err(SessionFailure::Busy);
        }
        if !exchange.ids.take(&mut message) {
            return Ok(None);
        }
        let messages = match &mut message {
            JsonRpcMessage::Request(request) => {
                // For a handler that has to tell its client something after the request.
                let own_messages = self.own_messages.clone();
                request.request.extensions_mut().insert(own_messages);
                Some(exchange.routes.begin(request))
            }
            JsonRpcMessage::Notification(notice) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notice.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    // rmcp drops the answer of a request that was cancelled.
                    exchange.routes.end(id);
                }
                None
            }
            _ => None,
        };
        exchange.waiting.push_back(message);
        if !starts {
            exchange.wake();
            return Ok(messages);
        }
        exchange.turn += 1;
        exchange.state = ServiceState::Started;
        exchange.ids.begin();
        let turn = exchange.turn;
        drop(exchange);
        self.start(turn);
        Ok(messages)
    }

    /// Starts a service for the message that waits.
    fn start(self: &Arc<Self>, turn: u64) {
        let (Some(handler), Some(client)) = (self.handler.get(), self.client.get()) else {
            return;
        };
        let connection = SessionConnection::new(self.clone(), turn);
        let service = serve_directly(handler.clone(), connection, Some(client.clone()));
        let mut exchange = self.exchange();
        // It may have ended on another thread meanwhile.
        if exchange.turn == turn && exchange.state != ServiceState::Resting {
            exchange.service = Some(service);
        }
    }

    /// Ends the session. Requests under way have no answer any more.
    pub(super) fn end(&self) {
        let mut exchange = self.exchange();
        exchange.state = ServiceState::Ended;
        exchange.waiting.clear();
        exchange.routes.clear();
        exchange.wake();
    }

    /// Returns the next message for a service; none when that service has to end.
    pub(super) fn poll_message(&self, turn: u64, cx: &Context<'_>) -> Poll<Option<ClientJsonRpcMessage>> {
        let mut exchange = self.exchange();
        if exchange.turn != turn || exchange.state == ServiceState::Ended {
            return Poll::Ready(None);
        }
        if let Some(message) = exchange.waiting.pop_front() {
            exchange.state = ServiceState::Running;
            return Poll::Ready(Some(message));
        }
        let is_idle = exchange.routes.is_empty() && exchange.untaken == 0;
        if self.rests && is_idle && exchange.state == ServiceState::Running {
            exchange.rest();
            return Poll::Ready(None);
        }
        exchange.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Hands a message of the handler to the client. Returns it with its way if the client must take others
    /// before.
    pub(super) fn deliver(self: &Arc<Self>, mut message: ServerJsonRpcMessage) -> Option<UntakenMessage<H>> {
        let mut exchange = self.exchange();
        exchange.ids.show(&mut message);
        match exchange.routes.of(&message) {
            MessageRoute::Response(sender) => match sender.try_send(Arc::new(message)) {
                Ok(()) | Err(TrySendError::Closed(_)) => None,
                Err(TrySendError::Full(message)) => {
                    exchange.untaken += 1;
                    let place = UntakenPlace(self.clone());
                    Some(UntakenMessage {
                        sender,
                        message,
                        place,
                    })
                }
            },
            MessageRoute::Session => {
                self.own_messages.push_message(&message);
                None
            }
            MessageRoute::Nowhere => {
                tracing::debug!("a wrapped server answered a request that had ended");
                None
            }
        }
    }

    /// Notes that a service has ended, however that was.
    pub(super) fn note_end(&self, turn: u64) {
        let mut exchange = self.exchange();
        if exchange.turn != turn {
            return;
        }
        let service = exchange.service.take();
        if exchange.state != ServiceState::Ended && exchange.state != ServiceState::Resting {
            exchange.waiting.clear();
            exchange.routes.clear();
            exchange.rest();
        }
        drop(exchange);
        if let Some(service) = service {
            // rmcp takes note of a service that is dropped before it is cancelled.
            service.cancellation_token().cancel();
        }
    }
}

impl<H: ServerHandler> SessionExchange<H> {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Notes that the service ends, and gives back the room that it needed.
    fn rest(&mut self) {
        self.state = ServiceState::Resting;
        self.waiting = VecDeque::new();
        self.waker = None;
    }
}

fn is_answer(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_))
}

/// A message that waits until its client has taken others.
pub(super) struct UntakenMessage<H: ServerHandler> {
    sender: super::routes::MessageSender,
    message: Arc<ServerJsonRpcMessage>,
    place: UntakenPlace<H>,
}

/// Counts a message among those that wait, until it is dropped.
struct UntakenPlace<H: ServerHandler>(Arc<HandlerSession<H>>);

impl<H: ServerHandler> Drop for UntakenPlace<H> {
    fn drop(&mut self) {
        let mut exchange = self.0.exchange();
        exchange.untaken -= 1;
        exchange.wake();
    }
}

impl<H: ServerHandler> UntakenMessage<H> {
    pub(super) async fn wait(self) {
        if self.sender.send(self.message).await.is_err() {
            tracing::debug!("a client closed the response before it had all messages");
        }
        drop(self.place);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use rmcp::transport::Transport;
    use serde_json::json;

    use super::*;

    struct NoServer;

    impl ServerHandler for NoServer {}

    fn of_client(message: serde_json::Value) -> ClientJsonRpcMessage {
        serde_json::from_value(message).unwrap()
    }

    fn called() -> ClientJsonRpcMessage {
        let params = json!({"name": "t", "_meta": {"progressToken": "p"}});
        of_client(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}))
    }

    fn told(message: serde_json::Value) -> ServerJsonRpcMessage {
        serde_json::from_value(message).unwrap()
    }

    #[tokio::test]
    async fn service_rests_after_all_is_taken() {
        let session = Arc::new(HandlerSession::<NoServer>::new(true));
        let mut connection = session.first_connection();
        assert!(connection.receive().now_or_never().is_none());
        let mut messages = session.accept(called()).unwrap().unwrap();
        assert!(connection.receive().await.is_some());
        let mut sending = Vec::new();
        for number in 0..40 {
            let params = json!({"progressToken": "p", "progress": number});
            let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
            sending.push(connection.send(told(progress)));
        }
        sending.push(connection.send(told(json!({"jsonrpc": "2.0", "id": 1, "result": {}}))));
        let mut sent = pin!(join_all(sending));
        assert!((&mut sent).now_or_never().is_none());
        assert!(connection.receive().now_or_never().is_none());
        let taking = tokio::spawn(async move {
            let mut taken = 0;
            while messages.recv().await.is_some() {
                taken += 1;
            }
            taken
        });
        sent.await;
        assert_eq!(taking.await.unwrap(), 41);
        assert!(connection.receive().await.is_none());
        // Without a handler no other service can be started.
        assert!(matches!(session.accept(called()), Err(SessionFailure::Ended)));
        let late = of_client(json!({"jsonrpc": "2.0", "id": 0, "result": {}}));
        assert!(matches!(session.accept(late), Ok(None)));
    }

    #[tokio::test]
    async fn too_many_waiting_messages_are_refused() {
        let session = Arc::new(HandlerSession::<NoServer>::new(true));
        let mut connection = session.first_connection();
        let told = || of_client(json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}));
        for _ in 0..WAITING_MAX {
            assert!(session.accept(told()).is_ok());
        }
        assert!(matches!(session.accept(told()), Err(SessionFailure::Busy)));
        assert!(connection.receive().await.is_some());
        assert!(session.accept(told()).is_ok());
    }

    #[tokio::test]
    async fn held_service_ends_with_its_session() {
        let session = Arc::new(HandlerSession::<NoServer>::new(false));
        let mut connection = session.first_connection();
        let mut messages = session.accept(called()).unwrap().unwrap();
        assert!(connection.receive().await.is_some());
        // rmcp drops the answer of a request that was cancelled.
        let params = json!({"requestId": 1});
        let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        assert!(session.accept(of_client(cancelled)).unwrap().is_none());
        assert!(messages.recv().await.is_none());
        assert!(connection.receive().await.is_some());
        assert!(connection.receive().now_or_never().is_none());
        session.end();
        assert!(connection.receive().await.is_none());
        assert!(matches!(session.accept(called()), Err(SessionFailure::Ended)));
    }
}
