//! Proposals and records on servers that work.

use tidings::Resource;
use tidings::shared_log::{LogEntry, Verdict};

use super::brokers::{self, Brokers};
use super::log_node::{LogNode, entry};

const A: &str = "demo://a";

#[tokio::test]
async fn proposal_is_heard_by_all_nodes() {
    let Some(brokers) = brokers::shared() else { return };
    let mut one = LogNode::ready(brokers, "heard").await;
    let mut other = LogNode::ready(brokers, "heard").await;
    for (text, version) in [("first", 1), ("second", 2)] {
        let operation = one.put(A, text).await;
        assert_eq!(one.end(operation).await, None);
        assert_eq!(one.state(A), Some((text.to_owned(), version)));
        other
            .until("it has heard the change", |node| node.has_ended(operation))
            .await;
        assert_eq!(other.state(A), one.state(A));
        assert_eq!(other.newest[A].sequence, one.newest[A].sequence);
    }
    // A node that comes later hears the newest record alone.
    let late = LogNode::ready(brokers, "heard").await;
    assert_eq!(late.state(A), one.state(A));
    assert_eq!(late.records.len(), 1);
    assert_eq!(late.histories, one.histories);
    late.stop();
}

#[tokio::test]
async fn stale_condition_loses_after_the_winner() {
    let Some(brokers) = brokers::shared() else { return };
    let mut one = LogNode::ready(brokers, "stale").await;
    let mut other = LogNode::ready(brokers, "stale").await;
    let won = one.put(A, "first").await;
    assert_eq!(one.end(won).await, None);
    // The other node may not have heard it yet.
    let operation = other.operation();
    let resource = Resource::text(A, "late").unwrap();
    other.propose(operation, 0, entry(resource, 1, Vec::new())).await;
    assert_eq!(other.end(operation).await, Some(Verdict::Lost));
    assert_eq!(
        other.state(A),
        Some(("first".to_owned(), 1)),
        "the winner is told first"
    );
}

#[tokio::test]
async fn same_operation_is_stored_once() {
    let Some(brokers) = brokers::shared() else { return };
    let mut node = LogNode::ready(brokers, "twice").await;
    let operation = node.put(A, "text").await;
    assert_eq!(node.end(operation).await, None);
    // A node that lost the answer sends it again; its condition is stale by then.
    let resource = Resource::text(A, "text").unwrap();
    node.propose(operation, 0, entry(resource, 1, Vec::new())).await;
    node.until("the repetition has its end", |node| {
        node.ended.contains_key(&operation)
    })
    .await;
    assert_eq!(
        node.ended[&operation],
        Verdict::Unknown,
        "it is stored, and was told before"
    );
    let next = node.put("demo://b", "text").await;
    assert_eq!(node.end(next).await, None);
    assert_eq!(node.records.len(), 2);
}

#[tokio::test]
async fn fifty_racing_creations_have_one_winner() {
    let Some(brokers) = brokers::shared() else { return };
    let mut nodes = Vec::new();
    for _ in 0..2 {
        nodes.push(LogNode::ready(brokers, "race").await);
    }
    let mut operations = Vec::new();
    for number in 0..50 {
        let node = &mut nodes[number % 2];
        let operation = node.operation();
        let resource = Resource::text(A, format!("{number}")).unwrap();
        node.propose(operation, 0, entry(resource, 1, Vec::new())).await;
        operations.push((number % 2, operation));
    }
    let mut winners = 0;
    for (number, operation) in operations {
        match nodes[number].end(operation).await {
            None => winners += 1,
            Some(verdict) => assert_eq!(verdict, Verdict::Lost),
        }
    }
    assert_eq!(winners, 1);
    let next = nodes[1].put(A, "after").await;
    for node in &mut nodes {
        node.until("the next change is heard", |node| node.has_ended(next))
            .await;
        assert_eq!(node.state(A), Some(("after".to_owned(), 2)));
    }
}

#[tokio::test]
async fn entries_without_a_uri_are_told() {
    let Some(brokers) = brokers::shared() else { return };
    let mut node = LogNode::ready(brokers, "entries").await;
    let floor = LogEntry::Floor {
        version: 9,
        through: 0,
        previous: 0,
        uris: vec![A.parse().unwrap()],
    };
    for entry in [LogEntry::ResourceList, floor] {
        let operation = node.operation();
        node.propose(operation, 0, entry.clone()).await;
        assert_eq!(node.end(operation).await, None);
        assert_eq!(node.records.last().unwrap().entry, entry);
    }
}

#[tokio::test]
async fn change_beyond_a_message_is_refused() {
    let Some(brokers) = brokers::shared() else { return };
    let mut node = LogNode::ready(brokers, "beyond").await;
    let resource = Resource::text(A, "").unwrap().description("x".repeat(2 << 20));
    let operation = node.put_resource(resource).await;
    match node.end(operation).await {
        Some(Verdict::Refused { full: false, reason }) => assert!(reason.contains("max_payload"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn full_log_refuses_and_goes_on() {
    let Some(brokers) = Brokers::start(1) else { return };
    let mut node = LogNode::with(&brokers, "full", |settings| settings.max_bytes = 100 << 10);
    let mut stored = 0;
    loop {
        let operation = node.put(&format!("demo://{stored}"), &"x".repeat(10 << 10)).await;
        match node.end(operation).await {
            None => stored += 1,
            Some(Verdict::Refused { full: true, reason }) => {
                assert!(reason.contains("max_bytes"), "{reason}");
                break;
            }
            Some(other) => panic!("{other:?}"),
        }
    }
    assert!((5..10).contains(&stored), "{stored}");
    // Nothing was dropped.
    let late = LogNode::ready(&brokers, "full").await;
    assert_eq!(late.records.len(), stored);
}
