//! The body of one open stream: a cursor into the hub's history and a filter.
//!
//! A stream has no queue, no task and no timer. The recorder and the keep-alive wake it, and the connection
//! asks it for the next frame when it can take one.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Body, Frame};

use super::frame;
use super::history::{ContinueAt, Event, FoundEvents, Incomplete, Subject};
use super::shared::HubState;
use super::sight::Sight;
use crate::auth::{Caller, EventIds};
use crate::http::limits::Place;
use crate::http::notice_body::{NoticeBodies, NoticeFrame};
use crate::metrics::{self, Limit};
use crate::{EndReason, Filter, NoticeKind, Position};

/// Events that are read from the history at a time, while it is locked.
const BATCH: usize = 256;

/// The bytes beyond which no further event is put into the same write.
const WRITE_BYTES: usize = 16 << 10;

/// The bytes beyond which a frame is written by itself, since streams share its bytes.
const COPIED_BYTES: usize = 4 << 10;

/// Batches that a stream filters before other streams of the thread have their turn.
const BATCHES_PER_POLL: usize = 16;

/// One open stream.
pub(super) struct EventStream {
    hub: Arc<HubState>,
    number: u64,
    client: EventClient,
    /// The first event, until it is written.
    first: Option<Bytes>,
    epoch: u64,
    /// The offset up to which every event was written or filtered out.
    cursor: u64,
    /// The offset of the last id that was written.
    written: u64,
    written_at: Instant,
    batch: Vec<Arc<Event>>,
    /// A frame that is too large to be copied, and comes next.
    large: Option<Bytes>,
    ended: bool,
}

/// The client of a stream, and the events that it gets.
pub(super) struct EventClient {
    pub(super) filter: Filter,
    /// Its rights; none if it sees everything.
    pub(super) sight: Option<Sight>,
    /// Puts the content into notices; none unless the client asks for it.
    pub(super) content: Option<ContentReader>,
    /// The place among the streams of its caller.
    pub(super) _place: Option<Place>,
}

impl EventClient {
    /// Returns true if the client has a right to the event.
    fn sees(&self, event: &Event) -> bool {
        let Some(sight) = &self.sight else { return true };
        match &event.subject {
            Subject::Resource(_, uri, _) => sight.sees(uri),
            // Its own changes of lists come from its session at the bus.
            Subject::List(_) => false,
            Subject::Gap(_) => true,
        }
    }

    /// Returns the form of the ids that the client gets.
    pub(super) fn event_ids(&self) -> EventIds<'_> {
        match &self.sight {
            Some(sight) => sight.event_ids(),
            None => EventIds::plain(),
        }
    }

    /// Returns a number of missing events as the client may know it: the history has forgotten which of them
    /// a client with rights would have seen.
    fn counted(&self, missed: u64) -> Option<u64> {
        match &self.sight {
            Some(_) => None,
            None => Some(missed),
        }
    }

    /// Returns the frame of an event for the client, with the id that the client may know. `epoch` is that of
    /// its stream.
    fn frame(&self, event: &Event, epoch: u64) -> Bytes {
        let offset = event.offset;
        let position = Position { epoch, offset };
        let ids = self.event_ids();
        let frame = match event.subject {
            Subject::Gap(reason) if self.sight.is_some() => {
                return frame::gap(None, reason, ids.of_place(position));
            }
            _ => self.frame_with_content(event),
        };
        match ids.are_plain() {
            // Shared by all streams that may know positions; only the others cost a copy.
            true => frame,
            false => frame::with_id(&frame, ids.of_notice(position)),
        }
    }

    /// Returns the frame of an event, which is shared unless the client wants content.
    fn frame_with_content(&self, event: &Event) -> Bytes {
        match (&self.content, &event.subject) {
            (Some(content), Subject::Resource(NoticeKind::Updated, uri, etag)) => {
                let notice = NoticeFrame {
                    uri,
                    etag: *etag,
                    frame: &event.frame,
                    tail: frame::NOTICE_TAIL.len(),
                };
                content.bodies.frame(&content.caller, &notice)
            }
            _ => event.frame.clone(),
        }
    }
}

/// Reads the content of notices for a client.
pub(super) struct ContentReader {
    pub(super) bodies: Arc<NoticeBodies>,
    pub(super) caller: Caller,
}

/// The result of looking for the next frame.
enum Next {
    Frame(Bytes),
    /// None: every event was written.
    Nothing,
    /// None so far, but there are more events than one turn allows.
    More,
    Ended(&'static str),
}

impl EventStream {
    /// Opens a stream that continues at `resume`, or begins now.
    ///
    /// # Errors
    /// The number of streams allowed, when as many are open.
    pub(super) fn open(
        hub: Arc<HubState>,
        client: EventClient,
        resume: Option<ContinueAt>,
    ) -> Result<EventStream, usize> {
        let mut contents = hub.lock();
        if contents.open >= hub.streams_max {
            metrics::limit_reached(Limit::EventStreams);
            return Err(hub.streams_max);
        }
        contents.open += 1;
        hub.metrics.streams.set(contents.open as f64);
        let number = contents.next_stream;
        contents.next_stream += 1;
        let ids = client.event_ids();
        let mut resumed = contents.history.resume(resume);
        drop(contents);
        if !resumed.complete {
            resumed.missed = resumed.missed.and_then(|missed| client.counted(missed));
        }
        if resume.is_some() {
            hub.metrics.resumed(resumed.complete);
        }
        Ok(EventStream {
            first: Some(frame::resumed(&resumed, ids.of_place(resumed.from), hub.retry)),
            hub,
            number,
            client,
            epoch: resumed.from.epoch,
            cursor: resumed.from.offset,
            written: resumed.from.offset,
            written_at: Instant::now(),
            batch: Vec::new(),
            large: None,
            ended: false,
        })
    }

    /// Returns the next frame, or registers `cx` to be woken.
    fn next(&mut self, cx: &mut Context<'_>) -> Next {
        let mut frames = Frames::default();
        if let Some(ended) = self.look_at_rights(cx, &mut frames) {
            return ended;
        }
        if frames.count == 0
            && let Some(large) = self.large.take()
        {
            self.hub.metrics.written.increment(1);
            return Next::Frame(large);
        }
        for _ in 0..BATCHES_PER_POLL {
            if self.large.is_some() {
                break;
            }
            let mut contents = self.hub.lock();
            match contents.history.read(self.cursor, BATCH, &mut self.batch) {
                FoundEvents::Events => drop(contents),
                FoundEvents::Forgotten { missed, up_to } if frames.count == 0 => {
                    let from = contents.history.at(up_to);
                    let missed = match contents.history.countable(missed) {
                        Some(missed) => self.client.counted(missed),
                        None => None,
                    };
                    drop(contents);
                    self.hub.metrics.gaps.increment(1);
                    self.cursor = up_to;
                    self.written = up_to;
                    let from = self.client.event_ids().of_place(from);
                    return Next::Frame(frame::gap(missed, Incomplete::Forgotten, from));
                }
                // The frames that were collected go first; the next look finds the gap again.
                FoundEvents::Forgotten { .. } => break,
                FoundEvents::Nothing if frames.count > 0 => break,
                FoundEvents::Nothing => {
                    if let Some(reason) = contents.ended {
                        return Next::Ended(reason);
                    }
                    // Under the lock that recording takes, so no event can come between the look and this.
                    contents.waiting.insert(self.number, cx.waker().clone());
                    return Next::Nothing;
                }
            }
            self.collect(&mut frames);
            if frames.len() >= WRITE_BYTES {
                break;
            }
        }
        self.hub.metrics.written.increment(frames.count);
        match frames.finish() {
            Some(frame) => Next::Frame(frame),
            None => Next::More,
        }
    }

    /// Moves the events of the batch that pass the filter into `frames`, up to the size of one write. A large
    /// one is kept for a write of its own.
    fn collect(&mut self, frames: &mut Frames) {
        for event in self.batch.drain(..) {
            if frames.len() >= WRITE_BYTES {
                break;
            }
            self.cursor = event.offset;
            if event.passes(&self.client.filter) && self.client.sees(&event) {
                self.written = event.offset;
                let frame = self.client.frame(&event, self.epoch);
                // The first one needs no copy either: it goes out as it is unless small ones follow.
                if frame.len() > COPIED_BYTES && frames.count > 0 {
                    self.large = Some(frame);
                    break;
                }
                frames.push(&frame);
            }
        }
    }

    /// Collects the lists that changed for the client's audience. Returns the end if its credential has
    /// ended.
    fn look_at_rights(&mut self, cx: &mut Context<'_>, frames: &mut Frames) -> Option<Next> {
        let sight = self.client.sight.as_mut()?;
        let (lists, end) = sight.poll(cx);
        for kind in lists {
            if self.client.filter.wants_kind(NoticeKind::List(kind)) {
                let at = Position {
                    epoch: self.epoch,
                    offset: self.cursor,
                };
                frames.push(&frame::list(kind, sight.event_ids().of_place(at)));
            }
        }
        // At a shutdown the hub tells the end, after its last events.
        let end = end.filter(|reason| *reason != EndReason::Shutdown)?;
        Some(Next::Ended(end.name()))
    }

    /// Returns a keep-alive if the stream was silent for long enough.
    fn keep_alive(&mut self) -> Option<Bytes> {
        // Streams are woken once per keep-alive time, which may be a little before it has passed.
        if self.written_at.elapsed() < self.hub.keep_alive * 7 / 8 {
            return None;
        }
        let ids = self.client.event_ids();
        // Without a new id each time, a client with rights would learn when something changed that it may
        // not see.
        if self.written == self.cursor && ids.are_plain() {
            return Some(frame::KEEP_ALIVE);
        }
        self.written = self.cursor;
        Some(frame::progress(ids.of_place(Position {
            epoch: self.epoch,
            offset: self.cursor,
        })))
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
                // A single frame goes out as it is, shared with all streams; several are copied into one
                // write.
                if let Some(first) = first {
                    self.all.put(first);
                }
                self.all.put(frame.clone());
            }
        }
    }

    fn len(&self) -> usize {
        match &self.first {
            Some(first) => first.len(),
            None => self.all.len(),
        }
    }

    fn finish(self) -> Option<Bytes> {
        if self.first.is_some() {
            return self.first;
        }
        (!self.all.is_empty()).then(|| self.all.freeze())
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
        let frame = match stream.first.take() {
            Some(first) => first,
            None => match stream.next(cx) {
                Next::Frame(frame) => frame,
                Next::Ended(reason) => {
                    stream.ended = true;
                    frame::end(reason)
                }
                Next::More => {
                    // Nothing passed the filter so far; other streams of the thread come first.
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
        self.hub.close(self.number);
    }
}
