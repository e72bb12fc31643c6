//! A connection that speaks HTTP/2 (RFC 9113): the library serves many requests at once.
//!
//! The task of the connection reads and writes frames, and polls the tasks of its requests
//! ([`request_tasks`](super::request_tasks)), each of which waits for itself alone. What a change tells many
//! streams thus leaves in few writes, and wakes the connection once.
//!
//! The library bounds by itself the memory that a client can take, and ends connections that flood it with
//! resets, headers or frames. Here end those that are idle, that answer no ping, and that reset one request
//! after the other before it is answered.

use std::cell::RefCell;
use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ::http::{HeaderMap, HeaderValue, Uri, header};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http2;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::first_bytes::Prefixed;
use super::http2_answer::{Answering, Http2Answer};
use super::http2_body::Http2Body;
use super::http2_io::{Http2Io, ReadRests, ReadTurns};
use super::http2_streams::{Http2Streams, StreamSpawner};
use super::own_wakes::{OwnWakes, yield_to_sockets};
use super::request_tasks::{NewTasks, RequestTasks};
use super::short_turns::ShortTurns;
use super::turn_queue::RowPlace;
use super::{ConnectionParts, ConnectionPermit, Peer};
use crate::config::HttpConfig;
use crate::http::server::RequestService;
use crate::http::stream_handover::StreamHandover;
use crate::http::write_deadline::{WriteDeadline, is_write_timeout};
use crate::metrics::{self, Limit, Path};

/// The bytes of one request's body that a client may send before they are read.
const STREAM_WINDOW: u32 = 256 << 10;

/// The same over all requests of a connection.
const CONNECTION_WINDOW: u32 = 1 << 20;

/// The bytes of one answer that wait in the library for the socket.
const SEND_BUFFER: usize = 64 << 10;

/// The table by which a client may shorten repeated headers, in bytes.
const HEADER_TABLE: u32 = 4 << 10;

/// The library as the server of a connection over `io`.
type Library<I, S> = http2::Connection<I, Http2Service<S>, StreamSpawner>;

/// The reason for which a connection ended.
enum End {
    /// The library has ended it.
    Library(hyper::Result<()>),
    /// The client sent no request for too long, and does not end its side.
    Idle,
    /// The client has reset too many requests before they were answered.
    Flood,
}

/// Carries a connection: its requests, and the streams and WebSockets that answer them.
pub(super) async fn serve<S, T>(stream: WriteDeadline<Prefixed<T>>, parts: ConnectionParts<S>)
where
    S: RequestService,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let ConnectionParts {
        peer,
        context,
        permit,
    } = parts;
    let config = &context.config;
    // Counted until this task ends, however that comes about.
    let _open = context.metrics.http2().connected();
    let streams = Http2Streams::new(
        stream.progress().clone(),
        context.metrics,
        context.http2_places,
        config,
    );
    let service = Http2Service {
        service: Rc::new(RefCell::new(context.service)),
        peer,
        streams: streams.clone(),
        permit,
        body_timeout: config.body_timeout,
    };
    let new_tasks = NewTasks::default();
    let mut turns = ConnectionTurns::new(streams.clone(), new_tasks.clone());
    let socket = TokioIo::new(Http2Io::new(stream, turns.reads.clone()));
    let spawner = StreamSpawner::new(streams.clone(), new_tasks);
    let mut library = std::pin::pin!(builder(config, spawner).serve_connection(socket, service));
    let mut closing = context.closing.clone();
    let mut idle = std::pin::pin!(sleep_until(Instant::now() + config.header_timeout));
    let mut says_goodbye = false;
    let end = loop {
        tokio::select! {
            end = poll_fn(|cx| turns.poll(library.as_mut(), cx)) => break end,
            _ = closing.wait_for(|closing| *closing), if !says_goodbye => {
                // Requests that are being answered are finished; open streams stay until the bus ends them.
                library.as_mut().graceful_shutdown();
                says_goodbye = true;
            }
            () = &mut idle => match streams.look_again(config.header_timeout) {
                Some(later) => idle.as_mut().reset(later),
                None if says_goodbye || streams.requests() == 0 => break End::Idle,
                None => {
                    metrics::limit_reached(Limit::HeaderTimeout);
                    library.as_mut().graceful_shutdown();
                    says_goodbye = true;
                    // The last frame of an answer may wait for its window.
                    idle.as_mut().reset(Instant::now() + config.write_timeout);
                }
            }
        }
    };
    note_end(&end, says_goodbye);
}

/// Configures the library.
fn builder(config: &HttpConfig, spawner: StreamSpawner) -> http2::Builder<StreamSpawner> {
    let mut builder = http2::Builder::new(spawner);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(u32::try_from(config.h2_streams_max).unwrap_or(u32::MAX))
        .max_header_list_size(u32::try_from(config.h2_header_bytes_max).unwrap_or(u32::MAX))
        .header_table_size(HEADER_TABLE)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(config.keep_alive)
        .keep_alive_timeout(config.h2_ping_timeout)
        // WebSockets (RFC 8441).
        .enable_connect_protocol();
    builder
}

/// The parts of a connection that have turns.
struct ConnectionTurns {
    streams: Rc<Http2Streams>,
    tasks: RequestTasks,
    reads: ReadTurns,
    rests: ReadRests,
    row: RowPlace,
    /// Its turns while it has no more to do than to read.
    short: ShortTurns,
    wakes: Arc<OwnWakes>,
    /// The waker with which the library and the tasks are polled.
    waker: Waker,
}

impl ConnectionTurns {
    fn new(streams: Rc<Http2Streams>, tasks: NewTasks) -> ConnectionTurns {
        let (wakes, waker) = OwnWakes::new();
        ConnectionTurns {
            wakes,
            waker,
            streams,
            tasks: RequestTasks::new(tasks),
            reads: ReadTurns::new(),
            rests: ReadRests::default(),
            row: RowPlace::default(),
            short: ShortTurns::default(),
        }
    }

    /// Polls the connection once, and has its task woken for the next time.
    fn poll<I, S>(&mut self, library: Pin<&mut Library<I, S>>, cx: &mut Context<'_>) -> Poll<End>
    where
        I: Read + Write + Unpin,
        S: RequestService,
    {
        self.wakes.begin(cx);
        let waker = self.waker.clone();
        let (end, has_more) = self.poll_parts(library, &mut Context::from_waker(&waker));
        if self.wakes.end() || has_more {
            yield_to_sockets(cx);
        }
        end
    }

    /// Polls the parts of the connection once. Returns true if there is more to do at once.
    fn poll_parts<I, S>(
        &mut self,
        library: Pin<&mut Library<I, S>>,
        cx: &mut Context<'_>,
    ) -> (Poll<End>, bool)
    where
        I: Read + Write + Unpin,
        S: RequestService,
    {
        let rests = self.rests.poll(cx);
        let (has_turn, may_read) = match (self.wants_turn(rests), rests) {
            (true, _) => {
                self.short.take();
                let has_turn = self.row.ask(self.streams.row(), cx);
                (has_turn, has_turn && !rests)
            }
            (false, true) => (true, false),
            (false, false) => (true, self.short.ask(cx)),
        };
        let end = self.poll_turn(library, has_turn, may_read, cx);
        if end.is_pending() {
            self.row.turn_over(self.streams.row());
        }
        if may_read {
            let requests = self.streams.requests();
            self.rests.note_turn(self.reads.is_interrupted(), requests);
        }
        let rests = self.rests.poll(cx);
        let wants_turn = self.wants_turn(rests);
        if !wants_turn {
            self.row.end();
        }
        let has_more = self.tasks.wait(cx, self.row.is_waiting());
        let waits = self.row.is_waiting() || (!wants_turn && self.short.is_waiting());
        let is_due = wants_turn || (self.reads.is_put_off() && !rests);
        (end, has_more || (is_due && !waits))
    }

    /// Returns true if the connection has so much to do that it waits for a turn in its row.
    fn wants_turn(&self, rests: bool) -> bool {
        (self.reads.is_interrupted() && !rests) || self.tasks.want_turn()
    }

    /// Polls the library and one turn of the requests, and writes the frames of that turn.
    fn poll_turn<I, S>(
        &mut self,
        mut library: Pin<&mut Library<I, S>>,
        has_turn: bool,
        may_read: bool,
        cx: &mut Context<'_>,
    ) -> Poll<End>
    where
        I: Read + Write + Unpin,
        S: RequestService,
    {
        if !has_turn && self.streams.requests() == 0 {
            // A new connection has nothing to write, either.
            return Poll::Pending;
        }
        match may_read {
            true => self.reads.begin(),
            false => self.reads.pass(),
        }
        if let Poll::Ready(ended) = library.as_mut().poll(cx) {
            return Poll::Ready(End::Library(ended));
        }
        // Before the turn, so that what waited for the socket has its part in it.
        self.streams.wake_if_unblocked();
        if self.tasks.poll_turn(has_turn) {
            // The tasks have had their time, and that of reading is not over for it.
            if may_read && !self.reads.is_interrupted() {
                self.reads.begin();
            }
            self.wakes.forget();
            if let Poll::Ready(ended) = library.as_mut().poll(cx) {
                return Poll::Ready(End::Library(ended));
            }
        }
        // After the turn, in which the requests that were reset have ended.
        if self.streams.is_flooded() {
            library.as_mut().graceful_shutdown();
            return Poll::Ready(match library.poll(cx) {
                Poll::Ready(ended @ Err(_)) => End::Library(ended),
                // The client is told, if it reads, and is not waited for.
                _ => End::Flood,
            });
        }
        Poll::Pending
    }
}

/// Logs why a connection ended, and counts the limit that ended it, if one did.
fn note_end(end: &End, said_goodbye: bool) {
    let error = match end {
        End::Library(Ok(())) => return,
        End::Library(Err(error)) => error,
        End::Idle => {
            debug!("an HTTP/2 connection was idle for too long");
            if !said_goodbye {
                metrics::limit_reached(Limit::HeaderTimeout);
            }
            return;
        }
        End::Flood => {
            debug!("an HTTP/2 connection was closed, since it reset too many requests");
            return metrics::limit_reached(Limit::Http2Flood);
        }
    };
    debug!(%error, "an HTTP/2 connection ended");
    if is_flood(error) {
        metrics::limit_reached(Limit::Http2Flood);
    } else if is_write_timeout(error) {
        metrics::limit_reached(Limit::WriteTimeout);
    } else if error.is_timeout() {
        metrics::limit_reached(Limit::PingTimeout);
    }
}

/// Returns true if the library ended a connection for what its client asked of it.
fn is_flood(error: &hyper::Error) -> bool {
    let Some(cause) = error.source() else {
        return false;
    };
    match cause.downcast_ref::<h2::Error>() {
        Some(error) => error.is_library() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM),
        None => false,
    }
}

/// The server's service, with the facts of one connection that requests carry along.
struct Http2Service<S> {
    /// Called with `&mut`, but only until it returns its future, so never twice at once.
    service: Rc<RefCell<S>>,
    peer: Peer,
    streams: Rc<Http2Streams>,
    permit: ConnectionPermit,
    body_timeout: Duration,
}

impl<S: RequestService> hyper::service::Service<Request<Incoming>> for Http2Service<S> {
    type Response = Response<Http2Body<S::Body>>;
    type Error = Infallible;
    type Future = Http2Answer<S>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let state = self.streams.begin();
        // By it a stream leaves the layers of the service, which its notices need not pass.
        let handover = StreamHandover::default();
        let extensions = request.extensions_mut();
        extensions.insert(handover.clone());
        // Of this stream alone: the others of its connection go on while it is blocked.
        extensions.insert(state.progress().clone());
        self.peer.tell(extensions);
        if extensions.get::<OnUpgrade>().is_some() {
            // A WebSocket holds the permit itself, as in HTTP/1.1.
            extensions.insert(self.permit.clone());
        }
        let (mut head, body) = request.into_parts();
        name_host(&head.uri, &mut head.headers);
        let path = Path::of(head.uri.path());
        let is_head = head.method == Method::HEAD;
        let answer = match state.has_place() {
            true => {
                let body = state.unread().lend(&head.headers, body);
                let request = Request::from_parts(head, body);
                Answering::of(request, self.service.clone(), self.body_timeout)
            }
            // Before the service is called, which holds memory for every request.
            false => {
                state.not_served();
                Answering::refuse(head.uri.path())
            }
        };
        Http2Answer {
            path,
            is_head,
            state,
            handover,
            answer,
        }
    }
}

/// Puts the name that the client called into the `Host` header, where HTTP/1.1 has it, unless the client sent
/// one. A different one is refused with the rule of hosts.
fn name_host(uri: &Uri, headers: &mut HeaderMap) {
    if let Some(authority) = uri.authority()
        && !headers.contains_key(header::HOST)
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        headers.insert(header::HOST, host);
    }
}
