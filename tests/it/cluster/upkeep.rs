//! Larger bodies beside the log, and the removal of what no node needs any more.

use std::time::{Duration, Instant};

use tidings::shared_log::LogEntry;
use tidings::{Resource, ResourceUri};

use super::brokers::{self, Brokers};
use super::log_node::LogNode;
use super::node::{Answered, Node, config, path_of};

/// The time for which a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the numbers of messages in the streams of the records and of the bodies.
async fn messages(brokers: &Brokers, namespace: &str) -> [u64; 2] {
    let client = async_nats::connect(brokers.urls()).await.unwrap();
    let context = async_nats::jetstream::new(client);
    let mut counts = [0; 2];
    for (stream, count) in ["", "_B"].iter().zip(&mut counts) {
        if let Ok(stream) = context.get_stream(format!("TIDINGS_{namespace}{stream}")).await {
            *count = stream.cached_info().state.messages;
        }
    }
    counts
}

async fn until_messages(brokers: &Brokers, namespace: &str, holds: impl Fn([u64; 2]) -> bool) {
    let begin = Instant::now();
    loop {
        let counts = messages(brokers, namespace).await;
        if holds(counts) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{namespace}: {counts:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A body of `len` bytes that differs for each `seed`.
fn body(len: usize, seed: u32) -> String {
    let mut text = format!("{seed} ");
    while text.len() < len {
        text.push_str(&format!("{:08x} ", text.len() as u32 ^ seed));
    }
    text.truncate(len);
    text
}

#[tokio::test]
async fn larger_bodies_are_the_same_on_every_node() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = config(brokers, "bodies");
    let a = Node::start("a", folder.path(), &config);
    let b = Node::start("b", folder.path(), &config);
    // Around the limit of a record, of a chunk, and of several.
    for (n, len) in [64 << 10, (64 << 10) + 1, 256 << 10, (256 << 10) + 1, 3 << 20]
        .into_iter()
        .enumerate()
    {
        let uri = format!("demo://{n}");
        let text = body(len, 1);
        let put = a.put(&uri, &text).await;
        assert_eq!(put.status, 201, "{len}: {}", put.text);
        assert_eq!(b.until_body(&uri, &text).await.etag, put.etag, "{len}");
        let next = body(len, 2);
        let put = b.put(&uri, &next).await;
        assert_eq!(put.status, 204, "{len}: {}", put.text);
        assert_eq!(a.until_body(&uri, &next).await.etag, put.etag, "{len}");
    }
    // Two large changes of one resource at once have one order.
    for n in 0..5 {
        let one = body(300 << 10, 10 + n);
        let other = body(300 << 10, 20 + n);
        let (one, other) = tokio::join!(a.put("demo://x", &one), b.put("demo://x", &other));
        assert!(
            one.status < 300 && other.status < 300,
            "{} {}",
            one.text,
            other.text
        );
    }
    let last = a.put("demo://x", &body(300 << 10, 99)).await;
    assert!(
        last.etag.as_ref().unwrap().starts_with("\"v11-"),
        "{:?}",
        last.etag
    );
    // A node that starts finds all of them.
    drop((a, b));
    let c = Node::start("c", folder.path(), &config);
    assert_eq!(c.until_body("demo://4", &body(3 << 20, 2)).await.status, 200);
    assert_eq!(
        c.until_body("demo://x", &body(300 << 10, 99)).await.etag,
        last.etag
    );
}

#[tokio::test]
async fn bodies_that_no_record_names_are_removed() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = format!("{}sweep_after = '2s'\n", config(brokers, "swept"));
    let a = Node::start("a", folder.path(), &config);
    let b = Node::start("b", folder.path(), &config);
    for n in 0..4 {
        a.put("demo://x", &body(600 << 10, n)).await;
    }
    let gone = body(300 << 10, 50);
    a.put("demo://gone", &gone).await;
    // A node may be some milliseconds behind another one, and does not remove what it has not seen.
    b.until_body("demo://gone", &gone).await;
    assert_eq!(b.ask("DELETE", &path_of("demo://gone"), "").await.status, 204);
    // The chunks of one body stay.
    until_messages(brokers, "swept", |[_, chunks]| chunks == 3).await;
    // What is written again while it is unnamed stays, too.
    a.put("demo://y", &body(300 << 10, 60)).await;
    a.put("demo://y", "small").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    a.put("demo://y", &body(300 << 10, 60)).await;
    until_messages(brokers, "swept", |[_, chunks]| chunks == 5).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    drop((a, b));
    let c = Node::start("c", folder.path(), &config);
    c.until_body("demo://x", &body(600 << 10, 3)).await;
    c.until_body("demo://y", &body(300 << 10, 60)).await;
}

#[tokio::test]
async fn lost_bodies_are_put_back_by_a_node_that_has_them() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = config(brokers, "lost-bodies");
    let a = Node::start("a", folder.path(), &config);
    let texts = [body(300 << 10, 1), body(3 << 20, 2)];
    for (n, text) in texts.iter().enumerate() {
        a.put(&format!("demo://{n}"), text).await;
    }
    let client = async_nats::connect(brokers.urls()).await.unwrap();
    let context = async_nats::jetstream::new(client);
    context.delete_stream("TIDINGS_lost-bodies_B").await.unwrap();
    let b = Node::start("b", folder.path(), &config);
    for (n, text) in texts.iter().enumerate() {
        b.until_body(&format!("demo://{n}"), text).await;
    }
    let metrics = a.ask("GET", "/metrics", "").await.text;
    assert!(
        metrics.contains("\ntidings_cluster_put_back_total 2\n"),
        "{metrics}"
    );
    // They are there again for those that start when no other is left.
    drop((a, b));
    let c = Node::start("c", folder.path(), &config);
    c.until_body("demo://1", &texts[1]).await;
}

/// Returns the version of an answer.
fn version(answer: &Answered) -> u64 {
    let etag = answer
        .etag
        .as_ref()
        .unwrap_or_else(|| panic!("{} {}", answer.status, answer.text));
    let version = etag.trim_start_matches("\"v").split('-').next().unwrap();
    version.parse().unwrap()
}

#[tokio::test]
async fn records_of_removed_resources_leave_the_log() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = format!("[bus]\nremoved_max = 3\n{}", config(brokers, "floors"));
    let a = Node::start("a", folder.path(), &config);
    let b = Node::start("b", folder.path(), &config);
    let mut last = Vec::new();
    for n in 0..12 {
        let uri = format!("demo://{n}");
        for text in ["1", "2", "3"] {
            assert!(a.put(&uri, text).await.status < 300);
        }
        let removed = a.ask("DELETE", &path_of(&uri), "").await;
        assert_eq!(removed.status, 204, "{}", removed.text);
        last.push(version(&removed));
    }
    a.put("demo://stays", "1").await;
    // Three removed ones, the one that stays, and a floor.
    until_messages(brokers, "floors", |[records, _]| records == 5).await;
    let forgotten = last[..9].iter().max().unwrap();
    let again = b.put("demo://0", "again").await;
    assert_eq!(again.status, 201, "{}", again.text);
    assert!(version(&again) > *forgotten, "{:?} {last:?}", again.etag);
    assert_eq!(a.until_body("demo://0", "again").await.etag, again.etag);
    // Those that are kept go on from their own versions.
    let kept = a.put("demo://11", "again").await;
    assert_eq!(version(&kept), last[11] + 1, "{last:?}");
    // A node that starts knows the floor.
    drop((a, b));
    let c = Node::start("c", folder.path(), &config);
    assert_eq!(c.get("demo://0").await.etag, again.etag);
    for uri in ["demo://1", "demo://never-before"] {
        let put = c.put(uri, "again").await;
        assert!(version(&put) > *forgotten, "{uri} {:?} {last:?}", put.etag);
    }
}

#[tokio::test]
async fn node_that_missed_a_floor_reads_everything_again() {
    let Some(brokers) = brokers::shared() else { return };
    let mut a = LogNode::ready(brokers, "missed").await;
    let mut b = LogNode::ready(brokers, "missed").await;
    a.put("demo://kept", "x").await;
    b.until("it hears of it", |node| node.newest.contains_key("demo://kept"))
        .await;
    let opened = b.histories.len();
    // More than the node takes while none of it is read.
    for n in 0..4_000 {
        let operation = a.put(&format!("demo://{}", n % 200), &n.to_string()).await;
        if n % 100 == 99 {
            a.end(operation).await;
        }
    }
    let mut previous = 0;
    for _ in 0..2 {
        let operation = a.operation();
        let floor = LogEntry::Floor {
            version: 1,
            through: 0,
            previous,
            uris: vec![ResourceUri::new("demo://none").unwrap()],
        };
        a.propose(operation, previous, floor).await;
        assert_eq!(a.end(operation).await, None);
        previous = a.records.last().unwrap().sequence;
    }
    let last = a.put_resource(Resource::text("demo://last", "x").unwrap()).await;
    a.end(last).await;
    b.until("it has read again", |node| {
        node.histories.len() > opened && node.is_caught_up && node.newest.contains_key("demo://last")
    })
    .await;
    assert_eq!(
        b.histories[opened],
        b.histories[opened - 1],
        "it is the same history"
    );
    assert_eq!(b.newest.len(), a.newest.len());
    assert_eq!(b.state("demo://kept"), Some(("x".to_owned(), 1)));
}
