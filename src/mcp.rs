//! The Model Context Protocol over the bus: streamable HTTP and stdio, all five revisions at once.
//!
//! Owns: everything that names rmcp on the serving side. rmcp parses, validates, negotiates and answers; sessions of
//! the older revisions and all open streams are ours and are drawn from the bus's outboxes. Never: holds truth about
//! resources, versions or subscribers. Receives from HTTP connections and from stdin; asks the [`Bus`](crate::Bus).

mod options;
mod revision;
mod frames;
mod cursor;
mod convert;
mod error;
mod handler;
mod listen;
mod tool_report;
pub mod etag_tools;
mod http;
mod stdio;
mod metered;
mod ending;
mod wrap;

pub use frames::ETAG_META_KEY;
pub use http::{Endpoint, EndpointBody, PeerAddress};
pub use metered::Metered;
pub use options::{CacheHint, McpOptions};
pub use revision::Revision;
pub use stdio::serve_stdio;
pub use wrap::{Wrap, Wrapped};
