#![doc = include_str!("../README.md")]

pub mod config;
pub mod etag_tools;
pub mod mcp;
pub mod source;
pub mod store;

pub use tidings_actors::*;
