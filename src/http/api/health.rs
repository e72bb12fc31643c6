//! The health checks: alive, and ready.
//!
//! Owns: `/healthz` and `/readyz`. Never: asks an actor, so a busy bus is not taken for a dead one. They say nothing
//! about what is served, so they are open to any host.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;

use super::Api;
use crate::http::problem::{Problem, ProblemKind};

/// `GET /healthz`: 200 while the bus runs.
pub(super) async fn alive(State(api): State<Arc<Api>>) -> Result<&'static str, Problem> {
    if api.bus.is_running() {
        Ok("ok")
    } else {
        Err(ProblemKind::Unavailable.because("the bus has stopped; the service must be started again"))
    }
}

/// `GET /readyz`: 200 when everything that the service was asked to serve is there and the bus runs.
pub(super) async fn ready(state: State<Arc<Api>>) -> Result<&'static str, Problem> {
    if state.ready.load(Ordering::Acquire) {
        alive(state).await
    } else {
        Err(ProblemKind::Unavailable.because("the service is still starting; try again"))
    }
}
