//! HTTP: the server, which carries the connections of any tower service on the bus's threads, and the
//! endpoints that speak plain HTTP: the API, event streams and the WebSocket.
//!
//! The MCP endpoint is another service to the server. It shares with this module how a stream leaves the HTTP
//! library ([`stream_handover`]) and how a connection gives up on a client that reads nothing
//! ([`WriteDeadline`]).

pub(crate) mod stream_handover;
mod write_deadline;
mod peer;
mod rewind;
mod stream_writer;
mod connection;
mod server;
mod listener;
mod problem;
mod access;
pub mod api;
pub mod events;
pub mod ws;

pub use access::Access;
pub(crate) use connection::ConnectionPermit;
pub(crate) use listener::Listener;
pub use peer::PeerAddress;
pub use server::{HttpServer, RequestService};
pub use write_deadline::WriteDeadline;
