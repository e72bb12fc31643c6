//! The body of one open stream: a cursor into the hub's history, a filter, and nothing else.
//!
//! Owns: how far the client has been served, and its place among the streams allowed. Never: a queue, a task or a timer;
//! it is asked for the next frame when the connection can take one. Woken by the recorder and by the keep-alive.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Body, Frame};

use super::frame;
use super::history::{Event, Found};
use super::shared::Shared;
use crate::Filter;
use crate::metrics::{self, Limit};

/// Events that are taken from the history at a time, while it is locked.
const BATCH: usize = 256;

/// Bytes beyond which no further event is put into the same write. The connection takes several writes at once.
const WRITE_BYTES: usize = 16 << 10;

/// Batches that are looked through at a time before other streams have their turn.
const BATCHES_PER_POLL: usize = 16;

/// One open stream.
pub(super) struct EventStream {
    shared: Arc<Shared>,
    number: u64,
    filter: Filter,
    /// The verdict, until it is written.
    hello: Option<Bytes>,
    epoch: u64,
    /// Everything up to this offset was written or not wanted.
    cursor: u64,
    /// The offset of the last id that was written.
    written: u64,
    written_at: Instant,
    batch: Vec<Arc<Event>>,
    ended: bool,
}

/// What a look at the history brought.
enum Next {
    Frame(Bytes),
    /// Everything was written.
    Nothing,
    /// There is more than one turn allows, and nothing of it was wanted so far.
    More,
    Ended(&'static str),
}

impl EventStream {
    /// Opens a stream that goes on after the event with the id `resume`, or begins now. Fails with the number of streams
    /// allowed when as many are open.
    pub(super) fn open(
        shared: Arc<Shared>,
        filter: Filter,
        resume: Option<&str>,
    ) -> Result<EventStream, usize> {
        let mut state = shared.lock();
        if state.open >= shared.streams_max {
            metrics::limit_reached(Limit::EventStreams);
            return Err(shared.streams_max);
        }
        state.open += 1;
        shared.metrics.streams.set(state.open as f64);
        let number = state.next_stream;
        state.next_stream += 1;
        let verdict = state.history.resume(resume);
        drop(state);
        if resume.is_some() {
            shared.metrics.resumed(verdict.complete);
        }
        Ok(EventStream {
            hello: Some(frame::verdict(&verdict, shared.retry)),
            shared,
            number,
            filter,
            epoch: verdict.from.epoch,
            cursor: verdict.from.offset,
            written: verdict.from.offset,
            written_at: Instant::now(),
            batch: Vec::new(),
            ended: false,
        })
    }

    /// The next frame; notes `cx` when there is none.
    fn next(&mut self, cx: &Context<'_>) -> Next {
        let mut frames = Frames::default();
        for _ in 0..BATCHES_PER_POLL {
            let mut state = self.shared.lock();
            match state.history.read(self.cursor, BATCH, &mut self.batch) {
                Found::Events => drop(state),
                Found::Forgotten { missed, up_to } if frames.count == 0 => {
                    let from = state.history.at(up_to);
                    drop(state);
                    self.shared.metrics.gaps.increment(1);
                    (self.cursor, self.written) = (up_to, up_to);
                    return Next::Frame(frame::gap(missed, from));
                }
                Found::Forgotten { .. } => break,
                Found::Nothing if frames.count > 0 => break,
                Found::Nothing => {
                    if let Some(reason) = state.ended {
                        return Next::Ended(reason);
                    }
                    state.waiting.insert(self.number, cx.waker().clone());
                    return Next::Nothing;
                }
            }
            self.take(&mut frames);
            if frames.len() >= WRITE_BYTES {
                break;
            }
        }
        self.shared.metrics.written.increment(frames.count);
        frames.finish().map_or(Next::More, Next::Frame)
    }

    /// Moves what is wanted of the batch into `frames`, as far as one write goes.
    fn take(&mut self, frames: &mut Frames) {
        for event in self.batch.drain(..) {
            if frames.len() >= WRITE_BYTES {
                break;
            }
            self.cursor = event.offset;
            if event.wanted(&self.filter) {
                self.written = event.offset;
                frames.push(&event.frame);
            }
        }
    }

    /// A sign of life, when the stream has been silent for long enough.
    fn keep_alive(&mut self) -> Option<Bytes> {
        // Looked at eight times in that time, so one look may come a little early.
        if self.written_at.elapsed() < self.shared.keep_alive * 7 / 8 {
            return None;
        }
        if self.written == self.cursor {
            return Some(frame::KEEP_ALIVE);
        }
        self.written = self.cursor;
        Some(frame::progress(crate::Position {
            epoch: self.epoch,
            offset: self.cursor,
        }))
    }
}

/// The frames of one write.
#[derive(Default)]
struct Frames {
    first: Option<Bytes>,
    all: BytesMut,
    count: u64,
}

impl Frames {
    fn push(&mut self, frame: &Bytes) {
        self.count += 1;
        match self.first.take() {
            None if self.count == 1 => self.first = Some(frame.clone()),
            first => {
                // From the second on they are put together; a single one goes out as it is, shared with all streams.
                if let Some(first) = first {
                    self.all.put(first);
                }
                self.all.put(frame.clone());
            }
        }
    }

    fn len(&self) -> usize {
        self.first.as_ref().map_or(0, Bytes::len) + self.all.len()
    }

    fn finish(self) -> Option<Bytes> {
        let all = Some(self.all).filter(|all| !all.is_empty());
        self.first.or_else(|| all.map(BytesMut::freeze))
    }
}

impl Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let stream = self.get_mut();
        if stream.ended {
            return Poll::Ready(None);
        }
        let frame = match stream.hello.take() {
            Some(hello) => hello,
            None => match stream.next(cx) {
                Next::Frame(frame) => frame,
                Next::Ended(reason) => {
                    stream.ended = true;
                    frame::end(reason)
                }
                Next::More => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Next::Nothing => match stream.keep_alive() {
                    Some(frame) => frame,
                    None => return Poll::Pending,
                },
            },
        };
        stream.written_at = Instant::now();
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.shared.close(self.number);
    }
}
