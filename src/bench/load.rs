//! The clients and the publisher of a run, and the rules by which their notices are counted.

pub(crate) mod pipeline;
pub(crate) mod poller;
pub(crate) mod publisher;
pub(crate) mod schedule;
pub(crate) mod session;
pub(crate) mod stats;
pub(crate) mod stream_reader;
pub(crate) mod streams;
pub(crate) mod updates;
