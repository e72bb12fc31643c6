//! Every promise, tested on the real bus and the real binary; one module per promise.

#![expect(
    clippy::unwrap_used,
    reason = "clippy excuses test functions but not the harness they share"
)]

mod hostile_names;
mod support;
mod memory_store;
mod one_principal;

mod bus;
mod client;
mod cli;
mod sink;
mod mcp;
mod http;
mod source;

mod wrap;
mod gateway;
mod check;
mod bench;
mod stress;
mod durability;
mod cluster;
mod tidy;
