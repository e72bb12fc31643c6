//! The hand-over of a stream: it leaves the HTTP library once the head of its response is written.
//!
//! An idle connection of the HTTP library holds a read buffer, a parser and a boxed service, and each frame
//! passes its whole state machine. After the head, a stream needs a socket and a source of bytes only
//! (figures in `docs/benchmarks.md`).
//!
//! The server puts a [`StreamHandover`] into the request. A service that answers with a stream hands it over
//! and returns a response with a [`DeferredBody`]. In HTTP/1.1 the library polls the body after it has
//! written the head; then the server takes the connection away from the library. In HTTP/2 the connection
//! stays, and the stream takes the place of the body.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use ::http::{HeaderValue, Response, header};
use bytes::Bytes;
use http_body::{Body, Frame};

/// A source of bytes that are written after the head. Unlike a body it appends to the buffer that is written,
/// and reports in the same call whether there is more, so that a delivery is one poll and one copy.
pub(crate) trait StreamSource: Send {
    /// Appends the next bytes to `out`, as many as one write should carry. Pending when there are none; then,
    /// and after [`Appended::Drained`], `cx` is woken when there are some.
    fn poll_append(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Appended>;
}

/// The state of a source after it has appended its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Appended {
    /// It has nothing more for now, and wakes the task when it has.
    Drained,
    /// It may have more.
    More,
    /// It has ended.
    Finished,
}

/// A stream that is written after its head.
pub(crate) type Stream = Box<dyn StreamSource>;

/// A body as a source of bytes.
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
        // Trailers are dropped: streams of events have none.
        if let Ok(data) = frame.into_data() {
            out.extend(data);
        }
        Poll::Ready(Appended::More)
    }
}

#[derive(Default)]
struct Slot {
    stream: Mutex<Option<Stream>>,
    /// True once the library has polled the deferred body, which it does after it has written the head.
    polled: AtomicBool,
}

/// The way by which a service hands a stream to its server. Travels in the extensions of a request.
#[derive(Clone, Default)]
pub(crate) struct StreamHandover {
    slot: Arc<Slot>,
}

impl StreamHandover {
    /// Hands `stream` over, and returns the response whose body it is.
    ///
    /// The response says that the connection ends with it (RFC 9112, 9.6), as it does: a client or proxy that
    /// took it for reusable would lose the next request on it.
    pub(crate) fn hand_over(&self, stream: Stream) -> Response<DeferredBody> {
        *self.slot.stream.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
        let mut response = Response::new(DeferredBody {
            slot: self.slot.clone(),
        });
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
        response
    }

    /// Takes the stream that was handed over, once its head is written.
    pub(crate) fn take(&self) -> Option<Stream> {
        // Service and server run on the same thread, so no stronger order is needed.
        if !self.slot.polled.load(Ordering::Relaxed) {
            return None;
        }
        self.take_with_head()
    }

    /// Takes the stream that was handed over, for a server that writes its head itself.
    pub(crate) fn take_with_head(&self) -> Option<Stream> {
        self.slot
            .stream
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

/// The body of a response whose stream was handed over. It is never ready.
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
        // The server polls the connection and looks for the stream right after, so no wake-up is needed.
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
    fn body_gives_its_data_and_then_its_end() {
        let mut stream = BodyStream(Full::new(Bytes::from_static(b"body")));
        let mut cx = Context::from_waker(Waker::noop());
        let mut out = Vec::new();
        assert_eq!(stream.poll_append(&mut cx, &mut out), Poll::Ready(Appended::More));
        assert_eq!(
            stream.poll_append(&mut cx, &mut out),
            Poll::Ready(Appended::Finished)
        );
        assert_eq!(out, b"body");
    }

    #[test]
    fn stream_is_taken_once_after_its_head() {
        let handover = StreamHandover::default();
        assert!(handover.take().is_none());
        let response = handover.hand_over(Box::new(BodyStream(Full::new(Bytes::new()))));
        let mut deferred = response.into_body();
        assert!(handover.take().is_none());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut deferred).poll_frame(&mut cx).is_pending());
        assert!(handover.take().is_some());
        assert!(handover.take().is_none());
    }
}
