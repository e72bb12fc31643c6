//! The body of an answer over HTTP/2, in frames of bounded size.
//!
//! Flow control is back-pressure. The library asks a body for its next frame when it has handed the last one
//! to the connection, so a body whose window is closed is not asked, and its notices stay in the outbox,
//! where newer ones replace them. While the socket takes nothing, no body of the connection is asked.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::http2_streams::RequestState;
use crate::http::stream_handover::{Appended, Stream};

/// The bytes of a body that the library gets at a time. It takes a frame as a whole, and a client that opens
/// its window byte by byte would otherwise hold a large body without a task that watches it.
const FRAME_MAX: usize = 16 << 10;

thread_local! {
    /// The buffer in which a frame of a stream is made: one for all streams of a thread.
    static FRAME: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The body of an answer.
pub(super) struct Http2Body<B> {
    source: Source<B>,
    /// The turn of the task in which the stream last said that it has nothing more for now.
    drained_in: u64,
    /// The part of the last frame that the library has not got.
    rest: Bytes,
    state: Rc<RequestState>,
}

/// The source of the bytes of a body.
enum Source<B> {
    Body(Pin<Box<B>>),
    /// A stream that was handed over.
    Stream(Stream),
    /// The body is left out or was read to its end.
    None,
}

impl<B> Http2Body<B> {
    pub(super) fn new(body: B, state: Rc<RequestState>) -> Http2Body<B> {
        Http2Body::of(Source::Body(Box::pin(body)), state)
    }

    /// Makes a body of these bytes.
    pub(super) fn of_bytes(bytes: Bytes, state: Rc<RequestState>) -> Http2Body<B> {
        Http2Body {
            rest: bytes,
            ..Http2Body::of(Source::None, state)
        }
    }

    /// Makes the body that a stream writes.
    pub(super) fn of_stream(stream: Stream, state: Rc<RequestState>) -> Http2Body<B> {
        Http2Body::of(Source::Stream(stream), state)
    }

    fn of(source: Source<B>, state: Rc<RequestState>) -> Http2Body<B> {
        Http2Body {
            source,
            drained_in: 0,
            rest: Bytes::new(),
            state,
        }
    }

    /// Leaves the body out, as in an answer to HEAD.
    pub(super) fn leave_out(&mut self) {
        self.source = Source::None;
        self.rest = Bytes::new();
    }

    /// Returns the next frame of the rest.
    fn next_of_rest(&mut self) -> Frame<Bytes> {
        let frame = self.rest.split_to(self.rest.len().min(FRAME_MAX));
        self.state.took_frame(frame.len());
        Frame::data(frame)
    }

    /// Takes the next bytes of a stream; none at its end.
    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Source::Stream(stream) = &mut self.source else {
            return Poll::Ready(None);
        };
        // In a later turn the task may have been woken for what the stream has now.
        if self.drained_in == self.state.turn() {
            return Poll::Pending;
        }
        let mut frame = FRAME.take();
        frame.clear();
        let appended = stream.poll_append(cx, &mut frame);
        // Of its own length, since it may wait long for its window.
        let data = Bytes::copy_from_slice(&frame);
        // One large body must not hold its memory on every thread for good.
        frame.shrink_to(FRAME_MAX);
        FRAME.set(frame);
        // After the buffer is put back, also where nothing came.
        match ready!(appended) {
            Appended::Drained => self.drained_in = self.state.turn(),
            Appended::More => {}
            Appended::Finished => self.source = Source::None,
        }
        Poll::Ready((!data.is_empty()).then_some(data))
    }
}

impl<B> Body for Http2Body<B>
where
    B: Body<Data = Bytes>,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        ready!(this.state.poll_room(cx));
        loop {
            if !this.rest.is_empty() {
                return Poll::Ready(Some(Ok(this.next_of_rest())));
            }
            match &mut this.source {
                Source::None => return Poll::Ready(None),
                Source::Stream(_) => {
                    // A stream without bytes for now is asked again, and one at its end is gone.
                    this.rest = ready!(this.poll_stream(cx)).unwrap_or_default();
                }
                Source::Body(body) => match ready!(body.as_mut().poll_frame(cx)) {
                    None => this.source = Source::None,
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    Some(Ok(frame)) => match frame.into_data() {
                        // Handed on, since the library may wait for it as the end.
                        Ok(data) if data.is_empty() => return Poll::Ready(Some(Ok(Frame::data(data)))),
                        Ok(data) => this.rest = data,
                        Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                    },
                },
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
            && match &self.source {
                Source::Body(body) => body.is_end_stream(),
                Source::Stream(_) => false,
                Source::None => true,
            }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Body(body) => body.size_hint(),
            // Unknown, so that no length is announced.
            Source::Stream(_) => SizeHint::default(),
            Source::None => SizeHint::with_exact(self.rest.len() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::connection::texts::{Texts, streams};
    use http_body_util::Empty;
    use std::convert::Infallible;
    use std::task::Waker;

    type TestedBody = Http2Body<Empty<Bytes>>;

    fn state() -> Rc<RequestState> {
        let streams = streams();
        let state = streams.begin();
        assert!(state.has_place() && !streams.begin().has_place());
        state.begin_turn();
        state
    }

    fn next(body: &mut TestedBody) -> Poll<Option<Bytes>> {
        let mut cx = Context::from_waker(Waker::noop());
        let polled: Poll<Option<Result<_, Infallible>>> = Pin::new(body).poll_frame(&mut cx);
        polled.map(|frame| frame.map(|frame| frame.unwrap().into_data().unwrap()))
    }

    #[test]
    fn drained_stream_is_asked_once_in_a_turn() {
        let texts = Texts::default();
        let state = state();
        let mut body = TestedBody::of_stream(Box::new(texts.clone()), state.clone());
        texts.put("one");
        assert_eq!(next(&mut body), Poll::Ready(Some(Bytes::from("one"))));
        assert!(next(&mut body).is_pending());
        assert_eq!(texts.asked(), 1);
        // The first frame has waited for its window, and the wake-up came in the meantime.
        texts.put("two");
        state.begin_turn();
        assert_eq!(next(&mut body), Poll::Ready(Some(Bytes::from("two"))));
    }

    #[test]
    fn long_text_is_handed_out_in_frames() {
        let texts = Texts::default();
        let mut body = TestedBody::of_stream(Box::new(texts.clone()), state());
        let text = "x".repeat(2 * FRAME_MAX + 1);
        texts.put(&text);
        for length in [FRAME_MAX, FRAME_MAX, 1] {
            let Poll::Ready(Some(frame)) = next(&mut body) else {
                panic!("no frame of {length} bytes");
            };
            assert_eq!(frame.len(), length);
        }
        assert!(next(&mut body).is_pending());
        body.leave_out();
        assert_eq!(next(&mut body), Poll::Ready(None));
    }
}
