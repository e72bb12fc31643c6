//! The schemas of the events of `/v1/events` and of the messages of `/v1/ws`.
//!
//! The transports write these texts by hand, since a notice is encoded once for all clients; tests hold the
//! texts against these types.

#![allow(dead_code, reason = "these types describe texts and are never made")]

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::http::notice_body::BodyFields;

/// The data of the event `updated` or `removed`.
#[derive(JsonSchema)]
struct NoticeEvent {
    /// `updated` or `removed`.
    kind: String,
    uri: String,
    etag: String,
    /// Milliseconds since 1970.
    time: u64,
    /// The older events of the resource that this one has replaced in the log of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced: Option<u64>,
    /// With `body=1`, of `updated` alone.
    #[serde(flatten)]
    body: BodyFields<'static>,
}

/// The data of the event that a list changed.
#[derive(JsonSchema)]
struct ListEvent {
    kind: String,
    /// `resources`, `tools` or `prompts`.
    list: String,
    /// Milliseconds since 1970.
    time: u64,
}

/// The data of the event `resumed`, the first of a stream.
#[derive(JsonSchema)]
struct ResumedEvent {
    complete: bool,
    from: String,
    // Always there, and null where the number cannot be known, or counts events that the client may not see.
    #[schemars(required)]
    missed: Option<u64>,
    /// The reason, if it is not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The data of the event `gap`.
#[derive(JsonSchema)]
struct GapEvent {
    // Always there, and null for a client with rights.
    #[schemars(required)]
    missed: Option<u64>,
    from: String,
    reason: String,
}

/// The data of the event `end`, the last of a stream.
#[derive(JsonSchema)]
struct EndEvent {
    reason: String,
}

/// A message of the service on the WebSocket, besides `ack`.
#[derive(JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum SocketMessage {
    /// The resource has other content.
    Updated {
        uri: String,
        etag: String,
        position: String,
        /// With `body=1`.
        #[serde(flatten)]
        body: BodyFields<'static>,
    },
    /// The resource is gone.
    Removed {
        uri: String,
        etag: String,
        position: String,
    },
    /// The list changed.
    ListChanged { list: String, position: String },
    /// Changes of resources that match patterns are not sent.
    Gap { missed: u64 },
    /// The answer to `ping`.
    Pong { id: serde_json::Value },
    /// The message was no valid request.
    Error { id: serde_json::Value, message: String },
}

/// Adds the schemas.
pub(super) fn add(generator: &mut SchemaGenerator, add: &mut impl FnMut(&str, Schema)) {
    add("NoticeEvent", generator.root_schema_for::<NoticeEvent>());
    add("ListEvent", generator.root_schema_for::<ListEvent>());
    add("ResumedEvent", generator.root_schema_for::<ResumedEvent>());
    add("GapEvent", generator.root_schema_for::<GapEvent>());
    add("EndEvent", generator.root_schema_for::<EndEvent>());
    add("SocketMessage", generator.root_schema_for::<SocketMessage>());
}
