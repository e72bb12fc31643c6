//! Where changes come from: each source turns something outside into changes of the bus.
//!
//! Owns: the sources, one module each; a source removes only what it registered. Never: holds what exists or which
//! version of it is current (the bus does), decides what counts as a change, or knows another source. Receives from
//! files; sends to the bus.

pub mod collection;
pub mod workspace;
// What those that watch files share.
mod watch;
mod file_identity;
mod open;
