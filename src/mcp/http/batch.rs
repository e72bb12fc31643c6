//! Batches: the body of a POST of 2025-03-26 may be a JSON array of messages (that revision's
//! basic/transports). rmcp refuses arrays, so each message goes to it alone and the answers are gathered.

use ::http::StatusCode;
use ::http::header::CONTENT_TYPE;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde_json::value::RawValue;

use super::headers;
use super::reply::{self, Answer, Refusal};
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

/// Returns the JSON-RPC response in an answer: its JSON, or the event of it that is the response. Messages of
/// a tool that come before are dropped as they arrive: an array of answers has no place for them, and
/// gathering them would hold memory for as long as the tool runs.
pub(super) async fn response_in(answer: Answer) -> Option<String> {
    let is_json = match answer.headers().get(CONTENT_TYPE) {
        Some(media_type) => media_type.as_bytes().starts_with(headers::JSON.as_bytes()),
        None => false,
    };
    let mut body = answer.into_body();
    if is_json {
        let Ok(body) = body.collect().await;
        return String::from_utf8(body.to_bytes().into()).ok();
    }
    // A frame of the body may hold a part of an event, or several.
    let mut unread = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(data) = frame.data_ref() {
            unread.extend_from_slice(data);
        }
        while let Some(end) = unread.windows(2).position(|two| two == b"\n\n") {
            let event = unread.split_to(end + 2);
            if let Some(data) = data_of(&event)
                && is_response(&data)
            {
                return Some(data);
            }
        }
    }
    None
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

    #[tokio::test]
    async fn answer_yields_only_its_response() {
        let json = answer("application/json", &[r#"{"id":1,"#, r#""result":{}}"#]);
        assert_eq!(
            response_in(json).await.as_deref(),
            Some(r#"{"id":1,"result":{}}"#)
        );
        let pieces = [
            ":\n\ndata: {\"method\":\"notifications/message\"}\n",
            "\ndata: {\"id\":1,\"meth",
            "od\":\"roots/list\"}\n\nid: 4\ndata: {\"id\":1,\"result\":{}}\n\n",
        ];
        let response = response_in(answer("text/event-stream", &pieces)).await;
        assert_eq!(response.as_deref(), Some(r#"{"id":1,"result":{}}"#));
        assert_eq!(response_in(answer("text/event-stream", &pieces[..2])).await, None);
        assert_eq!(response_in(reply::accepted()).await, None);
    }
}
