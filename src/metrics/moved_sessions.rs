//! The metrics of sessions that go from node to node.

use metrics::{Counter, counter};

metric_table! {
    describe_counter SESSIONS_MOVED = "tidings_cluster_sessions_moved_total",
        "Sessions that this node took over from another one.";
}

/// The metrics of sessions that go from node to node. Clones share their handles.
#[derive(Debug, Clone)]
pub(crate) struct MovedSessionMetrics {
    pub(crate) moved: Counter,
}

impl MovedSessionMetrics {
    pub(crate) fn new() -> MovedSessionMetrics {
        // An embedder may share records without calling `metrics::register`.
        describe();
        MovedSessionMetrics {
            moved: counter!(SESSIONS_MOVED),
        }
    }
}
