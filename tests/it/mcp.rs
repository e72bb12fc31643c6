//! What stands on the wire, between real sockets: every revision of the protocol, both transports.
//!
//! No test sleeps. What must come has a deadline; what must not come is shown by a sentinel that comes next.

mod http;
mod events;
mod client;
mod local;
mod server;

mod golden;
mod lists;
mod resources;
mod rules;
mod resume;
mod limits;
mod service;
mod stdio;
mod pressure;
mod hostile;
