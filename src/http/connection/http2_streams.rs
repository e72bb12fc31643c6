//! The requests of one HTTP/2 connection: the task of each, and the body of its answer.
//!
//! Flow control is back-pressure. The library asks a body for its next frame when it has handed the last one
//! to the connection, so a body whose window is closed is not asked, and its notices stay in the outbox,
//! where newer ones replace them. While the socket takes nothing, no body of the connection is asked.
//!
//! [`RequestState`] tells the bus of it, as a connection of HTTP/1.1 does: a stream is blocked while a frame
//! of it waits, and it is reset, alone, when it was blocked for the write time-out or its session was ended.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::time::{Instant, Sleep, sleep};

use super::request_tasks::NewTasks;
use crate::WriteProgress;
use crate::config::HttpConfig;
use crate::http::unread::{Lingering, Unread};
use crate::metrics::{self, Http2Metrics, Limit};

/// The bytes of a body that the library gets at a time. It takes a frame as a whole, and a client that opens
/// its window byte by byte would otherwise hold a large body without a task that watches it.
const FRAME_MAX: usize = 16 << 10;

/// The requests that a client may reset within [`RESETS_TIME`] before they are answered, or as many as it may
/// have at a time, if that is more. At the limit the connection ends.
const RESETS_MAX: usize = 1_000;

/// The time after which such resets are counted anew.
const RESETS_TIME: Duration = Duration::from_secs(10);

/// The requests of one connection.
pub(super) struct Http2Streams {
    /// The progress of the socket.
    socket: Arc<WriteProgress>,
    metrics: Http2Metrics,
    write_timeout: Duration,
    lingering: Lingering,
    open_max: usize,
    resets_max: usize,
    /// The number of tasks.
    open: Cell<usize>,
    /// The number of requests so far.
    requests: Cell<u64>,
    /// The time at which a task last began or ended, or was last seen.
    active: Cell<Instant>,
    /// The resets of requests without an answer, and the time since which they are counted.
    resets: Cell<usize>,
    resets_since: Cell<Instant>,
    /// The requests whose bodies wait for the socket.
    waiting: RefCell<Vec<Rc<RequestState>>>,
    /// The request that the service was called for, until the library spawns its task.
    beginning: RefCell<Option<Rc<RequestState>>>,
}

impl Http2Streams {
    pub(super) fn new(
        socket: Arc<WriteProgress>,
        metrics: &Http2Metrics,
        config: &HttpConfig,
    ) -> Rc<Http2Streams> {
        let now = Instant::now();
        Rc::new(Http2Streams {
            socket,
            metrics: metrics.clone(),
            write_timeout: config.write_timeout,
            lingering: Lingering::new(config),
            open_max: config.h2_streams_max,
            resets_max: config.h2_streams_max.max(RESETS_MAX),
            open: Cell::default(),
            requests: Cell::default(),
            active: Cell::new(now),
            resets: Cell::default(),
            resets_since: Cell::new(now),
            waiting: RefCell::default(),
            beginning: RefCell::default(),
        })
    }

    /// Begins a request. The library spawns its task next.
    pub(super) fn begin(self: &Rc<Self>) -> Rc<RequestState> {
        self.requests.set(self.requests.get() + 1);
        let state = Rc::new(RequestState {
            streams: self.clone(),
            progress: Arc::default(),
            handed: Cell::default(),
            is_answered: Cell::default(),
            unread: Unread::default(),
            waker: RefCell::default(),
        });
        // The library takes no state along, so the next task that it spawns is known by its turn.
        *self.beginning.borrow_mut() = Some(state.clone());
        state
    }

    /// Returns the time at which to look again whether the connection is idle; none if it is: for `idle_max`
    /// no request was answered, nor did an answer wait for the socket.
    pub(super) fn look_again(&self, idle_max: Duration) -> Option<Instant> {
        let now = Instant::now();
        if self.open.get() > 0 || self.socket.is_blocked() {
            self.active.set(now);
        }
        let idle_at = self.active.get() + idle_max;
        (idle_at > now).then_some(idle_at)
    }

    /// Returns true if the client has sent no request so far.
    pub(super) fn had_no_request(&self) -> bool {
        self.requests.get() == 0
    }

    /// Returns true if the client has reset too many requests before they were answered.
    pub(super) fn is_flooded(&self) -> bool {
        self.resets.get() > self.resets_max
    }

    /// Wakes the bodies that wait for the socket, if it takes bytes.
    pub(super) fn wake_if_unblocked(&self) {
        if self.socket.is_blocked() {
            return;
        }
        for state in self.waiting.take() {
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
        }
    }

    fn count_reset(&self) {
        let now = Instant::now();
        if now - self.resets_since.get() > RESETS_TIME {
            self.resets.set(0);
            self.resets_since.set(now);
        }
        self.resets.set(self.resets.get() + 1);
    }
}

/// The state of one request, which its task and the body of its answer share.
pub(super) struct RequestState {
    streams: Rc<Http2Streams>,
    progress: Arc<WriteProgress>,
    /// The bytes of the frame that the library has taken from the body and not handed on.
    handed: Cell<usize>,
    is_answered: Cell<bool>,
    /// The body of the request, after its holder has dropped it.
    unread: Unread,
    /// The task, while its body waits for the socket.
    waker: RefCell<Option<Waker>>,
}

impl RequestState {
    /// Returns the write progress of the stream.
    pub(super) fn progress(&self) -> &Arc<WriteProgress> {
        &self.progress
    }

    /// Returns the place of the request's body, after its holder has dropped it.
    pub(super) fn unread(&self) -> &Unread {
        &self.unread
    }

    /// Notes that the request is answered.
    pub(super) fn answered(&self) {
        self.is_answered.set(true);
    }

    /// Notes that the library has handed the last frame on, as it asks for another one. Ready if the socket
    /// takes bytes.
    fn poll_room(self: &Rc<Self>, cx: &Context<'_>) -> Poll<()> {
        let taken = self.handed.take();
        let is_blocked = self.streams.socket.is_blocked();
        if taken > 0 || (self.progress.is_blocked() && !is_blocked) {
            self.progress.took(taken);
        }
        if !is_blocked {
            return Poll::Ready(());
        }
        self.progress.refused();
        // A task that is in the list already stands there once, however often it is woken meanwhile.
        if self.waker.replace(Some(cx.waker().clone())).is_none() {
            self.streams.waiting.borrow_mut().push(self.clone());
        }
        Poll::Pending
    }

    /// Carries the library's part of the request to its end, and then what the client still sends.
    async fn carry(&self, task: impl Future<Output = ()>) {
        let mut task = pin!(task);
        let mut deadline = None;
        let end = poll_fn(|cx| self.poll_task(task.as_mut(), &mut deadline, cx)).await;
        // A handler answers a body that broke off, but no client reads that answer.
        if !self.is_answered.get() || self.unread.is_broken() {
            self.streams.count_reset();
        }
        if end == TaskEnd::Done
            && let Some(rest) = self.unread.take_rest()
        {
            self.streams.lingering.end_request(rest).await;
        }
    }

    /// Polls the library's part of the request.
    fn poll_task<F: Future<Output = ()>>(
        &self,
        task: Pin<&mut F>,
        deadline: &mut Option<Pin<Box<Sleep>>>,
        cx: &mut Context<'_>,
    ) -> Poll<TaskEnd> {
        if self.progress.is_cut() {
            return Poll::Ready(TaskEnd::Reset);
        }
        if task.poll(cx).is_ready() {
            return Poll::Ready(TaskEnd::Done);
        }
        if self.handed.get() == 0 {
            *deadline = None;
            return Poll::Pending;
        }
        self.progress.refused();
        // The body is not polled while it waits, so nothing else wakes this task when its session is ended.
        self.progress.wake_when_cut(cx.waker());
        if self.progress.is_cut() {
            return Poll::Ready(TaskEnd::Reset);
        }
        let time = self.streams.write_timeout;
        let deadline = deadline.get_or_insert_with(|| Box::pin(sleep(time)));
        ready!(deadline.as_mut().poll(cx));
        self.progress.time_out();
        metrics::limit_reached(Limit::WriteTimeout);
        Poll::Ready(TaskEnd::Reset)
    }
}

/// The way in which the task of a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskEnd {
    /// The library has written the answer, or its client is gone.
    Done,
    /// The client takes nothing, so the stream is reset when the task is dropped.
    Reset,
}

/// Begins the tasks of one connection, which the task of the connection polls.
#[derive(Clone)]
pub(super) struct StreamSpawner {
    streams: Rc<Http2Streams>,
    tasks: NewTasks,
}

impl StreamSpawner {
    pub(super) fn new(streams: Rc<Http2Streams>, tasks: NewTasks) -> StreamSpawner {
        StreamSpawner { streams, tasks }
    }
}

impl<F> Executor<F> for StreamSpawner
where
    F: Future<Output = ()> + 'static,
{
    fn execute(&self, task: F) {
        // The library calls the service and then spawns the task of that request; none precedes the task of
        // a WebSocket.
        let state = self.streams.beginning.take();
        let open = OpenTask::new(&self.streams);
        self.tasks.push(Box::pin(async move {
            match state {
                Some(state) => state.carry(task).await,
                None => task.await,
            }
            drop(open);
        }));
    }
}

/// A task that counts as open until it is dropped.
struct OpenTask {
    streams: Rc<Http2Streams>,
}

impl OpenTask {
    fn new(streams: &Rc<Http2Streams>) -> OpenTask {
        streams.open.set(streams.open.get() + 1);
        // Well-behaved clients know the limit and never go beyond it, so reaching it is all that can be seen.
        if streams.open.get() == streams.open_max {
            metrics::limit_reached(Limit::Http2Streams);
        }
        streams.active.set(Instant::now());
        streams.metrics.streams.increment(1.0);
        OpenTask {
            streams: streams.clone(),
        }
    }
}

impl Drop for OpenTask {
    fn drop(&mut self) {
        let streams = &self.streams;
        streams.open.set(streams.open.get() - 1);
        streams.active.set(Instant::now());
        streams.metrics.streams.decrement(1.0);
    }
}

/// The body of an answer, in frames of bounded size.
pub(super) struct Http2Body<B> {
    /// None if the body is left out or was read to its end.
    body: Option<Pin<Box<B>>>,
    /// The part of the last frame that the library has not got.
    rest: Bytes,
    state: Rc<RequestState>,
}

impl<B> Http2Body<B> {
    pub(super) fn new(body: B, state: Rc<RequestState>) -> Http2Body<B> {
        Http2Body {
            body: Some(Box::pin(body)),
            rest: Bytes::new(),
            state,
        }
    }

    /// Leaves the body out, as in an answer to HEAD.
    pub(super) fn leave_out(&mut self) {
        self.body = None;
    }

    /// Returns the next frame of the rest.
    fn next_of_rest(&mut self) -> Frame<Bytes> {
        let frame = self.rest.split_to(self.rest.len().min(FRAME_MAX));
        self.state.handed.set(frame.len());
        Frame::data(frame)
    }
}

impl<B> Body for Http2Body<B>
where
    B: Body<Data = Bytes>,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        ready!(this.state.poll_room(cx));
        if !this.rest.is_empty() {
            return Poll::Ready(Some(Ok(this.next_of_rest())));
        }
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(body.as_mut().poll_frame(cx));
        match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => {
                this.rest = data;
                Poll::Ready(Some(Ok(this.next_of_rest())))
            }
            Some(Ok(Err(trailers))) => Poll::Ready(Some(Ok(trailers))),
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => {
                this.body = None;
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
            && match &self.body {
                Some(body) => body.is_end_stream(),
                None => true,
            }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}
