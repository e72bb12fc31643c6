//! Responses over HTTP that do not answer their request: streams that end before the answer, that have an
//! event which is longer than rmcp takes, or an answer to another request.
//!
//! rmcp reports them as the end of the whole connection. That would cut off every other request of a
//! connection that many clients share, so here the one request is answered in the server's place.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt, stream};
use metrics::Counter;
use rmcp::ErrorData;
use rmcp::model::{RequestId, ServerJsonRpcMessage};
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::streamable_http_client::SseError;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

/// The shortest and the longest time after which a stream is opened again, in milliseconds, where the server
/// asks for one.
const RETRY_MIN: u64 = 100;
const RETRY_MAX: u64 = 30_000;

/// The time that a stream must last for rmcp to open it again at once when it fails.
const LASTING: Duration = Duration::from_secs(1);

/// An event of a stream, or its failure.
type StreamEvent = <BoxedSseResponse as Stream>::Item;

/// The answers to requests whose responses have none.
pub(crate) struct MissingAnswers {
    /// To a request whose stream had an event that is too long.
    pub(crate) too_long: ErrorData,
    /// To a request whose stream ended.
    pub(crate) ended: ErrorData,
    /// To a request whose response answers another one.
    pub(crate) unexpected: ErrorData,
    /// Counts the bodies and events that are too long.
    pub(crate) long: Counter,
    /// Counts the answers to other requests.
    pub(crate) foreign: Counter,
    /// Counts the events that are no message.
    pub(crate) malformed: Counter,
}

impl MissingAnswers {
    /// Returns the answer to a request whose response answers another one.
    fn unexpected(&self, request: &RequestId) -> ServerJsonRpcMessage {
        self.foreign.increment(1);
        ServerJsonRpcMessage::error(self.unexpected.clone(), Some(request.clone()))
    }
}

/// The fields of a message that tell its kind.
#[derive(Deserialize)]
struct MessageKind {
    id: Option<RequestId>,
    method: Option<IgnoredAny>,
}

/// One stream, as far as it was read.
struct AnsweredStream {
    inner: BoxedSseResponse,
    /// The request that it answers; none of the stream of notifications.
    request: Option<RequestId>,
    answers: Arc<MissingAnswers>,
    /// True once an event had an id, from which rmcp asks the server to go on.
    is_resumable: bool,
    opened: Instant,
    has_ended: bool,
}

impl AnsweredStream {
    async fn next(&mut self) -> Option<StreamEvent> {
        if self.has_ended {
            return None;
        }
        match self.inner.next().await {
            Some(Ok(mut event)) => {
                self.is_resumable |= event.id.is_some();
                // A server that asks for no wait would have its stream opened again without a pause.
                event.retry = event.retry.map(|wait| wait.clamp(RETRY_MIN, RETRY_MAX));
                // One of another name is not of the protocol: rmcp passes over it.
                if matches!(event.event.as_deref(), None | Some("" | "message")) {
                    event.data = self.own_message(event.data);
                }
                Some(Ok(event))
            }
            Some(Err(error)) if is_too_long(&error) => {
                self.has_ended = true;
                self.answers.long.increment(1);
                tracing::warn!("a server sent an event that is too long; its stream is left");
                self.answer(&self.answers.too_long)
            }
            Some(Err(error)) if self.may_go_on() && self.opened.elapsed() >= LASTING => Some(Err(error)),
            // An end in place of the failure: rmcp waits then before it opens the stream again.
            Some(Err(_)) | None if self.may_go_on() => {
                self.has_ended = true;
                None
            }
            // rmcp does not read on after an answer, so this is of no consequence then.
            Some(Err(_)) | None => {
                self.has_ended = true;
                self.answer(&self.answers.ended)
            }
        }
    }

    /// Returns true if rmcp opens the stream again after its end.
    fn may_go_on(&self) -> bool {
        self.is_resumable || self.request.is_none()
    }

    /// Returns the message of an event; none of one that is dropped and counted: no message, or an answer to
    /// another request, which rmcp would take for the end of the stream.
    fn own_message(&self, data: Option<String>) -> Option<String> {
        let Some(request) = &self.request else {
            return data;
        };
        let data = data?;
        // An event that only gives the stream an id.
        if data.is_empty() {
            return Some(data);
        }
        let Ok(kind) = serde_json::from_str::<MessageKind>(&data) else {
            self.answers.malformed.increment(1);
            return None;
        };
        match (kind.id, kind.method) {
            (Some(id), None) if !is_same(request, &id) => {
                self.answers.foreign.increment(1);
                None
            }
            (None, None) => Some(with_id(data, request)),
            _ => Some(data),
        }
    }

    /// Returns the answer to the request; the end of a stream that answers none.
    fn answer(&self, error: &ErrorData) -> Option<StreamEvent> {
        let id = self.request.as_ref()?;
        let message = json!({ "jsonrpc": "2.0", "id": id, "error": error });
        let event: StreamEvent = Ok(Default::default());
        Some(event.map(|event| event.data(message.to_string())))
    }
}

/// Returns a stream that answers its request in any case. Without a request it is that of notifications,
/// which rmcp opens again after its end, but not after an event that is too long.
pub(super) fn answered(
    inner: BoxedSseResponse,
    request: Option<RequestId>,
    answers: Arc<MissingAnswers>,
) -> BoxedSseResponse {
    let reading = AnsweredStream {
        inner,
        request,
        answers,
        is_resumable: false,
        opened: Instant::now(),
        has_ended: false,
    };
    stream::unfold(reading, |mut reading| async move {
        let event = reading.next().await?;
        Some((event, reading))
    })
    .boxed()
}

/// Returns a message that answers its request: itself, or an error if it answers another one.
pub(super) fn answering(
    message: ServerJsonRpcMessage,
    request: &RequestId,
    answers: &MissingAnswers,
) -> ServerJsonRpcMessage {
    match message {
        ServerJsonRpcMessage::Response(response) if is_same(request, &response.id) => {
            ServerJsonRpcMessage::Response(response)
        }
        // One without an id is about a message that the server could not read, which is this request.
        ServerJsonRpcMessage::Error(error) if matches!(&error.id, Some(id) if !is_same(request, id)) => {
            answers.unexpected(request)
        }
        ServerJsonRpcMessage::Error(error) => ServerJsonRpcMessage::error(error.error, Some(request.clone())),
        ServerJsonRpcMessage::Response(_) => answers.unexpected(request),
        message => message,
    }
}

/// Adds the id of the request to an answer without one, which can be to no other request on its stream.
fn with_id(data: String, request: &RequestId) -> String {
    match serde_json::from_str(&data) {
        Ok(Value::Object(mut message)) => {
            message.insert("id".to_owned(), json!(request));
            Value::Object(message).to_string()
        }
        _ => data,
    }
}

/// Returns true if an answer has the id of the request; some servers answer a number as a text.
fn is_same(request: &RequestId, answered: &RequestId) -> bool {
    request == answered || request.to_string() == answered.to_string()
}

/// Returns true if a stream has failed because of an event that is longer than rmcp takes.
fn is_too_long(error: &SseError) -> bool {
    // rmcp keeps this kind to itself, and says so in its text alone.
    matches!(error, SseError::Body(error) if error.to_string().starts_with("SSE event exceeded"))
}
