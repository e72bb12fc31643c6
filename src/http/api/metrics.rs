//! `GET /metrics`: the text of a metrics exporter.

use std::sync::Arc;

use axum::Router;
use axum::http::{Extensions, header};
use axum::routing::get;

use crate::auth::{Object, Right};
use crate::http::access::Access;
use crate::http::layers::guarded;
use crate::http::limits::SharedLimits;
use crate::http::problem::Problem;
use crate::http::rights::require;
use crate::http::service_route::ServiceRoute;

/// The content type that Prometheus asks for.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Makes the text. Called on a thread of the bus, so it must not block.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// Returns a router of `/metrics` alone, to be merged with others or served on a listener of its own. It has
/// the rule of hosts, too, since the numbers would tell a web page about the use of this machine. Its
/// requests count among those of `limits`.
pub fn metrics_router(render: Render, access: Access, limits: SharedLimits) -> Router {
    let route = get(async move |extensions: Extensions| {
        require(&extensions, Right::Metrics, Object::Service)?;
        let headers = [
            (header::CONTENT_TYPE, CONTENT_TYPE),
            (header::CACHE_CONTROL, "no-store"),
        ];
        Ok::<_, Problem>((headers, render()))
    });
    let routes = Router::new().route(ServiceRoute::Metrics.template(), route);
    guarded(routes, access, limits)
}
