//! HTTP/2 as a load generator speaks it (RFC 9113): many streams on a connection, frames read where they lie.
//!
//! [`frames`] cuts bytes into frames, [`header_block`] writes the headers of requests and reads the status of
//! answers, and [`client`] keeps the state of a connection. None of them does I/O, so that each can be tested
//! with bytes alone; [`connection`] adds the socket, and [`request`](mod@request) knows what MCP sends.
//!
//! A library would take a task and a queue for every stream, which a generator of a million streams beside
//! the server has no room for.

pub mod client;
pub mod connection;
pub mod frames;
pub mod header_block;
pub mod request;
mod events;
mod incoming;
mod state;
