//! Batches: a POST body of 2025-03-26 may be a JSON array of messages (that revision's basic/transports). rmcp refuses
//! arrays, so each message goes to it alone and the answers are gathered.
//!
//! Owns: splitting and gathering. Never: serves a batch on a revision that has none, or `initialize` in one; passes on
//! what tools tell while they run (an array of answers has no place for it).

use ::http::StatusCode;
use ::http::header::CONTENT_TYPE;
use ::http::request::Parts;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde_json::value::RawValue;

use super::endpoint::{Answer, Inner};
use super::peek::Peek;
use super::reply;
use crate::metrics::{self, Limit};

impl Inner {
    /// Answers a POST of several messages: an array of the answers to its requests, or 202 when it has none.
    pub(super) async fn batch(&self, parts: Parts, body: &Bytes) -> Answer {
        let session = match self.session(&parts, None) {
            Ok(session) => session,
            Err(refusal) => return refusal,
        };
        if !session.revision.takes_batches() {
            let text = format!(
                "revision {} has no batches; send one message per request",
                session.revision.as_str()
            );
            return reply::bad_request(None, &text);
        }
        let messages: Vec<Box<RawValue>> = match serde_json::from_slice(body) {
            Ok(messages) => messages,
            Err(error) => return reply::parse_error(&error),
        };
        let max = self.handler.options.batch_max;
        if messages.is_empty() || messages.len() > max {
            if messages.len() > max {
                metrics::limit_reached(Limit::Batch);
            }
            return reply::bad_request(
                None,
                &format!("a batch has 1 to {max} messages, not {}", messages.len()),
            );
        }
        let mut answers = Vec::new();
        for message in messages {
            let message = Bytes::from(String::from(Box::<str>::from(message)));
            let initializes = Peek::of(&message).is_ok_and(|peek| peek.is_initialize());
            let answer = if initializes {
                reply::bad_request(
                    Peek::of(&message).ok().as_ref().and_then(Peek::id),
                    "initialize cannot be in a batch",
                )
            } else {
                self.message(parts.clone(), message).await
            };
            answers.extend(answer_of(answer).await);
        }
        if answers.is_empty() {
            return reply::accepted();
        }
        reply::json(StatusCode::OK, format!("[{}]", answers.join(",")))
    }
}

/// The answer in an answer: its JSON, or that of its events which answers. What a tool tells while it runs comes before
/// it and is dropped as it comes: an array of answers has no place for it, and must not be held back to gather it.
async fn answer_of(answer: Answer) -> Option<String> {
    let is_json = answer
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let mut body = answer.into_body();
    if is_json {
        let Ok(body) = body.collect().await;
        return String::from_utf8(body.to_bytes().into()).ok();
    }
    let mut unread = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        unread.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..]));
        while let Some(end) = unread.windows(2).position(|two| two == b"\n\n") {
            let event = unread.split_to(end + 2);
            if let Some(answer) = data_of(&event).filter(|data| is_answer(data)) {
                return Some(answer);
            }
        }
    }
    None
}

fn is_answer(message: &str) -> bool {
    Peek::of(message.as_bytes()).is_ok_and(|peek| peek.is_response())
}

/// The data of an event that has it on one line, as rmcp writes them.
fn data_of(event: &[u8]) -> Option<String> {
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

    fn answer(kind: &'static str, pieces: &[&'static str]) -> Answer {
        let frames: Vec<Result<_, Infallible>> = pieces
            .iter()
            .map(|piece| Ok(http_body::Frame::data(Bytes::from_static(piece.as_bytes()))))
            .collect();
        let body = StreamBody::new(futures_util::stream::iter(frames));
        let mut answer = Response::new(BoxBody::new(body));
        answer
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        answer
    }

    #[tokio::test]
    async fn of_an_answer_only_the_response_is_gathered() {
        let json = answer("application/json", &[r#"{"id":1,"#, r#""result":{}}"#]);
        assert_eq!(answer_of(json).await.as_deref(), Some(r#"{"id":1,"result":{}}"#));
        let pieces = [
            ":\n\ndata: {\"method\":\"notifications/message\"}\n",
            "\ndata: {\"id\":1,\"meth",
            "od\":\"roots/list\"}\n\nid: 4\ndata: {\"id\":1,\"result\":{}}\n\n",
        ];
        let told = answer_of(answer("text/event-stream", &pieces)).await;
        assert_eq!(told.as_deref(), Some(r#"{"id":1,"result":{}}"#));
        assert_eq!(answer_of(answer("text/event-stream", &pieces[..2])).await, None);
        assert_eq!(answer_of(reply::accepted()).await, None);
    }
}
