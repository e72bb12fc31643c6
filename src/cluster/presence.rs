//! The nodes of a cluster that are there: each reports itself every 2 s, and is taken for gone after 10 s.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::shared_state::{Expected, SharedState, StateKey, StateKind};
use crate::metrics::ClusterNodeMetrics;

/// The time after which a node that reports nothing is taken for gone.
pub(super) const GONE_AFTER: Duration = Duration::from_secs(10);

/// The time between two reports.
const REPORT_EVERY: Duration = Duration::from_secs(2);

/// The time for which the lists of two nodes may differ, as they do while nodes are updated one by one.
const SKEW_ALLOWED: Duration = Duration::from_secs(60);

/// The hashes of the lists that are code of a node, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLists {
    /// Of its tools.
    pub tools: String,
    /// Of its prompts.
    pub prompts: String,
    /// Of its resource templates.
    pub templates: String,
}

impl NodeLists {
    /// Returns the names of the lists that differ.
    pub fn differing(&self, other: &NodeLists) -> Vec<&'static str> {
        let mut names = Vec::new();
        for (name, own, others) in [
            ("tools", &self.tools, &other.tools),
            ("prompts", &self.prompts, &other.prompts),
            ("templates", &self.templates, &other.templates),
        ] {
            if own != others {
                names.push(name);
            }
        }
        names
    }
}

/// What a caller of a node holds of the things that quotas limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerUsage {
    /// The key of the caller, the same on every node.
    #[serde(rename = "k")]
    pub key: u64,
    /// Its sessions and long-lived streams.
    #[serde(rename = "s", default)]
    pub sessions: usize,
    /// Its subscriptions.
    #[serde(rename = "u", default)]
    pub subscriptions: usize,
    /// The bytes that it has published.
    #[serde(rename = "b", default)]
    pub bytes: usize,
    /// Its running tool calls.
    #[serde(rename = "t", default)]
    pub tool_calls: usize,
}

/// The report of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its name.
    pub node: String,
    /// The number of its start.
    pub boot: u32,
    /// The address that it listens on.
    pub address: String,
    /// The version of its program.
    pub version: String,
    /// The sequence number of its newest applied record.
    pub applied: u64,
    /// The hashes of its lists.
    pub lists: NodeLists,
    /// The callers that are nearest to a quota.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<CallerUsage>,
}

/// A node that is there.
#[derive(Debug, Clone)]
pub struct PresentNode {
    /// Its report.
    pub report: NodeReport,
    /// The time since it was heard.
    pub age: Duration,
}

/// The report of this node, which is renewed until it is dropped or stopped.
#[derive(Debug)]
pub struct NodePresence {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl NodePresence {
    /// Reports this node with what `report` returns.
    pub fn start(
        state: &SharedState,
        report: impl Fn() -> NodeReport + Send + Sync + 'static,
    ) -> NodePresence {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(run(state.clone(), report, stopped));
        NodePresence {
            stop: Some(stop),
            task,
        }
    }

    /// Tells the others that this node is gone.
    pub async fn stop(mut self) {
        self.stop = None;
        if let Err(error) = self.task.await {
            tracing::debug!(%error, "the report of this node was not ended in order");
        }
    }
}

/// Returns the nodes that are there, by name.
pub fn present_nodes(state: &SharedState) -> Vec<PresentNode> {
    let mut nodes = Vec::new();
    for (_, heard) in state.heard_of(StateKind::Presence, GONE_AFTER) {
        // A report of another version of the program may have another form.
        if let Ok(report) = serde_json::from_slice::<NodeReport>(&heard.entry.value) {
            let age = heard.at.elapsed();
            nodes.push(PresentNode { report, age });
        }
    }
    nodes
}

/// True if every node that is there has applied the record with this sequence number.
pub(super) fn have_all_applied(state: &SharedState, sequence: u64) -> bool {
    let heard = state.heard_of(StateKind::Presence, GONE_AFTER);
    // A report that cannot be read says nothing about its node.
    let applied = |value: &[u8]| match serde_json::from_slice::<NodeReport>(value) {
        Ok(report) => report.applied >= sequence,
        Err(_unreadable) => false,
    };
    !heard.is_empty() && heard.iter().all(|(_, heard)| applied(&heard.entry.value))
}

async fn run(
    state: SharedState,
    report: impl Fn() -> NodeReport + Send + Sync,
    mut stopped: oneshot::Receiver<()>,
) {
    let key = StateKey::new(StateKind::Presence, state.node());
    let metrics = ClusterNodeMetrics::new();
    let mut skew = ListSkew::default();
    let mut is_twice = false;
    loop {
        let own = report();
        write(&state, &key, &own).await;
        let nodes = present_nodes(&state);
        // Counted here, since a scrape must not wait for a server.
        metrics.nodes.set(nodes.len() as f64);
        metrics.skew.set(skew.count(&own, &nodes, Instant::now()) as f64);
        is_twice = warn_of_twin(&own, &nodes, is_twice);
        tokio::select! {
            () = tokio::time::sleep(REPORT_EVERY) => {}
            _ = &mut stopped => break,
        }
    }
    if let Err(error) = state.delete(&key, Expected::Any).await {
        tracing::debug!(%error, "the other nodes are not told that this one ends");
    }
}

async fn write(state: &SharedState, key: &StateKey, own: &NodeReport) {
    let text = serde_json::to_vec(own).unwrap_or_default();
    let written = state
        .write(key, text.into(), Expected::Any, Some(GONE_AFTER))
        .await;
    if let Err(error) = written {
        tracing::debug!(%error, "this node could not report itself");
    }
}

/// Warns once while another node reports itself under the same name. Returns true while that is so.
fn warn_of_twin(own: &NodeReport, nodes: &[PresentNode], is_known: bool) -> bool {
    let mut same = nodes.iter().filter(|node| node.report.node == own.node);
    let is_twice = same.any(|node| node.report.boot != own.boot && node.age < REPORT_EVERY);
    if is_twice && !is_known {
        let node = &own.node;
        tracing::warn!(%node, "another node has the same name; set cluster.node to another one on each");
    }
    is_twice
}

/// The nodes whose lists differ from those of this node, and since when.
#[derive(Debug, Default)]
struct ListSkew {
    since: BTreeMap<String, Instant>,
}

impl ListSkew {
    /// Returns the number of nodes whose lists have differed for longer than an update takes. Each is warned
    /// of once.
    fn count(&mut self, own: &NodeReport, nodes: &[PresentNode], now: Instant) -> usize {
        let differing = |name: &String| {
            let mut found = nodes.iter().filter(|node| node.report.node == *name);
            found.any(|node| node.report.lists != own.lists)
        };
        self.since.retain(|name, _| differing(name));
        let mut count = 0;
        for node in nodes {
            let lists = own.lists.differing(&node.report.lists);
            if lists.is_empty() {
                continue;
            }
            let name = &node.report.node;
            let since = *self.since.entry(name.clone()).or_insert(now);
            if now - since < SKEW_ALLOWED {
                continue;
            }
            count += 1;
            if now - since < SKEW_ALLOWED + REPORT_EVERY {
                let lists = lists.join(", ");
                tracing::warn!(
                    node = %name, %lists,
                    "another node has other lists than this one; clients see one or the other: update all nodes to one version"
                );
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(node: &str, tools: &str) -> NodeReport {
        NodeReport {
            node: node.to_owned(),
            boot: 1,
            address: "127.0.0.1:8808".to_owned(),
            version: "1".to_owned(),
            applied: 5,
            lists: NodeLists {
                tools: tools.to_owned(),
                ..NodeLists::default()
            },
            usage: Vec::new(),
        }
    }

    fn present(report: NodeReport) -> PresentNode {
        PresentNode {
            report,
            age: Duration::ZERO,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lists_that_differ_for_long_are_counted() {
        let mut skew = ListSkew::default();
        let own = report("a", "x");
        let nodes = [
            present(own.clone()),
            present(report("b", "y")),
            present(report("c", "x")),
        ];
        let begin = Instant::now();
        assert_eq!(skew.count(&own, &nodes, begin), 0);
        assert_eq!(skew.count(&own, &nodes, begin + Duration::from_secs(59)), 0);
        assert_eq!(skew.count(&own, &nodes, begin + SKEW_ALLOWED), 1);
        // The other node was updated, and differs again later: the time begins anew.
        assert_eq!(skew.count(&own, &nodes[..1], begin + SKEW_ALLOWED), 0);
        assert_eq!(skew.count(&own, &nodes, begin + SKEW_ALLOWED * 2), 0);
    }

    #[test]
    fn differing_lists_are_named() {
        let one = report("a", "x").lists;
        let mut other = one.clone();
        assert!(one.differing(&other).is_empty());
        other.templates = "z".to_owned();
        other.tools = "z".to_owned();
        assert_eq!(one.differing(&other), ["tools", "templates"]);
    }

    #[test]
    fn twin_is_a_fresh_report_of_another_start() {
        let own = report("a", "x");
        let mut twin = present(own.clone());
        assert!(!warn_of_twin(&own, &[twin.clone()], false));
        twin.report.boot = 2;
        assert!(warn_of_twin(&own, &[twin.clone()], false));
        // The report of this node's former start stays until it ends.
        twin.age = Duration::from_secs(5);
        assert!(!warn_of_twin(&own, &[twin], true));
    }
}
