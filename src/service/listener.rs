//! The HTTP listener: accepts connections and deals them to the bus's threads.
//!
//! Owns: the sockets and their options, the limit on connections, and which path goes where: `/mcp` to the MCP endpoint,
//! the rest to the HTTP API. A connection lives on one shard's thread, so that the streams it carries are woken without
//! leaving that thread. Never: looks into a request. Hands each connection to [`serve`].

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::{Request, Response};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tower_service::Service;
use tracing::{debug, warn};

use super::connection::serve;
use crate::config::HttpConfig;
use crate::mcp::{Endpoint, EndpointBody};
use crate::metric::{self, HttpMetrics, Limit};
use crate::{Bus, Shard};

/// Where MCP is spoken.
const MCP_PATH: &str = "/mcp";

/// How long to wait after an accept that failed for lack of descriptors, rather than spin.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

pub(super) type AnswerBody = Either<EndpointBody, axum::body::Body>;

/// A listening socket and its connections.
pub(super) struct Listener {
    address: SocketAddr,
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

impl Listener {
    /// Accepts connections on `socket` until [`close`](Self::close).
    pub(super) fn start(
        socket: TcpListener,
        bus: &Bus,
        endpoint: Option<Endpoint>,
        api: Router,
        config: &HttpConfig,
    ) -> io::Result<Listener> {
        let address = socket.local_addr()?;
        let (closing, watching) = watch::channel(false);
        let places = Arc::new(Semaphore::new(config.connections_max));
        let routes = Routes {
            endpoint,
            api,
            metrics: HttpMetrics::new(),
            config: Arc::new(config.clone()),
            closing: watching,
        };
        tokio::spawn(accept(socket, bus.shards().to_vec(), places, routes));
        Ok(Listener { address, closing })
    }

    /// Says on `out` where MCP is spoken, for people and for programs that wait for it.
    pub(super) fn announce(&self, mut out: impl Write) {
        let line = format!("tidings listening on http://{}{MCP_PATH}\n", self.address);
        if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
            debug!("nobody reads where MCP is spoken");
        }
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts nothing more, and has each connection end after the request it is at; open streams end when the bus
    /// ends them.
    pub(super) fn close(&self) {
        self.closing.send_replace(true);
    }
}

async fn accept(socket: TcpListener, shards: Vec<Shard>, places: Arc<Semaphore>, routes: Routes) {
    let mut closing = routes.closing.clone();
    for shard in shards.iter().cycle() {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            _ = closing.wait_for(|closing| *closing) => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            metric::limit_reached(Limit::Connections);
            warn!(%peer, limit = routes.config.connections_max, "too many connections; one was closed (http.connections_max)");
            continue;
        };
        match prepare(stream, &routes.config) {
            Ok(stream) => {
                let routes = routes.clone();
                shard.spawn(move || serve(stream, peer, routes, place));
            }
            Err(error) => debug!(%peer, %error, "a connection ended before it was served"),
        }
    }
}

/// Sets a connection's socket options and takes it off this runtime.
fn prepare(stream: TcpStream, config: &HttpConfig) -> io::Result<std::net::TcpStream> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    #[cfg(target_os = "linux")]
    {
        // Keeps what is not sent in the outbox, where it is conflated, rather than in the kernel, where it grows old.
        socket.set_tcp_notsent_lowat(u32::try_from(config.not_sent_low_water).unwrap_or(u32::MAX))?;
        // What the kernel has taken is the kernel's to give up on: a client that vanished without a word acknowledges
        // nothing, one that stopped reading opens no window. What it does not take any more, `Metered` gives up on.
        socket.set_tcp_user_timeout(Some(config.write_timeout))?;
    }
    socket.set_keepalive(true)?;
    stream.into_std()
}

impl Routes {
    /// Answers one request.
    pub(super) async fn answer(&mut self, request: Request<Incoming>) -> Response<AnswerBody> {
        let path = metric::Path::of(request.uri().path());
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
