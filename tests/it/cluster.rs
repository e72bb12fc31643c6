//! The log that several nodes share, against real servers of NATS JetStream.
//!
//! The servers are started from the program that the variable `TIDINGS_NATS_SERVER` names. Without it, as
//! in a plain `cargo test`, these tests say that they are left out; `tests/run` installs the program and sets
//! it.

mod frames;
mod link;
mod brokers;
mod log_node;
mod log;
mod state;
mod node;
mod nodes;
mod rig;
mod watcher;
mod account;
mod publishers;
mod observer;
mod disturbance;
mod rest;
mod storm;
mod gaps;
mod outages;
mod histories;
mod lost_answers;
mod races;
mod rolling;
mod upkeep;
mod access;
mod reads;
mod quotas;
mod positions;
mod session_client;
mod sessions;
