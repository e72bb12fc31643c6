//! The stream of a session whose server also sends messages of its own: they follow the notices that wait in
//! the outbox. They have no id, since a stream that is resumed goes on from the bus.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::outbox_stream::OutboxStream;
use super::served::OwnMessages;

/// An outbox and the messages of a server.
pub(super) struct WithOwnMessages {
    outbox: OutboxStream,
    /// None once the server sends nothing more.
    messages: Option<OwnMessages>,
}

impl WithOwnMessages {
    pub(super) fn new(outbox: OutboxStream, messages: OwnMessages) -> WithOwnMessages {
        WithOwnMessages {
            outbox,
            messages: Some(messages),
        }
    }
}

impl Body for WithOwnMessages {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let stream = self.get_mut();
        let notices = Pin::new(&mut stream.outbox).poll_frame(cx);
        if notices.is_ready() {
            return notices;
        }
        let Some(messages) = &mut stream.messages else {
            return Poll::Pending;
        };
        match messages.as_mut().poll_next(cx) {
            Poll::Ready(Some(json)) => {
                let event = [b"data: ", json.as_ref(), b"\n\n"].concat();
                Poll::Ready(Some(Ok(Frame::data(event.into()))))
            }
            Poll::Ready(None) => {
                // The outbox alone says when the stream ends.
                stream.messages = None;
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    }
}
