//! The wire between real sockets: every revision of the protocol, both transports.
//!
//! No test sleeps. An expected message has a deadline; an unexpected one is ruled out by a sentinel that
//! comes next.

#![expect(
    clippy::needless_pass_by_value,
    reason = "messages are written where they are handed over, and borrowing each would only add noise"
)]

pub(crate) mod http;
pub(crate) mod events;
pub(crate) mod client;
pub(crate) mod local;
pub(crate) mod server;

mod golden;
mod lists;
mod resources;
mod rules;
mod resume;
mod returning;
mod cancel;
mod limits;
mod service;
mod metrics;
mod stdio;
mod principal;
mod pressure;
mod slow;
mod hostile;
mod handlers;
