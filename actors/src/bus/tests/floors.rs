//! Forgetting removed URIs.

use std::time::Instant;

use super::memory_log::MemoryLog;
use super::{Node, TIMEOUT, next, until};
use crate::model::{Owner, ResourceUri};
use crate::shared_log::FloorStep;

impl Node {
    async fn remove(&self, uri: &str) {
        self.bus.owned_by(Owner::Api).remove(uri).await.unwrap();
    }

    /// Takes steps until records are to be purged.
    async fn floor(&self, kept_max: usize) -> (u64, Vec<(ResourceUri, u64)>) {
        let started = Instant::now();
        while started.elapsed() < TIMEOUT {
            match self.bus.forget_removed(kept_max, None).await.unwrap() {
                FloorStep::Proposed => {
                    tokio::task::yield_now().await;
                }
                FloorStep::Purge { floor, records } => return (floor, records),
                FloorStep::Nothing => panic!("there is nothing to forget"),
            }
        }
        panic!("the floor was not taken within {TIMEOUT:?}");
    }

    fn applied(&self) -> u64 {
        self.bus.log_state().unwrap().applied
    }
}

#[tokio::test]
async fn oldest_removed_uris_are_forgotten_everywhere() {
    let log = MemoryLog::new();
    let [a, b] = [Node::start(&log), Node::start(&log)];
    for n in 0..6 {
        let uri = format!("demo://{n}");
        for text in ["1", "2"] {
            a.put(&uri, text).await.unwrap();
        }
        a.remove(&uri).await;
    }
    assert_eq!(a.bus.forget_removed(6, None).await.unwrap(), FloorStep::Nothing);
    let (floor, records) = a.floor(2).await;
    let mut named: Vec<_> = records.iter().map(|(uri, _)| uri.as_str()).collect();
    named.sort_unstable();
    assert_eq!(named, ["demo://0", "demo://1", "demo://2", "demo://3"]);
    until(|| b.applied() >= floor).await;
    // Before their records are purged, and after: the version is above the floor on every node.
    assert_eq!(b.put("demo://0", "3").await.unwrap().version, 4);
    for (uri, sequence) in &records {
        assert_eq!(log.purge(uri, *sequence), uri.as_str() != "demo://0");
    }
    assert_eq!(b.put("demo://1", "3").await.unwrap().version, 4);
    assert_eq!(a.put("demo://2", "3").await.unwrap().version, 4);
    assert_eq!(
        a.bus.forget_removed(2, Some(floor)).await.unwrap(),
        FloorStep::Nothing
    );
    // A node that starts now has the floor and no removed URI above it.
    let c = Node::start(&log);
    until(|| c.applied() == a.applied()).await;
    assert_eq!(c.put("demo://3", "3").await.unwrap().version, 4);
    assert_eq!(c.put("demo://5", "3").await.unwrap().version, 4);
    for uri in ["demo://0", "demo://1", "demo://2", "demo://3", "demo://5"] {
        for node in [&a, &b] {
            until(|| node.etag(uri).is_some() && node.etag(uri) == c.etag(uri)).await;
        }
    }
}

#[tokio::test]
async fn other_node_finishes_a_floor() {
    let log = MemoryLog::new();
    let [a, b] = [Node::start(&log), Node::start(&log)];
    for n in 0..4 {
        let uri = format!("demo://{n}");
        a.put(&uri, "1").await.unwrap();
        a.remove(&uri).await;
    }
    let (floor, records) = a.floor(2).await;
    until(|| b.applied() >= floor).await;
    // The first node is gone before it has purged anything.
    let (again, same) = b.floor(0).await;
    assert_eq!((again, same.len()), (floor, records.len()));
    for (uri, sequence) in &same {
        log.purge(uri, *sequence);
    }
    assert_eq!(
        b.bus.forget_removed(0, Some(floor)).await.unwrap(),
        FloorStep::Proposed
    );
    let (next, rest) = b.floor(0).await;
    assert!(next > floor, "{next} after {floor}");
    assert_eq!(rest.len(), 2);
}

#[tokio::test]
async fn node_that_missed_a_removal_hears_the_floor() {
    let log = MemoryLog::new();
    let [a, b] = [Node::start(&log), Node::start(&log)];
    let kept = a.put("demo://x", "1").await.unwrap();
    let other = a.put("demo://y", "1").await.unwrap();
    b.until_etag("demo://x", kept).await;
    b.until_etag("demo://y", other).await;
    let (_session, mut reader) = b.subscribe(&["demo://x", "demo://y"]).await;
    b.line.is_deaf.send_replace(true);
    a.remove("demo://x").await;
    let (floor, records) = a.floor(0).await;
    for (uri, sequence) in &records {
        assert!(log.purge(uri, *sequence));
    }
    b.line.is_deaf.send_replace(false);
    until(|| b.applied() >= floor).await;
    until(|| b.etag("demo://x").is_none()).await;
    assert_eq!(next(&mut reader).await, [("demo://x".to_owned(), 2)]);
    // It has missed a floor altogether, too, and so reads everything again.
    b.line.is_deaf.send_replace(true);
    a.remove("demo://y").await;
    assert_eq!(
        a.bus.forget_removed(0, Some(floor)).await.unwrap(),
        FloorStep::Proposed
    );
    let (second, records) = a.floor(0).await;
    for (uri, sequence) in &records {
        assert!(log.purge(uri, *sequence));
    }
    a.put("demo://z", "1").await.unwrap();
    a.remove("demo://z").await;
    assert_eq!(
        a.bus.forget_removed(0, Some(second)).await.unwrap(),
        FloorStep::Proposed
    );
    let (third, _) = a.floor(0).await;
    b.line.is_deaf.send_replace(false);
    until(|| b.applied() >= third).await;
    assert_eq!(b.etag("demo://y"), Some(other), "no floor that it heard names it");
    log.reread();
    until(|| b.etag("demo://y").is_none()).await;
    assert_eq!(next(&mut reader).await, [("demo://y".to_owned(), 4)]);
    assert_eq!(b.put("demo://y", "2").await.unwrap().version, 5);
    a.until_etag("demo://y", b.etag("demo://y").unwrap()).await;
}
