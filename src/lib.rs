//! One change in, every client told: an actor-based event bus for the Model Context Protocol.

pub mod config;
pub mod source;

pub use tidings_actors::*;
