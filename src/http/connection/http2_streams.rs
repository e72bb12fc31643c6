//! The requests of one HTTP/2 connection, as the service and the bus know them.
//!
//! [`RequestState`] tells the bus of a request, as a connection of HTTP/1.1 does: a stream is blocked while a
//! frame of it waits.
//!
//! A request has one of the [`RequestPlaces`] from its first turn to its answer. Those whose bodies have not
//! come whole have half of the places at most: a client could otherwise keep all others from being served
//! with some thousand heads, over a few connections.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::begun::Begun;
use super::turn_queue::RowKind;
use crate::WriteProgress;
use crate::config::HttpConfig;
use crate::http::unread::{Lingering, Unread};
use crate::metrics::{self, HttpMetrics, Limit, Path};

/// The requests that a client may reset within [`RESETS_TIME`] before they are answered, or as many as it may
/// have at a time, if that is more. At the limit the connection ends.
const RESETS_MAX: usize = 1_000;

/// The requests in succession with which the service can do nothing, from which on their connection is one of
/// those that the others of its thread do not wait for.
const UNSERVED_MAX: usize = 16;

/// The time after which such resets are counted anew.
const RESETS_TIME: Duration = Duration::from_secs(10);

/// The places of the requests without an answer, over all connections of a server.
#[derive(Debug, Clone)]
pub(in crate::http) struct RequestPlaces {
    all: Arc<Semaphore>,
    /// Those for requests whose bodies have not come whole.
    receiving: Arc<Semaphore>,
}

impl RequestPlaces {
    /// Makes this number of places.
    pub(in crate::http) fn new(count: usize) -> RequestPlaces {
        RequestPlaces {
            all: Arc::new(Semaphore::new(count)),
            receiving: Arc::new(Semaphore::new(count.div_ceil(2))),
        }
    }

    /// Takes a place, if there is one.
    fn take(&self, is_whole: bool) -> Option<Place> {
        let receiving = match is_whole {
            true => None,
            false => Some(self.receiving.clone().try_acquire_owned().ok()?),
        };
        Some(Place {
            _place: self.all.clone().try_acquire_owned().ok()?,
            receiving,
        })
    }
}

/// The place of one request; given back when dropped.
struct Place {
    _place: OwnedSemaphorePermit,
    /// Held if the body had not come whole at the last look.
    receiving: Option<OwnedSemaphorePermit>,
}

/// The requests of one connection.
pub(super) struct Http2Streams {
    /// The progress of the socket.
    socket: Arc<WriteProgress>,
    metrics: HttpMetrics,
    places: RequestPlaces,
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
}

impl Http2Streams {
    pub(super) fn new(
        socket: Arc<WriteProgress>,
        metrics: HttpMetrics,
        places: RequestPlaces,
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
        })
    }

    /// Begins a request, which counts as open until its state is dropped.
    pub(super) fn begin(self: &Rc<Self>) -> RequestState {
        self.requests.set(self.requests.get() + 1);
        self.open.set(self.open.get() + 1);
        // Well-behaved clients know the limit and never go beyond it, so reaching it is all that can be seen.
        if self.open.get() == self.open_max {
            metrics::limit_reached(Limit::Http2Streams);
        }
        self.active.set(Instant::now());
        let counts = self.metrics.http2();
        counts.requested();
        counts.streams.increment(1.0);
        RequestState {
            streams: self.clone(),
            progress: Arc::default(),
            place: None,
            begun: None,
            is_refused: false,
            is_answered: false,
            unread: Unread::default(),
        }
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

    /// Returns true while the socket takes no bytes.
    pub(super) fn is_blocked(&self) -> bool {
        self.socket.is_blocked()
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

/// The state of one request.
pub(super) struct RequestState {
    streams: Rc<Http2Streams>,
    progress: Arc<WriteProgress>,
    /// Given back with the answer, or when a request ends without one.
    place: Option<Place>,
    /// Set while the service answers.
    begun: Option<Begun>,
    /// True if the request is answered without the service, and nothing more is read of it.
    is_refused: bool,
    is_answered: bool,
    /// The body of the request, after its holder has dropped it.
    unread: Unread,
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

    /// Takes a place among the requests that wait for their answers, unless the request has one. Returns
    /// false if there is none for it.
    pub(super) fn take_place(&mut self, is_whole: bool) -> bool {
        match &mut self.place {
            // It waited for its body until now.
            Some(place) if is_whole => place.receiving = None,
            Some(_) => {}
            None => self.place = self.streams.places.take(is_whole),
        }
        self.place.is_some()
    }

    /// Returns true while the socket of the connection takes no bytes.
    pub(super) fn is_socket_blocked(&self) -> bool {
        self.streams.is_blocked()
    }

    /// The time for which a frame may wait for its client.
    pub(super) fn write_timeout(&self) -> Duration {
        self.streams.write_timeout
    }

    /// Notes that the service can do nothing with the request when its turn comes.
    pub(super) fn not_served(&self) {
        self.streams.unserved.set(self.streams.unserved.get() + 1);
    }

    /// Notes that the request is answered without the service.
    pub(super) fn refused(&mut self) {
        self.is_refused = true;
        // One with a place was counted when its body did not come.
        if self.place.is_none() {
            self.not_served();
        }
    }

    /// Notes that the service is called with the request.
    pub(super) fn begun(&mut self) {
        self.streams.unserved.set(0);
        self.begun = Some(Begun::new());
    }

    /// Counts the answer to the request.
    pub(super) fn answered(&mut self, path: Path, status: StatusCode) {
        self.is_answered = true;
        // A stream has its own limits from here on.
        self.place = None;
        self.begun = None;
        self.streams.metrics.answered(path, status);
    }

    /// Notes that the library has done its part, and returns the task that drops the rest of the request's
    /// body.
    pub(super) fn rest_after(&self, end: TaskEnd) -> Option<Pin<Box<dyn Future<Output = ()>>>> {
        // A handler answers a body that broke off, but no client reads that answer.
        if !self.is_answered || self.unread.is_broken() {
            self.streams.count_reset();
        }
        let rest = match end {
            TaskEnd::Done if !self.is_refused => self.unread.take_rest()?,
            TaskEnd::Done | TaskEnd::Reset => return None,
        };
        // Without one the stream is reset as soon as the answer is written.
        let Some(place) = self.streams.places.take(false) else {
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

impl Drop for RequestState {
    fn drop(&mut self) {
        let streams = &self.streams;
        streams.open.set(streams.open.get() - 1);
        streams.active.set(Instant::now());
        streams.metrics.http2().streams.decrement(1.0);
    }
}

/// The way in which the library's part of a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskEnd {
    /// The library has the whole answer, or its client is gone.
    Done,
    /// The client takes nothing, and the stream was reset.
    Reset,
}
