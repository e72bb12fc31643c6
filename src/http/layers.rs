//! The parts that all axum routers of this module have: the rule of hosts and origins, and problems as
//! answers.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};

use super::access::Access;
use super::fetch_metadata::may_change;
use super::limits::SharedLimits;
use super::problem::{Problem, ProblemKind};
use crate::metrics;

/// Puts the rule of hosts and origins before `routes`, counts their requests, and writes their problems.
pub(super) fn guarded(routes: Router, access: Access, limits: SharedLimits) -> Router {
    let gate = Gate { access, limits };
    routes
        .method_not_allowed_fallback(wrong_method)
        // The last layer is the outermost: `render` must see the refusals of `admit`, too.
        .layer(from_fn_with_state(Arc::new(gate), admit))
        .layer(from_fn(render))
}

/// The parts that decide whether a request passes.
struct Gate {
    access: Access,
    limits: SharedLimits,
}

/// Lets the request pass, or answers with the refusal.
async fn admit(State(gate): State<Arc<Gate>>, mut request: Request, next: Next) -> Response {
    match gate.limits.admit(&gate.access, &mut request).await {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Writes the problem that a handler returned, if it did: only here is the path of the request known.
async fn render(request: Request, next: Next) -> Response {
    let instance = request.uri().path().to_owned();
    let publishes = may_change(request.method());
    let mut response = next.run(request).await;
    let Some(problem) = response.extensions_mut().remove::<Problem>() else {
        return response;
    };
    // Refused reads are the client's business; a refused write is a change that did not arrive.
    if publishes {
        metrics::source_failed(metrics::Source::Http);
    }
    // Headers that a layer has set meanwhile, such as those of CORS, stay.
    let (parts, body) = problem.respond(&instance).into_parts();
    response.headers_mut().extend(parts.headers);
    *response.body_mut() = Body::from(body);
    response
}

async fn wrong_method(request: Request) -> Problem {
    let method = request.method();
    ProblemKind::MethodNotAllowed.because(format!(
        "{method} is not possible here; the Allow header names the methods that are"
    ))
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}
