//! An open stream: drained from an outbox, one frame per write. The connection drops it when the client goes
//! away, and with it every subscription of a listen stream.
//!
//! A stream holds no timer and no task; its shard asks it for keep-alives.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use ::http::request::Parts;
use bytes::Bytes;
use http_body::{Body, Frame};
use rmcp::model::Implementation;

use super::listen_stream::last_message;
use crate::http::Place;
use crate::http::stream_handover::{Appended, StreamSource};
use crate::mcp::error;
use crate::mcp::frames::{FrameFormat, KEEP_ALIVE};
use crate::mcp::options::McpOptions;
use crate::mcp::session::McpSession;
use crate::metrics::{self, Limit, McpMetrics};
use crate::{Drained, EndReason, OutboxEntry, OutboxReader, Session, WriteProgress};

thread_local! {
    /// The entries on their way from an outbox to the wire. One buffer for all streams of a thread, since a
    /// stream never keeps entries between two polls.
    static ENTRIES: Cell<Vec<OutboxEntry>> = const { Cell::new(Vec::new()) };
}

/// The right to one of the streams that the server allows; given back when dropped.
pub(super) struct StreamPermit {
    open: Arc<AtomicUsize>,
}

impl StreamPermit {
    /// Takes a permit; none when `max` streams are open.
    pub(super) fn take(open: &Arc<AtomicUsize>, max: usize) -> Option<StreamPermit> {
        let taken = open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
            (open < max).then_some(open + 1)
        });
        if taken.is_err() {
            metrics::limit_reached(Limit::Streams);
        }
        taken.is_ok().then(|| StreamPermit { open: open.clone() })
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The subscriber that a stream belongs to.
pub(super) enum StreamOwner {
    /// A session, which outlives its stream.
    Session(Arc<McpSession>),
    /// A listen stream's own session, which ends with it.
    Listen {
        _session: Arc<Session>,
        _place: Option<Place>,
        /// The server, for the last message, which says that the end is graceful.
        server: Arc<Implementation>,
    },
}

/// The parts that every open stream has.
pub(super) struct OpenStream {
    pub(super) options: Arc<McpOptions>,
    pub(super) metrics: McpMetrics,
    pub(super) _permit: StreamPermit,
}

/// An open stream: a source for a server that writes the connection itself, a body for any other.
pub(super) struct OutboxStream {
    reader: OutboxReader,
    format: FrameFormat,
    /// The first message; none once it is written.
    first_frame: Option<Bytes>,
    owner: StreamOwner,
    ended: bool,
    open: OpenStream,
}

impl OutboxStream {
    /// Makes a stream that begins with `first_frame`.
    pub(super) fn new(
        reader: OutboxReader,
        format: FrameFormat,
        first_frame: Bytes,
        owner: StreamOwner,
        open: OpenStream,
    ) -> OutboxStream {
        OutboxStream {
            reader,
            format,
            first_frame: Some(first_frame),
            owner,
            ended: false,
            open,
        }
    }

    /// Has the record of the session written soon if its client was told of a list: another node must not
    /// tell it again.
    fn note_lists(&self, entries: &[OutboxEntry]) {
        if let StreamOwner::Session(session) = &self.owner
            && session.shared.get().is_some()
            && entries
                .iter()
                .any(|entry| matches!(entry, OutboxEntry::ListChanged(_)))
        {
            session.save_soon();
        }
    }

    /// Returns the bytes after which nothing more comes: the reason of an end that the client does not
    /// expect, and the result of a listen request whose stream did not fail.
    fn last_frame(&self, reason: EndReason) -> Option<Bytes> {
        let comment = error::eviction_comment(reason, &self.open.options).map(Bytes::from);
        let (StreamOwner::Listen { server, .. }, FrameFormat::Listen(id)) = (&self.owner, &self.format)
        else {
            return comment;
        };
        match comment {
            Some(comment) => Some([comment, last_message(id, server)?].concat().into()),
            // Without a result the client knows that the end was not graceful.
            None if reason == EndReason::Failed => None,
            None => last_message(id, server),
        }
    }
}

/// Lets a reader wait while the request's connection is blocked, if the server that carries it notes that.
pub(super) fn follow_connection(reader: &OutboxReader, parts: &Parts) {
    if let Some(progress) = parts.extensions.get::<Arc<WriteProgress>>() {
        reader.pause_while_blocked(progress.clone());
    }
}

impl StreamSource for OutboxStream {
    fn poll_append(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Appended> {
        if let Some(first) = self.first_frame.take() {
            out.extend(first);
            return Poll::Ready(Appended::More);
        }
        if self.ended {
            return Poll::Ready(Appended::Finished);
        }
        // Taken rather than borrowed: a stream that is polled inside another's poll finds an empty buffer.
        let mut entries = ENTRIES.take();
        let drained = self.reader.poll_drain(cx, |entry| entries.push(entry));
        let appended = drained.map(|drained| match drained {
            Drained::Entries(position) => {
                self.format.append(&entries, position, out);
                self.open.metrics.wrote(&entries);
                self.note_lists(&entries);
                // A drain that was not full emptied the outbox and left the waker, so no second look is
                // needed.
                if entries.len() < self.reader.drain_max() {
                    Appended::Drained
                } else {
                    Appended::More
                }
            }
            Drained::KeepAlive => {
                out.extend(KEEP_ALIVE);
                Appended::More
            }
            Drained::Ended(reason) => {
                self.ended = true;
                out.extend(self.last_frame(reason).unwrap_or_default());
                Appended::Finished
            }
        });
        entries.clear();
        ENTRIES.set(entries);
        appended
    }
}

impl Body for OutboxStream {
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

impl Drop for OutboxStream {
    fn drop(&mut self) {
        if let StreamOwner::Session(session) = &self.owner {
            // The session's idle time begins now.
            session.session.active();
            // What it was told while it was connected is what the next node goes on from.
            session.save_soon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_permits_are_limited_and_given_back() {
        let open = Arc::new(AtomicUsize::new(0));
        let one = StreamPermit::take(&open, 1);
        assert!(one.is_some() && StreamPermit::take(&open, 1).is_none());
        drop(one);
        assert!(StreamPermit::take(&open, 1).is_some());
    }
}
