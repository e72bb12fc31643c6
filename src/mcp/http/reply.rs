//! The answers that do not come from rmcp: errors of the HTTP layer, and streams. Every refusal of a POST is
//! a JSON-RPC error whose text tells the client how to proceed.

use std::convert::Infallible;

use ::http::{HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use http_body::Body;
use http_body_util::{BodyExt, Empty, Full};
use rmcp::ErrorData;
use rmcp::model::{ErrorCode, RequestId};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::headers;
use crate::http::stream_handover::{StreamHandover, StreamSource};
use crate::http::{BodyFault, Exceeded};
use crate::mcp::revision::Revision;
use crate::metrics::{self, Limit};

/// The body of an answer.
pub type EndpointBody = http_body_util::combinators::BoxBody<Bytes, Infallible>;

pub(super) type Answer = Response<EndpointBody>;

/// An answer that refuses a request. Boxed, so that the usual way does not carry room for it.
pub(super) type Refusal = Box<Answer>;

/// Returns the answer of a request, which may be its refusal.
pub(super) fn answer_or_refusal(answered: Result<Answer, Refusal>) -> Answer {
    match answered {
        Ok(answer) => answer,
        Err(refusal) => *refusal,
    }
}

/// The beginning of rmcp's refusal of a message that it cannot read.
const UNREAD: &str = "fail to deserialize request body";

/// The seconds after which a client may try again when the server is full.
const RETRY_AFTER: &str = "5";

fn plain(status: StatusCode) -> Answer {
    let mut answer = Response::new(Empty::new().boxed());
    *answer.status_mut() = status;
    answer
}

fn with_header(mut answer: Answer, name: header::HeaderName, value: &'static str) -> Answer {
    answer.headers_mut().insert(name, HeaderValue::from_static(value));
    answer
}

/// Answers with complete JSON.
pub(super) fn json(status: StatusCode, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)).boxed());
    *answer.status_mut() = status;
    with_header(answer, header::CONTENT_TYPE, headers::JSON)
}

/// Answers with a JSON-RPC result.
pub(super) fn result(id: &RawValue, result: &Value) -> Answer {
    let body = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}", id.get());
    json(StatusCode::OK, body)
}

/// Answers with a JSON-RPC error.
pub(super) fn error(id: Option<&RawValue>, status: StatusCode, error: &ErrorData) -> Answer {
    // The id goes back as it was written: it may be a number that no type here can hold.
    let id = match id {
        Some(id) => id.get(),
        None => "null",
    };
    json(
        status,
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{}}}", json!(error)),
    )
}

fn invalid_request(id: Option<&RawValue>, status: StatusCode, text: &str) -> Answer {
    error(id, status, &ErrorData::invalid_request(text.to_owned(), None))
}

pub(super) fn bad_request(id: Option<&RawValue>, text: &str) -> Answer {
    invalid_request(id, StatusCode::BAD_REQUEST, text)
}

pub(super) fn invalid_params(id: Option<&RawValue>, text: &str) -> Answer {
    error(
        id,
        StatusCode::BAD_REQUEST,
        &ErrorData::invalid_params(text.to_owned(), None),
    )
}

/// Answers a body that is no JSON (-32700), or JSON that is no message (-32600).
pub(super) fn parse_error(cause: &serde_json::Error) -> Answer {
    unreadable(None, cause)
}

fn unreadable(id: Option<&RawValue>, cause: &serde_json::Error) -> Answer {
    if cause.is_data() {
        let text = format!("Invalid request: the body is no JSON-RPC message: {cause}");
        return bad_request(id, &text);
    }
    let text = format!("Parse error: the body is no JSON: {cause}");
    let parse_error = ErrorData::new(ErrorCode::PARSE_ERROR, text, None);
    error(id, StatusCode::BAD_REQUEST, &parse_error)
}

/// Puts a JSON-RPC error in place of a refusal of rmcp's that is bare text. A message that rmcp could not
/// read gets 400 in place of 415, which is for other media types than JSON.
pub(super) async fn with_message(answer: Answer, id: Option<&RawValue>, body: &[u8]) -> Answer {
    let is_bare = !answer.headers().contains_key(header::CONTENT_TYPE);
    if !answer.status().is_client_error() || !is_bare {
        return answer;
    }
    let status = answer.status();
    let Ok(text) = answer.into_body().collect().await;
    let text = String::from_utf8_lossy(&text.to_bytes()).into_owned();
    // JSON-RPC 2.0, section 5: null where the id is none.
    let id = id.filter(|id| serde_json::from_str::<RequestId>(id.get()).is_ok());
    if status != StatusCode::UNSUPPORTED_MEDIA_TYPE || !text.starts_with(UNREAD) {
        return invalid_request(id, status, &text);
    }
    // rmcp reads the whole, so it also refuses numbers and depths that the first look passes over.
    match serde_json::from_slice::<Value>(body) {
        Err(cause) => unreadable(id, &cause),
        Ok(_) => {
            let text = "Invalid request: the body is no JSON-RPC message; it needs jsonrpc \"2.0\" and a method or a \
                        result, and a request needs a string or an integer as id";
            bad_request(id, text)
        }
    }
}

pub(super) fn internal_error(text: &str) -> Answer {
    error(
        None,
        StatusCode::INTERNAL_SERVER_ERROR,
        &ErrorData::internal_error(text.to_owned(), None),
    )
}

/// Answers a request whose body was not received; `max` is the most bytes that it may have.
pub(super) fn unreceived(fault: BodyFault, max: usize) -> Answer {
    match fault {
        BodyFault::TooLarge => {
            metrics::limit_reached(Limit::HttpBodyBytes);
            let text = format!("the body is larger than {max} bytes; send less or raise the limit");
            invalid_request(None, StatusCode::PAYLOAD_TOO_LARGE, &text)
        }
        BodyFault::Late(text) => {
            let answer = invalid_request(None, StatusCode::REQUEST_TIMEOUT, &text);
            with_header(answer, header::CONNECTION, "close")
        }
        BodyFault::Full(text) => {
            let cause = ErrorData::internal_error(text, None);
            unavailable(error(None, StatusCode::SERVICE_UNAVAILABLE, &cause))
        }
        BodyFault::Unreadable(cause) => bad_request(None, &format!("the body could not be read: {cause}")),
    }
}

/// Answers a request of a session that does not exist, with the reason of its end if that is known.
pub(super) fn session_not_found(id: Option<&RawValue>, reason: Option<&str>) -> Answer {
    let text = match reason {
        Some(reason) => format!("session ended: {reason}; send initialize again"),
        None => "the session has ended or never was; send initialize again".to_owned(),
    };
    invalid_request(id, StatusCode::NOT_FOUND, &text)
}

/// Answers a request of a session that cannot be served now: the client keeps its session and tries again.
pub(super) fn session_unavailable(id: Option<&RawValue>, problem: &str) -> Answer {
    let text = format!("the session cannot be served at the moment: {problem}; try again");
    let cause = ErrorData::internal_error(text, None);
    unavailable(error(id, StatusCode::SERVICE_UNAVAILABLE, &cause))
}

/// Answers a request of a caller that has reached a limit of its own.
pub(super) fn too_many_requests(id: Option<&RawValue>, exceeded: Exceeded) -> Answer {
    let cause = ErrorData::internal_error(exceeded.text, None);
    let mut refusal = error(id, StatusCode::TOO_MANY_REQUESTS, &cause);
    let seconds = HeaderValue::from(exceeded.retry_after);
    refusal.headers_mut().insert(header::RETRY_AFTER, seconds);
    refusal
}

/// Answers a refused listen request: 503 when the server is full or stopping, else 400.
pub(super) fn refused_stream(id: &RawValue, refusal: &ErrorData) -> Answer {
    if refusal.code == ErrorCode::INTERNAL_ERROR {
        return unavailable(error(Some(id), StatusCode::SERVICE_UNAVAILABLE, refusal));
    }
    error(Some(id), StatusCode::BAD_REQUEST, refusal)
}

/// Completes the answer to an `initialize` that opened no session: 503 when the server had no room. rmcp's
/// status does not show that, so the body must be read.
pub(super) async fn unavailable_if_full(answer: Answer) -> Answer {
    let (parts, body) = answer.into_parts();
    let Ok(body) = body.collect().await;
    let body = body.to_bytes();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let answer = Response::from_parts(parts, Full::new(body).boxed());
    // The handler refuses with this code only when the bus is full or stopping.
    if message["error"]["code"] == ErrorCode::INTERNAL_ERROR.0 {
        return unavailable(answer);
    }
    answer
}

fn unavailable(mut answer: Answer) -> Answer {
    *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    with_header(answer, header::RETRY_AFTER, RETRY_AFTER)
}

pub(super) fn too_many_streams(id: Option<&RawValue>, max: usize) -> Answer {
    let text = format!("too many open streams: the limit is {max}; try again later");
    unavailable(error(
        id,
        StatusCode::SERVICE_UNAVAILABLE,
        &ErrorData::internal_error(text, None),
    ))
}

pub(super) fn too_many_streams_of_session(max: usize) -> Answer {
    let text = format!("the session has {max} streams open, which is the limit; close one");
    invalid_request(None, StatusCode::CONFLICT, &text)
}

pub(super) fn accepted() -> Answer {
    plain(StatusCode::ACCEPTED)
}

pub(super) fn no_content() -> Answer {
    plain(StatusCode::NO_CONTENT)
}

/// Answers a request with several values of a header that has one.
pub(super) fn repeated_header(name: &header::HeaderName) -> Answer {
    bad_request(None, &format!("the request has several {name} headers; send one"))
}

/// Answers a GET or DELETE that names an unknown revision.
pub(super) fn unknown_version(version: &str) -> Answer {
    // The text repeats only the start: the header may be as long as the server allows headers to be.
    let version: String = version.chars().take(40).collect();
    let known = Revision::ALL.map(Revision::as_str).join(", ");
    bad_request(
        None,
        &format!("unsupported MCP-Protocol-Version {version:?}; send one of {known}"),
    )
}

pub(super) fn not_acceptable() -> Answer {
    invalid_request(
        None,
        StatusCode::NOT_ACCEPTABLE,
        "a stream is text/event-stream; say so in the Accept header",
    )
}

pub(super) fn method_not_allowed() -> Answer {
    with_header(
        plain(StatusCode::METHOD_NOT_ALLOWED),
        header::ALLOW,
        "GET, POST, DELETE",
    )
}

/// Answers a GET or DELETE of 2026-07-28, which has neither.
pub(super) fn post_only() -> Answer {
    with_header(plain(StatusCode::METHOD_NOT_ALLOWED), header::ALLOW, "POST")
}

/// Answers with an open stream. With a `handover`, the server that carries the connection writes it.
pub(super) fn events<S>(stream: S, handover: Option<&StreamHandover>) -> Answer
where
    S: StreamSource + Body<Data = Bytes, Error = Infallible> + Send + Sync + 'static,
{
    as_events(match handover {
        Some(handover) => handover.hand_over(Box::new(stream)).map(BodyExt::boxed),
        None => Response::new(stream.boxed()),
    })
}

/// Answers with a stream that ends with its second message.
pub(super) fn finished(first: &Bytes, last: &Bytes) -> Answer {
    let both = [first.as_ref(), last.as_ref()].concat();
    as_events(Response::new(Full::new(Bytes::from(both)).boxed()))
}

/// Answers a cancelled request, which has no response, with a stream without events.
pub(super) fn no_response() -> Answer {
    as_events(plain(StatusCode::OK))
}

fn as_events(answer: Answer) -> Answer {
    let answer = with_header(answer, header::CONTENT_TYPE, headers::EVENT_STREAM);
    let answer = with_header(answer, header::CACHE_CONTROL, "no-cache, no-transform");
    // Asks reverse proxies not to hold events back (2026-07-28, basic/transports/streamable-http).
    with_header(answer, header::HeaderName::from_static("x-accel-buffering"), "no")
}
