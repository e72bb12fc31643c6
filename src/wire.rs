//! The client side of the wire: HTTP/1.1, server-sent events, JSON-RPC, and how each revision of MCP uses them.
//!
//! `tidings check`, `tidings bench`, the benches and the tests speak to servers with it rather than with a client
//! library, because a library hides the faults that they look for and adds its own share to the costs they measure.

pub mod protocol;
#[cfg(any(feature = "check", feature = "bench"))]
pub mod http1;
#[cfg(any(feature = "check", feature = "bench"))]
pub mod connection;
#[cfg(any(feature = "check", feature = "bench"))]
pub mod sse;
#[cfg(any(feature = "check", feature = "bench"))]
pub mod jsonrpc;
#[cfg(any(feature = "check", feature = "bench"))]
pub mod dialect;
