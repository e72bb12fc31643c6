//! MCP over streamable HTTP: every revision on one endpoint.
//!
//! rmcp validates and answers most POSTs. Sessions of the older revisions, open streams, batches and plain
//! polls of an etag are served here, because a notification through rmcp's session layer costs several times
//! as much.

mod headers;
mod plain;
mod served;
mod outbox_stream;
mod own_messages;
mod reply;
mod sessions;
mod single_event;
mod batch;
mod fast_path;
mod shared_sessions;
mod endpoint;
mod adoption;
mod record_keeping;
mod post;
mod legacy_stream;
mod listen_stream;

pub use endpoint::Endpoint;
pub(crate) use endpoint::http_context;
pub(crate) use own_messages::OwnMessages;
pub use reply::EndpointBody;
pub use served::BusServer;
pub(crate) use served::{EndpointServer, Kept};
