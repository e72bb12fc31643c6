//! One change in, every client told: an actor-based event bus for the Model Context Protocol.

pub mod config;
pub mod etag_tools;
pub mod mcp;

pub use tidings_actors::*;
