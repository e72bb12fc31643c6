//! What the rows over real sockets share: the servers, the way to open thousands of streams on them, and the readers.
//!
//! Owns: the measured servers as processes of their own ([`server`]), so that the CPU of the readers ([`load`]) is not
//! counted as theirs; the twins, which are rmcp with its own session layer ([`rmcp_twin`]) and a loop that writes the
//! same number of bytes to bare sockets ([`bare_twin`]); and the words of each protocol ([`kind`], [`mcp`],
//! [`broker`]). Never: decides what is measured; that is each row's own plan.

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

pub(crate) use bare_twin::serve as serve_bare;
pub(crate) use case::{Case, Trial, measure};
pub(crate) use client::Client;
pub(crate) use kind::{Era, FENCE, Kind, WATCHED};
pub(crate) use mcp::{listen, open_stream, start_session};
pub(crate) use rmcp_twin::serve as serve_rmcp;
pub(crate) use running::{Plan, Running, delivery_bytes, fit};
pub(crate) use server::Server;
