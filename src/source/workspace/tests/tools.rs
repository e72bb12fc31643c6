//! Executables of `tools` as tools on the bus, with real processes.

use super::*;
use serde_json::{Value, json};
use tidings_actors::{Block, ToolOutput};

async fn call(bus: &Bus, name: &str, arguments: Value) -> Result<ToolOutput, String> {
    let tool = bus.tool(name).await.unwrap().unwrap();
    let output = tool
        .call(
            arguments.as_object().unwrap().clone(),
            crate::CallContext::default(),
        )
        .await;
    output.map_err(|error| error.to_string())
}

/// What a call answers as text.
async fn text(fixture: &Fixture, name: &str) -> String {
    let output = call(&fixture.bus, name, json!({})).await.unwrap();
    let [Block::Text(text)] = output.blocks.as_slice() else {
        panic!("{output:?}")
    };
    text.clone()
}

impl Fixture {
    /// A served tool with an empty sidecar.
    async fn with_tool(mut self, name: &str, script: &str) -> Fixture {
        self.put_script(&format!("tools/{name}.sh"), script);
        self.put(&format!("tools/{name}.json"), "{}");
        self.start().await;
        assert_eq!(self.tools().await, [name]);
        self
    }

    /// The number that a script wrote into a file.
    async fn pid(&self, file: &str) -> u32 {
        let path = self.dir.path().join(file);
        let read = || {
            fs::read_to_string(&path)
                .ok()
                .and_then(|text| text.trim().parse().ok())
        };
        self.wait(file, async || read().is_some()).await;
        read().unwrap()
    }

    async fn wait_dead(&self, pid: u32) {
        self.wait("the end of a process", async || !lives(pid)).await;
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }
}

/// Whether a process runs; one that only waits to be buried does not.
fn lives(pid: u32) -> bool {
    let asked = std::process::Command::new("ps")
        .args(["-o", "stat=", "-p", &pid.to_string()])
        .output();
    let state = String::from_utf8(asked.unwrap().stdout).unwrap();
    !state.trim().is_empty() && !state.trim().starts_with('Z')
}

#[tokio::test]
async fn an_executable_with_a_sidecar_is_a_tool_that_runs() {
    let mut fixture = Fixture::new();
    let sidecar = json!({
        "title": "Count", "description": "Counts.", "annotations": { "readOnlyHint": true },
        "inputSchema": { "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] },
        "outputSchema": { "type": "object", "required": ["got"] },
    });
    fixture.put_script(
        "tools/count",
        "read -r line; printf '{\"got\":%s,\"dir\":\"%s\"}\\n' \"$line\" \"$(pwd -P)\"",
    );
    fixture.put("tools/count.json", &sidecar.to_string());
    fixture.start().await;
    let mut item = sidecar;
    item["name"] = json!("count");
    assert_eq!(fixture.bus.tool("count").await.unwrap().unwrap().item(), item);
    let output = call(&fixture.bus, "count", json!({ "n": 7 })).await.unwrap();
    let dir = fixture.dir.path().canonicalize().unwrap();
    let expected = json!({ "got": { "n": 7 }, "dir": dir });
    assert_eq!(output.structured, Some(expected.clone()));
    let [Block::Text(printed)] = output.blocks.as_slice() else {
        panic!("{output:?}")
    };
    assert_eq!(serde_json::from_str::<Value>(printed).unwrap(), expected);
}

#[tokio::test]
async fn arguments_are_checked_before_anything_runs() {
    let mut fixture = Fixture::new();
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["m"] });
    fixture.put("tools/t.json", &json!({ "inputSchema": schema }).to_string());
    fixture.put_script("tools/t", "touch ran");
    fixture.start().await;
    let error = call(&fixture.bus, "t", json!({ "n": "x" })).await.unwrap_err();
    assert!(error.starts_with("invalid arguments for t:\n"), "{error}");
    assert!(
        error.contains("/n: \"x\" is not of type \"integer\"") && error.contains("\"m\" is a required"),
        "{error}"
    );
    assert!(!fixture.at("ran").exists());
    call(&fixture.bus, "t", json!({ "m": 1 })).await.unwrap();
    assert!(fixture.at("ran").exists());
}

#[tokio::test]
async fn text_is_text_and_an_object_is_structured_and_a_promised_schema_is_held() {
    let fixture = Fixture::new().with_tool("t", "echo plain; echo text").await;
    assert_eq!(
        call(&fixture.bus, "t", json!({})).await.unwrap(),
        ToolOutput::text("plain\ntext")
    );
    fixture.put_script("tools/t.sh", "echo '[1]'");
    assert_eq!(
        call(&fixture.bus, "t", json!({})).await.unwrap(),
        ToolOutput::text("[1]")
    );
    fixture.put(
        "tools/t.json",
        r#"{"outputSchema":{"type":"object","required":["a"]}}"#,
    );
    let promised = async || {
        call(&fixture.bus, "t", json!({}))
            .await
            .is_err_and(|e| e.contains("no JSON object"))
    };
    fixture.wait("the schema", promised).await;
    fixture.put_script("tools/t.sh", "echo '{}'");
    let error = call(&fixture.bus, "t", json!({})).await.unwrap_err();
    assert!(error.contains("\"a\" is a required property"), "{error}");
    fixture.put_script("tools/t.sh", "echo '{\"a\":1}'");
    let output = call(&fixture.bus, "t", json!({})).await.unwrap();
    assert_eq!(output.structured, Some(json!({ "a": 1 })));
}

#[tokio::test]
async fn a_failure_is_told_with_its_code_and_the_end_of_its_errors() {
    let script = "i=0; while [ $i -lt 600 ]; do echo \"line $i\" >&2; i=$((i+1)); done; exit 3";
    let fixture = Fixture::new().with_tool("t", script).await;
    let error = call(&fixture.bus, "t", json!({})).await.unwrap_err();
    assert!(
        error.starts_with("t failed with exit code 3: ") && error.ends_with("line 599"),
        "{error}"
    );
    assert!((1_900..2_200).contains(&error.len()), "{}", error.len());
    fixture.put_script("tools/t.sh", "kill -9 $$");
    let error = call(&fixture.bus, "t", json!({})).await.unwrap_err();
    assert_eq!(error, "t failed with killed by signal 9");
}

#[tokio::test]
async fn the_environment_is_clean() {
    let fixture = Fixture::new().with_tool("t", "env").await;
    let printed = text(&fixture, "t").await;
    let mut names: Vec<_> = printed
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name)
        .collect();
    // The shell's own.
    names.retain(|name| !matches!(*name, "PWD" | "OLDPWD" | "SHLVL" | "_"));
    names.sort_unstable();
    assert_eq!(names, ["LANG", "PATH", "TIDINGS_WORKSPACE"]);
    assert!(
        printed.contains("LANG=C.UTF-8\n") || printed.ends_with("LANG=C.UTF-8"),
        "{printed}"
    );
    let dir = fixture.dir.path().to_str().unwrap();
    assert!(
        printed
            .lines()
            .any(|line| line == format!("TIDINGS_WORKSPACE={dir}")),
        "{printed}"
    );
}

#[tokio::test]
async fn the_time_limit_kills_all_that_was_started() {
    let mut fixture = Fixture::new();
    fixture.tools.timeout = Duration::from_millis(1_500);
    let script =
        "sleep 1000 & echo $! >child.tmp; mv child.tmp child; echo $$ >own.tmp; mv own.tmp own; wait";
    let fixture = fixture.with_tool("t", script).await;
    let error = call(&fixture.bus, "t", json!({})).await.unwrap_err();
    assert_eq!(error, "t took longer than 1500ms and was stopped (tools.timeout)");
    for file in ["child", "own"] {
        fixture.wait_dead(fixture.pid(file).await).await;
    }
    fixture.put("tools/t.json", r#"{"timeout":"1s"}"#);
    let named = async || {
        let error = call(&fixture.bus, "t", json!({})).await.unwrap_err();
        error == "t took longer than 1s and was stopped (timeout in tools/t.json)"
    };
    fixture.wait("the sidecar's own limit", named).await;
}

#[tokio::test]
async fn the_output_limit_kills_at_once() {
    let mut fixture = Fixture::new();
    fixture.tools.output_bytes_max = 4096;
    let fixture = fixture
        .with_tool("t", "echo $$ >own.tmp; mv own.tmp own; yes")
        .await;
    let error = call(&fixture.bus, "t", json!({})).await.unwrap_err();
    assert_eq!(
        error,
        "t printed more than 4KiB and was stopped (tools.output_bytes_max)"
    );
    fixture.wait_dead(fixture.pid("own").await).await;
    fixture.put_script("tools/t.sh", "head -c 4096 /dev/zero | tr '\\0' x");
    assert_eq!(text(&fixture, "t").await.len(), 4096);
}

#[tokio::test]
async fn a_cancelled_call_kills() {
    let script = "sleep 1000 & echo $! >child.tmp; mv child.tmp child; wait";
    let fixture = Fixture::new().with_tool("t", script).await;
    let bus = fixture.bus.clone();
    let calling = tokio::spawn(async move { call(&bus, "t", json!({})).await });
    let child = fixture.pid("child").await;
    assert!(lives(child));
    calling.abort();
    fixture.wait_dead(child).await;
}

#[tokio::test]
async fn what_a_tool_leaves_running_ends_with_it_and_delays_nothing() {
    let fixture = Fixture::new()
        .with_tool("t", "sleep 1000 & echo $! >child; echo done")
        .await;
    let begun = Instant::now();
    assert_eq!(text(&fixture, "t").await, "done");
    assert!(begun.elapsed() < fixture.tools.timeout / 2);
    fixture.wait_dead(fixture.pid("child").await).await;
}

#[tokio::test]
async fn a_call_beyond_the_concurrency_waits_and_then_says_busy() {
    let mut fixture = Fixture::new();
    fixture.tools.concurrency_max = 1;
    fixture.tools.timeout = Duration::from_millis(300);
    fixture.put_script(
        "tools/slow",
        "touch started; while [ ! -e go ]; do sleep 0.02; done; echo slow",
    );
    fixture.put("tools/slow.json", r#"{"timeout":"1m"}"#);
    fixture.put_script("tools/quick", "echo quick");
    fixture.put("tools/quick.json", "{}");
    fixture.start().await;
    let bus = fixture.bus.clone();
    let slow = tokio::spawn(async move { call(&bus, "slow", json!({})).await });
    fixture
        .wait("the slow one", async || fixture.at("started").exists())
        .await;
    let error = call(&fixture.bus, "quick", json!({})).await.unwrap_err();
    assert_eq!(
        error,
        "quick is busy: 1 calls run already; try again later (tools.concurrency_max)"
    );
    fs::write(fixture.at("go"), "").unwrap();
    assert_eq!(slow.await.unwrap().unwrap(), ToolOutput::text("slow"));
    let free = async || call(&fixture.bus, "quick", json!({})).await.is_ok();
    fixture.wait("a free place", free).await;
}

#[tokio::test]
async fn another_executable_is_used_without_a_list_change() {
    let fixture = Fixture::patient().await;
    fixture.put_script("tools/t.sh", "echo one");
    fixture.put("tools/t.json", "{}");
    fixture.wait_tools(&["t"]).await;
    fixture.source().rescan().await;
    let before = fixture.list_changes().await;
    fixture.put_script("tools/t.sh", "echo two");
    assert_eq!(text(&fixture, "t").await, "two");
    fs::rename(fixture.at("tools/t.sh"), fixture.at("tools/t.bash")).unwrap();
    fixture
        .wait("the renamed one", async || {
            call(&fixture.bus, "t", json!({})).await.is_ok()
        })
        .await;
    fixture.source().rescan().await;
    fixture.wait_list_changes(before).await;
}

#[tokio::test]
async fn an_edit_is_one_list_change_however_many_tools_it_changes_and_touching_is_none() {
    let fixture = Fixture::patient().await;
    let before = fixture.list_changes().await;
    for name in ["a", "b", "c"] {
        fixture.put_script(&format!("tools/{name}.sh"), "echo");
        fixture.put(&format!("tools/{name}.json"), "{}");
    }
    fixture.wait_tools(&["a", "b", "c"]).await;
    fixture.wait_list_changes(before + 1).await;
    let looks = fixture.source().stats().looks;
    for file in fs::read_dir(fixture.at("tools")).unwrap() {
        let file = fs::File::options()
            .append(true)
            .open(file.unwrap().path())
            .unwrap();
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000))
            .unwrap();
    }
    fixture.wait_stats("a look", |stats| stats.looks > looks).await;
    fixture.source().rescan().await;
    // Nothing but times changed.
    fixture.wait_list_changes(before + 1).await;
    fixture.put("tools/a.json", r#"{"title":"A"}"#);
    fs::remove_file(fixture.at("tools/b.json")).unwrap();
    fixture.wait_tools(&["a", "c"]).await;
    fixture.wait_list_changes(before + 2).await;
}

#[tokio::test]
async fn a_half_written_sidecar_keeps_the_last_good_one_and_is_reported_once() {
    let fixture = Fixture::new().with_tool("t", "echo t").await;
    let (before, reported) = (
        fixture.list_changes().await,
        fixture.source().stats().problems_reported,
    );
    for half in [r#"{"title":"#, r#"{"title":"T","#] {
        fs::write(fixture.at("tools/t.json"), half).unwrap();
        fixture.source().rescan().await;
        assert!(
            fixture
                .wait_problem("tools/t.json")
                .await
                .contains("invalid JSON")
        );
    }
    assert_eq!(fixture.source().stats().problems_reported, reported + 1);
    assert_eq!(
        (text(&fixture, "t").await.as_str(), fixture.list_changes().await),
        ("t", before)
    );
    fixture.put("tools/t.json", r#"{"title":"T"}"#);
    fixture
        .wait_stats("the end of it", |stats| stats.problems.is_empty())
        .await;
    fixture.wait_list_changes(before + 1).await;
}

#[tokio::test]
async fn what_may_not_be_run_is_refused_and_named() {
    let mut fixture = Fixture::new();
    for name in [
        "alone", "plain", "open", "linked", "twice", "schema", "fine", "bad name",
    ] {
        fixture.put(&format!("tools/{name}.json"), "{}");
    }
    fixture.put(
        "tools/schema.json",
        r#"{"inputSchema":{"type":"object","required":1}}"#,
    );
    fixture.put_script("tools/schema", "echo");
    fixture.put("tools/plain.sh", "echo");
    fixture.put_as("tools/open.sh", "#!/bin/sh\n", 0o777);
    fixture.put_script("outside", "echo");
    symlink("../outside", fixture.at("tools/linked")).unwrap();
    for twin in ["tools/twice.sh", "tools/twice.py", "tools/stray", "tools/fine"] {
        fixture.put_script(twin, "echo");
    }
    fixture.put("tools/library.txt", "used by the tools");
    fixture.start().await;
    assert_eq!(fixture.tools().await, ["fine"]);
    let problems = fixture.source().stats().problems;
    for (subject, reason) in [
        ("tools/alone.json", "no executable"),
        ("tools/plain.json", "chmod +x"),
        ("tools/open.json", "chmod o-w"),
        ("tools/linked", "leaves the folder"),
        ("tools/twice.json", "rename one"),
        ("tools/schema.json", "invalid inputSchema"),
        ("tools/stray", "without a sidecar"),
        ("tools/bad name.json", "invalid name"),
    ] {
        let problem = problems
            .get(subject)
            .unwrap_or_else(|| panic!("{subject}: {problems:?}"));
        assert!(problem.contains(reason), "{subject}: {problem}");
    }
    assert_eq!(problems.len(), 9, "{problems:?}");
    // What becomes unfit later is refused by the call itself, before the source has looked.
    let fine = fixture.bus.tool("fine").await.unwrap().unwrap();
    fixture.put_as("tools/fine", "#!/bin/sh\n", 0o777);
    let error = fine
        .call(serde_json::Map::new(), crate::CallContext::default())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("chmod o-w"), "{error}");
    fixture.wait_tools(&[]).await;
}

#[tokio::test]
async fn tools_of_others_are_neither_replaced_nor_removed() {
    let mut fixture = Fixture::new();
    crate::etag_tools::install(&fixture.bus, crate::config::McpConfig::default())
        .await
        .unwrap();
    let others = fixture.tools().await;
    for name in ["mine", "read_resource"] {
        fixture.put_script(&format!("tools/{name}"), "echo mine");
        fixture.put(&format!("tools/{name}.json"), "{}");
    }
    fixture.start().await;
    assert!(fixture.tools().await.contains(&"mine".to_owned()));
    assert!(
        fixture
            .wait_problem("tool read_resource")
            .await
            .contains("rename it")
    );
    let error = call(&fixture.bus, "read_resource", json!({ "uri": "a:b" }))
        .await
        .unwrap_err();
    assert_eq!(error, "Resource not found: a:b");
    fs::remove_dir_all(fixture.at("tools")).unwrap();
    fixture
        .wait("the end of mine", async || fixture.tools().await == others)
        .await;
    fixture
        .wait_stats("no problem", |stats| stats.problems.is_empty())
        .await;
}
