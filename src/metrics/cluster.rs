//! The metrics of the log that several nodes share.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

metric_table! {
    describe_gauge CONNECTED = "tidings_cluster_connected",
        "1 while a server of the shared log is connected, else 0.";
    describe_gauge QUORUM = "tidings_cluster_quorum", "1 while the shared log takes changes, else 0.";
    describe_gauge DURABLE = "tidings_cluster_durable",
        "1 if an answered change survives the loss of power of all servers and the loss of one, 0 if not, -1 if unknown.";
    describe_gauge APPLIED = "tidings_cluster_applied_seq",
        "Sequence number of the shared log up to which this node has heard everything.";
    describe_gauge HEAD = "tidings_cluster_head_seq",
        "Newest sequence number of the shared log when it was last asked.";
    describe_histogram LAG = "tidings_cluster_lag_seconds",
        "Time from the storage of a record in the shared log until this node heard it, by the clocks of both.";
    describe_histogram PROPOSE = "tidings_cluster_propose_seconds",
        "Time from a change of this node until it was applied here.";
    describe_gauge IN_FLIGHT = "tidings_cluster_proposals_in_flight",
        "Changes of this node that were neither applied nor refused yet.";
    describe_counter RETRIES = "tidings_cluster_retries_total",
        "Changes that were sent to the shared log another time.";
    describe_counter UNKNOWN = "tidings_cluster_unknown_total",
        "Changes whose outcome the shared log did not tell in time.";
    describe_counter DUPLICATES = "tidings_cluster_duplicates_total",
        "Changes sent another time that the shared log had already.";
    describe_counter GAPS = "tidings_cluster_gaps_total",
        "Deliveries of the shared log that were missing, after which it was read anew.";
    describe_counter RESTARTS = "tidings_cluster_consumer_restarts_total",
        "Times that the shared log was read anew from the last record heard.";
    describe_counter LEFT = "tidings_cluster_left_server_total",
        "Times that a server was left for another one because it took no changes or delivered no records.";
    describe_counter EPOCHS = "tidings_cluster_epoch_changes_total",
        "Times that the shared log had another history, after it was deleted or restored from a copy.";
    describe_counter UNREADABLE = "tidings_cluster_unreadable_total",
        "Times that a record or a body of the shared log could not be read.";
    describe_gauge CHUNK_BYTES = "tidings_cluster_chunk_bytes",
        "Bytes that larger bodies take beside the log; told by the node that has the task upkeep.";
    describe_counter FORGOTTEN = "tidings_cluster_forgotten_total",
        "Removed URIs beyond bus.removed_max whose records this node took out of the shared log.";
    describe_counter SWEPT = "tidings_cluster_swept_total",
        "Larger bodies that this node removed because no record of the shared log named them.";
    describe_counter PUT_BACK = "tidings_cluster_put_back_total",
        "Larger bodies that were gone and that this node stored again for another one.";
    describe_gauge NODES = "tidings_cluster_nodes", "Nodes of the cluster that were heard within 10 s.";
    describe_gauge SKEW = "tidings_cluster_list_skew",
        "Nodes whose tools, prompts or templates have differed from those of this node for over a minute.";
    describe_gauge LEASES = "tidings_cluster_leases_held", "Tasks of the cluster that this node does.";
    describe_counter LEASES_LOST = "tidings_cluster_leases_lost_total",
        "Tasks that this node gave up because it could not renew its lease.";
}

/// Shows the metrics from the start on, also at a node that is alone.
pub(super) fn register() {
    drop(ClusterMetrics::new());
    drop(ClusterNodeMetrics::new());
    drop(JanitorMetrics::new());
}

/// The metrics of the log that several nodes share. Clones share their handles.
#[derive(Debug, Clone)]
pub(crate) struct ClusterMetrics {
    pub(crate) connected: Gauge,
    pub(crate) quorum: Gauge,
    pub(crate) applied: Gauge,
    pub(crate) head: Gauge,
    pub(crate) in_flight: Gauge,
    pub(crate) lag: Histogram,
    pub(crate) propose: Histogram,
    pub(crate) retries: Counter,
    pub(crate) unknown: Counter,
    pub(crate) duplicates: Counter,
    pub(crate) gaps: Counter,
    pub(crate) restarts: Counter,
    pub(crate) left: Counter,
    pub(crate) epochs: Counter,
    pub(crate) unreadable: Counter,
}

impl ClusterMetrics {
    pub(crate) fn new() -> ClusterMetrics {
        // An embedder may share a log without calling `metrics::register`.
        describe();
        ClusterMetrics {
            connected: gauge!(CONNECTED),
            quorum: gauge!(QUORUM),
            applied: gauge!(APPLIED),
            head: gauge!(HEAD),
            in_flight: gauge!(IN_FLIGHT),
            lag: histogram!(LAG),
            propose: histogram!(PROPOSE),
            retries: counter!(RETRIES),
            unknown: counter!(UNKNOWN),
            duplicates: counter!(DUPLICATES),
            gaps: counter!(GAPS),
            restarts: counter!(RESTARTS),
            left: counter!(LEFT),
            epochs: counter!(EPOCHS),
            unreadable: counter!(UNREADABLE),
        }
    }
}

/// The metrics of the nodes of a cluster and their tasks. Clones share their handles.
#[derive(Debug, Clone)]
pub(crate) struct ClusterNodeMetrics {
    pub(crate) durable: Gauge,
    pub(crate) nodes: Gauge,
    pub(crate) skew: Gauge,
    pub(crate) leases: Gauge,
    pub(crate) leases_lost: Counter,
}

impl ClusterNodeMetrics {
    pub(crate) fn new() -> ClusterNodeMetrics {
        describe();
        ClusterNodeMetrics {
            durable: gauge!(DURABLE),
            nodes: gauge!(NODES),
            skew: gauge!(SKEW),
            leases: gauge!(LEASES),
            leases_lost: counter!(LEASES_LOST),
        }
    }
}

/// The metrics of the removal of what no node of a cluster needs.
#[derive(Debug, Clone)]
pub(crate) struct JanitorMetrics {
    pub(crate) chunk_bytes: Gauge,
    pub(crate) forgotten: Counter,
    pub(crate) swept: Counter,
    pub(crate) put_back: Counter,
}

impl JanitorMetrics {
    pub(crate) fn new() -> JanitorMetrics {
        describe();
        JanitorMetrics {
            chunk_bytes: gauge!(CHUNK_BYTES),
            forgotten: counter!(FORGOTTEN),
            swept: counter!(SWEPT),
            put_back: counter!(PUT_BACK),
        }
    }
}
