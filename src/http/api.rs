//! The HTTP API: resources as HTTP resources, with the etag of the bus as their `ETag`.
//!
//! Owns: the routes under `/v1` and the health checks, and the mapping between HTTP (RFC 9110) and changes of the
//! bus. Never: holds state of its own, opens a socket (the service does), or speaks the Model Context Protocol.
//! Receives requests from the listener; sends changes and questions to the bus.
//!
//! `GET`, `HEAD`, `PUT`, `POST` and `DELETE` on `/v1/resources/{uri}`, where `{uri}` is the resource's URI
//! percent-encoded as one segment; `POST …/touch`, `GET …/subscribers`, `GET /v1/resources`, `GET /v1/sessions`,
//! `GET` and `DELETE` on `/v1/sessions/{id}`, `GET /v1/subscribers`, `GET /healthz`, `GET /readyz`, `GET /metrics` where
//! it is mounted. Errors are problem details (RFC 9457).

mod health;
mod path;
mod conditions;
mod body;
mod write;
mod resources;
mod sessions;
mod sinks;
mod metrics;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{any, get, post};
use tidings_actors::Bus;

pub use metrics::{Render, metrics_router};

use super::access::Access;
use super::layers;
use super::layers::wrong_method;
use super::problem::{Problem, ProblemKind};

/// What every handler is handed.
#[derive(Debug)]
struct Api {
    bus: Bus,
    ready: Arc<AtomicBool>,
}

/// The API as a router, to be served alone or merged with others: it has no fallback outside `/v1`. A body larger than
/// the bus takes gets 413 and is not read further. Until `ready` is set, `/readyz` answers 503.
pub fn router(bus: Bus, access: Access, ready: Arc<AtomicBool>) -> Router {
    let api = Arc::new(Api { bus, ready });
    let resource = get(resources::read)
        .put(write::put)
        .post(write::create)
        .delete(write::delete);
    let guarded = Router::new()
        .route("/v1/resources", get(resources::list))
        .route("/v1/resources/{uri}", resource)
        .route("/v1/resources/{uri}/touch", post(write::touch))
        .route("/v1/resources/{uri}/subscribers", get(sessions::subscribers))
        .route("/v1/sessions", get(sessions::sessions))
        .route(
            "/v1/sessions/{id}",
            get(sessions::session).delete(sessions::evict),
        )
        .route("/v1/subscribers", get(sinks::list))
        .route("/v1", any(unknown))
        .route("/v1/", any(unknown))
        .route("/v1/{*rest}", any(unknown))
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::new(access), layers::admit));
    let open = Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .method_not_allowed_fallback(wrong_method);
    guarded.merge(open).layer(from_fn(layers::render)).with_state(api)
}

/// Returns true for a path that is answered whatever the request's host: the health checks, which say nothing
/// of the resources.
pub(crate) fn is_open(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

async fn unknown(request: Request) -> Problem {
    let hint = if request.uri().path().starts_with("/v1/resources/") {
        "; percent-encode the resource's URI as one segment, for example /v1/resources/demo%3A%2F%2Fgreeting"
    } else {
        "; see /v1/resources and /v1/sessions"
    };
    ProblemKind::NotFound.because(format!("nothing is served under this path{hint}"))
}

#[cfg(test)]
mod tests;
