//! Whole nodes: services on servers of NATS, as an operator runs them.

use std::process::Command;

use super::brokers;
use super::node::{Node, config, path_of};
use crate::support::replace_file;

#[tokio::test]
async fn nodes_have_the_same_resources_and_etags() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = config(brokers, "same");
    let a = Node::start("a", folder.path(), &config);
    let b = Node::start("b", folder.path(), &config);
    let created = a.put("demo://x", "one").await;
    assert_eq!(created.status, 201, "{}", created.text);
    assert_eq!(b.until_body("demo://x", "one").await.etag, created.etag);
    let changed = b.put("demo://x", "two").await;
    assert_eq!(changed.status, 204, "{}", changed.text);
    assert_eq!(a.until_body("demo://x", "two").await.etag, changed.etag);
    assert_eq!(
        a.put("demo://x", "two").await.etag,
        changed.etag,
        "the same content is no change"
    );
    assert_eq!(a.ask("DELETE", &path_of("demo://x"), "").await.status, 204);
    b.until("it is gone", async |node| {
        node.get("demo://x").await.status == 404
    })
    .await;
    for node in [&a, &b] {
        node.until("both are there", async |node| {
            node.cluster().await["nodes"].as_array().map(Vec::len) == Some(2)
        })
        .await;
        let report = node.cluster().await;
        assert_eq!(
            (&report["health"], &report["caughtUp"]),
            (&"connected".into(), &true.into()),
            "{report}"
        );
        assert_eq!(report["node"], node.name.as_str());
        assert_eq!(node.ask("GET", "/readyz", "").await.status, 200);
    }
    // The end of a node is told at once.
    b.stop();
    a.until("it is alone", async |node| {
        node.cluster().await["nodes"].as_array().map(Vec::len) == Some(1)
    })
    .await;
}

#[tokio::test]
async fn node_without_its_log_answers_health_checks_alone() {
    if brokers::program().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let config = "[cluster]\nengine = 'nats'\nurls = ['nats://127.0.0.1:1']\n";
    let node = Node::spawn("alone", folder.path(), config);
    node.until("it lives", async |node| {
        node.ask("GET", "/healthz", "").await.status == 200
    })
    .await;
    let ready = node.ask("GET", "/readyz", "").await;
    assert_eq!(ready.status, 503, "{}", ready.text);
    for path in ["/v1/resources", "/mcp", "/v1/events"] {
        let refused = node.ask("GET", path, "").await;
        assert_eq!(refused.status, 503, "{path}: {}", refused.text);
        assert!(
            refused.text.contains("no server of the cluster"),
            "{}",
            refused.text
        );
    }
    let report = node.cluster().await;
    assert_eq!(
        (&report["health"], &report["caughtUp"]),
        (&"disconnected".into(), &false.into()),
        "{report}"
    );
    node.stop();
}

#[tokio::test]
async fn one_node_publishes_a_shared_folder() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes");
    std::fs::create_dir_all(notes.join("resources")).unwrap();
    let file = |name: &str| notes.join("resources").join(name);
    replace_file(&file("a.md"), "one");
    let config = format!(
        "[workspace]\ndir = {notes:?}\ndebounce = '20ms'\n{}",
        config(brokers, "folder")
    );
    let a = Node::start("a", folder.path(), &config);
    let first = a.until_body("workspace:///a.md", "one").await;
    let b = Node::start("b", folder.path(), &config);
    assert_eq!(b.until_body("workspace:///a.md", "one").await.etag, first.etag);
    for n in 2..=5 {
        replace_file(&file("a.md"), &n.to_string());
        let text = n.to_string();
        let seen = a.until_body("workspace:///a.md", &text).await.etag;
        assert_eq!(b.until_body("workspace:///a.md", &text).await.etag, seen);
        assert!(
            seen.unwrap().starts_with(&format!("\"v{n}-")),
            "one version for each change"
        );
    }
    // The node with the lease dies, and the other goes on.
    let report = b.cluster().await;
    let leases = report["leases"].as_array().unwrap();
    assert_eq!(leases[0]["name"], "source.workspace", "{report}");
    let (dying, next) = match leases[0]["holder"] == "a" {
        true => (a, b),
        false => (b, a),
    };
    drop(dying);
    replace_file(&file("a.md"), "after");
    let after = next.until_body("workspace:///a.md", "after").await.etag.unwrap();
    assert!(after.starts_with("\"v6-"), "{after}");
}

#[tokio::test]
async fn store_is_imported_with_its_etags() {
    let Some(brokers) = brokers::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let single = format!("[store]\ndir = {kept:?}\n[bus]\nremoved_max = 10\n");
    let alone = Node::start_alone("single", folder.path(), &single);
    let mut etags = Vec::new();
    for n in 0..300 {
        let uri = format!("demo://{n}");
        alone.put(&uri, "before").await;
        let kept = alone.put(&uri, &"x".repeat(n * 500)).await;
        assert_eq!(kept.status, 204, "{}", kept.text);
        etags.push((uri, kept.etag));
    }
    alone.put("demo://gone", "x").await;
    assert_eq!(alone.ask("DELETE", &path_of("demo://gone"), "").await.status, 204);
    alone.stop();
    let config = config(brokers, "imported");
    let file = folder.path().join("cluster.toml");
    std::fs::write(&file, &config).unwrap();
    let import = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
        let imported = command
            .args(["cluster", "import"])
            .arg(&kept)
            .arg("--config")
            .arg(&file)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&imported.stdout).into_owned();
        (
            imported.status.success(),
            text + &String::from_utf8_lossy(&imported.stderr),
        )
    };
    let (done, text) = import();
    assert!(done, "{text}");
    assert!(text.contains("resources                          300"), "{text}");
    let (done, text) = import();
    assert!(
        done && text.contains("known from an import before        301"),
        "{text}"
    );
    let node = Node::start("a", folder.path(), &config);
    for (uri, etag) in etags {
        assert_eq!(node.get(&uri).await.etag, etag, "{uri}");
    }
    let again = node.put("demo://gone", "y").await;
    assert!(
        again.etag.as_ref().unwrap().starts_with("\"v3-"),
        "{:?}",
        again.etag
    );
    let (done, text) = import();
    assert!(
        !done && text.contains("the cluster is not empty: demo://gone"),
        "{text}"
    );
}
