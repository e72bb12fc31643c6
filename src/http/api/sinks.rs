//! Subscribers that are attached to the bus and are not sessions, such as sinks: `GET /v1/subscribers`.

use schemars::JsonSchema;
use serde::Serialize;
use tidings_actors::attach::{AttachedInfo, DeliveryClass};

use super::{Api, ApiResponse, json};

#[derive(Serialize, JsonSchema)]
struct SinkItem<'a> {
    name: &'a str,
    class: &'static str,
    /// The deliveries that may wait.
    queue: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    overflow: Option<&'static str>,
    health: &'static str,
    pending: usize,
    delivered: u64,
    lost: u64,
    retries: u64,
    restarts: u64,
    /// The last error, as long as deliveries fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct SinkItems<'a> {
    items: Vec<SinkItem<'a>>,
}

impl Api {
    /// Lists every attached subscriber, by name.
    pub(super) fn list_sinks(&self) -> ApiResponse {
        let infos = self.bus.attached();
        let items = infos.iter().map(item).collect();
        json(&SinkItems { items })
    }
}

fn item(info: &AttachedInfo) -> SinkItem<'_> {
    let (queue, overflow) = match info.class {
        DeliveryClass::Every { capacity, overflow } => (capacity, Some(overflow.name())),
        DeliveryClass::Latest { pending_max } => (pending_max, None),
    };
    SinkItem {
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
