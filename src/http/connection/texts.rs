//! A stream of texts and the requests that it answers, for tests.

use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use super::http2_streams::{Http2Streams, RequestPlaces};
use crate::config::HttpConfig;
use crate::http::stream_handover::{Appended, StreamSource};
use crate::metrics::HttpMetrics;

/// A stream of the texts that were put into it.
#[derive(Clone, Default)]
pub(super) struct Texts(Arc<Mutex<TextsState>>);

#[derive(Default)]
struct TextsState {
    text: Vec<u8>,
    asked: usize,
    waker: Option<Waker>,
}

impl Texts {
    /// Puts a text in, and wakes the task that asked last.
    pub(super) fn put(&self, text: &str) {
        let mut state = self.0.lock().unwrap();
        state.text.extend_from_slice(text.as_bytes());
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// The number of times that the stream was asked for its texts.
    pub(super) fn asked(&self) -> usize {
        self.0.lock().unwrap().asked
    }
}

impl StreamSource for Texts {
    fn poll_append(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Appended> {
        let state = &mut *self.0.lock().unwrap();
        state.asked += 1;
        state.waker = Some(cx.waker().clone());
        if state.text.is_empty() {
            return Poll::Pending;
        }
        out.append(&mut state.text);
        Poll::Ready(Appended::Drained)
    }
}

/// The requests of a connection that has a place for one.
pub(super) fn streams() -> Rc<Http2Streams> {
    Http2Streams::new(
        Arc::default(),
        HttpMetrics::new(),
        RequestPlaces::new(1),
        &HttpConfig::default(),
    )
}
