//! A session of an older revision: its handler, and rmcp's service of it.
//!
//! Such a service holds room for many messages, some ten times the rest of a session. So it may end while the
//! client has no request under way; the next message starts another one for the same handler.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, InitializeRequestParams, JsonRpcMessage, ServerJsonRpcMessage,
};
use rmcp::service::{RunningService, serve_directly};
use rmcp::transport::Transport;
use rmcp::{RoleServer, ServerHandler};
use tokio::sync::mpsc::error::TrySendError;

use super::routes::{MessageReceiver, MessageRoutes, QuestionIds, Route};
use super::table::SessionFailure;
use crate::mcp::http::OwnMessages;
use crate::mcp::wrap::Wrapped;

/// The messages of a client that its service has not taken. The service takes each at once, so more are only
/// there while it has no turn on its thread.
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
    exchange: Mutex<Exchange<H>>,
}

/// The messages between the client and the service.
struct Exchange<H: ServerHandler> {
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
            exchange: Mutex::new(Exchange {
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

    fn exchange(&self) -> MutexGuard<'_, Exchange<H>> {
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
        SessionConnection {
            session: self.clone(),
            turn: 0,
        }
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
            return Err(SessionFailure::Busy);
        }
        if !exchange.ids.take(&mut message) {
            return Ok(None);
        }
        let messages = match &message {
            JsonRpcMessage::Request(request) => Some(exchange.routes.begin(request)),
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
        let connection = SessionConnection {
            session: self.clone(),
            turn,
        };
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
    fn poll_message(&self, turn: u64, cx: &Context<'_>) -> Poll<Option<ClientJsonRpcMessage>> {
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
    fn deliver(self: &Arc<Self>, mut message: ServerJsonRpcMessage) -> Option<UntakenMessage<H>> {
        let mut exchange = self.exchange();
        exchange.ids.show(&mut message);
        match exchange.routes.of(&message) {
            Route::Response(sender) => match sender.try_send(Arc::new(message)) {
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
            Route::Session => {
                match serde_json::to_vec(&message) {
                    Ok(json) => self.own_messages.push(json.into()),
                    Err(error) => {
                        tracing::warn!(%error, "a message of a wrapped server is no JSON and was not sent");
                    }
                }
                None
            }
            Route::Nowhere => {
                tracing::debug!("a wrapped server answered a request that had ended");
                None
            }
        }
    }

    /// Notes that a service has ended, however that was.
    fn note_end(&self, turn: u64) {
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

impl<H: ServerHandler> Exchange<H> {
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
struct UntakenMessage<H: ServerHandler> {
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
    async fn wait(self) {
        if self.sender.send(self.message).await.is_err() {
            tracing::debug!("a client closed the response before it had all messages");
        }
        drop(self.place);
    }
}

/// The connection of one service of a session.
pub struct SessionConnection<H: ServerHandler> {
    session: Arc<HandlerSession<H>>,
    turn: u64,
}

impl<H: ServerHandler> Transport<RoleServer> for SessionConnection<H> {
    type Error = Infallible;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        // Here rather than in the future: messages keep the order in which they are sent.
        let untaken = self.session.deliver(message);
        async move {
            if let Some(untaken) = untaken {
                untaken.wait().await;
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        poll_fn(|cx| self.session.poll_message(self.turn, cx)).await
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl<H: ServerHandler> Drop for SessionConnection<H> {
    fn drop(&mut self) {
        self.session.note_end(self.turn);
    }
}
