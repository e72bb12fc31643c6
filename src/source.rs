//! Where changes come from: each source turns something outside into changes of the bus.
//!
//! Owns: the sources, one module each. Never: holds what exists or which version of it is current (the bus does),
//! and no source knows another. Receives from the network and from files; sends to the bus.

pub mod http_api;
