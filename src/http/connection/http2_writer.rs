//! The way of an answer's body into the library, and of its frames to the client.
//!
//! Flow control is back-pressure. A stream gives the library a frame when it has dropped the last one, so one
//! whose window is closed is not asked for its bytes, and its notices stay in the outbox, where newer ones
//! replace them. While the socket takes nothing, no body of the connection is asked.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body;
use tokio::time::{Sleep, sleep};
use tracing::debug;

use super::http2_body::{AnswerBody, BodyPart, FRAME_MAX};
use super::http2_streams::{RequestState, TaskEnd};
use super::sent_frames::{FrameBytes, FramePlace, SentFrame};
use crate::metrics::{self, Limit};

/// The bytes of one answer that the library may hold, if its window is open.
const HELD_MAX: usize = 64 << 10;

/// The way of a body into the library.
pub(super) struct BodyWriter<B> {
    body: AnswerBody<B>,
    sender: SendStream<SentFrame>,
    /// True once the library has all of it.
    is_ended: bool,
    /// True once the library wakes the task when the client resets the stream.
    is_watched: bool,
    stall: Option<Stall>,
}

/// Frames that wait for the client.
struct Stall {
    /// The bytes of them.
    held: usize,
    /// The end of the write time-out, unless some of them go before.
    deadline: Pin<Box<Sleep>>,
}

impl<B> BodyWriter<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    pub(super) fn new(body: AnswerBody<B>, sender: SendStream<SentFrame>) -> BodyWriter<B> {
        BodyWriter {
            body,
            sender,
            is_ended: false,
            is_watched: false,
            stall: None,
        }
    }

    /// Gives the library what it takes. Ready when all is written, when the client is gone, or when it has
    /// taken nothing for the write time-out.
    pub(super) fn poll(
        &mut self,
        state: &RequestState,
        place: &FramePlace<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<TaskEnd> {
        if !self.may_send(state, place) {
            return self.poll_stalled(state, place, cx);
        }
        if self.is_ended {
            return Poll::Ready(TaskEnd::Done);
        }
        // What had waited is written, and what comes next has the whole time again.
        self.stall = None;
        if state.progress().is_blocked() {
            // Before the source is asked, which gives nothing to a blocked stream.
            state.progress().took(0);
        }
        self.poll_frames(state, place, cx).map(|()| TaskEnd::Done)
    }

    /// Gives the library frames of the source while it takes them. Ready when there is nothing to wait for.
    fn poll_frames(
        &mut self,
        state: &RequestState,
        place: &FramePlace<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut has_sent = false;
        while let Poll::Ready(next) = self.body.poll_next(cx) {
            let (data, is_drained) = match next {
                Ok(BodyPart::Data(data)) => (FrameBytes::Body(data), false),
                Ok(BodyPart::Drained(buffer)) => (FrameBytes::Stream(buffer), true),
                Ok(BodyPart::End) => (FrameBytes::Body(Bytes::new()), false),
                Ok(BodyPart::Trailers(trailers)) => {
                    if let Err(error) = self.sender.send_trailers(trailers) {
                        debug!(%error, "the trailers of an answer could not be sent");
                    }
                    self.is_ended = true;
                    place.wait();
                    break;
                }
                Err(error) => {
                    let error: Box<dyn Error + Send + Sync> = error.into();
                    debug!(%error, "the body of an answer failed");
                    self.sender.send_reset(Reason::INTERNAL_ERROR);
                    return Poll::Ready(());
                }
            };
            self.is_ended = self.body.is_end();
            if data.len() > 0 || self.is_ended {
                // Counted as taken at once, since most frames are written in this turn.
                state.progress().took(data.len());
                if let Err(error) = self.sender.send_data(place.frame(data), self.is_ended) {
                    debug!(%error, "a client of HTTP/2 has reset an answer");
                    return Poll::Ready(());
                }
                has_sent = true;
            }
            // It has left the waker of the task, so a second look is not needed.
            if is_drained {
                break;
            }
            if self.is_ended || !self.may_send(state, place) {
                // The library may still write it in this turn.
                place.wait();
                break;
            }
        }
        if self.is_ended && place.held() == 0 {
            return Poll::Ready(());
        }
        // A stream that was reset takes no frame, so the library need not be asked after one.
        match has_sent && self.is_watched {
            true => Poll::Pending,
            false => self.poll_reset(cx),
        }
    }

    /// Returns true if the library may be given more.
    fn may_send(&mut self, state: &RequestState, place: &FramePlace<'_>) -> bool {
        !state.is_socket_blocked()
            && match place.held() {
                0 => true,
                held if self.is_ended || held + FRAME_MAX > HELD_MAX => false,
                _ => self.has_window(),
            }
    }

    /// Returns true if the window of the stream is open for more than the library holds.
    fn has_window(&mut self) -> bool {
        self.sender.reserve_capacity(1);
        let is_open = self.sender.capacity() > 0;
        // Other streams of the connection may need what this one does not use yet.
        self.sender.reserve_capacity(0);
        if is_open {
            // The library has woken the task for it.
            self.is_watched = false;
        }
        is_open
    }

    /// Waits for the client to take what it has been sent.
    fn poll_stalled(
        &mut self,
        state: &RequestState,
        place: &FramePlace<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<TaskEnd> {
        let progress = state.progress();
        progress.refused();
        // The source is not asked while it waits, so nothing else wakes this task when its session is ended.
        progress.wake_when_cut(cx.waker());
        if progress.is_cut() {
            return Poll::Ready(self.reset());
        }
        if self.poll_reset(cx).is_ready() {
            return Poll::Ready(TaskEnd::Done);
        }
        place.wait();
        if state.is_socket_blocked() {
            // The connection keeps the time.
            place.wait_for_socket();
            return Poll::Pending;
        }
        let held = place.held();
        if matches!(&self.stall, Some(stall) if held < stall.held) {
            self.stall = None;
        }
        let stall = self.stall.get_or_insert_with(|| Stall {
            held,
            deadline: Box::pin(sleep(state.write_timeout())),
        });
        ready!(stall.deadline.as_mut().poll(cx));
        // So that the listing of sessions tells why the stream ended.
        progress.time_out();
        metrics::limit_reached(Limit::WriteTimeout);
        Poll::Ready(self.reset())
    }

    /// Resets the stream, and has the library drop the frames of it.
    fn reset(&mut self) -> TaskEnd {
        // The library would wait for the client with the end of an answer.
        self.sender.send_reset(Reason::CANCEL);
        TaskEnd::Reset
    }

    /// Has the task woken when the client resets the stream. Ready if it has.
    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.is_watched = true;
        self.sender.poll_reset(cx).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::connection::request_tasks::{RequestTask, RequestTasks};
    use crate::http::connection::texts::{Texts, streams};
    use h2::RecvStream;
    use h2::client::Builder;
    use http::{Request, Response};
    use http_body_util::Empty;
    use std::future::poll_fn;
    use tokio::io::duplex;

    type TestedWriter = BodyWriter<Empty<Bytes>>;

    /// The task of a request whose answer is a stream of texts.
    struct Tested(TestedWriter, RequestState);

    impl RequestTask for Tested {
        fn poll(&mut self, place: &FramePlace<'_>, cx: &mut Context<'_>) -> Poll<()> {
            self.0.poll(&self.1, place, cx).map(|_| ())
        }
    }

    fn body_of(texts: &Texts) -> AnswerBody<Empty<Bytes>> {
        AnswerBody::of_stream(Box::new(texts.clone()))
    }

    /// Answers a request of a client that has room for `window` bytes, and lets `talk` read the answer.
    async fn serve<F: Future<Output = ()>>(
        body: AnswerBody<Empty<Bytes>>,
        window: u32,
        talk: impl FnOnce(RecvStream) -> F,
    ) {
        let mut body = Some(body);
        let (client, server) = duplex(1 << 20);
        let serve = async {
            let mut library = h2::server::Builder::new()
                .handshake::<_, SentFrame>(server)
                .await
                .unwrap();
            let mut tasks = RequestTasks::new();
            let streams = streams();
            poll_fn(|cx| {
                while let Poll::Ready(Some(accepted)) = library.poll_accept(cx) {
                    let (_, mut respond) = accepted.unwrap();
                    let sender = respond.send_response(Response::new(()), false).unwrap();
                    let body = body.take().expect("one request is sent");
                    tasks.begin(Box::new(Tested(TestedWriter::new(body, sender), streams.begin())));
                }
                tasks.note_written(false);
                let has_polled = tasks.poll_turn(true);
                if tasks.wait(cx, false) || has_polled {
                    cx.waker().wake_by_ref();
                }
                Poll::<()>::Pending
            })
            .await;
        };
        let client = async {
            let mut builder = Builder::new();
            builder.initial_window_size(window);
            let (mut requests, connection) = builder.handshake::<_, Bytes>(client).await.unwrap();
            let talk = async {
                let (response, _) = requests.send_request(Request::new(()), true).unwrap();
                talk(response.await.unwrap().into_body()).await;
            };
            tokio::select! {
                () = talk => (),
                ended = connection => panic!("the connection ended: {ended:?}"),
            }
        };
        tokio::select! {
            () = serve => unreachable!("a server serves until it is dropped"),
            () = client => (),
        }
    }

    #[tokio::test]
    async fn stream_is_asked_once_for_each_delivery() {
        let texts = Texts::default();
        serve(body_of(&texts), 1 << 16, async |mut body| {
            for _ in 0..10 {
                texts.put("text");
                assert_eq!(body.data().await.unwrap().unwrap(), "text");
            }
        })
        .await;
        assert_eq!(texts.asked(), 1 + 10);
    }

    #[tokio::test(start_paused = true)]
    async fn stream_with_a_closed_window_is_not_asked() {
        let texts = Texts::default();
        serve(body_of(&texts), 2, async |mut body| {
            texts.put("text");
            assert_eq!(body.data().await.unwrap().unwrap(), "te");
            let asked = texts.asked();
            for _ in 0..10 {
                texts.put("+");
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            assert_eq!(texts.asked(), asked);
            let mut read = 2;
            body.flow_control().release_capacity(2).unwrap();
            while read < 4 + 10 {
                let data = body.data().await.unwrap().unwrap();
                body.flow_control().release_capacity(data.len()).unwrap();
                read += data.len();
            }
            // Once for all that came meanwhile, and once more after the wait.
            assert_eq!(texts.asked(), asked + 2);
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_takes_nothing_is_reset_after_its_time() {
        let texts = Texts::default();
        texts.put("text");
        // Also at the end of an answer, all of which the library has.
        let whole = AnswerBody::of_bytes(Bytes::from_static(b"text"));
        for body in [body_of(&texts), whole] {
            let start = tokio::time::Instant::now();
            serve(body, 0, async |mut body| {
                let error = body.data().await.unwrap().unwrap_err();
                assert_eq!(error.reason(), Some(Reason::CANCEL));
            })
            .await;
            let timeout = crate::config::HttpConfig::default().write_timeout;
            assert_eq!(start.elapsed().as_secs(), timeout.as_secs());
        }
    }

    #[tokio::test]
    async fn long_text_is_handed_out_in_frames() {
        let texts = Texts::default();
        let length = 5 * FRAME_MAX + 1;
        serve(body_of(&texts), 1 << 20, async |mut body| {
            texts.put(&"x".repeat(length));
            let mut read = 0;
            while read < length {
                let data = body.data().await.unwrap().unwrap();
                assert!(data.len() <= FRAME_MAX);
                body.flow_control().release_capacity(data.len()).unwrap();
                read += data.len();
            }
            assert_eq!(read, length);
        })
        .await;
    }
}
