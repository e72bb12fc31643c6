//! Quotas that hold over the nodes of a cluster.

use super::brokers;
use super::node::{Node, config, path_of};

#[tokio::test]
async fn streams_at_one_node_count_at_the_other() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = format!("[quota]\nsessions_max = 2\n{}", config(brokers, "streams"));
    let a = Node::start("a", folder.path(), &config);
    let b = Node::start("b", folder.path(), &config);
    let open = async |node: &Node| reqwest::get(format!("{}/v1/events", node.address)).await.unwrap();
    let streams = [open(&a).await, open(&a).await];
    assert!(streams.iter().all(|stream| stream.status() == 200));
    assert_eq!(open(&a).await.status(), 429);
    b.until("it knows of them", async |node| open(node).await.status() == 429)
        .await;
    let refused = open(&b).await.text().await.unwrap();
    assert!(refused.contains("quota.sessions_max"), "{refused}");
    drop(streams);
    b.until("they are gone", async |node| open(node).await.status() == 200)
        .await;
}

#[tokio::test]
async fn bytes_of_one_node_count_at_the_other() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = format!("[quota]\nbytes_max = '1KiB'\n{}", config(brokers, "bytes"));
    let a = Node::start("a", folder.path(), &config);
    let b = Node::start("b", folder.path(), &config);
    let body = "x".repeat(700);
    assert_eq!(a.put("demo://a", &body).await.status, 201);
    b.until("it knows of them", async |node| {
        // A change that is made takes its bytes back at once.
        let put = node.put("demo://b", &body).await;
        if put.status < 300 {
            node.ask("DELETE", &path_of("demo://b"), "").await;
        }
        put.status == 507
    })
    .await;
    // Removed at the other node, which the first one sees by the resource itself.
    assert_eq!(b.ask("DELETE", &path_of("demo://a"), "").await.status, 204);
    b.until("they are given back", async |node| {
        node.put("demo://b", &body).await.status < 300
    })
    .await;
}
