//! The body that a client sends, as the library of its protocol reads it.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Body, Frame, SizeHint};

/// The reason for which a body broke off.
pub(super) type BodyError = Box<dyn Error + Send + Sync>;

/// A body of either protocol.
#[derive(Debug)]
pub(super) enum Incoming {
    Http1(hyper::body::Incoming),
    Http2(Http2Incoming),
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Incoming::Http1(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Incoming::Http2(body) => body
                .poll_frame(cx)
                .map(|frame| frame.map_err(Into::into).transpose()),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Incoming::Http1(body) => body.is_end_stream(),
            Incoming::Http2(body) => body.stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Incoming::Http1(body) => body.size_hint(),
            Incoming::Http2(body) => match body.rest {
                Some(rest) => SizeHint::with_exact(rest),
                None => SizeHint::default(),
            },
        }
    }
}

/// A body in the frames of HTTP/2.
#[derive(Debug)]
pub(super) struct Http2Incoming {
    stream: RecvStream,
    /// The bytes to come, if the client has told them.
    rest: Option<u64>,
    /// True once only trailers may follow.
    data_ended: bool,
}

impl Http2Incoming {
    /// Makes the body of a request. `length` is its length in bytes, if the client has told it.
    pub(super) fn new(stream: RecvStream, length: Option<u64>) -> Http2Incoming {
        let rest = match stream.is_end_stream() {
            true => Some(0),
            false => length,
        };
        Http2Incoming {
            stream,
            rest,
            data_ended: false,
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, h2::Error>> {
        if !self.data_ended {
            if let Some(data) = ready!(self.stream.poll_data(cx)) {
                let data = data?;
                // The client may send as much again: what is read is bounded by those that read it.
                self.stream.flow_control().release_capacity(data.len())?;
                // The library refuses a body that is longer than its length.
                self.rest = self.rest.map(|rest| rest.saturating_sub(data.len() as u64));
                return Poll::Ready(Ok(Some(Frame::data(data))));
            }
            self.data_ended = true;
        }
        let trailers = ready!(self.stream.poll_trailers(cx))?;
        Poll::Ready(Ok(trailers.map(Frame::trailers)))
    }
}
