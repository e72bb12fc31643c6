//! An open stream: drained from an outbox, one frame per write.
//!
//! Owns: the reader, the place among the streams allowed, and what the stream keeps alive. Never: holds a timer (its
//! shard asks for keep-alives) or a task of rmcp's. Dropped by the connection when the client goes away, and with it
//! everything that was subscribed for it.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt;

use super::endpoint::EndpointBody;
use super::peers::PeerPlace;
use crate::carry::{Appended, StreamSource};
use crate::mcp::ending;
use crate::mcp::frames::{KEEP_ALIVE, Wire};
use crate::mcp::handler::McpSession;
use crate::mcp::listen::Listening;
use crate::mcp::options::McpOptions;
use crate::metrics::{self, Limit, McpMetrics};
use crate::{Drained, EndReason, OutboxEntry, OutboxReader};

/// How long rmcp may take to make the two messages of a listen stream.
const FIRST_AND_LAST_TIMEOUT: Duration = Duration::from_secs(10);

thread_local! {
    /// Where entries are on their way from an outbox to the wire, one place for all streams of a thread.
    static ENTRIES: Cell<Vec<OutboxEntry>> = const { Cell::new(Vec::new()) };
}

/// One of the streams allowed; given back when dropped.
pub(super) struct StreamPlace {
    open: Arc<AtomicUsize>,
}

impl StreamPlace {
    pub(super) fn take(open: &Arc<AtomicUsize>, max: usize) -> Option<StreamPlace> {
        let taken = open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
            (open < max).then_some(open + 1)
        });
        if taken.is_err() {
            metrics::limit_reached(Limit::Streams);
        }
        taken.is_ok().then(|| StreamPlace { open: open.clone() })
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a stream keeps alive.
pub(super) enum Held {
    /// A session, which outlives its stream.
    Session(Arc<McpSession>),
    /// A listen stream's own session, and the result that says its end is graceful.
    Listening {
        listening: Arc<Listening>,
        _place: Option<PeerPlace>,
        result: Bytes,
    },
}

impl Held {
    fn metrics(&self) -> &McpMetrics {
        match self {
            Held::Session(session) => &session.metrics,
            Held::Listening { listening, .. } => &listening.metrics,
        }
    }
}

/// What every stream has.
pub(super) struct OpenStream {
    /// What decided why it may end.
    pub(super) options: Arc<McpOptions>,
    pub(super) _place: StreamPlace,
}

/// An open stream: a source for whoever writes the connection, a body for whoever does not.
pub(super) struct EventStream {
    reader: OutboxReader,
    wire: Wire,
    hello: Option<Bytes>,
    /// Beside `held`, which has them too: looked at for each write.
    metrics: McpMetrics,
    held: Held,
    ended: bool,
    open: OpenStream,
}

impl EventStream {
    /// A stream that begins with `hello`.
    pub(super) fn new(
        reader: OutboxReader,
        wire: Wire,
        hello: Bytes,
        held: Held,
        open: OpenStream,
    ) -> EventStream {
        EventStream {
            reader,
            wire,
            hello: Some(hello),
            metrics: held.metrics().clone(),
            held,
            ended: false,
            open,
        }
    }

    /// What is written when nothing more will come: why, if that was not to be expected, and the result of a listen
    /// request, if the end is graceful.
    fn goodbye(&self, reason: EndReason) -> Option<Bytes> {
        let comment = ending::comment(reason, &self.open.options).map(Bytes::from);
        match (&self.held, comment) {
            (Held::Listening { result, .. }, None) if reason != EndReason::Failed => Some(result.clone()),
            (Held::Listening { result, .. }, Some(comment)) => {
                Some([comment, result.clone()].concat().into())
            }
            (_, comment) => comment,
        }
    }
}

impl StreamSource for EventStream {
    fn poll_append(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Appended> {
        if let Some(hello) = self.hello.take() {
            out.extend(hello);
            return Poll::Ready(Appended::Part);
        }
        if self.ended {
            return Poll::Ready(Appended::Last);
        }
        let mut entries = ENTRIES.take();
        let drained = self.reader.poll_drain(cx, |entry| entries.push(entry));
        let appended = drained.map(|drained| match drained {
            Drained::Entries(position) => {
                self.wire.append(&entries, position, out);
                self.metrics.wrote(&entries);
                if entries.len() < self.reader.drain_max() {
                    Appended::All
                } else {
                    Appended::Part
                }
            }
            Drained::KeepAlive => {
                out.extend(KEEP_ALIVE);
                Appended::Part
            }
            Drained::Ended(reason) => {
                self.ended = true;
                out.extend(self.goodbye(reason).unwrap_or_default());
                Appended::Last
            }
        });
        entries.clear();
        ENTRIES.set(entries);
        appended
    }
}

impl Body for EventStream {
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

impl Drop for EventStream {
    fn drop(&mut self) {
        if let Held::Session(session) = &self.held {
            // Its idle time begins now.
            session.session.active();
        }
    }
}

/// The two events that rmcp makes for a listen request whose handler returned at once: the acknowledgement and the
/// result.
pub(super) async fn first_and_last(body: EndpointBody) -> Option<(Bytes, Bytes)> {
    let whole = tokio::time::timeout(FIRST_AND_LAST_TIMEOUT, body.collect())
        .await
        .ok()?
        .ok()?
        .to_bytes();
    let mut events = Vec::new();
    let mut rest = whole;
    while let Some(end) = rest.windows(2).position(|two| two == b"\n\n") {
        let event = rest.split_to(end + 2);
        if event.windows(5).any(|five| five == b"data:") {
            events.push(event);
        }
    }
    let [first, last] = <[Bytes; 2]>::try_from(events).ok()?;
    Some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;

    #[tokio::test]
    async fn the_first_and_last_event_are_found_whatever_comments_stand_between() {
        let body = |text: &'static str| Full::new(Bytes::from_static(text.as_bytes())).boxed();
        let (first, last) = first_and_last(body("data: a\n\n:\n\ndata: b\n\n")).await.unwrap();
        assert_eq!(
            (&first[..], &last[..]),
            (&b"data: a\n\n"[..], &b"data: b\n\n"[..])
        );
        for wrong in ["", "data: a\n\n", "data: a\n\ndata: b\n\ndata: c\n\n"] {
            assert_eq!(first_and_last(body(wrong)).await, None, "{wrong}");
        }
    }

    #[test]
    fn no_more_streams_than_allowed() {
        let open = Arc::new(AtomicUsize::new(0));
        let one = StreamPlace::take(&open, 1);
        assert!(one.is_some() && StreamPlace::take(&open, 1).is_none());
        drop(one);
        assert!(StreamPlace::take(&open, 1).is_some());
    }
}
