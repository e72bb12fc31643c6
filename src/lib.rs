#![doc = include_str!("../README.md")]

pub mod cli;
pub mod service;
mod carry;
pub mod mcp;
pub mod client;
pub mod check;
pub mod bench;
pub mod source;
pub mod sink;
pub mod store;
pub mod config;
pub mod telemetry;
mod metrics;
mod timestamp;
#[doc(hidden)]
pub mod wire;
mod http_client;

pub use mcp::etag_tools;
pub use tidings_actors::*;
