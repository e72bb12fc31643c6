//! The wire as a client sees it: HTTP/1.1, server-sent events, JSON-RPC, and the dialects of MCP's revisions.
//!
//! `tidings check`, `tidings bench`, the benches and the tests speak to servers with it. A client library
//! would hide the faults that they look for, and add its own share to the costs that they measure.

pub mod protocol;
#[cfg(any(feature = "check", feature = "bench"))]
pub mod header_lines;
#[cfg(all(any(feature = "check", feature = "bench"), feature = "tls"))]
pub mod tls;
#[cfg(all(any(feature = "check", feature = "bench"), not(feature = "tls")))]
#[path = "wire/tls_absent.rs"]
pub mod tls;
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
#[cfg(feature = "bench")]
pub mod nonblocking;
#[cfg(feature = "bench")]
pub mod stand_in;
#[cfg(feature = "bench")]
pub mod http2;
