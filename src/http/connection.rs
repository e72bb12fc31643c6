//! One HTTP connection, on the thread of its shard.
//!
//! The HTTP library serves its requests. A stream leaves the library once its head is written
//! ([`StreamWriter`]), and a WebSocket takes the whole connection along.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_local;
use tracing::debug;

use super::peer::PeerAddress;
use super::rewind::Rewind;
use super::server::{RequestService, ServerContext};
use super::stream_handover::{Stream, StreamHandover};
use super::stream_writer::StreamWriter;
use super::write_deadline::WriteDeadline;
use crate::WriteProgress;
use crate::metrics::{self, Limit, OpenConnection, Path};

/// How a request for a WebSocket begins.
pub(super) const UPGRADE_START: &[u8] = b"GET /v1/ws";

/// The right to one of the connections that the server allows; given back when the last clone is dropped. A
/// service that takes a connection over keeps the one in the request's extensions.
#[derive(Clone)]
pub(crate) struct ConnectionPermit {
    _held: Arc<(OwnedSemaphorePermit, OpenConnection)>,
}

impl ConnectionPermit {
    pub(super) fn new(permit: OwnedSemaphorePermit, open: OpenConnection) -> ConnectionPermit {
        ConnectionPermit {
            _held: Arc::new((permit, open)),
        }
    }
}

/// Carries one connection on the thread of its shard.
pub(super) async fn serve_connection<S, T>(
    stream: T,
    peer: SocketAddr,
    context: ServerContext<S>,
    permit: ConnectionPermit,
) where
    S: RequestService,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(stream) = rewind(stream, &context).await else {
        return;
    };
    // The HTTP library can hand such a connection over only if it is told beforehand.
    if stream.start() == UPGRADE_START {
        serve_upgradable(stream, context, permit).await;
    } else {
        serve_requests(stream, peer, context, permit).await;
    }
}

/// Looks at the first bytes of a connection. Returns none when the client sends nothing in time, or the server
/// closes.
async fn rewind<S, T: AsyncRead + Unpin>(stream: T, context: &ServerContext<S>) -> Option<Rewind<T>> {
    let mut closing = context.closing.clone();
    tokio::select! {
        rewound = tokio::time::timeout(context.config.header_timeout, Rewind::new(stream)) => match rewound {
            Ok(rewound) => rewound.ok(),
            Err(_elapsed) => {
                metrics::limit_reached(Limit::HeaderTimeout);
                None
            }
        },
        _ = closing.wait_for(|closing| *closing) => None,
    }
}

/// Returns the HTTP library's builder, with the time a client has for the head of a request.
fn http1_builder(header_timeout: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout);
    builder
}

/// Answers one request.
async fn answer<S: RequestService>(
    mut context: ServerContext<S>,
    request: Request<Incoming>,
) -> Result<Response<S::Body>, Infallible> {
    let path = Path::of(request.uri().path());
    let response = context.service.call(request).await?;
    context.metrics.answered(path, response.status());
    Ok(response)
}

/// Carries a connection that may become a WebSocket.
async fn serve_upgradable<S, T>(stream: T, context: ServerContext<S>, permit: ConnectionPermit)
where
    S: RequestService,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut closing = context.closing.clone();
    let builder = http1_builder(context.config.header_timeout);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(permit.clone());
        answer(context.clone(), request)
    });
    let connection = builder
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = closing.wait_for(|closing| *closing) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        note_failure(&error);
    }
}

/// Carries a connection of requests, and of at most one stream.
async fn serve_requests<S, T>(
    stream: T,
    peer: SocketAddr,
    context: ServerContext<S>,
    permit: ConnectionPermit,
) where
    S: RequestService,
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let mut closing = context.closing.clone();
    let builder = http1_builder(context.config.header_timeout);
    let stream = WriteDeadline::new(stream, Some(context.config.write_timeout));
    let progress = stream.progress().clone();
    let handover = StreamHandover::default();
    let offered = handover.clone();
    let metered = progress.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        // A stream of HTTP/1.0 has no chunks, so the library writes it.
        let is_chunked = request.version() == Version::HTTP_11;
        let extensions = request.extensions_mut();
        extensions.insert(metered.clone());
        extensions.insert(PeerAddress(peer.ip()));
        if is_chunked {
            extensions.insert(offered.clone());
        }
        extensions.remove::<hyper::upgrade::OnUpgrade>();
        Box::pin(answer(context.clone(), request))
    });
    let mut connection = Box::new(builder.serve_connection(TokioIo::new(stream), service));
    let mut served = poll_fn(|cx| poll_served(&mut connection, &handover, &progress, cx));
    let ended = tokio::select! {
        ended = &mut served => ended,
        _ = closing.wait_for(|closing| *closing) => {
            Pin::new(&mut *connection).graceful_shutdown();
            poll_fn(|cx| poll_served(&mut connection, &handover, &progress, cx)).await
        }
    };
    match ended {
        Ok(None) => {}
        Ok(Some(stream)) => {
            let socket = connection.into_parts().io.into_inner();
            // A task of its own, so that nothing of this one is kept while the stream is open.
            spawn_local(write_stream(StreamWriter::new(socket, stream), permit));
        }
        Err(error) => note_failure(&error),
    }
}

/// Writes a stream to its end.
async fn write_stream<T: AsyncRead + AsyncWrite + Unpin>(writer: StreamWriter<T>, permit: ConnectionPermit) {
    if let Err(error) = writer.await {
        debug!(%error, "a stream ended");
        count_write_timeout(&error);
    }
    drop(permit);
}

/// Serves a connection until it ends, or carries a stream whose head is written.
fn poll_served<T, S, B>(
    connection: &mut http1::Connection<TokioIo<WriteDeadline<T>>, S>,
    handover: &StreamHandover,
    progress: &WriteProgress,
    cx: &mut Context<'_>,
) -> Poll<hyper::Result<Option<Stream>>>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: http_body::Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match Pin::new(connection).poll(cx) {
        Poll::Ready(ended) => Poll::Ready(ended.map(|()| None)),
        // While bytes of the library's are unsent, the head may be among them.
        Poll::Pending if progress.is_blocked() => Poll::Pending,
        Poll::Pending => match handover.take() {
            Some(stream) => Poll::Ready(Ok(Some(stream))),
            None => Poll::Pending,
        },
    }
}

/// Logs why a connection failed, and counts the limit that ended it, if one did. Most often the client is gone.
fn note_failure(error: &hyper::Error) {
    debug!(%error, "a connection ended");
    if error.is_timeout() {
        metrics::limit_reached(Limit::HeaderTimeout);
    } else {
        count_write_timeout(error);
    }
}

/// Counts the write time-out if it is what ended a connection: ours, or the kernel's `TCP_USER_TIMEOUT`.
fn count_write_timeout(error: &(dyn std::error::Error + 'static)) {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>()
            && io.kind() == io::ErrorKind::TimedOut
        {
            metrics::limit_reached(Limit::WriteTimeout);
            return;
        }
        cause = error.source();
    }
}
