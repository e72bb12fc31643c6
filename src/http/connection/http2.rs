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
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ::http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use h2::RecvStream;
use h2::server::SendResponse;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::debug;

use super::first_bytes::Prefixed;
use super::http2_answer::{Answering, Http2Answer};
use super::http2_io::{Http2Io, ReadRests, ReadTurns, Socket};
use super::http2_library::{Library, LibraryEnd};
use super::http2_request::Http2Request;
use super::http2_streams::Http2Streams;
use super::own_wakes::{OwnWakes, yield_to_sockets};
use super::request_tasks::RequestTasks;
use super::sent_frames::SentFrame;
use super::short_turns::ShortTurns;
use super::turn_queue::{RowKind, RowPlace};
use super::{ConnectionParts, ConnectionPermit, Peer};
use crate::config::HttpConfig;
use crate::http::incoming::{Http2Incoming, Incoming};
use crate::http::limits::told_length;
use crate::http::server::RequestService;
use crate::http::stream_handover::StreamHandover;
use crate::http::write_deadline::WriteDeadline;
use crate::metrics::{self, Limit, Path};

/// The time after which a connection is closed that has ended for a fault of its client, and is read no more.
/// A client that floods the service over and over spends it before each new connection. It is short, since
/// other clients of a proxy learn only then that their streams on this connection have ended.
const FAULT_PAUSE: Duration = Duration::from_millis(500);

/// The reason for which a connection ended.
enum End {
    /// The library has ended it.
    Library(LibraryEnd),
    /// The client sent no request for too long, and does not end its side.
    Idle,
    /// The client has reset too many requests before they were answered.
    Flood,
}

impl End {
    /// Returns true if the service has ended the connection for a fault of its client, and has told it.
    fn is_fault(&self) -> bool {
        match self {
            End::Library(end) => end.is_fault(),
            End::Flood => true,
            End::Idle => false,
        }
    }
}

/// Carries a connection: its requests, and the streams and WebSockets that answer them.
pub(super) async fn serve<S, T>(stream: WriteDeadline<Prefixed<T>>, parts: ConnectionParts<S>)
where
    S: RequestService,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let context = &parts.context;
    let config = context.config.clone();
    // Counted until this task ends, however that comes about.
    let _open = context.metrics.http2().connected();
    let streams = Http2Streams::new(
        stream.progress().clone(),
        context.metrics.clone(),
        context.http2_places.clone(),
        &config,
    );
    let mut closing = context.closing.clone();
    let permit = parts.permit.clone();
    let socket = Socket::new(stream);
    let mut connection = ServedConnection::new(&socket, streams.clone(), parts);
    let mut idle = std::pin::pin!(sleep_until(Instant::now() + config.header_timeout));
    let end = loop {
        tokio::select! {
            end = poll_fn(|cx| connection.poll(cx)) => break end,
            _ = closing.wait_for(|closing| *closing), if !connection.library.is_closing() => {
                // Requests that are being answered are finished; open streams stay until the bus ends them.
                connection.library.close();
            }
            () = &mut idle => match streams.look_again(config.header_timeout) {
                Some(later) => idle.as_mut().reset(later),
                None if connection.library.is_closing() || streams.requests() == 0 => break End::Idle,
                None => {
                    metrics::limit_reached(Limit::HeaderTimeout);
                    connection.library.close();
                    // The last frame of an answer may wait for its window.
                    idle.as_mut().reset(Instant::now() + config.write_timeout);
                }
            }
        }
    };
    note_end(&end, connection.library.is_closing());
    // First its requests, which then hold nothing while the socket stays.
    drop(connection);
    close(socket, &end, &config, closing).await;
    // A connection that is not closed yet is one of those that the server allows.
    drop(permit);
}

/// Closes the socket of a connection that has ended.
async fn close<T>(socket: Socket<T>, end: &End, config: &HttpConfig, mut closing: watch::Receiver<bool>)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    match end {
        End::Library(LibraryEnd::Done) => {
            // TLS has a last message, which a client may not take.
            let shut_down = timeout(config.write_timeout, socket.shut_down());
            if !matches!(shut_down.await, Ok(Ok(()))) {
                debug!("the client of an HTTP/2 connection was gone before its end");
            }
        }
        end if end.is_fault() => {
            tokio::select! {
                () = sleep(FAULT_PAUSE) => {}
                _ = closing.wait_for(|closing| *closing) => {}
            }
        }
        End::Library(_) | End::Idle | End::Flood => {}
    }
}

/// The parts of a connection.
struct ServedConnection<S: RequestService, T> {
    library: Library<Http2Io<WriteDeadline<Prefixed<T>>>>,
    service: Http2Service<S>,
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

impl<S, T> ServedConnection<S, T>
where
    S: RequestService,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    fn new(
        socket: &Socket<WriteDeadline<Prefixed<T>>>,
        streams: Rc<Http2Streams>,
        parts: ConnectionParts<S>,
    ) -> ServedConnection<S, T> {
        let ConnectionParts {
            peer,
            context,
            permit,
        } = parts;
        let (wakes, waker) = OwnWakes::new();
        let reads = ReadTurns::new();
        ServedConnection {
            service: Http2Service {
                service: Rc::new(RefCell::new(context.service)),
                peer,
                permit,
                body_timeout: context.config.body_timeout,
            },
            library: Library::new(socket.for_library(reads.clone()), context.config),
            streams,
            tasks: RequestTasks::new(),
            reads,
            rests: ReadRests::default(),
            row: RowPlace::default(),
            short: ShortTurns::default(),
            wakes,
            waker,
        }
    }

    /// Polls the connection once, and has its task woken for the next time.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.wakes.begin(cx);
        let waker = self.waker.clone();
        let (end, has_more) = self.poll_parts(&mut Context::from_waker(&waker));
        if self.wakes.end() || has_more {
            yield_to_sockets(cx);
        }
        end
    }

    /// Polls the parts of the connection once. Returns true if there is more to do at once.
    fn poll_parts(&mut self, cx: &mut Context<'_>) -> (Poll<End>, bool) {
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
        let end = self.poll_turn(has_turn, may_read, cx);
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
    fn poll_turn(&mut self, has_turn: bool, may_read: bool, cx: &mut Context<'_>) -> Poll<End> {
        if !has_turn && self.streams.requests() == 0 {
            // A new connection has nothing to write, either.
            return Poll::Pending;
        }
        // Further heads of a client that cannot be served would take memory before their turn.
        let is_unserved = self.streams.row() == RowKind::Unserved;
        let may_read = may_read && !(is_unserved && self.tasks.has_backlog());
        match may_read {
            true => self.reads.begin(),
            false => self.reads.pass(),
        }
        if let Poll::Ready(end) = self.poll_library(cx) {
            return Poll::Ready(End::Library(end));
        }
        if self.tasks.poll_turn(has_turn) {
            // The tasks have had their time, and that of reading is not over for it.
            if may_read && !self.reads.is_interrupted() {
                self.reads.begin();
            }
            self.wakes.forget();
            if let Poll::Ready(end) = self.poll_library(cx) {
                return Poll::Ready(End::Library(end));
            }
        }
        // After the turn, in which the requests that were reset have ended.
        if self.streams.is_flooded() {
            self.library.close();
            // The client is told, if it reads, and is not waited for.
            return Poll::Ready(match self.poll_library(cx) {
                Poll::Ready(end @ LibraryEnd::Failed(_)) => End::Library(end),
                _ => End::Flood,
            });
        }
        Poll::Pending
    }

    /// Has the library read and write, and begins the requests that have come.
    fn poll_library(&mut self, cx: &mut Context<'_>) -> Poll<LibraryEnd> {
        let end = loop {
            match self.library.poll(cx) {
                Poll::Ready(Ok((request, respond))) => {
                    let task = self.service.begin(request, respond, &self.streams);
                    self.tasks.begin(Box::new(task));
                }
                Poll::Ready(Err(end)) => break Poll::Ready(end),
                Poll::Pending => break Poll::Pending,
            }
        };
        self.tasks.note_written(self.streams.is_blocked());
        end
    }
}

/// Logs why a connection ended, and counts the limit that ended it, if one did.
fn note_end(end: &End, said_goodbye: bool) {
    match end {
        End::Library(LibraryEnd::Done) => {}
        End::Library(LibraryEnd::NoAnswer) => {
            debug!("an HTTP/2 connection was closed, since its client answered no ping");
            metrics::limit_reached(Limit::PingTimeout);
        }
        End::Library(end @ LibraryEnd::Failed(error)) => {
            debug!(%error, "an HTTP/2 connection ended");
            if end.is_flood() {
                metrics::limit_reached(Limit::Http2Flood);
            } else if end.is_write_timeout() {
                metrics::limit_reached(Limit::WriteTimeout);
            }
        }
        End::Idle => {
            debug!("an HTTP/2 connection was idle for too long");
            if !said_goodbye {
                metrics::limit_reached(Limit::HeaderTimeout);
            }
        }
        End::Flood => {
            debug!("an HTTP/2 connection was closed, since it reset too many requests");
            metrics::limit_reached(Limit::Http2Flood);
        }
    }
}

/// The server's service, with the facts of one connection that requests carry along.
struct Http2Service<S> {
    /// Called with `&mut`, but only until it returns its future, so never twice at once.
    service: Rc<RefCell<S>>,
    peer: Peer,
    permit: ConnectionPermit,
    body_timeout: Duration,
}

impl<S: RequestService> Http2Service<S> {
    /// Begins a request: makes the task that calls the service in its turn.
    fn begin(
        &self,
        request: Request<RecvStream>,
        respond: SendResponse<SentFrame>,
        streams: &Rc<Http2Streams>,
    ) -> Http2Request<S> {
        let state = streams.begin();
        let (mut head, body) = request.into_parts();
        // By it a stream leaves the layers of the service, which its notices need not pass.
        let handover = StreamHandover::default();
        head.extensions.insert(handover.clone());
        // Of this stream alone: the others of its connection go on while it is blocked.
        head.extensions.insert(state.progress().clone());
        self.peer.tell(&mut head.extensions);
        if head.method == Method::CONNECT {
            // A WebSocket holds the permit itself, as in HTTP/1.1.
            head.extensions.insert(self.permit.clone());
        }
        name_host(&head.uri, &mut head.headers);
        let path = Path::of(head.uri.path());
        let is_head = head.method == Method::HEAD;
        let body = Incoming::Http2(Http2Incoming::new(body, told_length(&head.headers)));
        let body = state.unread().lend(&head.headers, body);
        let request = Request::from_parts(head, body);
        let answer = Answering::of(request, self.service.clone(), self.body_timeout);
        let answer = Http2Answer {
            path,
            is_head,
            handover,
            answer,
        };
        Http2Request::new(answer, respond, state)
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
