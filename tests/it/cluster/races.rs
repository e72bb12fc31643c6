//! Nodes that change one resource at once: equal content makes one version, and a condition has one winner.

use std::collections::BTreeSet;

use tidings::wire::connection::HttpAnswer;
use tidings::wire::http1::{HttpTarget, resource_path};

use super::brokers;
use super::node::{Node, config};
use super::watcher::version;
use crate::durability::Connection;
use crate::support::{number, replace_file};

const URI: &str = "race://resource";

/// Two nodes, and a connection to each.
struct Pair {
    nodes: [Node; 2],
    connections: [Connection; 2],
    _folder: tempfile::TempDir,
}

impl Pair {
    fn start(namespace: &str) -> Option<Pair> {
        let brokers = brokers::shared()?;
        let folder = tempfile::tempdir().unwrap();
        let config = config(brokers, namespace);
        let nodes = ["a", "b"].map(|name| Node::start(name, folder.path(), &config));
        let connections = [0, 1].map(|number: usize| Connection::new(&nodes[number].target()));
        Some(Pair {
            nodes,
            connections,
            _folder: folder,
        })
    }

    /// Sends a request to each node at once.
    async fn ask(&mut self, requests: [Vec<u8>; 2]) -> [HttpAnswer; 2] {
        let [one, other] = &mut self.connections;
        let (one, other) = tokio::join!(one.ask(&requests[0]), other.ask(&requests[1]));
        [one.unwrap(), other.unwrap()]
    }

    fn targets(&self) -> [HttpTarget; 2] {
        [self.nodes[0].target(), self.nodes[1].target()]
    }

    /// Asks both nodes for a change under a condition, each with a content of its own. Returns the answers.
    async fn race(&mut self, uri: &str, (name, value): (&str, &str)) -> [HttpAnswer; 2] {
        let mut bodies = ["one", "other"].into_iter();
        let requests = self.targets().map(|target| {
            let request = target.request_to("PUT", &resource_path(uri)).header(name, value);
            request.body("text/plain", bodies.next().unwrap_or_default().as_bytes())
        });
        self.ask(requests).await
    }

    /// Asks one node for a change of the resource, with a header and a content. Returns the answer.
    async fn change(
        &mut self,
        node: usize,
        method: &str,
        (name, value): (&str, &str),
        body: &str,
    ) -> HttpAnswer {
        let target = self.nodes[node].target();
        let request = target.request_to(method, &resource_path(URI)).header(name, value);
        let request = request.body("text/plain", body.as_bytes());
        self.connections[node].ask(&request).await.unwrap()
    }
}

fn etag(answer: &HttpAnswer) -> &str {
    assert!(answer.head.is_success(), "{answer:?}");
    answer.head.etag().unwrap().trim_matches('"')
}

#[tokio::test]
async fn same_content_at_two_nodes_is_one_version() {
    let Some(mut pair) = Pair::start("same-content") else {
        return;
    };
    let rounds = number("CLUSTER_CHANGES", 1_000);
    for round in 1..=rounds {
        let body = format!("round {round}");
        let requests = pair.targets().map(|target| target.put_resource(URI, &body));
        let [one, other] = pair.ask(requests).await;
        assert_eq!(etag(&one), etag(&other), "both have made or found the version");
        assert_eq!(version(etag(&one)), round);
        let changed = [&one, &other].map(|answer| answer.head.header("tidings-changed") == Some("true"));
        assert!(changed.contains(&true), "round {round}: {changed:?}");
    }
}

#[tokio::test]
async fn each_change_sees_the_one_before_at_any_node() {
    let Some(mut pair) = Pair::start("in-turn") else {
        return;
    };
    let always = ("Accept", "*/*");
    let is_new = ("If-None-Match", "*");
    for round in 0..number("CLUSTER_CHANGES", 1_000) / 5 {
        let [node, other] = match round % 2 {
            0 => [0, 1],
            _ => [1, 0],
        };
        let made = pair.change(node, "PUT", is_new, "1").await;
        assert_eq!(made.head.status, 201, "{made:?}");
        let at = format!("\"{}\"", etag(&made));
        let replaced = pair.change(other, "PUT", ("If-Match", &at), "2").await;
        assert_eq!(replaced.head.status, 204, "{replaced:?}");
        // The node may still have this very content, which is that of the version before.
        let put_back = pair.change(node, "PUT", always, "1").await;
        assert_eq!(
            put_back.head.header("tidings-changed"),
            Some("true"),
            "{put_back:?}"
        );
        assert_eq!(version(etag(&put_back)), version(etag(&made)) + 2);
        let stale = pair.change(other, "PUT", ("If-Match", &at), "3").await;
        assert_eq!(stale.head.status, 412, "{stale:?}");
        let removed = pair.change(other, "DELETE", always, "").await;
        assert_eq!(removed.head.status, 204, "{removed:?}");
        let again = pair.change(node, "DELETE", always, "").await;
        assert_eq!(again.head.status, 404, "{again:?}");
    }
}

#[tokio::test]
async fn condition_at_two_nodes_has_one_winner() {
    let Some(mut pair) = Pair::start("winner") else {
        return;
    };
    let statuses = |answers: &[HttpAnswer; 2]| -> BTreeSet<u16> {
        answers.iter().map(|answer| answer.head.status).collect()
    };
    for round in 0..200 {
        let uri = format!("{URI}/{round}");
        let created = pair.race(&uri, ("If-None-Match", "*")).await;
        assert_eq!(statuses(&created), BTreeSet::from([201, 412]), "{created:?}");
        let winner = created.iter().find(|answer| answer.head.is_success()).unwrap();
        let first = format!("\"{}\"", etag(winner));
        let replaced = pair.race(&uri, ("If-Match", &first)).await;
        let made: Vec<&HttpAnswer> = replaced
            .iter()
            .filter(|answer| answer.head.is_success())
            .collect();
        // A node may find its own content there already, which is no second version.
        assert!(!made.is_empty(), "{replaced:?}");
        assert!(
            statuses(&replaced).is_subset(&BTreeSet::from([204, 412])),
            "{replaced:?}"
        );
        let changed = made
            .iter()
            .filter(|answer| answer.head.header("tidings-changed") == Some("true"));
        assert_eq!(changed.count(), 1, "{replaced:?}");
    }
}

#[tokio::test]
async fn folders_out_of_step_make_one_version_per_change() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = Vec::new();
    let mut files = Vec::new();
    for name in ["a", "b"] {
        let notes = folder.path().join(name);
        std::fs::create_dir_all(notes.join("resources")).unwrap();
        let file = notes.join("resources/note.md");
        replace_file(&file, "0");
        files.push(file);
        let config = format!(
            "[workspace]\ndir = {notes:?}\ndebounce = '20ms'\nrescan = '1s'\n{}",
            config(brokers, "copies")
        );
        nodes.push(Node::start(name, folder.path(), &config));
    }
    let uri = "workspace:///note.md";
    for node in &nodes {
        node.until_body(uri, "0").await;
    }
    for change in 1..=20_u64 {
        // The two folders get the change one after the other, and in turns.
        let first = (change % 2) as usize;
        let text = change.to_string();
        replace_file(&files[first], &text);
        tokio::time::sleep(std::time::Duration::from_millis(20 * (change % 5))).await;
        replace_file(&files[1 - first], &text);
        for node in &nodes {
            let found = node.until_body(uri, &text).await.etag.unwrap();
            let version = version(found.trim_matches('"'));
            assert_eq!(version, change + 1, "{found} after {change} changes");
        }
    }
}
