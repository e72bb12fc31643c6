//! The HTTP server: carries connections on the bus's threads, whatever they come over.
//!
//! Owns: the limit on connections, who carries which, and which path goes where: `/mcp` to the MCP endpoint, the rest to
//! the HTTP API. A connection lives on one shard's thread, so that the streams it carries are woken without leaving that
//! thread. Never: looks into a request, or opens a socket. Receives from the listener, or from an embedder that accepts
//! connections itself; hands each to [`carry`].

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};
use tower_service::Service;
use tracing::{debug, warn};

use super::connection::carry;
use crate::config::HttpConfig;
use crate::mcp::{Endpoint, EndpointBody};
use crate::metrics::{self, HttpMetrics, Limit};
use crate::{Bus, Shard};

/// Where MCP is spoken.
pub(super) const MCP_PATH: &str = "/mcp";

pub(super) type AnswerBody = Either<EndpointBody, axum::body::Body>;

/// Serves MCP and the HTTP API on connections that it is handed: sockets, or any other stream of bytes in both
/// directions. Cheap to clone; all clones are one server.
#[derive(Clone)]
pub struct HttpServer {
    shards: Arc<[Shard]>,
    /// Which shard carries the next connection.
    next: Arc<AtomicUsize>,
    places: Arc<Semaphore>,
    routes: Routes,
    closing: watch::Sender<bool>,
}

/// What every connection needs.
#[derive(Clone)]
pub(super) struct Routes {
    /// None where only the router is served.
    endpoint: Option<Endpoint>,
    api: Router,
    pub(super) metrics: HttpMetrics,
    pub(super) config: Arc<HttpConfig>,
    pub(super) closing: watch::Receiver<bool>,
}

impl HttpServer {
    /// A server that answers `/mcp` by `endpoint`, if there is one, and everything else by `api`. It heeds
    /// `connections_max`, `header_timeout` and `write_timeout` of `config`; the rest is for whoever opens the
    /// connections.
    pub fn new(bus: &Bus, endpoint: Option<Endpoint>, api: Router, config: &HttpConfig) -> HttpServer {
        let (closing, watching) = watch::channel(false);
        HttpServer {
            shards: bus.shards().into(),
            next: Arc::default(),
            places: Arc::new(Semaphore::new(config.connections_max)),
            routes: Routes {
                endpoint,
                api,
                metrics: HttpMetrics::new(),
                config: Arc::new(config.clone()),
                closing: watching,
            },
            closing,
        }
    }

    /// Serves the connection that `open` makes of what it holds, on the thread that carries it, until one side ends it.
    /// `peer` is whom the limit per peer counts.
    ///
    /// # Errors
    /// As many connections as `http.connections_max` allows are open: this one is closed, which is counted.
    pub fn serve<T>(
        &self,
        peer: SocketAddr,
        open: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<()>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            let limit = self.routes.config.connections_max;
            metrics::limit_reached(Limit::Connections);
            warn!(%peer, limit, "too many connections; one was closed (http.connections_max)");
            let text = format!("{limit} connections are open, as many as http.connections_max allows");
            return Err(io::Error::other(text));
        };
        let routes = self.routes.clone();
        let shard = &self.shards[self.next.fetch_add(1, Ordering::Relaxed) % self.shards.len()];
        shard.spawn(move || async move {
            match open() {
                Ok(stream) => carry(stream, peer, routes, place).await,
                Err(error) => debug!(%peer, %error, "a connection could not be moved"),
            }
        });
        Ok(())
    }

    /// What it was configured with.
    pub(super) fn config(&self) -> &HttpConfig {
        &self.routes.config
    }

    /// Has each connection end after the request it is at; open streams end when the bus ends them.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Waits until it is closed.
    pub(super) async fn closed(&self) {
        // An error means that nobody is left who could close it.
        drop(self.routes.closing.clone().wait_for(|closing| *closing).await);
    }
}

impl std::fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpServer").finish_non_exhaustive()
    }
}

impl Routes {
    /// Answers one request.
    pub(super) async fn answer(&mut self, request: Request<Incoming>) -> Response<AnswerBody> {
        let path = metrics::Path::of(request.uri().path());
        let answer = match &self.endpoint {
            Some(endpoint) if request.uri().path() == MCP_PATH => {
                endpoint.handle(request).await.map(Either::Left)
            }
            _ => {
                let Ok(answer) = self.api.call(request.map(axum::body::Body::new)).await;
                answer.map(Either::Right)
            }
        };
        self.metrics.answered(path, answer.status());
        answer
    }
}
