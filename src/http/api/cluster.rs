//! The cluster of this node: `GET /v1/cluster`, and the part of it that decides whether requests are
//! answered.
//!
//! The service hands in a function that reads the state, since the API knows no engine.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use schemars::JsonSchema;
use serde::Serialize;

use super::{Api, ApiResponse, json};
use crate::http::problem::{Problem, ProblemKind};

/// The connection of the node to the log that all nodes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClusterHealth {
    /// Changes are taken.
    Connected,
    /// A server is reached, but the log has no leader.
    NoQuorum,
    /// No server is reached.
    Disconnected,
}

/// The state of a node in its cluster.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReport {
    /// The name of this node.
    pub node: String,
    /// The name of the cluster.
    pub namespace: String,
    /// The connection to the log.
    pub health: ClusterHealth,
    /// True once this node has applied everything that the log had when it was opened.
    pub caught_up: bool,
    /// The epoch of the log's history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The sequence number of the newest applied record.
    pub applied: u64,
    /// The newest sequence number of the log, as of the last look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<u64>,
    /// The changes of this node that the log has not answered.
    pub in_flight: usize,
    /// Whether an answered change survives a loss of power of all servers; left out where that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durable: Option<bool>,
    /// True if this node answers nothing until the log is known to be durable.
    #[serde(skip)]
    pub must_be_durable: bool,
    /// The nodes that were heard lately, by name.
    pub nodes: Vec<ClusterNode>,
    /// The leases, by name.
    pub leases: Vec<ClusterLease>,
}

/// A node of the cluster, as it reports itself.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterNode {
    /// Its name.
    pub node: String,
    /// The address that it listens on.
    pub address: String,
    /// The version of its program.
    pub version: String,
    /// The sequence number of its newest applied record.
    pub applied: u64,
    /// The time in milliseconds since its report was heard.
    pub heard_ms: u64,
    /// The lists of the node's own code that differ from those of this node: tools, prompts, templates.
    pub differs: Vec<&'static str>,
    /// True for the node that answers.
    pub own: bool,
}

/// A task that one node of the cluster has.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterLease {
    /// Its name, such as `source.workspace` or `sink.webhook/a`.
    pub name: String,
    /// The node that has it; none while it is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// True if that is the node that answers.
    pub own: bool,
}

/// The cluster of a node, as the HTTP side sees it. Clones share it.
#[derive(Clone)]
pub struct ClusterView(Arc<Shared>);

struct Shared {
    read: Box<dyn Fn() -> ClusterReport + Send + Sync>,
    /// Set once the node has caught up for the first time.
    is_open: AtomicBool,
}

impl fmt::Debug for ClusterView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterView").finish_non_exhaustive()
    }
}

impl ClusterView {
    /// Makes a view of the state that `read` returns.
    pub fn new(read: impl Fn() -> ClusterReport + Send + Sync + 'static) -> ClusterView {
        ClusterView(Arc::new(Shared {
            read: Box::new(read),
            is_open: AtomicBool::new(false),
        }))
    }

    /// Refuses a request as long as the node has not caught up for the first time: it would answer with
    /// nothing, or with what was true long ago. Later gaps do not close it again, since a node that was
    /// cut off goes on with a state that was whole.
    ///
    /// # Errors
    /// 503 with `Retry-After`.
    pub(crate) fn admit(&self, path: &str) -> Result<(), Problem> {
        // An operator wants to see how far it is.
        if self.0.is_open.load(Ordering::Acquire) || path == "/v1/cluster" || path == "/metrics" {
            return Ok(());
        }
        // Read by each request until then, which are few: balancers send none to a node that is not ready.
        let report = (self.0.read)();
        if report.caught_up && report.is_durable_enough() {
            self.0.is_open.store(true, Ordering::Release);
            return Ok(());
        }
        Err(ProblemKind::Unavailable.because(not_caught_up(&report)))
    }

    /// Refuses while the node has not caught up, or the log takes no changes.
    pub(super) fn check_ready(&self) -> Result<(), Problem> {
        let report = (self.0.read)();
        let reason = match report.health {
            _ if !report.caught_up || !report.is_durable_enough() => not_caught_up(&report),
            ClusterHealth::Connected => return Ok(()),
            ClusterHealth::NoQuorum => {
                "the log of the cluster has no leader, so changes wait or are refused, and reads go on"
                    .to_owned()
            }
            ClusterHealth::Disconnected => {
                "no server of the cluster's log is reached, so changes wait or are refused, and reads go on"
                    .to_owned()
            }
        };
        Err(ProblemKind::Unavailable.because(reason))
    }
}

impl ClusterReport {
    /// True unless the log must be known to be durable, and is not.
    pub(crate) fn is_durable_enough(&self) -> bool {
        !self.must_be_durable || self.durable == Some(true)
    }
}

fn not_caught_up(report: &ClusterReport) -> String {
    let applied = report.applied;
    if report.caught_up {
        return "the log of the cluster is not known to survive a loss of power, which cluster.require_durable asks for; \
                the log of this node says why"
            .to_owned();
    }
    match (report.health, report.head) {
        (ClusterHealth::Disconnected, _) => {
            "no server of the cluster's log is reached yet; try again later".to_owned()
        }
        (_, Some(head)) => {
            format!("this node still reads the log of its cluster: {applied} of {head}; try again")
        }
        (_, None) => format!("this node still reads the log of its cluster: {applied} so far; try again"),
    }
}

impl Api {
    /// Answers with the state of the cluster.
    pub(super) fn show_cluster(&self) -> Result<ApiResponse, Problem> {
        let Some(cluster) = &self.cluster else {
            let text = "this node is alone: cluster.engine is not set";
            return Err(ProblemKind::NotFound.because(text));
        };
        Ok(json(&(cluster.0.read)()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;
    use std::sync::Mutex;

    fn report() -> ClusterReport {
        ClusterReport {
            node: "a".to_owned(),
            namespace: "default".to_owned(),
            health: ClusterHealth::Connected,
            caught_up: false,
            epoch: Some(1),
            applied: 5,
            head: Some(9),
            in_flight: 0,
            durable: None,
            must_be_durable: false,
            nodes: Vec::new(),
            leases: Vec::new(),
        }
    }

    fn shown() -> (Arc<Mutex<ClusterReport>>, ClusterView) {
        let state = Arc::new(Mutex::new(report()));
        let read = state.clone();
        (state, ClusterView::new(move || read.lock().unwrap().clone()))
    }

    #[test]
    fn node_answers_once_it_has_caught_up() {
        let (state, view) = shown();
        let refused = view.admit("/mcp").unwrap_err();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.detail().contains("5 of 9"), "{}", refused.detail());
        assert!(refused.respond("/mcp").headers().contains_key("retry-after"));
        assert!(view.admit("/v1/cluster").is_ok());
        state.lock().unwrap().caught_up = true;
        assert!(view.admit("/mcp").is_ok());
        // Another history is read: the former state is still whole.
        state.lock().unwrap().caught_up = false;
        assert!(view.admit("/mcp").is_ok());
    }

    #[test]
    fn node_that_must_be_durable_waits_until_it_is_known() {
        let (state, view) = shown();
        state.lock().unwrap().caught_up = true;
        state.lock().unwrap().must_be_durable = true;
        for durable in [None, Some(false)] {
            state.lock().unwrap().durable = durable;
            let refused = view.admit("/mcp").unwrap_err();
            assert!(
                refused.detail().contains("require_durable"),
                "{}",
                refused.detail()
            );
            assert!(view.check_ready().is_err());
        }
        state.lock().unwrap().durable = Some(true);
        assert!(view.admit("/mcp").is_ok());
        assert!(view.check_ready().is_ok());
    }

    #[test]
    fn readiness_needs_the_state_and_the_quorum() {
        let (state, view) = shown();
        assert!(view.check_ready().unwrap_err().detail().contains("still reads"));
        state.lock().unwrap().caught_up = true;
        assert!(view.check_ready().is_ok());
        for (health, text) in [
            (ClusterHealth::NoQuorum, "no leader"),
            (ClusterHealth::Disconnected, "no server"),
        ] {
            state.lock().unwrap().health = health;
            let refused = view.check_ready().unwrap_err();
            assert!(refused.detail().contains(text), "{}", refused.detail());
        }
    }
}
