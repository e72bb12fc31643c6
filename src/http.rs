//! HTTP: the server, which carries the connections of any tower service on the bus's threads, and the
//! endpoints that speak plain HTTP: the API, event streams, the WebSocket and the page.
//!
//! The MCP endpoint is another service to the server. It shares with this module how a stream leaves the HTTP
//! library (`stream_handover`) and how a connection gives up on a client that reads nothing
//! ([`WriteDeadline`]).

pub(crate) mod stream_handover;
pub(crate) mod write_deadline;
#[cfg(all(feature = "service", feature = "tls"))]
mod tls;
#[cfg(all(feature = "service", not(feature = "tls")))]
#[path = "http/tls_absent.rs"]
mod tls;
#[cfg(feature = "service")]
mod transport;
#[cfg(feature = "service")]
mod stream_writer;
#[cfg(feature = "service")]
mod incoming;
#[cfg(feature = "service")]
mod unread;
#[cfg(feature = "service")]
mod connection;
#[cfg(feature = "service")]
mod pipelined;
#[cfg(feature = "service")]
mod server;
#[cfg(feature = "service")]
mod listener;
pub(crate) mod problem;
mod fetch_metadata;
mod access;
#[cfg(feature = "service")]
mod rights;
mod limits;
#[cfg(feature = "service")]
mod layers;
#[cfg(feature = "service")]
pub mod api;
#[cfg(feature = "service")]
mod notice_body;
#[cfg(feature = "service")]
pub mod events;
#[cfg(feature = "service")]
pub mod ws;
#[cfg(feature = "service")]
mod service_route;
#[cfg(feature = "service")]
mod ui;

pub use crate::auth::{PeerAddress, PeerCertificate};
pub use access::Access;
#[cfg(feature = "service")]
pub(crate) use connection::ConnectionPermit;
#[cfg(feature = "service")]
pub(crate) use fetch_metadata::may_change;
pub(crate) use limits::{BodyFault, Counted, Exceeded, Place, refused_subscription};
pub use limits::{HeldCounts, SharedLimits};
#[cfg(feature = "service")]
pub(crate) use listener::Listener;
#[cfg(feature = "service")]
pub use server::{HttpServer, RequestService};
#[cfg(feature = "service")]
pub(crate) use service_route::ServiceRoute;
#[cfg(feature = "service")]
pub use tls::{Tls, TlsError};
#[cfg(feature = "service")]
pub use ui::{Page, PageTransport};
#[cfg(feature = "service")]
pub use unread::RequestBody;
pub use write_deadline::WriteDeadline;
