//! The messages that a server sends a session of its own accord, and the stream of a session that has them
//! too: they follow the notices that wait in the outbox. They have no id, since a stream that is resumed goes
//! on from the bus, so none is sent twice.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame};
use rmcp::model::ServerJsonRpcMessage;

use super::outbox_stream::OutboxStream;
use crate::http::stream_handover::{Appended, StreamSource};
use crate::metrics::{self, Limit};

/// The number of its own messages that a server may have waiting for the stream of a session. With each one
/// more the oldest is dropped, and counted: the server is never held up by a client that does not read.
const OWN_MESSAGES_MAX: usize = 256;

/// The messages that wait for a stream of their session, as JSON.
#[derive(Default)]
pub struct OwnMessages {
    waiting: Mutex<QueuedMessages>,
}

#[derive(Default)]
struct QueuedMessages {
    messages: VecDeque<Bytes>,
    /// The open streams by their numbers, the newest last. A session has few.
    streams: Vec<(u64, Option<Waker>)>,
    next_stream: u64,
}

impl QueuedMessages {
    /// Wakes the stream that takes the messages.
    fn wake(&mut self) {
        if let Some((_, waker)) = self.streams.last_mut()
            && let Some(waker) = waker.take()
        {
            waker.wake();
        }
    }
}

impl OwnMessages {
    fn waiting(&self) -> MutexGuard<'_, QueuedMessages> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message. The oldest one goes when there are [`OWN_MESSAGES_MAX`].
    pub(crate) fn push_message(&self, message: &ServerJsonRpcMessage) {
        match serde_json::to_vec(message) {
            Ok(json) => self.push(json.into()),
            Err(error) => {
                tracing::warn!(%error, "a message of a wrapped server is no JSON and was not sent");
            }
        }
    }

    fn push(&self, json: Bytes) {
        let mut waiting = self.waiting();
        if waiting.messages.len() >= OWN_MESSAGES_MAX {
            // The oldest: of the state that a server tells, the newest counts.
            metrics::limit_reached(Limit::OwnMessages);
            waiting.messages.pop_front();
        }
        waiting.messages.push_back(json);
        waiting.wake();
    }

    /// Adds a stream, which takes the messages from now on. Returns its number.
    fn add_stream(&self) -> u64 {
        // A client may open a new stream before the server has noticed that the old one broke, so the newest
        // is the one that is read.
        let mut waiting = self.waiting();
        let stream = waiting.next_stream;
        waiting.next_stream += 1;
        waiting.streams.push((stream, None));
        stream
    }

    fn remove_stream(&self, stream: u64) {
        let mut waiting = self.waiting();
        waiting.streams.retain(|(other, _)| *other != stream);
        // The stream before it takes over, and was woken for none of these.
        if !waiting.messages.is_empty() {
            waiting.wake();
        }
    }

    /// Returns the next message for a stream. One that is not the newest waits until it is.
    fn poll_next(&self, stream: u64, cx: &Context<'_>) -> Poll<Bytes> {
        let mut waiting = self.waiting();
        // Under one lock with the waker: a message that came between the two would wake no stream.
        let newest = waiting.streams.last().map(|(newest, _)| *newest);
        if newest == Some(stream)
            && let Some(message) = waiting.messages.pop_front()
        {
            return Poll::Ready(message);
        }
        for (other, waker) in &mut waiting.streams {
            if *other == stream {
                *waker = Some(cx.waker().clone());
            }
        }
        Poll::Pending
    }
}

/// An outbox and the messages of a server.
pub(super) struct WithOwnMessages {
    outbox: OutboxStream,
    messages: Arc<OwnMessages>,
    /// The number of this stream among those that take the messages.
    stream: u64,
}

impl WithOwnMessages {
    pub(super) fn new(outbox: OutboxStream, messages: Arc<OwnMessages>) -> WithOwnMessages {
        WithOwnMessages {
            outbox,
            stream: messages.add_stream(),
            messages,
        }
    }
}

impl Drop for WithOwnMessages {
    fn drop(&mut self) {
        self.messages.remove_stream(self.stream);
    }
}

impl StreamSource for WithOwnMessages {
    fn poll_append(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Appended> {
        // The outbox alone says when the stream ends.
        let notices = self.outbox.poll_append(cx, out);
        if let Poll::Ready(Appended::More | Appended::Finished) = notices {
            return notices;
        }
        match self.messages.poll_next(self.stream, cx) {
            Poll::Ready(json) => {
                for part in [b"data: ", json.as_ref(), b"\n\n"] {
                    out.extend(part);
                }
                Poll::Ready(Appended::More)
            }
            Poll::Pending => notices,
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
        let mut bytes = Vec::new();
        let appended = self.get_mut().poll_append(cx, &mut bytes);
        appended.map(|_| (!bytes.is_empty()).then(|| Ok(Frame::data(bytes.into()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(messages: &OwnMessages, stream: u64) -> Option<Bytes> {
        match messages.poll_next(stream, &Context::from_waker(Waker::noop())) {
            Poll::Ready(message) => Some(message),
            Poll::Pending => None,
        }
    }

    #[test]
    fn newest_stream_takes_each_message_once() {
        let messages = OwnMessages::default();
        messages.push("1".into());
        let first = messages.add_stream();
        assert_eq!(next(&messages, first).as_deref(), Some(&b"1"[..]));
        let second = messages.add_stream();
        messages.push("2".into());
        assert_eq!(next(&messages, first), None);
        messages.remove_stream(second);
        assert_eq!(next(&messages, first).as_deref(), Some(&b"2"[..]));
        assert_eq!(next(&messages, first), None);
    }

    #[test]
    fn oldest_message_goes_at_the_limit() {
        let messages = OwnMessages::default();
        for number in 0..=OWN_MESSAGES_MAX {
            messages.push(number.to_string().into());
        }
        let stream = messages.add_stream();
        assert_eq!(next(&messages, stream).as_deref(), Some(&b"1"[..]));
        assert_eq!(messages.waiting().messages.len(), OWN_MESSAGES_MAX - 1);
    }
}
