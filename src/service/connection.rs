//! One HTTP connection, on the thread of its shard.
//!
//! Owns: the connection from its first byte to its end: the HTTP library serves its requests; a stream leaves the library
//! once its head is written ([`StreamWriter`]), and a WebSocket takes the whole connection along. Never: decides what is
//! answered (the server's routes do). Receives from the HTTP server.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper::{Request, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_local;
use tracing::debug;

use super::http_server::{AnswerBody, Routes};
use super::peeked::Peeked;
use super::stream_writer::StreamWriter;
use crate::WriteProgress;
use crate::carry::{Carrier, Stream};
use crate::mcp::{Metered, PeerAddress};
use crate::metrics::{self, Limit, OpenConnection};
use crate::sink::ws::ConnectionPlace;

/// How a request for a WebSocket begins.
pub(super) const UPGRADE_START: &[u8] = b"GET /v1/ws";

/// Carries one connection on the thread of its shard.
pub(super) async fn carry<T>(stream: T, peer: SocketAddr, routes: Routes, place: OwnedSemaphorePermit)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let place = Place {
        _permit: place,
        _open: routes.metrics.connected(),
    };
    let Some(stream) = peek(stream, &routes).await else {
        return;
    };
    // The HTTP library can hand such a connection over only if it is told beforehand.
    if stream.start() == UPGRADE_START {
        serve_upgradable(stream, routes, place).await;
    } else {
        serve_requests(stream, peer, routes, place).await;
    }
}

/// Looks at what the client says first. None when it says nothing in time, or the server closes.
async fn peek<T: AsyncRead + Unpin>(stream: T, routes: &Routes) -> Option<Peeked<T>> {
    let mut closing = routes.closing.clone();
    tokio::select! {
        peeked = tokio::time::timeout(routes.config.header_timeout, Peeked::new(stream)) => match peeked {
            Ok(peeked) => peeked.ok(),
            Err(_elapsed) => {
                metrics::limit_reached(Limit::HeaderTimeout);
                None
            }
        },
        _ = closing.wait_for(|closing| *closing) => None,
    }
}

/// The HTTP library, with the time a client has for the head of a request.
fn library(header_timeout: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout);
    builder
}

/// Carries a connection that may become a WebSocket; then it takes its place along.
async fn serve_upgradable<T>(stream: T, routes: Routes, place: Place)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut closing = routes.closing.clone();
    let header_timeout = routes.config.header_timeout;
    let place = ConnectionPlace::new(place);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let mut routes = routes.clone();
        request.extensions_mut().insert(place.clone());
        async move { Ok::<_, Infallible>(routes.answer(request).await) }
    });
    let builder = library(header_timeout);
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
        debug!(%error, "a connection ended");
        count_limit(error.is_timeout().then_some(Limit::HeaderTimeout), &error);
    }
}

/// Carries a connection of requests, and of at most one stream.
async fn serve_requests<T>(stream: T, peer: SocketAddr, routes: Routes, place: Place)
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let mut closing = routes.closing.clone();
    let header_timeout = routes.config.header_timeout;
    let stream = Metered::new(stream, Some(routes.config.write_timeout));
    let flow = stream.flow().clone();
    let carrier = Carrier::default();
    let (offered, metered) = (carrier.clone(), flow.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        let mut routes = routes.clone();
        // A stream of HTTP/1.0 has no chunks; the library knows what it has.
        let carried = request.version() == Version::HTTP_11;
        let extensions = request.extensions_mut();
        extensions.insert(metered.clone());
        extensions.insert(PeerAddress(peer.ip()));
        if carried {
            extensions.insert(offered.clone());
        }
        // Too late for that on this connection; whoever wants a WebSocket is told to open another.
        request.extensions_mut().remove::<hyper::upgrade::OnUpgrade>();
        Box::pin(async move { Ok::<_, Infallible>(routes.answer(request).await) })
    });
    let builder = library(header_timeout);
    let mut connection = Box::new(builder.serve_connection(TokioIo::new(stream), service));
    let mut served = poll_fn(|cx| poll_served(&mut connection, &carrier, &flow, cx));
    let ended = tokio::select! {
        ended = &mut served => ended,
        _ = closing.wait_for(|closing| *closing) => {
            Pin::new(&mut *connection).graceful_shutdown();
            poll_fn(|cx| poll_served(&mut connection, &carrier, &flow, cx)).await
        }
    };
    match ended {
        Ok(None) => {
            // What is left is to say goodbye; a client that is gone needs none.
            poll_fn(|cx| Pin::new(&mut *connection).poll(cx))
                .await
                .unwrap_or_default();
        }
        Ok(Some(stream)) => {
            let socket = connection.into_parts().io.into_inner();
            // A task of its own, so that nothing of this one is kept while the stream is open.
            spawn_local(carry_stream(StreamWriter::new(socket, stream), place));
        }
        // A client that goes away is how streams end.
        Err(error) => {
            debug!(%error, "a connection ended");
            count_limit(error.is_timeout().then_some(Limit::HeaderTimeout), &error);
        }
    }
}

/// One of the connections allowed, while it is open.
struct Place {
    _permit: OwnedSemaphorePermit,
    _open: OpenConnection,
}

/// Carries a stream to its end.
async fn carry_stream<T: AsyncRead + AsyncWrite + Unpin>(writer: StreamWriter<T>, place: Place) {
    if let Err(error) = writer.await {
        debug!(%error, "a stream ended");
        count_limit(None, &error);
    }
    drop(place);
}

/// Serves a connection until it ends, or carries a stream whose head is written.
fn poll_served<T, S>(
    connection: &mut http1::Connection<TokioIo<Metered<T>>, S>,
    carrier: &Carrier,
    flow: &WriteProgress,
    cx: &mut Context<'_>,
) -> Poll<hyper::Result<Option<Stream>>>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: HttpService<Incoming, ResBody = AnswerBody> + Unpin,
    S::Future: Unpin,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match connection.poll_without_shutdown(cx) {
        Poll::Ready(ended) => Poll::Ready(ended.map(|()| None)),
        // While bytes of the library's are unsent, the head may be among them.
        Poll::Pending if flow.is_blocked() => Poll::Pending,
        Poll::Pending => match carrier.take() {
            Some(stream) => Poll::Ready(Ok(Some(stream))),
            None => Poll::Pending,
        },
    }
}

/// Counts the limit that ended a connection, if one did.
fn count_limit(limit: Option<Limit>, error: &(dyn std::error::Error + 'static)) {
    let mut cause = Some(error);
    let mut timed_out = false;
    while let Some(error) = cause {
        let io = error.downcast_ref::<io::Error>();
        // What `TCP_USER_TIMEOUT` ends.
        timed_out |= io.is_some_and(|io| io.kind() == io::ErrorKind::TimedOut);
        cause = error.source();
    }
    if let Some(limit) = limit.or(timed_out.then_some(Limit::WriteTimeout)) {
        metrics::limit_reached(limit);
    }
}
