//! The HTTP server: carries connections on the bus's threads and answers their requests with one tower
//! service.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body::Body;
use hyper::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};
use tower_service::Service;
use tracing::{debug, warn};

#[cfg(feature = "tls")]
use super::connection::Protocol;
use super::connection::{ConnectionParts, ConnectionPermit, Peer, RequestPlaces, serve_connection};
use super::tls::Tls;
use super::transport::Transport;
use super::unread::RequestBody;
use crate::config::HttpConfig;
use crate::metrics::{self, HttpMetrics, Limit};
use crate::{Bus, Shard};

/// A tower service that answers HTTP requests and never fails, with futures that are [`Unpin`], such as boxed
/// ones. Implemented by every service that qualifies.
pub trait RequestService:
    Service<
        Request<RequestBody>,
        Response = Response<Self::Body>,
        Error = Infallible,
        Future: Unpin + 'static,
    > + Clone
    + Send
    + 'static
{
    /// The body of its responses.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + 'static;
}

impl<S, B> RequestService for S
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible, Future: Unpin + 'static>
        + Clone
        + Send
        + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    type Body = B;
}

/// Serves HTTP/1.1 and HTTP/2 on connections that it is handed: sockets, or any other stream of bytes in both
/// directions.
///
/// Cheap to clone; all clones are one server. Each connection lives on the thread of one shard, so that the
/// streams it carries are woken without leaving that thread.
#[derive(Clone)]
pub struct HttpServer<S> {
    shards: Arc<[Shard]>,
    /// The number of connections so far; it picks the shard of the next one.
    accepted: Arc<AtomicUsize>,
    permits: Arc<Semaphore>,
    context: ServerContext<S>,
    closing: watch::Sender<bool>,
}

/// The parts of a server that its connections share.
#[derive(Clone)]
pub(super) struct ServerContext<S> {
    pub(super) service: S,
    pub(super) metrics: HttpMetrics,
    pub(super) config: Arc<HttpConfig>,
    pub(super) closing: watch::Receiver<bool>,
    pub(super) http2_places: RequestPlaces,
    /// Serves pipelined `PUT`s of resources together.
    pub(super) joins_puts: bool,
    /// Shakes hands before the first request, if it is there.
    tls: Option<Tls>,
}

impl<S: RequestService> HttpServer<S> {
    /// Makes a server that answers requests with `service`. Of `config` it heeds `connections_max`,
    /// `header_timeout`, `write_timeout`, `unread_bytes_max` and `unread_timeout`, and for HTTP/2
    /// `h2_streams_max`, `h2_requests_max`, `h2_header_bytes_max`, `h2_ping_timeout` and `keep_alive`; the
    /// rest is for the code that opens the connections.
    pub fn new(bus: &Bus, service: S, config: &HttpConfig) -> HttpServer<S> {
        let (closing, watching) = watch::channel(false);
        HttpServer {
            shards: bus.shards().into(),
            accepted: Arc::default(),
            permits: Arc::new(Semaphore::new(config.connections_max)),
            context: ServerContext {
                service,
                metrics: HttpMetrics::new(),
                config: Arc::new(config.clone()),
                closing: watching,
                // Of the server, since a client may have many connections.
                http2_places: RequestPlaces::new(config.h2_requests_max),
                joins_puts: false,
                tls: None,
            },
            closing,
        }
    }

    /// Serves pipelined `PUT`s below `/v1/resources/` together, so that they share one step of the store. For
    /// a service that has the [HTTP API](super::api) there: such requests of different resources reach it at
    /// once.
    #[must_use]
    pub fn with_joined_puts(mut self) -> HttpServer<S> {
        self.context.joins_puts = true;
        self
    }

    /// Speaks TLS on every connection, if `tls` is there. A client has `header_timeout` for its handshake.
    #[must_use]
    pub fn with_tls(mut self, tls: Option<Tls>) -> HttpServer<S> {
        self.context.tls = tls;
        self
    }

    /// Serves a connection until one side ends it. `open` makes the connection on the thread that carries it;
    /// `peer` is the address that limits per peer count.
    ///
    /// # Errors
    /// As many connections as `http.connections_max` allows are open: this one is closed, and counted.
    pub fn serve<T>(
        &self,
        peer: SocketAddr,
        open: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<()>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // A connection beyond the limit is closed at once rather than queued: a client that waits without an
        // answer would take the service for dead.
        let Ok(permit) = self.permits.clone().try_acquire_owned() else {
            let limit = self.context.config.connections_max;
            metrics::limit_reached(Limit::Connections);
            warn!(%peer, limit, "too many connections; one was closed (http.connections_max)");
            let text = format!("{limit} connections are open, as many as http.connections_max allows");
            return Err(io::Error::other(text));
        };
        let permit = ConnectionPermit::new(permit, self.context.metrics.connected());
        let context = self.context.clone();
        // In turn, not by load: a connection stays on its thread for life, so the load of the moment tells
        // little.
        let shard = &self.shards[self.accepted.fetch_add(1, Ordering::Relaxed) % self.shards.len()];
        shard.spawn(move || async move {
            match open() {
                Ok(stream) => carry(stream, peer, context, permit).await,
                Err(error) => debug!(%peer, %error, "a connection could not be moved to its thread"),
            }
        });
        Ok(())
    }

    /// Returns the configuration that the server was made with.
    pub(super) fn config(&self) -> &HttpConfig {
        &self.context.config
    }

    /// Returns the metrics that its listener counts in.
    pub(super) fn metrics(&self) -> &HttpMetrics {
        &self.context.metrics
    }

    /// Waits until the server is closed.
    pub(super) async fn closed(&self) {
        let mut closing = self.context.closing.clone();
        if closing.wait_for(|closing| *closing).await.is_err() {
            debug!("the last handle of an HTTP server was dropped");
        }
    }
}

/// Carries a connection: its handshake if the server speaks TLS, and then its requests.
async fn carry<S, T>(stream: T, address: SocketAddr, context: ServerContext<S>, permit: ConnectionPermit)
where
    S: RequestService,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    #[cfg(feature = "tls")]
    if let Some(tls) = &context.tls {
        // A failure was counted and logged.
        if let Ok((stream, certificate)) = tls.accept(stream, address, &context.config).await {
            // A client that agrees on nothing takes HTTP/1.1 for granted.
            let agreed = match stream.agreed_on_http2() {
                true => Protocol::Http2,
                false => Protocol::Http1,
            };
            let peer = Peer::new(address, certificate);
            let stream = Transport::Tls(Box::new(stream));
            let parts = ConnectionParts {
                peer,
                context,
                permit,
            };
            serve_connection(stream, Some(agreed), parts).await;
        }
        return;
    }
    let peer = Peer::new(address, None);
    let parts = ConnectionParts {
        peer,
        context,
        permit,
    };
    serve_connection(Transport::Plain(stream), None, parts).await;
}

impl<S> HttpServer<S> {
    /// Ends each connection after the requests it is at. Open streams stay until the bus ends them.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }
}

impl<S> std::fmt::Debug for HttpServer<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpServer").finish_non_exhaustive()
    }
}
