//! Every promise, tested on the real bus and the real binary; one module per promise.

#![expect(
    clippy::unwrap_used,
    reason = "clippy excuses test functions but not the harness they share"
)]

mod support;

mod bus_etag;
mod bus_resource;
mod bus_template;
mod bus_list;
mod bus_subscription;
mod bus_resume;
mod bus_back_pressure;
mod bus_slow;
mod bus_limit;
mod bus_shard;
mod bus_interest;
mod bus_store;
mod bus_end;
mod bus_attach;
mod bus_model;
mod client;
mod sink;
mod mcp;
mod http;

mod story;
mod wrap;
mod check;
mod bench;
mod stress;
