//! Deliveries beside MCP: transports that are no MCP sessions.
//!
//! Owns: one module per road out. Never: decides what changed or who is subscribed (the bus does). Each receives from the
//! bus, as an attached subscriber or through sessions, and is isolated from the others.

pub mod events;
pub mod ws;
