//! Positions in the order of all changes, which mean the same at every node.

use serde_json::Value;

use super::brokers::{self, Party};
use super::node::{Node, config};
use super::rig::Rig;
use crate::durability::Connection;

/// Returns the data of the events of a stream that resumes after `id`, up to one with this value, and the id
/// of the last of them.
async fn events(node: &Node, id: &str, (key, value): (&str, &str)) -> (Vec<Value>, String) {
    let request = reqwest::Client::new().get(format!("http://{}/v1/events", node.target().address));
    let mut answer = request.header("last-event-id", id).send().await.unwrap();
    let mut reader = tidings::wire::sse::EventReader::default();
    let mut found = Vec::new();
    let mut last = String::new();
    while let Some(part) = answer.chunk().await.unwrap() {
        let read = reader.read(&part, |event| {
            last = event.id.unwrap_or_default().to_owned();
            found.push(serde_json::from_slice(event.data).unwrap_or_default());
        });
        read.unwrap();
        if found.iter().any(|data: &Value| data[key] == value) {
            break;
        }
    }
    (found, last)
}

#[tokio::test]
async fn position_of_a_restarted_node_holds_at_another() {
    let Some(brokers) = brokers::shared() else { return };
    // The clients of these tests speak no TLS, but make their provider all the same.
    rustls::crypto::ring::default_provider().install_default().ok();
    let folder = tempfile::tempdir().unwrap();
    let config = config(brokers, "positions");
    let a = Node::start("a", folder.path(), &config);
    let mut b = Node::start("b", folder.path(), &config);
    let mut connection = Connection::new(&a.target());
    let mut etag = String::new();
    for number in 0..5 {
        etag = connection.put_etag("demo://x", &number.to_string()).await;
    }
    let etag = etag.trim_matches('"').to_owned();
    b.until_body("demo://x", "4").await;
    // A node that starts tells lists of its own, at places behind the last record.
    b.kill();
    b.run();
    b.until_ready().await;
    let (before, id) = events(&b, "1-1", ("list", "resources")).await;
    assert!(
        before.iter().any(|data| data["etag"] == etag.as_str()),
        "{before:?}"
    );
    for node in [&a, &b] {
        let next = connection.put("demo://x", node.name.as_str()).await.unwrap();
        let next = next.head.etag().unwrap().trim_matches('"').to_owned();
        let (found, _) = events(node, &id, ("etag", &next)).await;
        assert_eq!(found[0]["complete"], true, "{found:?}");
        let told: Vec<&Value> = found.iter().filter(|data| data["kind"] == "updated").collect();
        assert!(told.iter().all(|data| data["etag"] != etag.as_str()), "{found:?}");
    }
    // The number of events between two histories is not known, and no number is told.
    let (found, _) = events(&b, "1-1", ("etag", &etag)).await;
    let numbers = found.iter().filter_map(|data| data["missed"].as_u64());
    assert!(numbers.into_iter().all(|missed| missed < 1_000), "{found:?}");
}

#[tokio::test]
async fn event_counts_those_that_it_replaced_in_the_log() {
    let Some(rig) = Rig::start("replaced").await else {
        return;
    };
    rustls::crypto::ring::default_provider().install_default().ok();
    let [fed, cut_off] = [&rig.nodes[0], &rig.nodes[1]];
    let first = fed.put("demo://x", "1").await.unquoted_etag();
    cut_off.until_body("demo://x", "1").await;
    let (_, id) = events(cut_off, "1-1", ("etag", &first)).await;
    rig.brokers.cut(Party::Node(1));
    // Until it knows that it is cut off, records are on their way to it, and reach it one by one later.
    cut_off
        .until("it is cut off", async |node| {
            node.ask("GET", "/readyz", "").await.status == 503
        })
        .await;
    let mut newest = String::new();
    for version in 2..=6 {
        fed.put("demo://other", &version.to_string()).await;
        newest = fed.put("demo://x", &version.to_string()).await.unquoted_etag();
    }
    let asked = events(cut_off, &id, ("etag", &newest));
    let mends = async { rig.brokers.mend(Party::Node(1)) };
    let ((found, _), ()) = tokio::join!(asked, mends);
    let of_x: Vec<&Value> = found.iter().filter(|data| data["uri"] == "demo://x").collect();
    let told: u64 = of_x
        .iter()
        .map(|data| 1 + data["replaced"].as_u64().unwrap_or(0))
        .sum();
    assert_eq!(told, 5, "{found:?}");
    assert!(of_x.len() < 5, "nothing was replaced: {found:?}");
    // No gap: its client would read everything again.
    let gaps = found.iter().filter(|data| data["missed"].as_u64() > Some(0));
    assert_eq!(gaps.count(), 0, "{found:?}");
}

#[tokio::test]
async fn node_that_is_cut_off_tells_nothing_again() {
    let Some(rig) = Rig::start("ahead").await else {
        return;
    };
    rustls::crypto::ring::default_provider().install_default().ok();
    let [fed, cut_off] = [&rig.nodes[0], &rig.nodes[1]];
    for number in 0..20 {
        fed.put(&format!("demo://{number}"), "1").await;
    }
    cut_off.until_body("demo://19", "1").await;
    rig.brokers.cut(Party::Node(1));
    let last = fed.put("demo://0", "2").await.unquoted_etag();
    let (_, id) = events(fed, "1-1", ("etag", &last)).await;
    let asked = events(cut_off, &id, ("uri", "demo://1"));
    let mends = async {
        cut_off
            .until("it has a stream", async |node| {
                let metrics = node.ask("GET", "/metrics", "").await.text;
                metrics.lines().any(|line| line == "tidings_events_streams 1")
            })
            .await;
        rig.brokers.mend(Party::Node(1));
        fed.put("demo://1", "2").await.unquoted_etag()
    };
    let ((found, _), newest) = tokio::join!(asked, mends);
    assert_eq!(found[0]["complete"], true, "{found:?}");
    let told: Vec<&Value> = found.iter().filter(|data| data["kind"] == "updated").collect();
    assert_eq!(told.len(), 1, "{found:?}");
    assert_eq!(told[0]["etag"], newest.as_str());
}
