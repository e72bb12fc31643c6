//! The executable `register`, run again and again.

use super::*;
use serde_json::{Value, json};

impl Fixture {
    /// A folder whose `register` prints the file `doc.json`, again and again.
    async fn printing(document: &Value) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.register.refresh = Duration::from_millis(20);
        fixture.put("doc.json", &document.to_string());
        fixture.put_script("register", "cat doc.json");
        fixture.start().await;
        fixture
    }

    /// Two whole runs have begun and ended when this returns.
    async fn runs(&self) {
        let runs = self.source().stats().registers;
        self.wait_stats("two runs", |stats| stats.registers >= runs + 2)
            .await;
    }

    async fn told(&self) -> (u64, u64) {
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
async fn what_it_prints_is_there_before_start_returns_and_follows() {
    let prompt = json!({ "name": "p", "template": "hi" });
    let document = json!({ "resources": [text_of("demo://a", "1"), text_of("demo://b", "1")],
        "tools": [tool("t"), tool("u")], "prompts": [prompt] });
    let fixture = Fixture::printing(&document).await;
    let stats = fixture.source().stats();
    assert_eq!(
        (stats.registered, stats.tools, stats.prompts, stats.problems.len()),
        (2, 2, 1, 0)
    );
    let answer = fixture
        .bus
        .tool("t")
        .await
        .unwrap()
        .unwrap()
        .call(serde_json::Map::new(), crate::CallContext::default())
        .await;
    assert_eq!(answer.unwrap(), tidings_actors::ToolOutput::text("t"));
    let before = fixture.told().await;
    let document = json!({ "resources": [text_of("demo://a", "2")], "tools": [tool("v"), tool("w")] });
    fixture.put("doc.json", &document.to_string());
    fixture.wait_tools(&["v", "w"]).await;
    fixture
        .wait("the removal", async || {
            fixture.bus.read("demo://b").await.is_err()
        })
        .await;
    fixture
        .wait("the edit", async || {
            fixture.bus.etag("demo://a").await.unwrap().version == 2
        })
        .await;
    assert_eq!(fixture.prompts().await, Vec::<String>::new());
    fixture.runs().await;
    let (_, list_changes) = fixture.told().await;
    assert_eq!(
        list_changes,
        before.1 + 3,
        "one per list: tools, prompts, resources"
    );
}

#[tokio::test]
async fn another_order_is_silent_and_so_is_the_same_again() {
    let mut fixture = Fixture::new();
    fixture.register.refresh = Duration::from_millis(20);
    for (file, order) in [("even", [0, 1]), ("odd", [1, 0])] {
        let resources = order.map(|n| text_of(&format!("demo://{n}"), "x"));
        let tools = order.map(|n| tool(&format!("t{n}")));
        fixture.put(
            file,
            &json!({ "resources": resources, "tools": tools }).to_string(),
        );
    }
    fixture.put_script(
        "register",
        "if [ -e flag ]; then rm flag; cat odd; else touch flag; cat even; fi",
    );
    fixture.start().await;
    let before = fixture.told().await;
    fixture.runs().await;
    fixture.runs().await;
    assert_eq!(fixture.told().await, before);
    assert_eq!(fixture.source().stats().problems_reported, 0);
}

#[tokio::test]
async fn a_failure_keeps_the_last_good_set_and_is_reported_once_per_episode() {
    let good = json!({ "resources": [text_of("demo://a", "1")], "tools": [tool("t")] });
    let fixture = Fixture::printing(&good).await;
    let before = fixture.told().await;
    fixture.put_script("register", "echo no luck >&2; exit 4");
    assert_eq!(fixture.wait_problem("register").await, "exit code 4: no luck");
    fixture.runs().await;
    for (printed, reason) in [
        ("{\"resources\":", "invalid JSON"),
        ("{\"resource\":[]}", "did you mean \"resources\"?"),
    ] {
        fixture.put_script("register", &format!("echo '{printed}'"));
        let told = |stats: &WorkspaceStats| stats.problems["register"].contains(reason);
        fixture.wait_stats(reason, told).await;
    }
    fixture.put_as("register", "#!/bin/sh\n", 0o644);
    let told = |stats: &WorkspaceStats| stats.problems["register"].contains("chmod +x");
    fixture.wait_stats("no x bit", told).await;
    assert_eq!(fixture.source().stats().problems_reported, 1);
    assert_eq!(
        (fixture.told().await, fixture.tools().await),
        (before, vec!["t".to_owned()])
    );
    fixture.put_script("register", "cat doc.json");
    fixture
        .wait_stats("recovery", |stats| stats.problems.is_empty())
        .await;
    assert_eq!(fixture.told().await, before);
    fixture.put_script("register", "exit 1");
    fixture.wait_problem("register").await;
    assert_eq!(fixture.source().stats().problems_reported, 2);
}

#[tokio::test]
async fn its_time_limit_kills_it_and_it_ends_with_the_source() {
    let mut fixture = Fixture::new();
    fixture.register.timeout = Duration::from_millis(500);
    fixture.register.refresh = Duration::from_millis(20);
    fixture.put_script("register", "sleep 1000 & echo $! >>pids; wait");
    fixture.start().await;
    assert_eq!(
        fixture.wait_problem("register").await,
        "it took longer than 500ms (register.timeout)"
    );
    let pids = || fs::read_to_string(fixture.dir.path().join("pids")).unwrap();
    fixture
        .wait("two more runs", async || pids().lines().count() >= 3)
        .await;
    let pids = pids();
    fixture.source.take().unwrap().stop().await;
    let lives = |pid: &str| {
        let asked = std::process::Command::new("ps")
            .args(["-o", "stat=", "-p", pid])
            .output()
            .unwrap();
        let state = String::from_utf8(asked.stdout).unwrap();
        !state.trim().is_empty() && !state.trim().starts_with('Z')
    };
    fixture
        .wait("the end of all", async || !pids.lines().any(lives))
        .await;
}

#[tokio::test]
async fn the_folder_wins_a_clash_which_is_reported_once() {
    let prompt = json!({ "name": "p", "template": "printed" });
    let resources = [
        text_of("workspace:///a.md", "printed"),
        text_of("demo://b", "printed"),
    ];
    let document = json!({ "resources": resources, "tools": [tool("t")], "prompts": [prompt] });
    let fixture = Fixture::printing(&document).await;
    assert_eq!(fixture.text("a.md").await.as_deref(), Some("printed"));
    fixture.write("a.md", "file");
    fixture.put("prompts/p.md", "file");
    fixture.put_script("tools/t", "echo file");
    fixture.put("tools/t.json", "{}");
    for subject in ["resource workspace:///a.md", "tool t", "prompt p"] {
        fixture.wait_problem(subject).await;
    }
    fixture.runs().await;
    assert_eq!(fixture.text("a.md").await.as_deref(), Some("file"));
    let answer = fixture
        .bus
        .tool("t")
        .await
        .unwrap()
        .unwrap()
        .call(serde_json::Map::new(), crate::CallContext::default())
        .await;
    assert_eq!(answer.unwrap(), tidings_actors::ToolOutput::text("file"));
    // An executable may be seen before its sidecar, which is a problem of its own while it lasts.
    let reported = fixture.source().stats().problems_reported;
    assert!((3..=4).contains(&reported), "{reported}");
    fs::remove_file(fixture.path("a.md")).unwrap();
    fs::remove_dir_all(fixture.dir.path().join("tools")).unwrap();
    fixture.wait_text("a.md", "printed").await;
    fixture
        .wait_stats("the end of the clashes", |stats| stats.problems.len() == 1)
        .await;
    assert_eq!(fixture.tools().await, ["t"]);
}

#[tokio::test]
async fn it_runs_at_once_when_it_is_another_one_and_withdraws_when_it_is_gone() {
    let mut fixture = Fixture::new();
    fixture.register.refresh = Duration::from_secs(3600);
    fixture.put("resources/x", "");
    fixture.start().await;
    fixture.put_script(
        "register",
        "echo '{\"resources\":[{\"uri\":\"demo://a\",\"text\":\"1\"}]}'",
    );
    fixture
        .wait("the run", async || fixture.bus.read("demo://a").await.is_ok())
        .await;
    assert!(
        fixture
            .bus
            .read("demo://a")
            .await
            .unwrap()
            .descriptor
            .subscribable
    );
    fixture.source.take().unwrap().stop().await;

    let gone = json!({ "resources": [text_of("demo://a", "1")], "tools": [tool("t")] });
    let fixture = Fixture::printing(&gone).await;
    fs::remove_file(fixture.dir.path().join("register")).unwrap();
    fixture.wait_tools(&[]).await;
    fixture
        .wait("the removal", async || {
            fixture.bus.read("demo://a").await.is_err()
        })
        .await;
    assert_eq!(fixture.source().stats().problems_reported, 0);
}

#[tokio::test]
async fn an_item_that_the_bus_refuses_is_reported_and_the_rest_is_served() {
    let mut limits = tidings_actors::Limits::default();
    limits.body_bytes_max = 8;
    let mut fixture = Fixture::new();
    fixture.bus = Bus::builder().limits(limits).start().unwrap();
    let document = json!({ "resources": [text_of("demo://a", "123456789"), text_of("demo://b", "1")] });
    fixture.put("doc.json", &document.to_string());
    fixture.put_script("register", "cat doc.json");
    fixture.start().await;
    assert!(fixture.wait_problem("resource demo://a").await.contains('8'));
    assert_eq!(fixture.source().stats().registered, 1);
}
