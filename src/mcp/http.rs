//! MCP over streamable HTTP: every revision on one endpoint.
//!
//! rmcp validates and answers most POSTs. Sessions of the older revisions, open streams, batches and plain
//! polls of an etag are served here, because a notification through rmcp's session layer costs several times
//! as much.

mod headers;
mod plain;
mod outbox_stream;
mod reply;
mod sessions;
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
pub use reply::EndpointBody;
