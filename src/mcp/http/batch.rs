//! Batches: the body of a POST of 2025-03-26 may be a JSON array of messages (that revision's
//! basic/transports). rmcp refuses arrays, so each message goes to it alone and the answers are gathered.

use ::http::StatusCode;
use ::http::header::CONTENT_TYPE;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use rmcp::ErrorData;
use serde_json::json;
use serde_json::value::RawValue;

use super::headers;
use super::reply::{self, Answer, EndpointBody, Refusal};
use crate::mcp::peek::Peek;
use crate::metrics::{self, Limit};

/// Splits a batch into its messages.
///
/// # Errors
/// The refusal of a body that is not an array, or of one without messages or with more than `max`.
pub(super) fn split(body: &[u8], max: usize) -> Result<Vec<Bytes>, Refusal> {
    let messages: Vec<Box<RawValue>> =
        serde_json::from_slice(body).map_err(|error| reply::parse_error(&error))?;
    if messages.len() > max {
        metrics::limit_reached(Limit::Batch);
    }
    if messages.is_empty() || messages.len() > max {
        let text = format!("a batch has 1 to {max} messages, not {}", messages.len());
        return Err(reply::bad_request(None, &text).into());
    }
    Ok(messages
        .into_iter()
        .map(|message| Bytes::from(String::from(Box::<str>::from(message))))
        .collect())
}

/// Joins the answers of a batch: an array, or 202 when no message asked for an answer.
pub(super) fn join(answers: &[String]) -> Answer {
    // JSON-RPC 2.0, section 6: an empty array must not be sent.
    if answers.is_empty() {
        return reply::accepted();
    }
    reply::json(StatusCode::OK, format!("[{}]", answers.join(",")))
}

/// The messages in an answer: the one that is its JSON, or those of its events.
pub(super) struct AnswerMessages {
    is_json: bool,
    body: EndpointBody,
    /// The beginning of the next event. A frame of the body may hold a part of an event, or several.
    unread: BytesMut,
}

impl AnswerMessages {
    pub(super) fn of(answer: Answer) -> AnswerMessages {
        let is_json = match answer.headers().get(CONTENT_TYPE) {
            Some(media_type) => media_type.as_bytes().starts_with(headers::JSON.as_bytes()),
            None => false,
        };
        AnswerMessages {
            is_json,
            body: answer.into_body(),
            unread: BytesMut::new(),
        }
    }

    /// Returns the next message; none at the end of the answer.
    pub(super) async fn next(&mut self) -> Option<String> {
        loop {
            while !self.is_json
                && let Some(end) = self.unread.windows(2).position(|two| two == b"\n\n")
            {
                let event = self.unread.split_to(end + 2);
                if let Some(data) = data_of(&event) {
                    return Some(data);
                }
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.unread.extend(frame.into_data().unwrap_or_default()),
                None if self.is_json && !self.unread.is_empty() => {
                    return String::from_utf8(self.unread.split().into()).ok();
                }
                None => return None,
            }
        }
    }
}

/// Makes the answer to a request of the server within a batch, which the client is not shown.
pub(super) fn unseen_request(id: &RawValue, method: &str) -> Bytes {
    let text = format!("the client sent a batch, whose answer has no place for {method}");
    let error = json!(ErrorData::internal_error(text, None));
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#,
        id.get()
    ))
}

pub(super) fn is_response(message: &str) -> bool {
    matches!(Peek::of(message.as_bytes()), Ok(peek) if peek.is_response())
}

/// Returns the data of an event that has it on one line, as rmcp writes them.
pub(super) fn data_of(event: &[u8]) -> Option<String> {
    let data = std::str::from_utf8(event)
        .ok()?
        .lines()
        .find_map(|line| line.strip_prefix("data:"))?;
    Some(data.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::http::{HeaderValue, Response};
    use http_body_util::StreamBody;
    use http_body_util::combinators::BoxBody;
    use std::convert::Infallible;

    fn answer(media_type: &'static str, pieces: &[&'static str]) -> Answer {
        let frames: Vec<Result<_, Infallible>> = pieces
            .iter()
            .map(|piece| Ok(http_body::Frame::data(Bytes::from_static(piece.as_bytes()))))
            .collect();
        let body = StreamBody::new(futures_util::stream::iter(frames));
        let mut answer = Response::new(BoxBody::new(body));
        answer
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        answer
    }

    async fn messages_in(answer: Answer) -> Vec<String> {
        let mut reader = AnswerMessages::of(answer);
        let mut messages = Vec::new();
        while let Some(message) = reader.next().await {
            messages.push(message);
        }
        messages
    }

    #[tokio::test]
    async fn answer_yields_its_messages_one_by_one() {
        let json = answer("application/json", &[r#"{"id":1,"#, r#""result":{}}"#]);
        assert_eq!(messages_in(json).await, [r#"{"id":1,"result":{}}"#]);
        let pieces = [
            ":\n\ndata: {\"method\":\"notifications/message\"}\n",
            "\ndata: {\"id\":1,\"meth",
            "od\":\"roots/list\"}\n\nid: 4\ndata: {\"id\":1,\"result\":{}}\n\n",
        ];
        let messages = messages_in(answer("text/event-stream", &pieces)).await;
        let [log, asked, response] = messages.as_slice() else {
            panic!("{messages:?}");
        };
        assert_eq!(log, r#"{"method":"notifications/message"}"#);
        assert_eq!(asked, r#"{"id":1,"method":"roots/list"}"#);
        assert!(!is_response(log) && !is_response(asked) && is_response(response));
        let cut = messages_in(answer("text/event-stream", &pieces[..2])).await;
        assert_eq!(cut, [log.as_str()]);
        assert!(messages_in(reply::accepted()).await.is_empty());
    }
}
