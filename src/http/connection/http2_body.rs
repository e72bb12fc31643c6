//! The body of an answer over HTTP/2, in parts of bounded size: a body of the service, or a stream that was
//! handed over.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;

use super::frame_buffers;
use crate::http::stream_handover::{Appended, Stream};

/// The bytes of a body that the library gets at a time. It takes a frame as a whole, and a client that opens
/// its window byte by byte would otherwise hold a large body without a task that watches it.
pub(super) const FRAME_MAX: usize = 16 << 10;

/// The body of an answer.
pub(super) struct AnswerBody<B> {
    source: Source<B>,
    /// The part of the last bytes that the library has not got.
    rest: Bytes,
}

/// The source of the bytes of a body.
enum Source<B> {
    Body(Pin<Box<B>>),
    /// A stream that was handed over.
    Stream(Stream),
    /// The body is left out or was read to its end.
    None,
}

/// The next part of a body.
pub(super) enum BodyPart {
    Data(Bytes),
    /// The last bytes of a stream for now: it wakes the task when it has more.
    Drained(Vec<u8>),
    Trailers(HeaderMap),
    End,
}

impl<B> AnswerBody<B> {
    pub(super) fn of_body(body: B) -> AnswerBody<B> {
        AnswerBody::of(Source::Body(Box::pin(body)))
    }

    /// Makes a body of these bytes.
    pub(super) fn of_bytes(bytes: Bytes) -> AnswerBody<B> {
        AnswerBody {
            source: Source::None,
            rest: bytes,
        }
    }

    /// Makes the body that a stream writes.
    pub(super) fn of_stream(stream: Stream) -> AnswerBody<B> {
        AnswerBody::of(Source::Stream(stream))
    }

    fn of(source: Source<B>) -> AnswerBody<B> {
        AnswerBody {
            source,
            rest: Bytes::new(),
        }
    }

    /// Leaves the body out, as in an answer to HEAD.
    pub(super) fn leave_out(&mut self) {
        *self = AnswerBody::of(Source::None);
    }
}

impl<B: Body> AnswerBody<B> {
    /// Returns true if no bytes and no trailers follow.
    pub(super) fn is_end(&self) -> bool {
        self.rest.is_empty()
            && match &self.source {
                Source::Body(body) => body.is_end_stream(),
                Source::Stream(_) => false,
                Source::None => true,
            }
    }

    /// Returns the number of bytes, if it is known.
    pub(super) fn length(&self) -> Option<u64> {
        match &self.source {
            Source::Body(body) => body.size_hint().exact(),
            Source::Stream(_) => None,
            Source::None => Some(self.rest.len() as u64),
        }
    }
}

impl<B> AnswerBody<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    /// Takes the next part.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<BodyPart, B::Error>> {
        if self.rest.is_empty() {
            match &mut self.source {
                Source::None => return Poll::Ready(Ok(BodyPart::End)),
                Source::Stream(stream) => {
                    let mut buffer = frame_buffers::take();
                    match stream.poll_append(cx, &mut buffer) {
                        Poll::Pending => {
                            frame_buffers::give_back(buffer);
                            return Poll::Pending;
                        }
                        Poll::Ready(Appended::Drained) if buffer.len() <= FRAME_MAX => {
                            frame_buffers::fit(&mut buffer);
                            return Poll::Ready(Ok(BodyPart::Drained(buffer)));
                        }
                        Poll::Ready(Appended::Finished) => self.source = Source::None,
                        Poll::Ready(_) => {}
                    }
                    self.rest = buffer.into();
                }
                Source::Body(body) => match ready!(body.as_mut().poll_frame(cx)?) {
                    None => self.source = Source::None,
                    Some(frame) => match frame.into_data() {
                        Ok(data) => self.rest = data,
                        Err(frame) => {
                            let trailers = frame.into_trailers().unwrap_or_default();
                            return Poll::Ready(Ok(BodyPart::Trailers(trailers)));
                        }
                    },
                },
            }
        }
        let frame = self.rest.split_to(self.rest.len().min(FRAME_MAX));
        Poll::Ready(Ok(BodyPart::Data(frame)))
    }
}
