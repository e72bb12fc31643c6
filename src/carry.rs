//! Streams that leave the HTTP library once their head is written.
//!
//! Owns: [`Carrier`], by which a listener that can write streams itself tells an endpoint so, and is handed the stream's
//! body. Never: writes (the service's stream writer does), or decides what is streamed.
//! An idle connection of the HTTP library holds a read buffer, a parser and a boxed service, and each frame passes its
//! whole state machine; what a stream needs after its head is a socket and a body (figures in `docs/benchmarks.md`).
//!
//! The listener puts a carrier into the request; the endpoint hands the body over and answers with a placeholder; when
//! the library has polled that, the head is written, and the listener takes the connection away from the library.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::combinators::BoxBody;

/// A stream's body.
pub(crate) type StreamBody = BoxBody<Bytes, Infallible>;

#[derive(Default)]
struct Slot {
    body: Mutex<Option<StreamBody>>,
    /// Whether the placeholder has been polled, which the library does after it has written the head.
    polled: AtomicBool,
}

/// The way of a stream's body around the HTTP library. Travels in the extensions of a request.
#[derive(Clone, Default)]
pub(crate) struct Carrier {
    slot: Arc<Slot>,
}

impl Carrier {
    /// Hands `body` over; the answer is to have the placeholder instead.
    pub(crate) fn hand_over(&self, body: StreamBody) -> Placeholder {
        *self.slot.body.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        Placeholder {
            slot: self.slot.clone(),
        }
    }

    /// The body that was handed over, when its head is on the way.
    pub(crate) fn take(&self) -> Option<StreamBody> {
        if !self.slot.polled.load(Ordering::Relaxed) {
            return None;
        }
        self.slot
            .body
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

/// Stands for a body that is written by somebody else. Never ready.
pub(crate) struct Placeholder {
    slot: Arc<Slot>,
}

impl Body for Placeholder {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // The listener polls the connection, so it looks after this without being woken.
        self.slot.polled.store(true, Ordering::Relaxed);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, Full};
    use std::task::Waker;

    #[test]
    fn a_body_is_taken_once_and_only_after_the_head() {
        let carrier = Carrier::default();
        assert!(carrier.take().is_none());
        let mut placeholder = carrier.hand_over(Full::new(Bytes::from_static(b"body")).boxed());
        assert!(carrier.take().is_none());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut placeholder).poll_frame(&mut cx).is_pending());
        assert!(carrier.take().is_some());
        assert!(carrier.take().is_none());
    }
}
