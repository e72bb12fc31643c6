//! The messages that a server sends beside its answers, in the order in which they arrive.
//!
//! rmcp handles each notification in a task of its own, so their order is lost there, and progress may come
//! after the answer that it belongs to. Here they are read off the transport.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{
    ClientRequest, ClientResult, ErrorCode, GetExtensions, GetMeta, ProgressNotificationParam, ProgressToken,
    RequestId, ServerNotification, ServerRequest,
};
use rmcp::service::{InboundStreamOrigin, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{ErrorData, RoleClient};
use tokio::sync::{Notify, mpsc, oneshot};

use super::change_notices::ChangeNotices;
use super::connection::ConnectionEnd;
use super::introduction::Introduction;
use super::one_client::OneClient;
use super::strays::{Stray, StraysInARow};
use super::tool_names::ToolNames;
use crate::metrics::UpstreamMetrics;

/// Messages that wait for one call. Notifications beyond it are dropped, requests are refused.
const HEARD_MAX: usize = 256;

/// The time that a question waits for the next request of its client, if it comes while none is under way. A
/// server may ask as soon as it is connected, just before the first call.
const CALL_WAIT: Duration = Duration::from_secs(5);

/// A message for the client of a call.
pub(super) enum Heard {
    Progress(ProgressNotificationParam),
    Notice(ServerNotification),
    Asked(ServerQuestion),
}

/// A question of the server to the client.
pub(super) struct ServerQuestion {
    pub(super) request: ServerRequest,
    pub(super) reply: oneshot::Sender<Result<ClientResult, ErrorData>>,
    /// True if no other client can be meant.
    pub(super) is_for_client: bool,
}

/// Marks a request whose messages go to this channel.
#[derive(Clone)]
pub(super) struct HeardBy(mpsc::Sender<Heard>);

/// Returns the mark for a request, and the end at which its messages arrive.
pub(super) fn channel() -> (HeardBy, mpsc::Receiver<Heard>) {
    let (sender, receiver) = mpsc::channel(HEARD_MAX);
    (HeardBy(sender), receiver)
}

/// The requests under way on one connection, and where their messages go.
pub(super) struct Hearing {
    calls: Mutex<Calls>,
    /// True if all requests are one client's.
    is_of_one_client: bool,
    signals: Option<Arc<ChangeNotices>>,
    /// The only client, if it can be reached while no request is under way.
    one_client: Option<Arc<OneClient>>,
    /// Tells that a request begins.
    begun: Notify,
    answers: Mutex<ForeignAnswers>,
    metrics: Arc<UpstreamMetrics>,
}

/// The answers to requests that were never made.
#[derive(Default)]
struct ForeignAnswers {
    /// One more than the id of the newest request: rmcp numbers them.
    requests: i64,
    in_a_row: StraysInARow,
}

#[derive(Default)]
struct Calls {
    channels: HashMap<ProgressToken, mpsc::Sender<Heard>>,
    /// The ids and tokens of the calls, the newest last.
    order: Vec<(RequestId, ProgressToken)>,
}

impl Calls {
    /// Returns the channel of the newest call. Where all requests are one client's, any of them leads to the
    /// client that is meant.
    fn newest(&self) -> Option<mpsc::Sender<Heard>> {
        let (_, token) = self.order.last()?;
        self.channels.get(token).cloned()
    }

    /// Returns the channel of a call.
    fn of_request(&self, id: &RequestId) -> Option<mpsc::Sender<Heard>> {
        let (_, token) = self.order.iter().find(|(call, _)| call == id)?;
        self.channels.get(token).cloned()
    }
}

impl Hearing {
    /// Makes the hearing of a connection, whose requests are all one client's or not.
    pub(super) fn new(
        caller: &Introduction,
        is_of_one_client: bool,
        metrics: Arc<UpstreamMetrics>,
    ) -> Hearing {
        Hearing {
            calls: Mutex::default(),
            is_of_one_client,
            signals: caller.signals.clone(),
            one_client: caller.one_client.clone(),
            begun: Notify::new(),
            answers: Mutex::default(),
            metrics,
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, message: &TxJsonRpcMessage<RoleClient>) {
        let TxJsonRpcMessage::<RoleClient>::Request(message) = message else {
            return;
        };
        if let Some(number) = number_of(&message.id) {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.requests = answers.requests.max(number.saturating_add(1));
        }
        if let Some(HeardBy(sender)) = message.request.extensions().get::<HeardBy>()
            && let Some(token) = progress_token(&message.request)
        {
            // rmcp has given the request its token by now, which no other request of the connection has.
            let mut calls = self.calls();
            calls.order.push((message.id.clone(), token.clone()));
            calls.channels.insert(token, sender.clone());
            drop(calls);
            self.begun.notify_waiters();
        }
    }

    /// Returns true if a message answers a request that was never made.
    fn is_foreign(&self, message: &RxJsonRpcMessage<RoleClient>) -> bool {
        let id = match message {
            RxJsonRpcMessage::<RoleClient>::Response(response) => Some(&response.id),
            // One without an id is about a message that the server could not read.
            RxJsonRpcMessage::<RoleClient>::Error(error) => error.id.as_ref(),
            _ => None,
        };
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_foreign = match id {
            Some(id) => !matches!(number_of(id), Some(number) if (0..answers.requests).contains(&number)),
            None => false,
        };
        if is_foreign {
            Stray::UnknownId.count(&self.metrics);
            answers.in_a_row.add();
        } else {
            answers.in_a_row.end();
        }
        is_foreign
    }

    /// Returns true if too many answers in a row were foreign.
    fn is_lost(&self) -> bool {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.in_a_row.are_too_many()
    }

    /// Returns true if all requests of the connection are one client's.
    pub(super) fn is_of_one_client(&self) -> bool {
        self.is_of_one_client
    }

    /// Forgets a request that has ended.
    pub(super) fn end(&self, token: &ProgressToken) {
        let mut calls = self.calls();
        calls.channels.remove(token);
        calls.order.retain(|(_, other)| other != token);
    }

    fn hear(&self, notification: &ServerNotification) {
        if let Some(signals) = &self.signals {
            signals.hear(notification);
        }
        let dropped = match notification {
            ServerNotification::ProgressNotification(progress) => {
                let sender = self
                    .calls()
                    .channels
                    .get(&progress.params.progress_token)
                    .cloned();
                let heard = Heard::Progress(progress.params.clone());
                sender.map(|sender| sender.try_send(heard).is_err())
            }
            ServerNotification::LoggingMessageNotification(_)
            | ServerNotification::TaskStatusNotification(_)
            | ServerNotification::CustomNotification(_) => match self.is_of_one_client {
                true => self.hear_for_client(notification),
                // They name no request, so on a connection of all clients they could reach another one.
                false => None,
            },
            _ => Some(false),
        };
        if dropped != Some(false) {
            self.metrics.notices_dropped.increment(1);
        }
    }

    /// Hands a notification to the only client. Returns true if too many wait, and none if it cannot be
    /// reached.
    fn hear_for_client(&self, notification: &ServerNotification) -> Option<bool> {
        let newest = self.calls().newest();
        match (newest, &self.one_client, notification) {
            (Some(sender), _, _) => {
                let heard = Heard::Notice(notification.clone());
                Some(sender.try_send(heard).is_err())
            }
            // The notice of a task is told with a request for it alone.
            (None, Some(client), ServerNotification::LoggingMessageNotification(_))
            | (None, Some(client), ServerNotification::CustomNotification(_)) => {
                Some(!client.tell(notification.clone()))
            }
            (None, _, _) => None,
        }
    }

    /// Returns the channel of the newest request, for which it waits.
    async fn next_call(&self) -> Option<mpsc::Sender<Heard>> {
        let waiting = async {
            loop {
                let begun = self.begun.notified();
                // After the wait has begun, so that no request falls between.
                if let Some(sender) = self.calls().newest() {
                    return sender;
                }
                begun.await;
            }
        };
        tokio::time::timeout(CALL_WAIT, waiting).await.ok()
    }

    /// Returns the channel for a question, and whether no other client can be meant.
    fn asked(&self, origin: Option<&InboundStreamOrigin>) -> (Option<mpsc::Sender<Heard>>, bool) {
        let calls = self.calls();
        let asking = match origin {
            Some(InboundStreamOrigin::OutboundRequest(id)) => calls.of_request(id),
            // The stream of notifications, or the output of a program, where a question names no request.
            Some(InboundStreamOrigin::Unassociated) | None => None,
        };
        let is_for_client = self.is_of_one_client || asking.is_some();
        (asking.or_else(|| calls.newest()), is_for_client)
    }

    /// Asks the client of the request on whose stream a question came; without one, the client of the newest
    /// request under way; without any, the only client.
    ///
    /// # Errors
    /// The refusal of the client, or that there is no client to ask.
    pub(super) async fn ask(
        &self,
        request: ServerRequest,
        origin: Option<&InboundStreamOrigin>,
    ) -> Result<ClientResult, ErrorData> {
        let (mut sender, is_for_client) = self.asked(origin);
        if sender.is_none()
            && let Some(client) = &self.one_client
        {
            if let Some(answer) = client.ask(request.clone()).await {
                return answer;
            }
            sender = self.next_call().await;
        }
        let (reply, answer) = oneshot::channel();
        let asked = Heard::Asked(ServerQuestion {
            request,
            reply,
            is_for_client,
        });
        let is_asked = match sender {
            Some(sender) => sender.try_send(asked).is_ok(),
            None => false,
        };
        if !is_asked {
            self.metrics.refused_requests.increment(1);
            let text =
                "the gateway has no client to ask: no request of a client is under way on this connection";
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, text, None));
        }
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(ErrorData::internal_error(
                "the request that this question belongs to has ended",
                None,
            )),
        }
    }
}

/// Returns the number in the id of a request; some servers answer it as a text.
fn number_of(id: &RequestId) -> Option<i64> {
    match id {
        RequestId::Number(number) => Some(*number),
        RequestId::String(text) => text.parse().ok(),
    }
}

fn progress_token(request: &ClientRequest) -> Option<ProgressToken> {
    request.get_meta().get_progress_token()
}

/// A transport that tells a [`Hearing`] of every message, and of its own end.
pub(super) struct HeardTransport<T> {
    pub(super) inner: T,
    pub(super) hearing: Arc<Hearing>,
    pub(super) tools: ToolNames,
    pub(super) lost: ConnectionEnd,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for HeardTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        // Before the message leaves, so that no answer to it can come first.
        self.hearing.begin(&item);
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        while !self.hearing.is_lost() {
            let Some(message) = self.inner.receive().await else {
                break;
            };
            if !self.tools.note(&message) {
                break;
            }
            // rmcp would report each of them.
            if self.hearing.is_foreign(&message) {
                continue;
            }
            if let RxJsonRpcMessage::<RoleClient>::Notification(message) = &message {
                self.hearing.hear(&message.notification);
            }
            return Some(message);
        }
        // At once: rmcp waits for the process to end before it says so.
        self.lost.set();
        None
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}
