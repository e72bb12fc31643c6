//! A connection that speaks HTTP/1.1: the library serves its requests, one after the other.
//!
//! A stream leaves the library once its head is written ([`StreamWriter`]), and a WebSocket takes the whole
//! connection along.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http_body::Body as _;
use hyper::body::Incoming as Http1Incoming;
use hyper::server::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::spawn_local;
use tracing::debug;

use super::first_bytes::Prefixed;
use super::{ConnectionParts, ConnectionPermit, Peer, note_io_failure};
use crate::WriteProgress;
use crate::http::incoming::Incoming;
use crate::http::pipelined::serve_runs;
use crate::http::server::RequestService;
use crate::http::stream_handover::{Stream, StreamHandover};
use crate::http::stream_writer::StreamWriter;
use crate::http::unread::{Dropping, Lingering, Unread};
use crate::http::write_deadline::{WriteDeadline, is_write_timeout};
use crate::metrics::{self, HttpMetrics, Limit, Path};

/// Carries a connection that begins with the bytes `ahead`: its requests, and then at most one stream or
/// WebSocket.
pub(super) async fn serve<S, T>(
    mut stream: WriteDeadline<Prefixed<T>>,
    ahead: Vec<u8>,
    parts: ConnectionParts<S>,
) where
    S: RequestService,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut closing = parts.context.closing.clone();
    let progress = stream.progress().clone();
    if !joined_puts_end(&mut stream, ahead, &parts).await {
        return;
    }
    let ConnectionParts {
        peer,
        context,
        permit,
    } = parts;
    let handover = StreamHandover::default();
    let unread = Unread::default();
    let mut dropping = Dropping::new(unread.clone(), &context.config);
    let lingering = Lingering::new(&context.config);
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(context.config.header_timeout);
    let service = Http1Service {
        service: RefCell::new(context.service),
        metrics: context.metrics,
        peer,
        progress: progress.clone(),
        handover: handover.clone(),
        unread: unread.clone(),
        permit: permit.clone(),
    };
    // Every connection may be upgraded: only its requests show whether it becomes a WebSocket, and any of
    // them may.
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = Box::new(connection.with_upgrades());
    let mut served = poll_fn(|cx| poll_served(&mut connection, &handover, &progress, &mut dropping, cx));
    let ended = tokio::select! {
        ended = &mut served => ended,
        _ = closing.wait_for(|closing| *closing) => {
            // The request that is being answered is finished; an idle connection ends here.
            Pin::new(&mut *connection).graceful_shutdown();
            poll_fn(|cx| poll_served(&mut connection, &handover, &progress, &mut dropping, cx)).await
        }
    };
    if let Err(error) = &ended {
        note_failure(error);
        unread.note_error(error);
    }
    let stream = ended.ok().flatten();
    // A connection that became a WebSocket has no parts, but then it has no stream and no rest either.
    if (stream.is_some() || unread.lingers())
        && let Some(parts) = connection.into_parts()
    {
        go_on(parts.io.into_inner(), stream, lingering, permit);
    }
}

/// Goes on with a connection that has left the library, in a task of its own, so that nothing of the present
/// one is kept: writes its stream, or waits for the end of its client.
fn go_on<T>(socket: WriteDeadline<T>, stream: Option<Stream>, lingering: Lingering, permit: ConnectionPermit)
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    match stream {
        Some(stream) => spawn_local(write_stream(StreamWriter::new(socket, stream), permit)),
        None => spawn_local(end_lingering(lingering, socket, permit)),
    };
}

/// Serves the pipelined `PUT`s at the beginning of a connection. Returns true if it has more for the library.
async fn joined_puts_end<S, T>(
    stream: &mut WriteDeadline<Prefixed<T>>,
    ahead: Vec<u8>,
    parts: &ConnectionParts<S>,
) -> bool
where
    S: RequestService,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let ConnectionParts {
        peer,
        context,
        permit,
    } = parts;
    if !context.joins_puts {
        stream.get_mut().unread(ahead);
        return true;
    }
    let progress = stream.progress().clone();
    let service = || Http1Service {
        service: RefCell::new(context.service.clone()),
        metrics: context.metrics.clone(),
        peer: peer.clone(),
        progress: progress.clone(),
        handover: StreamHandover::default(),
        unread: Unread::default(),
        permit: permit.clone(),
    };
    let timeout = context.config.header_timeout;
    // Boxed, so that the task of a connection is not larger for it afterwards.
    let served = Box::pin(serve_runs(
        stream,
        ahead,
        timeout,
        context.closing.clone(),
        service,
    ))
    .await;
    match served {
        Ok(Some(ahead)) => {
            stream.get_mut().unread(ahead);
            true
        }
        Ok(None) => false,
        Err(error) => {
            note_io_failure(&error);
            false
        }
    }
}

/// The server's service, with the facts of one connection that requests carry along.
pub(in crate::http) struct Http1Service<S> {
    /// Called with `&mut`, but only until it returns its future, so never twice at once.
    service: RefCell<S>,
    metrics: HttpMetrics,
    peer: Peer,
    progress: Arc<WriteProgress>,
    handover: StreamHandover,
    unread: Unread,
    permit: ConnectionPermit,
}

impl<S: RequestService> hyper::service::Service<Request<Http1Incoming>> for Http1Service<S> {
    type Response = Response<S::Body>;
    type Error = Infallible;
    type Future = CountedAnswer<S::Future>;

    fn call(&self, mut request: Request<Http1Incoming>) -> Self::Future {
        // A stream of HTTP/1.0 has no chunks, so the library writes it.
        let is_chunked = request.version() == Version::HTTP_11;
        let extensions = request.extensions_mut();
        extensions.insert(self.progress.clone());
        self.peer.tell(extensions);
        if is_chunked {
            extensions.insert(self.handover.clone());
        }
        if extensions.get::<OnUpgrade>().is_some() {
            // A WebSocket outlives this connection's task, so it must hold the permit itself.
            extensions.insert(self.permit.clone());
        }
        let (head, body) = request.into_parts();
        let has_body = !body.is_end_stream();
        let body = self.unread.lend(&head.headers, Incoming::Http1(body));
        CountedAnswer {
            path: Path::of(head.uri.path()),
            metrics: self.metrics.clone(),
            unread: has_body.then(|| self.unread.clone()),
            answer: self.service.borrow_mut().call(Request::from_parts(head, body)),
        }
    }
}

/// The answer to one request, which is counted when it is there.
pub(in crate::http) struct CountedAnswer<F> {
    path: Path,
    metrics: HttpMetrics,
    /// The body of the request, if it has one.
    unread: Option<Unread>,
    answer: F,
}

impl<F, B> Future for CountedAnswer<F>
where
    F: Future<Output = Result<Response<B>, Infallible>> + Unpin,
{
    type Output = Result<Response<B>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let counted = self.get_mut();
        let Ok(mut response) = ready!(Pin::new(&mut counted.answer).poll(cx));
        counted.metrics.answered(counted.path, response.status());
        if let Some(unread) = &counted.unread {
            unread.answered(&mut response, cx);
        }
        Poll::Ready(Ok(response))
    }
}

/// Writes a stream to its end.
async fn write_stream<T: AsyncRead + AsyncWrite + Unpin>(writer: StreamWriter<T>, permit: ConnectionPermit) {
    if let Err(error) = writer.await {
        note_io_failure(&error);
    }
    drop(permit);
}

/// Keeps the place of a connection until it has ended.
async fn end_lingering<T>(lingering: Lingering, stream: WriteDeadline<T>, permit: ConnectionPermit)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    lingering.end(stream).await;
    drop(permit);
}

/// Serves a connection until it ends or the head of a stream is written; returns that stream.
fn poll_served<T, S>(
    connection: &mut http1::UpgradeableConnection<TokioIo<WriteDeadline<T>>, Http1Service<S>>,
    handover: &StreamHandover,
    progress: &WriteProgress,
    dropping: &mut Dropping,
    cx: &mut Context<'_>,
) -> Poll<hyper::Result<Option<Stream>>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: RequestService,
{
    let polled = Pin::new(connection).poll(cx);
    if polled.is_pending() {
        dropping.poll(cx);
    }
    match polled {
        Poll::Ready(ended) => Poll::Ready(ended.map(|()| None)),
        // While bytes of the library's are unsent, the head may be among them.
        Poll::Pending if progress.is_blocked() => Poll::Pending,
        Poll::Pending => match handover.take() {
            Some(stream) => Poll::Ready(Ok(Some(stream))),
            None => Poll::Pending,
        },
    }
}

/// Logs why a connection failed, and counts the limit that ended it, if one did. Most often the client is
/// gone.
fn note_failure(error: &hyper::Error) {
    debug!(%error, "a connection ended");
    if error.is_timeout() {
        metrics::limit_reached(Limit::HeaderTimeout);
    } else if is_write_timeout(error) {
        metrics::limit_reached(Limit::WriteTimeout);
    }
}
