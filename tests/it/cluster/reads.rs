//! Reads of the latest state, and what is known of the durability of the log.

use std::time::{Duration, Instant};

use super::brokers::{self, Brokers};
use super::node::{Node, config};

#[tokio::test]
async fn latest_read_finds_every_answered_change() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let applied = config(brokers, "latest");
    let latest = format!("{applied}read = 'latest'\n");
    let a = Node::start("a", folder.path(), &applied);
    let b = Node::start("b", folder.path(), &latest);
    for n in 0..100 {
        let put = a.put("demo://x", &n.to_string()).await;
        assert!(put.status < 300, "{}", put.text);
        let read = b.get("demo://x").await;
        assert_eq!((read.text, read.etag), (n.to_string(), put.etag));
    }
    // Many at once share their questions.
    let begin = Instant::now();
    let reads = (0..200).map(|_| b.get("demo://x"));
    for read in futures_util::future::join_all(reads).await {
        assert_eq!((read.status, read.text.as_str()), (200, "99"));
    }
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn latest_read_is_refused_without_the_log() {
    let Some(mut brokers) = Brokers::start(1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let applied = config(&brokers, "refused");
    let latest = format!("{applied}read = 'latest'\n");
    let a = Node::start("a", folder.path(), &applied);
    let b = Node::start("b", folder.path(), &latest);
    a.put("demo://x", "1").await;
    assert_eq!(b.get("demo://x").await.text, "1");
    brokers.kill(0);
    let begin = Instant::now();
    let refused = b.get("demo://x").await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert!(refused.text.contains("cluster.read"), "{}", refused.text);
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    assert_eq!(a.get("demo://x").await.text, "1");
    brokers.up(0);
    b.until("it reads again", async |node| {
        node.get("demo://x").await.status == 200
    })
    .await;
}

#[tokio::test]
async fn durability_is_told_by_the_monitoring() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let durable = format!(
        "{}require_durable = true\nmonitoring = {:?}\n",
        config(brokers, "durable"),
        brokers.monitoring_urls()
    );
    let a = Node::start("a", folder.path(), &durable);
    assert_eq!(a.cluster().await["durable"], true);
    assert_eq!(a.put("demo://x", "1").await.status, 201);
    let weak = format!(
        "[cluster]\nengine = 'nats'\nurls = {:?}\nnamespace = 'weak'\nreplicas = 1\nmonitoring = {:?}\n",
        brokers.urls(),
        brokers.monitoring_urls()
    );
    let b = Node::start("b", folder.path(), &weak);
    b.until("it is known", async |node| {
        node.cluster().await["durable"] == false
    })
    .await;
    let log = std::fs::read_to_string(folder.path().join("b.log")).unwrap();
    assert!(log.contains("has 1 replicas and needs 3"), "{log}");
    // Without their monitoring it is not known, so a node that must know it answers nothing.
    let other = format!(
        "{}require_durable = true\nmonitoring = ['http://127.0.0.1:1']\n",
        config(brokers, "durable")
    );
    let c = Node::spawn("c", folder.path(), &other);
    c.until("it says why", async |node| {
        let refused = node.ask("GET", "/v1/resources", "").await;
        refused.status == 503 && refused.text.contains("require_durable")
    })
    .await;
    assert_eq!(c.ask("GET", "/readyz", "").await.status, 503);
    assert_eq!(c.put("demo://x", "2").await.status, 503);
    assert_eq!(c.cluster().await.get("durable"), None);
}
