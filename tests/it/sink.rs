//! Sinks with real files, real receivers and the real binary: no torn line, no unreported loss, and recovery
//! without a restart.

pub(crate) mod service;
pub(crate) mod receiver;

mod cursors;
mod journal;
mod webhook;
#[cfg(feature = "tls")]
mod tls;
mod debug_log;
mod reload;
mod stop;
