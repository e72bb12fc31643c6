//! The requests of one HTTP/2 connection, and the task of each.
//!
//! [`RequestState`] tells the bus of it, as a connection of HTTP/1.1 does: a stream is blocked while a frame
//! of it waits, and it is reset, alone, when it was blocked for the write time-out or its session was ended.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use ::http::StatusCode;
use hyper::rt::Executor;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

use super::begun::Begun;
use super::frame_wakes;
use super::request_tasks::NewTasks;
use super::turn_queue::RowKind;
use crate::config::HttpConfig;
use crate::http::unread::{Lingering, Unread};
use crate::metrics::{self, HttpMetrics, Limit, Path};
use crate::{ForMany, WriteProgress};

/// The requests that a client may reset within [`RESETS_TIME`] before they are answered, or as many as it may
/// have at a time, if that is more. At the limit the connection ends.
const RESETS_MAX: usize = 1_000;

/// The requests in succession with which the service can do nothing, from which on their connection is one of
/// those that the others of its thread do not wait for.
const UNSERVED_MAX: usize = 16;

/// The number of bodies that wait for the socket from which on they count as woken for many.
const MANY: usize = 64;

/// The time after which such resets are counted anew.
const RESETS_TIME: Duration = Duration::from_secs(10);

/// The requests of one connection.
pub(super) struct Http2Streams {
    /// The progress of the socket.
    socket: Arc<WriteProgress>,
    metrics: HttpMetrics,
    /// The places of requests that are not answered, or whose clients still send, over all connections.
    places: Arc<Semaphore>,
    write_timeout: Duration,
    lingering: Lingering,
    open_max: usize,
    resets_max: usize,
    /// The number of tasks.
    open: Cell<usize>,
    /// The number of requests so far.
    requests: Cell<u64>,
    /// The requests since the service was last handed one that had no place, or no body when their turn came;
    /// of a new connection as many as of one that sends nothing else.
    unserved: Cell<usize>,
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
        metrics: HttpMetrics,
        places: Arc<Semaphore>,
        config: &HttpConfig,
    ) -> Rc<Http2Streams> {
        let now = Instant::now();
        Rc::new(Http2Streams {
            socket,
            metrics,
            places,
            write_timeout: config.write_timeout,
            lingering: Lingering::new(config),
            open_max: config.h2_streams_max,
            resets_max: config.h2_streams_max.max(RESETS_MAX),
            open: Cell::default(),
            requests: Cell::default(),
            unserved: Cell::new(UNSERVED_MAX),
            active: Cell::new(now),
            resets: Cell::default(),
            resets_since: Cell::new(now),
            waiting: RefCell::default(),
            beginning: RefCell::default(),
        })
    }

    /// Begins a request. The library spawns its task next. Without a place it is to be refused.
    pub(super) fn begin(self: &Rc<Self>) -> Rc<RequestState> {
        self.requests.set(self.requests.get() + 1);
        self.metrics.http2().requested();
        let state = Rc::new(RequestState {
            streams: self.clone(),
            place: RefCell::new(self.place()),
            begun: RefCell::default(),
            progress: Arc::default(),
            handed: Cell::default(),
            is_answered: Cell::default(),
            turn: Cell::default(),
            unread: Unread::default(),
            waker: RefCell::default(),
        });
        // The library takes no state along, so the next task that it spawns is known by its turn.
        *self.beginning.borrow_mut() = Some(state.clone());
        state
    }

    /// Takes a place among the requests of all connections, if there is one.
    fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.places.clone().try_acquire_owned().ok()
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

    /// The number of requests that the client has sent so far.
    pub(super) fn requests(&self) -> u64 {
        self.requests.get()
    }

    /// Returns the row in which the connection waits for its turns.
    pub(super) fn row(&self) -> RowKind {
        match self.unserved.get() {
            ..UNSERVED_MAX => RowKind::Served,
            _ => RowKind::Unserved,
        }
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
        let waiting = self.waiting.take();
        // Most wait with a change for many, and a change for few is not to wait behind them again.
        let _many = (waiting.len() > MANY).then(ForMany::begin);
        for state in waiting {
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
    /// Given back with the answer, or when a request ends without one.
    place: RefCell<Option<OwnedSemaphorePermit>>,
    /// Set while the service answers.
    begun: RefCell<Option<Begun>>,
    progress: Arc<WriteProgress>,
    /// The bytes of the frame that the library has taken from the body and not handed on.
    handed: Cell<usize>,
    is_answered: Cell<bool>,
    /// The number of times that the task was polled.
    turn: Cell<u64>,
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

    /// Returns true if the request has a place among those that wait for their answers.
    pub(super) fn has_place(&self) -> bool {
        self.place.borrow().is_some()
    }

    /// Notes that the library has taken a frame of this length from the body.
    pub(super) fn took_frame(&self, bytes: usize) {
        frame_wakes::frame_given();
        self.handed.set(bytes);
    }

    /// Notes that the task is polled.
    pub(super) fn begin_turn(&self) {
        self.turn.set(self.turn.get() + 1);
    }

    /// Returns the number of times that the task was polled.
    pub(super) fn turn(&self) -> u64 {
        self.turn.get()
    }

    /// Notes that there is no place for the request, or that its body has not begun when its turn comes.
    pub(super) fn not_served(&self) {
        self.streams.unserved.set(self.streams.unserved.get() + 1);
    }

    /// Notes that the service is called with the request.
    pub(super) fn begun(&self) {
        self.streams.unserved.set(0);
        self.begun.replace(Some(Begun::new()));
    }

    /// Counts the answer to the request.
    pub(super) fn answered(&self, path: Path, status: StatusCode) {
        self.is_answered.set(true);
        // A stream has its own limits from here on.
        self.place.take();
        self.begun.take();
        self.streams.metrics.answered(path, status);
    }

    /// Notes that the library has handed the last frame on, as it asks for another one. Ready if the socket
    /// takes bytes.
    pub(super) fn poll_room(self: &Rc<Self>, cx: &Context<'_>) -> Poll<()> {
        frame_wakes::frame_asked();
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
}

/// The task of a request: the library's part of it, and then what its client still sends.
struct CarriedRequest<F> {
    state: Rc<RequestState>,
    part: Part<F>,
    /// The end of the write time-out, while a frame waits for the client.
    deadline: Option<Pin<Box<Sleep>>>,
    _open: OpenTask,
}

/// The part that a request is at.
enum Part<F> {
    /// The library calls the handler and writes its answer.
    Library(F),
    /// The answer is written, and the rest of the body is dropped.
    Rest(Pin<Box<dyn Future<Output = ()>>>),
}

impl<F: Future<Output = ()> + Unpin> Future for CarriedRequest<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let request = self.get_mut();
        if let Part::Library(task) = &mut request.part {
            let end = ready!(
                request
                    .state
                    .poll_library(Pin::new(task), &mut request.deadline, cx)
            );
            match request.state.rest_after(end) {
                Some(rest) => request.part = Part::Rest(rest),
                None => return Poll::Ready(()),
            }
        }
        match &mut request.part {
            Part::Rest(rest) => rest.as_mut().poll(cx),
            Part::Library(_) => Poll::Pending,
        }
    }
}

impl RequestState {
    /// Polls the library's part of the request.
    fn poll_library<F: Future<Output = ()>>(
        &self,
        task: Pin<&mut F>,
        deadline: &mut Option<Pin<Box<Sleep>>>,
        cx: &mut Context<'_>,
    ) -> Poll<TaskEnd> {
        self.begin_turn();
        if task.poll(cx).is_ready() {
            return Poll::Ready(TaskEnd::Done);
        }
        // Only a frame that waits for its window keeps the time: a handler has time-outs of its own.
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
        // So that the listing of sessions tells why the stream ended.
        self.progress.time_out();
        metrics::limit_reached(Limit::WriteTimeout);
        Poll::Ready(TaskEnd::Reset)
    }

    /// Returns the task that drops the rest of the request's body, after the library's part has ended.
    fn rest_after(&self, end: TaskEnd) -> Option<Pin<Box<dyn Future<Output = ()>>>> {
        // A handler answers a body that broke off, but no client reads that answer.
        if !self.is_answered.get() || self.unread.is_broken() {
            self.streams.count_reset();
        }
        let rest = match end {
            TaskEnd::Done => self.unread.take_rest()?,
            TaskEnd::Reset => return None,
        };
        // Without one the stream is reset as soon as the answer is written.
        let Some(place) = self.streams.place() else {
            metrics::limit_reached(Limit::Http2Requests);
            return None;
        };
        let ending = self.streams.lingering.end_request(rest);
        Some(Box::pin(async move {
            ending.await;
            drop(place);
        }))
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
    F: Future<Output = ()> + Unpin + 'static,
{
    fn execute(&self, task: F) {
        // The library calls the service and then spawns the task of that request; none precedes the task of
        // a WebSocket.
        let state = self.streams.beginning.take();
        let open = OpenTask::new(&self.streams);
        self.tasks.push(match state {
            Some(state) => Box::pin(CarriedRequest {
                state,
                part: Part::Library(task),
                deadline: None,
                _open: open,
            }),
            None => Box::pin(async move {
                task.await;
                drop(open);
            }),
        });
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
        streams.metrics.http2().streams.increment(1.0);
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
        streams.metrics.http2().streams.decrement(1.0);
    }
}
