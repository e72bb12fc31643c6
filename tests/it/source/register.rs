//! The executable `register`, run again and again.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tidings::{Bus, Limits, ToolOutput};

use super::folder::{ServedFolder, is_running};
use crate::support::until;

impl ServedFolder {
    /// Serves a folder whose `register` prints the file `doc.json`, again and again.
    async fn printing(document: &Value) -> ServedFolder {
        let mut folder = ServedFolder::new();
        folder.register_config.refresh = Duration::from_millis(20);
        folder.put("doc.json", &document.to_string());
        folder.put_script("register", "cat doc.json");
        folder.start().await;
        folder
    }

    /// Waits for two more runs, the second of which has begun after this call.
    async fn runs(&self) {
        let runs = self.source().stats().registers;
        self.wait_stats("two runs", |stats| stats.registers >= runs + 2)
            .await;
    }

    /// Returns the number of changes, and of list changes.
    async fn changes(&self) -> (u64, u64) {
        let stats = self.bus.stats().await.unwrap();
        (stats.changes, stats.list_changes)
    }
}

fn text_of(uri: &str, text: &str) -> Value {
    json!({ "uri": uri, "text": text, "mediaType": "text/plain" })
}

fn tool(name: &str) -> Value {
    json!({ "name": name, "command": ["echo", name] })
}

#[tokio::test]
async fn registrations_follow_the_printed_document() {
    let prompt = json!({ "name": "p", "template": "hi" });
    let document = json!({ "resources": [text_of("demo://a", "1"), text_of("demo://b", "1")],
        "tools": [tool("t"), tool("u")], "prompts": [prompt] });
    let folder = ServedFolder::printing(&document).await;
    let stats = folder.stats();
    assert_eq!(
        (stats.registered, stats.tools, stats.prompts, stats.problems.len()),
        (2, 2, 1, 0)
    );
    let answer = folder.call("t", json!({})).await;
    assert_eq!(answer.unwrap(), ToolOutput::text("t"));
    let before = folder.changes().await;
    let document = json!({ "resources": [text_of("demo://a", "2")], "tools": [tool("v"), tool("w")] });
    folder.put("doc.json", &document.to_string());
    folder.wait_tools(&["v", "w"]).await;
    until("the removal", async || folder.bus.read("demo://b").await.is_err()).await;
    until("the edit", async || {
        folder.bus.etag("demo://a").await.unwrap().version == 2
    })
    .await;
    assert_eq!(folder.prompts().await, Vec::<String>::new());
    folder.runs().await;
    let (_, list_changes) = folder.changes().await;
    assert_eq!(
        list_changes,
        before.1 + 3,
        "one per list: tools, prompts, resources"
    );
}

#[tokio::test]
async fn document_in_another_order_is_no_change() {
    let mut folder = ServedFolder::new();
    folder.register_config.refresh = Duration::from_millis(20);
    for (file, order) in [("even", [0, 1]), ("odd", [1, 0])] {
        let resources = order.map(|n| text_of(&format!("demo://{n}"), "x"));
        let tools = order.map(|n| tool(&format!("t{n}")));
        folder.put(
            file,
            &json!({ "resources": resources, "tools": tools }).to_string(),
        );
    }
    folder.put_script(
        "register",
        "if [ -e flag ]; then rm flag; cat odd; else touch flag; cat even; fi",
    );
    folder.start().await;
    let before = folder.changes().await;
    folder.runs().await;
    folder.runs().await;
    assert_eq!(folder.changes().await, before);
    assert_eq!(folder.stats().problems_reported, 0);
}

#[tokio::test]
async fn failure_keeps_the_last_registrations() {
    let good = json!({ "resources": [text_of("demo://a", "1")], "tools": [tool("t")] });
    let folder = ServedFolder::printing(&good).await;
    let before = folder.changes().await;
    folder.put_script("register", "echo no luck >&2; exit 4");
    assert_eq!(folder.wait_problem("register").await, "exit code 4: no luck");
    folder.runs().await;
    for (printed, reason) in [
        ("{\"resources\":", "invalid JSON"),
        ("{\"resource\":[]}", "did you mean \"resources\"?"),
    ] {
        folder.put_script("register", &format!("echo '{printed}'"));
        folder
            .wait_stats(reason, |stats| stats.problems["register"].contains(reason))
            .await;
    }
    folder.put_as("register", "#!/bin/sh\n", 0o644);
    folder
        .wait_stats("no x bit", |stats| {
            stats.problems["register"].contains("chmod +x")
        })
        .await;
    assert_eq!(folder.stats().problems_reported, 1);
    assert_eq!(
        (folder.changes().await, folder.tools().await),
        (before, vec!["t".to_owned()])
    );
    folder.put_script("register", "cat doc.json");
    folder
        .wait_stats("recovery", |stats| stats.problems.is_empty())
        .await;
    assert_eq!(folder.changes().await, before);
    folder.put_script("register", "exit 1");
    folder.wait_problem("register").await;
    assert_eq!(folder.stats().problems_reported, 2);
}

#[tokio::test]
async fn time_limit_kills_every_run() {
    let mut folder = ServedFolder::new();
    folder.register_config.timeout = Duration::from_millis(500);
    folder.register_config.refresh = Duration::from_millis(20);
    folder.put_script("register", "sleep 1000 & echo $! >>pids; wait");
    folder.start().await;
    assert_eq!(
        folder.wait_problem("register").await,
        "it took longer than 500ms (register.timeout)"
    );
    let pids = || fs::read_to_string(folder.at("pids")).unwrap();
    until("two more runs", async || pids().lines().count() >= 3).await;
    let pids = pids();
    folder.stop().await;
    until("the end of all", async || !pids.lines().any(is_running)).await;
}

#[tokio::test]
async fn folder_takes_precedence_over_register() {
    let prompt = json!({ "name": "p", "template": "printed" });
    let resources = [
        text_of("workspace:///a.md", "printed"),
        text_of("demo://b", "printed"),
    ];
    let document = json!({ "resources": resources, "tools": [tool("t")], "prompts": [prompt] });
    let folder = ServedFolder::printing(&document).await;
    assert_eq!(folder.text("a.md").await.as_deref(), Some("printed"));
    folder.write("a.md", "file");
    folder.put("prompts/p.md", "file");
    folder.put_script("tools/t", "echo file");
    folder.put("tools/t.json", "{}");
    for subject in ["resource workspace:///a.md", "tool t", "prompt p"] {
        folder.wait_problem(subject).await;
    }
    folder.runs().await;
    assert_eq!(folder.text("a.md").await.as_deref(), Some("file"));
    let answer = folder.call("t", json!({})).await;
    assert_eq!(answer.unwrap(), ToolOutput::text("file"));
    // An executable may be seen before its sidecar, which is a problem of its own while it lasts.
    let reported = folder.stats().problems_reported;
    assert!((3..=4).contains(&reported), "{reported}");
    fs::remove_file(folder.path("a.md")).unwrap();
    fs::remove_dir_all(folder.at("tools")).unwrap();
    folder.wait_text("a.md", "printed").await;
    folder
        .wait_stats("the end of the clashes", |stats| stats.problems.len() == 1)
        .await;
    assert_eq!(folder.tools().await, ["t"]);
}

#[tokio::test]
async fn register_runs_at_once_when_it_changes() {
    let mut folder = ServedFolder::new();
    folder.register_config.refresh = Duration::from_secs(3600);
    folder.put("resources/x", "");
    folder.start().await;
    folder.put_script(
        "register",
        "echo '{\"resources\":[{\"uri\":\"demo://a\",\"text\":\"1\"}]}'",
    );
    until("the run", async || folder.bus.read("demo://a").await.is_ok()).await;
    assert!(folder.bus.read("demo://a").await.unwrap().descriptor.subscribable);
    folder.stop().await;

    let gone = json!({ "resources": [text_of("demo://a", "1")], "tools": [tool("t")] });
    let folder = ServedFolder::printing(&gone).await;
    fs::remove_file(folder.at("register")).unwrap();
    folder.wait_tools(&[]).await;
    until("the removal", async || folder.bus.read("demo://a").await.is_err()).await;
    assert_eq!(folder.stats().problems_reported, 0);
}

#[tokio::test]
async fn item_refused_by_the_bus_is_reported() {
    let mut limits = Limits::default();
    limits.body_bytes_max = 8;
    let mut folder = ServedFolder::new();
    folder.bus = Bus::builder().limits(limits).start().unwrap();
    let document = json!({ "resources": [text_of("demo://a", "123456789"), text_of("demo://b", "1")] });
    folder.put("doc.json", &document.to_string());
    folder.put_script("register", "cat doc.json");
    folder.start().await;
    assert!(folder.wait_problem("resource demo://a").await.contains('8'));
    assert_eq!(folder.stats().registered, 1);
}
