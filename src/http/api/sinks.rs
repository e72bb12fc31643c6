//! Who is attached besides sessions: `GET /v1/subscribers`.
//!
//! Owns: the JSON of an attached subscriber. Never: changes one. Asks the bus.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidings_actors::attach::{AttachedInfo, DeliveryClass};

use super::Api;

#[derive(Serialize)]
struct Item<'a> {
    name: &'a str,
    class: &'static str,
    /// How many may wait.
    queue: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    overflow: Option<&'static str>,
    health: &'static str,
    pending: usize,
    delivered: u64,
    lost: u64,
    retries: u64,
    restarts: u64,
    /// What it last failed with, as long as it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct Items<'a> {
    items: Vec<Item<'a>>,
}

/// Every attached subscriber, by name.
pub(super) async fn list(State(api): State<Arc<Api>>) -> Response {
    let infos = api.bus.attached();
    let items = infos.iter().map(item).collect();
    Json(Items { items }).into_response()
}

fn item(info: &AttachedInfo) -> Item<'_> {
    let (queue, overflow) = match info.class {
        DeliveryClass::Every { capacity, overflow } => (capacity, Some(overflow.name())),
        DeliveryClass::Latest { pending_max } => (pending_max, None),
    };
    Item {
        name: &info.name,
        class: info.class.name(),
        queue,
        overflow,
        health: info.health.name(),
        pending: info.pending,
        delivered: info.delivered,
        lost: info.lost,
        retries: info.retries,
        restarts: info.restarts,
        error: info.error.as_deref(),
    }
}
