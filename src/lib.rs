//! One change in, every client told: an actor-based event bus for the Model Context Protocol.

pub mod cli;
pub mod service;
pub mod client;
pub mod telemetry;
pub mod config;

pub use tidings_actors::*;
