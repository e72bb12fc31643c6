//! Three servers and three nodes, between all of which a test can cut the links.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, Context};
use serde_json::{Value, json};
use tempfile::TempDir;
use tidings::wire::http1::HttpTarget;
use tokio::time::{sleep, timeout};

use super::brokers::Brokers;
use super::link::AckLoss;
use super::node::{Node, config_at};
use crate::durability::Connection;

/// The number of servers, and of nodes.
pub(super) const COUNT: usize = 3;

/// The time for which a test waits for something that must happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// The most resources on a page of a list.
const PAGE: usize = 1_000;

/// Servers, and nodes on them.
pub(super) struct Rig {
    pub(super) brokers: Brokers,
    pub(super) nodes: Vec<Node>,
    namespace: String,
    /// Held until the nodes are gone.
    _folder: TempDir,
}

impl Rig {
    /// Starts everything and waits until all nodes take changes; none without a program of the server.
    pub(super) async fn start(namespace: &str) -> Option<Rig> {
        Rig::with(namespace, "", None).await
    }

    /// Starts everything with more lines of configuration, and loses acknowledgements on the way to nodes.
    pub(super) async fn with(namespace: &str, config: &str, loss: Option<Arc<AckLoss>>) -> Option<Rig> {
        let mut brokers = Brokers::linked(COUNT)?;
        let folder = tempfile::tempdir().unwrap();
        let mut nodes = Vec::new();
        for number in 0..COUNT {
            let urls = brokers.link_node(number, loss.as_ref());
            let config = format!("{config}{}", config_at(&urls, namespace));
            nodes.push(Node::spawn(&format!("node-{number}"), folder.path(), &config));
        }
        let rig = Rig {
            brokers,
            nodes,
            namespace: namespace.to_owned(),
            _folder: folder,
        };
        rig.until_ready().await;
        Some(rig)
    }

    /// Waits until all nodes take changes.
    pub(super) async fn until_ready(&self) {
        for node in &self.nodes {
            node.until_ready().await;
        }
    }

    /// The MCP endpoints of the nodes.
    pub(super) fn targets(&self) -> Vec<HttpTarget> {
        self.nodes.iter().map(Node::target).collect()
    }

    /// The name of the stream with the records.
    pub(super) fn stream(&self) -> String {
        format!("TIDINGS_{}", self.namespace)
    }

    /// Connects to a server past all links.
    pub(super) async fn context(&self, number: usize) -> Context {
        let options = async_nats::ConnectOptions::new().request_timeout(Some(Duration::from_secs(2)));
        let client = options.connect(self.brokers.url(number)).await.unwrap();
        jetstream::new(client)
    }

    /// The number of the server that leads the stream of the records.
    pub(super) async fn leader(&self) -> usize {
        let context = self.context(0).await;
        let begin = Instant::now();
        loop {
            if let Ok(stream) = context.get_stream(self.stream()).await
                && let Some(cluster) = &stream.cached_info().cluster
                && let Some(leader) = &cluster.leader
            {
                return self.brokers.number_of(leader);
            }
            assert!(begin.elapsed() < PATIENCE, "the stream has no leader");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Lets a server lead the stream of the records.
    pub(super) async fn lead(&self, number: usize) {
        let context = self.context(0).await;
        let subject = format!("STREAM.LEADER.STEPDOWN.{}", self.stream());
        let preferred = format!("n{}", number + 1);
        let begin = Instant::now();
        while self.leader().await != number {
            let request = json!({ "placement": { "preferred": preferred } });
            // Refused while the log has no leader; it is asked for again.
            let asked: Result<Value, _> = context.request(subject.clone(), &request).await;
            assert!(begin.elapsed() < PATIENCE, "{preferred} does not lead: {asked:?}");
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// The newest sequence number of the log.
    pub(super) async fn last_sequence(&self) -> u64 {
        let context = self.context(0).await;
        let stream = context.get_stream(self.stream()).await.unwrap();
        stream.cached_info().state.last_sequence
    }

    /// Fails with these problems, and with the logs of the nodes.
    #[track_caller]
    pub(super) fn assert_none(&self, problems: &[String]) {
        let logs: Vec<String> = self.nodes.iter().map(Node::log_text).collect();
        assert!(
            problems.is_empty(),
            "{}\n{}",
            problems.join("\n"),
            logs.join("\n")
        );
    }

    /// Waits until the tables of all nodes are equal; returns the table and the time that it took.
    pub(super) async fn until_equal(&self) -> (String, Duration) {
        let begin = Instant::now();
        loop {
            let mut tables = Vec::new();
            for node in &self.nodes {
                tables.push(etag_table(&node.target()).await);
            }
            if let Ok(table) = &tables[0]
                && tables.iter().all(|other| other == &tables[0])
            {
                return (table.clone(), begin.elapsed());
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "the tables of the nodes differ: {}",
                difference(&tables)
            );
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Returns the URI and the etag of each resource of a node, a line for each.
pub(super) async fn etag_table(target: &HttpTarget) -> Result<String, String> {
    let mut connection = Connection::new(target);
    let mut table = String::new();
    let mut path = format!("/v1/resources?limit={PAGE}");
    loop {
        let request = target.request_to("GET", &path).finish();
        let answer = timeout(PATIENCE, connection.ask(&request)).await;
        let answer = answer.map_err(|_| "no answer".to_owned())??;
        if answer.head.status != 200 {
            return Err(format!("status {}", answer.head.status));
        }
        let page: Value = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
        for item in page["items"].as_array().into_iter().flatten() {
            let uri = &item["uri"];
            let etag = &item["etag"];
            table.push_str(&format!(
                "{} {}\n",
                uri.as_str().unwrap_or_default(),
                etag.as_str().unwrap_or_default()
            ));
        }
        let Some(next) = page["next"].as_str() else {
            return Ok(table);
        };
        let next = next.replace('%', "%25").replace(':', "%3A").replace('/', "%2F");
        path = format!("/v1/resources?limit={PAGE}&after={next}");
    }
}

/// Returns the first line that is not in all tables.
fn difference(tables: &[Result<String, String>]) -> String {
    let mut shown = Vec::new();
    for table in tables {
        let first = match (table, &tables[0]) {
            (Ok(table), Ok(first)) => {
                let mut pairs = table.lines().zip(first.lines());
                let differing = pairs.find(|(one, other)| one != other);
                format!("{} lines, {differing:?}", table.lines().count())
            }
            (Err(error), _) => error.clone(),
            (Ok(table), Err(_)) => format!("{} lines", table.lines().count()),
        };
        shown.push(first);
    }
    shown.join("; ")
}
