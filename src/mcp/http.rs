//! MCP over streamable HTTP: every revision on one endpoint.
//!
//! rmcp validates and answers most POSTs. Sessions of the older revisions, open streams, batches and plain polls of an
//! etag are served here, because rmcp's session layer costs several times more for each notification.

mod hosts;
mod peek;
mod fast_path;
mod reply;
mod peers;
mod sessions;
mod event_stream;
mod batch;
mod endpoint;

pub use endpoint::{Endpoint, EndpointBody};
pub use peers::PeerAddress;
