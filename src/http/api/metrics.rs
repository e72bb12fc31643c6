//! `GET /metrics`: the text that a metrics exporter makes.
//!
//! Owns: the route and its content type. Never: makes the text; whoever mounts it hands over what does. Guarded like
//! `/v1`, since numbers tell a web page what happens on this machine.

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderName, header};
use axum::routing::get;

use crate::http::access::Access;
use crate::http::layers::guarded;

/// What Prometheus asks for.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Makes the text, on a thread of the bus: it must not block.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// A router of `/metrics` alone, to be merged with others or served on a listener of its own. Hosts and origins
/// that `access` does not name get 403.
pub fn metrics_router(render: Render, access: Access) -> Router {
    let show = move || {
        let text = render();
        async move { (headers(), text) }
    };
    guarded(Router::new().route("/metrics", get(show)), access)
}

fn headers() -> [(HeaderName, &'static str); 2] {
    [
        (header::CONTENT_TYPE, CONTENT_TYPE),
        (header::CACHE_CONTROL, "no-store"),
    ]
}
