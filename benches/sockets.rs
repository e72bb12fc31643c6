//! The rows over real sockets: their servers, thousands of streams on them, and the readers of the streams.
//!
//! Each server is a process of its own ([`server`]), so that its CPU is counted without that of the readers
//! ([`load`]). Its twins are rmcp with its own session layer ([`rmcp_twin`]) and a loop that writes as many
//! bytes to bare sockets ([`bare_twin`]). Streams that share connections of HTTP/2 have readers of their own
//! ([`streams`]), and the crate `h2` as their twin ([`http2_twin`]).

mod kind;
mod client;
mod mcp;
mod broker;
mod server;
mod matches;
mod load;
mod running;
mod case;
mod rmcp_twin;
mod bare_twin;
mod http2_twin;
mod streams;

pub(crate) use bare_twin::serve as serve_bare;
pub(crate) use case::{Case, Trial, measure};
pub(crate) use client::{connect, connect_from, publish};
pub(crate) use http2_twin::serve as serve_http2;
pub(crate) use kind::{Era, FENCE, Kind, WATCHED};
pub(crate) use load::Load;
pub(crate) use mcp::{listen, open_session, open_session_stream, subscribe};
pub(crate) use rmcp_twin::serve as serve_rmcp;
pub(crate) use running::{Plan, Running, delivery_bytes, fit};
pub(crate) use server::Server;
pub(crate) use streams::{StreamPlan, Streams};
