//! The bodies of requests that were answered before they were read, such as those of refusals.
//!
//! A connection that is closed while bytes of its client arrive is reset by the kernel, and a reset throws
//! the answer away that the client has not read yet (RFC 9112, section 9.6). The answer is therefore written
//! at once, and the rest of the body is read and dropped: a short one by the HTTP library, so that the
//! connection carries the next request, and any other after the end of the answer, which says
//! `Connection: close`. In HTTP/2 any rest is dropped by the task of its request.

use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use ::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::future::poll_fn;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, timeout};
use tracing::debug;

use super::incoming::{BodyError, Incoming};
use crate::config::HttpConfig;
use crate::metrics::{self, Limit};

/// The longest rest of a body after which its connection carries further requests. To send a longer one costs
/// more than to connect again, and a client that is told of the end stops sending.
const KEPT_MAX: u64 = 256 << 10;

/// The time after which a client that sends nothing, and does not close its side, is waited for no longer.
const QUIET_MAX: Duration = Duration::from_secs(5);

/// The bytes that one read drops.
const READ_BYTES: usize = 16 << 10;

/// The body of a request. What its holder has not read when it is dropped is left to the connection.
#[derive(Debug)]
pub struct RequestBody {
    /// None once it was read to its end.
    incoming: Option<Incoming>,
    /// The first frame, or the error in its place, if the body was awaited before it is read.
    first: Option<Box<Result<Frame<Bytes>, BodyError>>>,
    unread: Option<Unread>,
}

/// The body of the request that a connection is at, after its holder has dropped it.
#[derive(Debug, Clone, Default)]
pub(super) struct Unread {
    state: Arc<Mutex<UnreadState>>,
}

#[derive(Debug, Default)]
struct UnreadState {
    /// True while the body is with the handler of the request.
    lent: bool,
    /// True if the client waits for the answer before it sends the body (`Expect: 100-continue`).
    awaits: bool,
    answered: bool,
    /// True if the body broke off.
    broken: bool,
    rest: Option<Incoming>,
    /// True if bytes of the client may come after the end of the last answer.
    lingers: bool,
    /// The task of the connection, if the answer came before the body was dropped.
    waker: Option<Waker>,
}

impl Unread {
    /// Makes the body of the next request.
    pub(super) fn lend(&self, headers: &HeaderMap, incoming: Incoming) -> RequestBody {
        // Most requests have none, and then nothing can be left.
        let has_body = !incoming.is_end_stream();
        if has_body {
            let mut state = self.state();
            state.lent = true;
            state.awaits = headers.contains_key(header::EXPECT);
            state.answered = false;
        }
        RequestBody {
            incoming: Some(incoming),
            first: None,
            unread: has_body.then(|| self.clone()),
        }
    }

    /// Notes the answer to a request with a body, and says in it whether the connection ends.
    pub(super) fn answered<B>(&self, response: &mut Response<B>, cx: &mut Context<'_>) {
        let mut state = self.state();
        state.answered = true;
        if state.lent {
            state.waker = Some(cx.waker().clone());
        }
        // A connection that becomes a WebSocket has its own end.
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            state.rest = None;
        }
        // A client that is too slow once is not waited for again.
        let is_kept = state.is_kept() && response.status() != StatusCode::REQUEST_TIMEOUT;
        if state.rest.is_some() && !is_kept {
            state.give_up();
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
    }

    /// Returns true if bytes of the client may come after the end of the last answer.
    pub(super) fn lingers(&self) -> bool {
        self.state().lingers
    }

    /// Notes that the library failed. A head that it cannot read is answered before its end.
    pub(super) fn note_error(&self, error: &hyper::Error) {
        if error.is_parse() {
            self.state().lingers = true;
        }
    }

    /// Takes the rest of a body whose request is answered, if the connection is to be kept.
    fn take(&self) -> Option<Incoming> {
        let mut state = self.state();
        if !state.answered || state.rest.is_none() {
            return None;
        }
        if !state.is_kept() {
            state.give_up();
            return None;
        }
        state.rest.take()
    }

    /// Returns true if the body broke off, which its holder may have answered.
    pub(super) fn is_broken(&self) -> bool {
        self.state().broken
    }

    /// Takes the rest of a body of HTTP/2, whose connection goes on in any case.
    pub(super) fn take_rest(&self) -> Option<Incoming> {
        let mut state = self.state();
        // A client that waits for 100 may send nothing more.
        state.rest.take().filter(|_| !state.awaits)
    }

    fn state(&self) -> MutexGuard<'_, UnreadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnreadState {
    /// Returns true if the rest is so short that the connection goes on after it.
    fn is_kept(&self) -> bool {
        // A client that waits for 100 may send the body or not, so the next request could be taken for it.
        if self.awaits {
            return false;
        }
        match self.rest.as_ref().and_then(|rest| rest.size_hint().exact()) {
            Some(rest) => rest <= KEPT_MAX,
            None => false,
        }
    }

    /// Drops the rest, upon which the library ends the connection after the answer.
    fn give_up(&mut self) {
        self.rest = None;
        self.lingers = true;
    }
}

impl RequestBody {
    /// Waits until the body begins, breaks off, or turns out to be empty.
    pub(super) fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.first.is_none() && !self.is_end_stream() {
            self.first = ready!(self.poll_incoming(cx)).map(Box::new);
        }
        Poll::Ready(())
    }

    /// Returns true if nothing more is to come: what the client has sent may still be unread.
    pub(super) fn has_come_whole(&self) -> bool {
        match &self.incoming {
            Some(incoming) => incoming.is_end_stream(),
            None => true,
        }
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(incoming) = &mut self.incoming else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(incoming).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.incoming = None;
        }
        if let (Some(Err(_)), Some(unread)) = (&frame, &self.unread) {
            unread.state().broken = true;
        }
        Poll::Ready(frame)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let body = self.get_mut();
        match body.first.take() {
            Some(first) => Poll::Ready(Some(*first)),
            None => body.poll_incoming(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none()
            && match &self.incoming {
                Some(incoming) => incoming.is_end_stream(),
                None => true,
            }
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = match &self.incoming {
            Some(incoming) => incoming.size_hint(),
            None => SizeHint::with_exact(0),
        };
        if let Some(Ok(first)) = self.first.as_deref()
            && let Some(data) = first.data_ref()
        {
            let length = data.len() as u64;
            if let Some(upper) = hint.upper() {
                hint.set_upper(upper + length);
            }
            hint.set_lower(hint.lower() + length);
        }
        hint
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let Some(unread) = &self.unread else {
            return;
        };
        let mut state = unread.state();
        state.lent = false;
        state.rest = self.incoming.take().filter(|rest| !rest.is_end_stream());
        let waker = state.waker.take().filter(|_| state.rest.is_some());
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Reads and drops the short rests of bodies on one connection, beside the library.
#[derive(Debug)]
pub(super) struct Dropping {
    unread: Unread,
    time: Duration,
    /// The rest of the present body, and the end of its time.
    present: Option<(Incoming, Pin<Box<Sleep>>)>,
}

impl Dropping {
    pub(super) fn new(unread: Unread, config: &HttpConfig) -> Dropping {
        Dropping {
            unread,
            time: config.unread_timeout,
            present: None,
        }
    }

    /// Drops what has come. Called after the library has been polled.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        let (rest, deadline) = match &mut self.present {
            Some(present) => present,
            None => match self.unread.take() {
                Some(rest) => self
                    .present
                    .insert((rest, Box::pin(tokio::time::sleep(self.time)))),
                None => return,
            },
        };
        loop {
            match Pin::new(&mut *rest).poll_frame(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(None | Some(Err(_))) => {
                    self.present = None;
                    return;
                }
                Poll::Pending => break,
            }
        }
        if deadline.as_mut().poll(cx).is_ready() {
            metrics::limit_reached(Limit::UnreadTimeout);
            // The library ends the connection when the body is dropped.
            self.present = None;
            cx.waker().wake_by_ref();
        }
    }
}

/// The end of a connection, or of a request of HTTP/2, whose client may still be sending.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lingering {
    bytes_max: usize,
    time: Duration,
}

impl Lingering {
    pub(super) fn new(config: &HttpConfig) -> Lingering {
        Lingering {
            bytes_max: config.unread_bytes_max,
            time: config.unread_timeout,
        }
    }

    /// Ends what is written, and drops what comes until the client ends its side, too, or has sent or waited
    /// enough.
    pub(super) async fn end<T: AsyncRead + AsyncWrite + Unpin>(self, mut stream: T) {
        if timeout(self.time, self.drop_all(&mut stream)).await.is_err() {
            metrics::limit_reached(Limit::UnreadTimeout);
        }
    }

    /// Drops the rest of the body of a request that was answered. A client need not read an answer when its
    /// request is reset, so it is not reset before it was sent or the client has sent or waited enough.
    pub(super) async fn end_request(self, rest: Incoming) {
        if timeout(self.time, self.drop_rest(rest)).await.is_err() {
            metrics::limit_reached(Limit::UnreadTimeout);
        }
    }

    async fn drop_rest(self, mut rest: Incoming) {
        let mut dropped = 0;
        while dropped < self.bytes_max {
            match timeout(QUIET_MAX, poll_fn(|cx| Pin::new(&mut rest).poll_frame(cx))).await {
                Ok(Some(Ok(frame))) => {
                    // Trailers are the end in any case.
                    if let Some(data) = frame.data_ref() {
                        dropped += data.len();
                    }
                }
                _ => return,
            }
        }
        metrics::limit_reached(Limit::UnreadBytes);
    }

    async fn drop_all<T: AsyncRead + AsyncWrite + Unpin>(self, stream: &mut T) {
        // The library has done so, except after errors that it does not answer.
        let shut = poll_fn(|cx| Pin::new(&mut *stream).poll_shutdown(cx)).await;
        if let Err(error) = shut {
            debug!(%error, "a connection that was refused ended");
            return;
        }
        let mut dropped = 0;
        while dropped < self.bytes_max {
            match timeout(QUIET_MAX, poll_fn(|cx| poll_drop(stream, cx))).await {
                Ok(Ok(read)) if read > 0 => dropped += read,
                _ => return,
            }
        }
        metrics::limit_reached(Limit::UnreadBytes);
    }
}

/// Reads some bytes and drops them. Their room is on the stack, so that a connection that waits holds none.
fn poll_drop<T: AsyncRead + Unpin>(stream: &mut T, cx: &mut Context<'_>) -> Poll<std::io::Result<usize>> {
    let mut room = [MaybeUninit::uninit(); READ_BYTES];
    let mut buffer = ReadBuf::uninit(&mut room);
    ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
    Poll::Ready(Ok(buffer.filled().len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::time::Instant;

    const LINGERING: Lingering = Lingering {
        bytes_max: 100_000,
        time: Duration::from_secs(30),
    };

    #[tokio::test(start_paused = true)]
    async fn client_that_sends_on_is_read_up_to_the_limit() {
        let (near, mut far) = tokio::io::duplex(1_000);
        let ending = tokio::spawn(LINGERING.end(near));
        let chunk = [0; 1_000];
        let mut sent = 0;
        while far.write_all(&chunk).await.is_ok() {
            sent += chunk.len();
        }
        assert!((100_000..=102_000).contains(&sent), "{sent}");
        ending.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn client_is_waited_for_no_longer_than_its_time() {
        for (pause, seconds) in [(Duration::from_secs(2), 30), (Duration::from_secs(60), 5)] {
            let (near, mut far) = tokio::io::duplex(1_000);
            let start = Instant::now();
            let sending = tokio::spawn(async move {
                while far.write_all(b"x").await.is_ok() {
                    tokio::time::sleep(pause).await;
                }
            });
            LINGERING.end(near).await;
            assert_eq!(start.elapsed().as_secs(), seconds, "{pause:?}");
            sending.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_ends_its_side_ends_the_wait() {
        let (near, far) = tokio::io::duplex(1_000);
        let start = Instant::now();
        drop(far);
        LINGERING.end(near).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
