//! The Model Context Protocol over the bus: streamable HTTP and stdio, all five revisions at once.
//!
//! rmcp parses, validates, negotiates and answers; sessions of the older revisions and all open streams are
//! served here, from the bus's outboxes. The state of resources, versions and subscribers stays in the
//! [`Bus`](crate::Bus).

mod options;
mod revision;
mod listen_id;
mod frames;
mod session_records;
mod session_record;
mod shared_session;
mod session;
mod cursor;
mod convert;
mod error;
mod tool_report;
mod lists;
mod running_calls;
mod handlers;
mod tools;
mod known;
mod listen;
mod peek;
mod params;
mod handler;
mod bus_handler;
mod subscribe_result;
pub mod etag_tools;
mod http;
mod stdio;
mod wrap;

#[cfg(feature = "service")]
pub(crate) use convert::log_level;
pub(crate) use handler::caller_beside;
pub use http::{BusServer, Endpoint, EndpointBody};
pub use options::McpOptions;
pub use revision::{ETAG_META_KEY, Revision};
#[doc(no_inline)]
pub use rmcp;
pub use session_records::{
    OwnedSessions, RecordError, RecordFuture, RecordOwner, SessionRecords, StoredRecord,
};
pub use stdio::{serve_stdio, serve_stdio_as};
#[cfg(feature = "service")]
pub(crate) use wrap::{ClientLine, FollowSubscriptions};
pub use wrap::{Wrap, Wrapped, WrappedServers};
