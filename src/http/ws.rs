//! A WebSocket for clients that subscribe and unsubscribe as they go: `GET /v1/ws`.
//!
//! Owns: the route, and the limit on connections. Each connection is a session of the bus with an outbox of its own, so a
//! slow client is conflated and never misses the last state. Never: keeps anything for a client that has gone; it comes
//! back with the etags it knows. Receives upgrades from the listener or from an embedder's router.

mod close;
mod connection;
mod message;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::get;

use crate::Bus;
use crate::config::WsConfig;
use crate::http::ConnectionPermit;
use crate::http::access::Access;
use crate::http::layers::guarded;
use crate::http::problem::{Problem, ProblemKind};
use crate::metrics::WsMetrics;

/// Bytes that are read from a socket at a time: requests are small.
const READ_BUFFER: usize = 4 << 10;

/// A message up to so many times the size allowed is still read, so that its sender is told in good order.
const OVERSIZE: usize = 4;

/// What all connections share.
#[derive(Debug)]
struct Shared {
    bus: Bus,
    config: WsConfig,
    /// The time a write may make no progress; then the connection is cut.
    write_timeout: Duration,
    open: AtomicUsize,
    metrics: WsMetrics,
}

/// One of the connections allowed; given back when dropped.
#[derive(Debug)]
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>) -> Option<Place> {
        let max = shared.config.connections_max;
        let taken = shared
            .open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
                (open < max).then_some(open + 1)
            });
        taken.is_ok().then(|| {
            shared.metrics.connections.increment(1.0);
            Place(shared.clone())
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.metrics.connections.decrement(1.0);
    }
}

/// `GET /v1/ws` as a router of its own, to be served alone or merged with others. The server must allow upgrades.
/// A connection on which a write makes no progress for `write_timeout` is cut.
pub fn router(bus: Bus, config: WsConfig, write_timeout: Duration, access: Access) -> Router {
    let shared = Shared {
        bus,
        config,
        write_timeout,
        open: AtomicUsize::new(0),
        metrics: WsMetrics::new(),
    };
    let routes = Router::new()
        .route("/v1/ws", get(upgrade))
        .with_state(Arc::new(shared));
    guarded(routes, access)
}

async fn upgrade(
    State(shared): State<Arc<Shared>>,
    permit: Option<Extension<ConnectionPermit>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let upgrade = upgrade.map_err(|rejection| {
        ProblemKind::UpgradeRequired.because(format!(
            "{}; open it as a WebSocket (version 13)",
            rejection.body_text()
        ))
    })?;
    let message_bytes_max = shared.config.message_bytes_max.saturating_mul(OVERSIZE);
    let upgrade = upgrade
        .read_buffer_size(READ_BUFFER)
        .max_message_size(message_bytes_max)
        .max_frame_size(message_bytes_max);
    Ok(upgrade.on_upgrade(async move |socket| {
        connection::run(socket, &shared).await;
        drop(permit);
    }))
}
