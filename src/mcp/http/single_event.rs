//! Answers within sessions that rmcp serves, which are streams even where they have one event.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use ::http::{HeaderValue, Response};
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};

use super::batch::{data_of, is_response};
use super::headers::{EVENT_STREAM, JSON};
use super::reply::{Answer, EndpointBody};

/// Returns an answer as JSON if its first event is the response. Another one stays the stream that it is.
pub(super) async fn as_json(answer: Answer) -> Answer {
    let is_stream = match answer.headers().get(CONTENT_TYPE) {
        Some(media_type) => media_type.as_bytes().starts_with(EVENT_STREAM.as_bytes()),
        None => false,
    };
    if !is_stream {
        return answer;
    }
    let (mut parts, mut rest) = answer.into_parts();
    let mut read = BytesMut::new();
    while let Some(Ok(frame)) = rest.frame().await {
        if let Some(data) = frame.data_ref() {
            read.extend_from_slice(data);
        }
        let Some(end) = read.windows(2).position(|two| two == b"\n\n") else {
            continue;
        };
        let Some(data) = data_of(&read[..end + 2]) else {
            // A comment keeps the stream alive, which has no reader yet.
            drop(read.split_to(end + 2));
            continue;
        };
        if !is_response(&data) {
            break;
        }
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        parts.headers.remove(CACHE_CONTROL);
        parts.headers.remove("x-accel-buffering");
        return Response::from_parts(parts, Full::new(Bytes::from(data)).boxed());
    }
    let body = ReadAhead {
        read: Some(read.freeze()).filter(|read| !read.is_empty()),
        rest,
    };
    Response::from_parts(parts, body.boxed())
}

/// A body whose beginning was read already.
struct ReadAhead {
    read: Option<Bytes>,
    rest: EndpointBody,
}

impl Body for ReadAhead {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.read.take() {
            Some(read) => Poll::Ready(Some(Ok(Frame::data(read)))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::StreamBody;

    use super::*;

    fn stream(pieces: &[&'static str]) -> Answer {
        let frames: Vec<Result<_, Infallible>> = pieces
            .iter()
            .map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))))
            .collect();
        let mut answer = Response::new(StreamBody::new(futures_util::stream::iter(frames)).boxed());
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
        headers.insert("mcp-session-id", HeaderValue::from_static("s"));
        answer
    }

    async fn text(answer: Answer) -> (String, String) {
        let media_type = answer.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
        assert_eq!(answer.headers()["mcp-session-id"], "s");
        let Ok(body) = answer.into_body().collect().await;
        (media_type, String::from_utf8(body.to_bytes().into()).unwrap())
    }

    #[tokio::test]
    async fn response_alone_becomes_json() {
        let answer = as_json(stream(&[":\n\n", "data: {\"id\":1,\"res", "ult\":{}}\n\n"])).await;
        assert_eq!(
            text(answer).await,
            (JSON.to_owned(), r#"{"id":1,"result":{}}"#.to_owned())
        );
    }

    #[tokio::test]
    async fn stream_with_earlier_messages_is_kept_whole() {
        let pieces = [
            "data: {\"method\":\"n\"}\n",
            "\nda",
            "ta: {\"id\":1,\"result\":{}}\n\n",
        ];
        let answer = as_json(stream(&pieces)).await;
        assert_eq!(text(answer).await, (EVENT_STREAM.to_owned(), pieces.concat()));
        let answer = as_json(stream(&["data: {\"id\":1"])).await;
        assert_eq!(
            text(answer).await,
            (EVENT_STREAM.to_owned(), "data: {\"id\":1".to_owned())
        );
    }
}
