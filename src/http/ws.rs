//! A WebSocket for clients that subscribe and unsubscribe as they go: `GET /v1/ws`.
//!
//! Each connection is a session of the bus with an outbox of its own, so a slow client gets fewer notices but
//! never misses the last state. Nothing is kept for a client that is gone; it reconnects with the etags that
//! it knows.

mod close;
mod connection;
pub(super) mod message;
mod patterns;
mod entry_messages;
mod upgrade;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::get;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use upgrade::Upgrade;

use crate::Bus;
use crate::config::WsConfig;
use crate::http::ConnectionPermit;
use crate::http::access::Access;
use crate::http::layers::guarded;
use crate::http::limits::{Counted, SharedLimits};
use crate::http::notice_body::{NoticeBodies, wants_bodies};
use crate::http::problem::{Problem, ProblemKind};
use crate::http::rights::caller;
use crate::metrics::WsMetrics;

/// The path of the connections.
pub(super) const PATH: &str = "/v1/ws";

/// The bytes that are read from a socket at a time. Requests are small.
const READ_BUFFER: usize = 4 << 10;

/// A message up to this many times the allowed size is still read, so that the close frame can name the
/// limit.
const OVERSIZE_FACTOR: usize = 4;

/// The parts that all connections share.
#[derive(Debug)]
struct WsContext {
    bus: Bus,
    config: WsConfig,
    limits: SharedLimits,
    bodies: NoticeBodies,
    /// The time for which a write may make no progress; then the connection is cut.
    write_timeout: Duration,
    open: AtomicUsize,
    metrics: WsMetrics,
}

/// The right to one of the WebSockets that `ws.connections_max` allows; given back when dropped.
#[derive(Debug)]
struct WsPermit(Arc<WsContext>);

impl WsPermit {
    /// Takes a permit; none when the limit is reached.
    fn take(context: &Arc<WsContext>) -> Option<WsPermit> {
        let max = context.config.connections_max;
        let taken = context
            .open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
                (open < max).then_some(open + 1)
            });
        if taken.is_err() {
            return None;
        }
        context.metrics.connections.increment(1.0);
        Some(WsPermit(context.clone()))
    }
}

impl Drop for WsPermit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.metrics.connections.decrement(1.0);
    }
}

/// Names the methods in a refusal of another one, without CONNECT: it is the GET of a client over HTTP/2.
async fn name_methods(mut response: Response) -> Response {
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        let methods = HeaderValue::from_static("GET,HEAD");
        response.headers_mut().insert(header::ALLOW, methods);
    }
    response
}

/// Returns `GET /v1/ws`, and `CONNECT` as HTTP/2 has it (RFC 8441), as a router of its own, to be served
/// alone or merged with others. The server must allow upgrades. A connection on which a write makes no
/// progress for `write_timeout` is cut.
pub fn router(
    bus: Bus,
    config: WsConfig,
    write_timeout: Duration,
    access: Access,
    limits: SharedLimits,
) -> Router {
    let counted = limits.clone();
    let context = WsContext {
        bodies: NoticeBodies::new(bus.downgrade(), limits.clone()),
        bus,
        config,
        limits,
        write_timeout,
        open: AtomicUsize::new(0),
        metrics: WsMetrics::new(),
    };
    let routes = Router::new()
        .route(PATH, get(upgrade).connect(upgrade))
        .with_state(Arc::new(context));
    // Last, since it is for the refusals that the layers within write.
    guarded(routes, access, counted).layer(map_response(name_methods))
}

async fn upgrade(State(context): State<Arc<WsContext>>, request: Request) -> Result<Response, Problem> {
    let bodies = parse_query(request.uri())?;
    let extensions = request.extensions();
    let caller = caller(extensions)?.clone();
    let counted = Counted::of(extensions);
    let permit = extensions.get::<ConnectionPermit>().cloned();
    let upgrade = Upgrade::of(request).map_err(|reason| {
        let text = format!("{reason}; open it as a WebSocket (version 13)");
        ProblemKind::UpgradeRequired.because(text)
    })?;
    let place = context.limits.session(&counted)?;
    // Beyond this the library stops reading, and the close frame may be lost.
    let message_bytes_max = context.config.message_bytes_max.saturating_mul(OVERSIZE_FACTOR);
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .max_message_size(Some(message_bytes_max))
        .max_frame_size(Some(message_bytes_max));
    Ok(upgrade.accept(config, async move |socket| {
        connection::serve(socket, &context, &caller, bodies).await;
        // Until here the connection counts among those of its listener and of its client.
        drop((permit, place));
    }))
}

/// Reads the query: true if notices are to carry the content.
fn parse_query(uri: &Uri) -> Result<bool, Problem> {
    let mut bodies = false;
    let pairs = match Query::<Vec<(String, String)>>::try_from_uri(uri) {
        Ok(Query(pairs)) => pairs,
        Err(error) => {
            let text = format!("{}; see body", error.body_text());
            return Err(ProblemKind::BadRequest.because(text));
        }
    };
    for (name, value) in pairs {
        if name != "body" {
            let name: String = name.chars().take(40).collect();
            let text = format!("the query has {name:?}; it takes body");
            return Err(ProblemKind::BadRequest.because(text));
        }
        bodies = wants_bodies(&value)?;
    }
    Ok(bodies)
}
