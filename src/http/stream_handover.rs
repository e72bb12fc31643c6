//! Streams that leave the HTTP library once their head is written.
//!
//! Owns: [`StreamHandover`], by which a server that can write streams itself tells an endpoint so, and is handed the stream, a
//! [`StreamSource`]. Never: writes (the service's stream writer does), or decides what is streamed.
//! An idle connection of the HTTP library holds a read buffer, a parser and a boxed service, and each frame passes its
//! whole state machine; what a stream needs after its head is a socket and a body (figures in `docs/benchmarks.md`).
//!
//! The server puts a handover into the request; the endpoint hands the stream over and answers with a deferred body; when the
//! library has polled that, the head is written, and the server takes the connection away from the library.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

/// Where a stream that is written after its head comes from. Unlike a body it puts what it has where it is written from,
/// and says in one call whether there is more, so that a delivery is one look and one copy.
pub(crate) trait StreamSource: Send {
    /// Appends what is to be written next to `out`, as much as one write should carry. Pending when there is nothing;
    /// then, and after [`Appended::Drained`], `cx` is woken when there is.
    fn poll_append(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Appended>;
}

/// What became of a look for something to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Appended {
    /// That is all for now: looking again before being woken brings nothing.
    Drained,
    /// There may be more.
    More,
    /// Nothing will come after it.
    Finished,
}

/// A stream that is written after its head.
pub(crate) type Stream = Box<dyn StreamSource>;

/// A body as a stream.
pub(crate) struct BodyStream<B>(pub(crate) B);

impl<B> StreamSource for BodyStream<B>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + Unpin,
{
    fn poll_append(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Appended> {
        let frame = std::task::ready!(Pin::new(&mut self.0).poll_frame(cx));
        let Some(Ok(frame)) = frame else {
            return Poll::Ready(Appended::Finished);
        };
        out.extend(frame.into_data().unwrap_or_default());
        Poll::Ready(Appended::More)
    }
}

#[derive(Default)]
struct Slot {
    stream: Mutex<Option<Stream>>,
    /// Whether the deferred body has been polled, which the library does after it has written the head.
    polled: AtomicBool,
}

/// The way of a stream around the HTTP library. Travels in the extensions of a request.
#[derive(Clone, Default)]
pub(crate) struct StreamHandover {
    slot: Arc<Slot>,
}

impl StreamHandover {
    /// Hands `stream` over; the answer is to have the deferred body instead.
    pub(crate) fn hand_over(&self, stream: Stream) -> DeferredBody {
        *self.slot.stream.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
        DeferredBody {
            slot: self.slot.clone(),
        }
    }

    /// The stream that was handed over, when its head is on the way.
    pub(crate) fn take(&self) -> Option<Stream> {
        if !self.slot.polled.load(Ordering::Relaxed) {
            return None;
        }
        self.slot
            .stream
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

/// Stands for a body that is written by somebody else. Never ready.
pub(crate) struct DeferredBody {
    slot: Arc<Slot>,
}

impl Body for DeferredBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // The server polls the connection, so it looks after this without being woken.
        self.slot.polled.store(true, Ordering::Relaxed);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use std::task::Waker;

    #[test]
    fn a_body_gives_its_data_and_then_its_end() {
        let mut stream = BodyStream(Full::new(Bytes::from_static(b"body")));
        let (mut cx, mut out) = (Context::from_waker(Waker::noop()), Vec::new());
        assert_eq!(stream.poll_append(&mut cx, &mut out), Poll::Ready(Appended::More));
        assert_eq!(
            stream.poll_append(&mut cx, &mut out),
            Poll::Ready(Appended::Finished)
        );
        assert_eq!(out, b"body");
    }

    #[test]
    fn a_stream_is_taken_once_and_only_after_the_head() {
        let handover = StreamHandover::default();
        assert!(handover.take().is_none());
        let mut deferred = handover.hand_over(Box::new(BodyStream(Full::new(Bytes::new()))));
        assert!(handover.take().is_none());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut deferred).poll_frame(&mut cx).is_pending());
        assert!(handover.take().is_some());
        assert!(handover.take().is_none());
    }
}
