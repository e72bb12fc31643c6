//! Batches: a POST body of 2025-03-26 may be a JSON array of messages (that revision's basic/transports). rmcp refuses
//! arrays, so each message goes to it alone and the answers are gathered.
//!
//! Owns: splitting and gathering. Never: serves a batch on a revision that has none, or `initialize` in one.

use ::http::StatusCode;
use ::http::request::Parts;
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::value::RawValue;

use super::peek::Peek;
use super::{Answer, Inner, reply};

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
            answers.extend(messages_of(answer).await);
        }
        if answers.is_empty() {
            return reply::accepted();
        }
        reply::json(StatusCode::OK, format!("[{}]", answers.join(",")))
    }
}

/// The messages in an answer: its JSON, or the data of its events.
async fn messages_of(answer: Answer) -> Vec<String> {
    let Ok(body) = answer.into_body().collect().await;
    let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    if text.trim_start().starts_with('{') {
        return vec![text];
    }
    let data = text
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .map(str::trim);
    data.filter(|data| !data.is_empty()).map(str::to_owned).collect()
}
