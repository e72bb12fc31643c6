//! The way of each message of a handler: to the response of a request that is under way, or to the session.

use std::sync::Arc;

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, GetExtensions, GetMeta, JsonRpcMessage, JsonRpcRequest,
    NumberOrString, ProgressToken, RequestId, ServerJsonRpcMessage, ServerNotification,
};
use rmcp::service::OriginatingRequestId;
use tokio::sync::mpsc;

/// The messages of one request that its client has not taken. The handler waits before it sends another one.
const UNTAKEN_MAX: usize = 16;

pub(super) type MessageSender = mpsc::Sender<Arc<ServerJsonRpcMessage>>;
pub(super) type MessageReceiver = mpsc::Receiver<Arc<ServerJsonRpcMessage>>;

/// The destination of a message.
pub(super) enum MessageRoute {
    /// The response of a request.
    Response(MessageSender),
    /// The session, whose stream has what belongs to no request.
    Session,
    /// None: it answers a request that has ended.
    Nowhere,
}

struct AwaitedRequest {
    id: RequestId,
    progress: Option<ProgressToken>,
    messages: MessageSender,
}

/// The requests of one session that are under way. There are few, so each is found by a look at all.
#[derive(Default)]
pub(super) struct MessageRoutes {
    requests: Vec<AwaitedRequest>,
}

impl MessageRoutes {
    /// Adds a request. Returns the messages of its response.
    pub(super) fn begin(&mut self, request: &JsonRpcRequest<ClientRequest>) -> MessageReceiver {
        let (messages, receiver) = mpsc::channel(UNTAKEN_MAX);
        // Of two requests with one id, the newer one gets the answer.
        self.end(&request.id);
        self.requests.push(AwaitedRequest {
            id: request.id.clone(),
            progress: request.request.get_meta().get_progress_token(),
            messages,
        });
        receiver
    }

    /// Removes a request, which ends its response. Returns the sender of its last message.
    pub(super) fn end(&mut self, id: &RequestId) -> Option<MessageSender> {
        let index = self.requests.iter().position(|request| request.id == *id)?;
        let ended = self.requests.swap_remove(index);
        if self.requests.is_empty() {
            // An idle session holds no room for requests.
            self.requests = Vec::new();
        }
        Some(ended.messages)
    }

    pub(super) fn clear(&mut self) {
        self.requests = Vec::new();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns the way of a message. The request that it answers has ended with it.
    pub(super) fn of(&mut self, message: &ServerJsonRpcMessage) -> MessageRoute {
        match message {
            JsonRpcMessage::Response(response) => self.last(Some(&response.id)),
            JsonRpcMessage::Error(error) => self.last(error.id.as_ref()),
            JsonRpcMessage::Request(request) => {
                let origin = request.request.extensions().get::<OriginatingRequestId>();
                self.beside(|underway| match origin {
                    Some(origin) => underway.id == origin.0,
                    None => false,
                })
            }
            JsonRpcMessage::Notification(notice) => match &notice.notification {
                ServerNotification::ProgressNotification(progress) => {
                    let token = &progress.params.progress_token;
                    self.beside(|underway| underway.progress.as_ref() == Some(token))
                }
                _ => MessageRoute::Session,
            },
        }
    }

    fn last(&mut self, id: Option<&RequestId>) -> MessageRoute {
        match id.and_then(|id| self.end(id)) {
            Some(messages) => MessageRoute::Response(messages),
            None => MessageRoute::Nowhere,
        }
    }

    fn beside(&self, is_meant: impl Fn(&AwaitedRequest) -> bool) -> MessageRoute {
        match self.requests.iter().find(|request| is_meant(request)) {
            Some(request) => MessageRoute::Response(request.messages.clone()),
            None => MessageRoute::Session,
        }
    }
}

/// The ids of the requests that a handler sends its client. Each service of rmcp counts them from the same
/// number; the client sees each id once in its session, so that an answer that comes late answers no other
/// request.
#[derive(Debug, Default)]
pub(super) struct QuestionIds {
    /// The number at which the ids of the running service begin.
    first: i64,
    next: i64,
}

impl QuestionIds {
    /// Begins anew, for another service.
    pub(super) fn begin(&mut self) {
        self.first = self.next;
    }

    /// Puts the ids that the client sees into a message of the handler.
    pub(super) fn show(&mut self, message: &mut ServerJsonRpcMessage) {
        let shown = match message {
            JsonRpcMessage::Request(request) => Some(&mut request.id),
            JsonRpcMessage::Notification(notice) => match &mut notice.notification {
                // A handler takes back its own requests only.
                ServerNotification::CancelledNotification(cancelled) => cancelled.params.request_id.as_mut(),
                _ => None,
            },
            _ => None,
        };
        if let Some(NumberOrString::Number(number)) = shown {
            *number += self.first;
            self.next = self.next.max(*number + 1);
        }
    }

    /// Puts the id that the running service knows into an answer of the client. Returns false if it answers
    /// no request of that service.
    pub(super) fn take(&self, message: &mut ClientJsonRpcMessage) -> bool {
        let id = match message {
            JsonRpcMessage::Response(response) => &mut response.id,
            JsonRpcMessage::Error(error) => match &mut error.id {
                Some(id) => id,
                None => return false,
            },
            _ => return true,
        };
        match id {
            NumberOrString::Number(number) if (self.first..self.next).contains(number) => {
                *number -= self.first;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde_json::{Value, json};

    use super::*;

    fn of_client(message: Value) -> ClientJsonRpcMessage {
        serde_json::from_value(message).unwrap()
    }

    fn json(message: &impl Serialize) -> Value {
        serde_json::to_value(message).unwrap()
    }

    fn of_server(message: Value) -> ServerJsonRpcMessage {
        serde_json::from_value(message).unwrap()
    }

    fn request(id: i64, token: &str) -> JsonRpcRequest<ClientRequest> {
        let params = json!({"name": "t", "_meta": {"progressToken": token}});
        let message = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        match of_client(message) {
            JsonRpcMessage::Request(request) => request,
            other => panic!("no request: {other:?}"),
        }
    }

    fn pinged(id: i64) -> ServerJsonRpcMessage {
        of_server(json!({"jsonrpc": "2.0", "id": id, "method": "ping"}))
    }

    fn answered(id: i64) -> ClientJsonRpcMessage {
        of_client(json!({"jsonrpc": "2.0", "id": id, "result": {}}))
    }

    #[test]
    fn messages_find_their_requests() {
        let mut routes = MessageRoutes::default();
        let mut first = routes.begin(&request(1, "a"));
        let mut second = routes.begin(&request(2, "b"));
        let params = json!({"progressToken": "b", "progress": 1.0});
        let progress =
            of_server(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
        match routes.of(&progress) {
            MessageRoute::Response(messages) => messages.try_send(Arc::new(progress)).unwrap(),
            _ => panic!("progress belongs to a request"),
        }
        assert!(second.try_recv().is_ok() && first.try_recv().is_err());
        let mut asked = pinged(0);
        assert!(matches!(routes.of(&asked), MessageRoute::Session));
        asked.insert_extension(OriginatingRequestId(NumberOrString::Number(1)));
        assert!(matches!(routes.of(&asked), MessageRoute::Response(_)));
        let answer = of_server(json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
        assert!(matches!(routes.of(&answer), MessageRoute::Response(_)));
        assert!(matches!(routes.of(&answer), MessageRoute::Nowhere));
        routes.end(&NumberOrString::Number(2));
        assert!(routes.is_empty());
        let ended = second.try_recv();
        assert!(matches!(ended, Err(mpsc::error::TryRecvError::Disconnected)));
    }

    #[test]
    fn late_answers_answer_no_other_question() {
        let mut ids = QuestionIds::default();
        let mut first = pinged(0);
        let mut second = pinged(1);
        ids.show(&mut first);
        ids.show(&mut second);
        assert_eq!(json(&first), json(&pinged(0)));
        assert_eq!(json(&second), json(&pinged(1)));
        ids.begin();
        let mut third = pinged(0);
        ids.show(&mut third);
        assert_eq!(json(&third), json(&pinged(2)));
        assert!(!ids.take(&mut answered(1)) && !ids.take(&mut answered(3)));
        let mut answer = answered(2);
        assert!(ids.take(&mut answer));
        assert_eq!(json(&answer), json(&answered(0)));
    }

    #[test]
    fn own_requests_alone_are_taken_back() {
        let mut ids = QuestionIds::default();
        ids.show(&mut pinged(4));
        ids.begin();
        let cancelled = |id: i64| {
            let params = json!({"requestId": id});
            of_server(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))
        };
        let mut message = cancelled(0);
        ids.show(&mut message);
        assert_eq!(json(&message), json(&cancelled(5)));
    }
}
