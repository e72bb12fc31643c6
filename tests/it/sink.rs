//! Sinks, with real files, real receivers and the real binary: nothing torn, nothing lost without being told,
//! and what goes wrong is seen and heals without a restart.

mod service;
mod receiver;

mod journal;
mod webhook;
#[cfg(feature = "tls")]
mod tls;
mod debug_log;
mod reload;
