//! Executables of `tools` as tools on the bus, run as real processes.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidings::config::McpConfig;
use tidings::mcp::McpOptions;
use tidings::{Block, ToolOutput};

use super::folder::{ServedFolder, call, is_running};
use crate::mcp::client::modern;
use crate::mcp::local::Local;
use crate::support::until;

/// Calls a tool without arguments, and returns its text.
async fn text(folder: &ServedFolder, name: &str) -> String {
    let output = folder.call(name, json!({})).await.unwrap();
    let [Block::Text(text)] = output.blocks.as_slice() else {
        panic!("{output:?}")
    };
    text.clone()
}

impl ServedFolder {
    /// Serves a tool with an empty sidecar.
    async fn with_tool(mut self, name: &str, script: &str) -> ServedFolder {
        self.put_script(&format!("tools/{name}.sh"), script);
        self.put(&format!("tools/{name}.json"), "{}");
        self.start().await;
        assert_eq!(self.tools().await, [name]);
        self
    }

    /// Returns the process id that a script writes into a file.
    async fn pid(&self, file: &str) -> String {
        until(file, async || self.read(file).ends_with('\n')).await;
        self.read(file).trim().to_owned()
    }

    /// Returns the text of a file, which is empty if there is none.
    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.at(file)).unwrap_or_default()
    }

    async fn wait_dead(&self, pid: &str) {
        until("the end of a process", async || !is_running(pid)).await;
    }
}

#[tokio::test]
async fn executable_with_a_sidecar_is_a_tool() {
    let mut folder = ServedFolder::new();
    let sidecar = json!({
        "title": "Count", "description": "Counts.", "annotations": { "readOnlyHint": true },
        "inputSchema": { "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] },
        "outputSchema": { "type": "object", "required": ["got"] },
    });
    folder.put_script(
        "tools/count",
        "read -r line; printf '{\"got\":%s,\"dir\":\"%s\"}\\n' \"$line\" \"$(pwd -P)\"",
    );
    folder.put("tools/count.json", &sidecar.to_string());
    folder.start().await;
    let mut item = sidecar;
    item["name"] = json!("count");
    assert_eq!(folder.bus.tool("count").await.unwrap().unwrap().item(), item);
    let output = folder.call("count", json!({ "n": 7 })).await.unwrap();
    let dir = folder.at("").canonicalize().unwrap();
    let expected = json!({ "got": { "n": 7 }, "dir": dir });
    assert_eq!(output.structured, Some(expected.clone()));
    let [Block::Text(printed)] = output.blocks.as_slice() else {
        panic!("{output:?}")
    };
    assert_eq!(serde_json::from_str::<Value>(printed).unwrap(), expected);
}

#[tokio::test]
async fn invalid_arguments_run_nothing() {
    let mut folder = ServedFolder::new();
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["m"] });
    folder.put("tools/t.json", &json!({ "inputSchema": schema }).to_string());
    folder.put_script("tools/t", "touch ran");
    folder.start().await;
    // Over the protocol, whose endpoint checks the arguments of every tool.
    let local = Local::serve(folder.bus.clone(), McpOptions::default()).await;
    let call = async |arguments: Value| {
        let params = json!({ "name": "t", "arguments": arguments });
        modern(local.server, "tools/call", params).await.json()["result"].take()
    };
    let refusal = call(json!({ "n": "x" })).await;
    assert_eq!(refusal["isError"], true, "{refusal}");
    let error = refusal["content"][0]["text"].as_str().unwrap();
    assert!(error.starts_with("invalid arguments for t:\n"), "{error}");
    assert!(
        error.contains("/n: \"x\" is not of type \"integer\"") && error.contains("\"m\" is a required"),
        "{error}"
    );
    assert!(!folder.at("ran").exists());
    let answer = call(json!({ "m": 1 })).await;
    assert_ne!(answer["isError"], true, "{answer}");
    assert!(folder.at("ran").exists());
}

#[tokio::test]
async fn output_is_checked_against_the_schema() {
    let folder = ServedFolder::new().with_tool("t", "echo plain; echo text").await;
    assert_eq!(
        folder.call("t", json!({})).await.unwrap(),
        ToolOutput::text("plain\ntext")
    );
    folder.put_script("tools/t.sh", "echo '[1]'");
    assert_eq!(
        folder.call("t", json!({})).await.unwrap(),
        ToolOutput::text("[1]")
    );
    folder.put(
        "tools/t.json",
        r#"{"outputSchema":{"type":"object","required":["a"]}}"#,
    );
    until("the schema", async || match folder.call("t", json!({})).await {
        Ok(_) => false,
        Err(error) => error.contains("no JSON object"),
    })
    .await;
    folder.put_script("tools/t.sh", "echo '{}'");
    let error = folder.call("t", json!({})).await.unwrap_err();
    assert!(error.contains("\"a\" is a required property"), "{error}");
    folder.put_script("tools/t.sh", "echo '{\"a\":1}'");
    let output = folder.call("t", json!({})).await.unwrap();
    assert_eq!(output.structured, Some(json!({ "a": 1 })));
}

#[tokio::test]
async fn failed_call_has_the_code_and_last_errors() {
    let script = "i=0; while [ $i -lt 600 ]; do echo \"line $i\" >&2; i=$((i+1)); done; exit 3";
    let folder = ServedFolder::new().with_tool("t", script).await;
    let error = folder.call("t", json!({})).await.unwrap_err();
    assert!(
        error.starts_with("t failed with exit code 3: ") && error.ends_with("line 599"),
        "{error}"
    );
    assert!((1_900..2_200).contains(&error.len()), "{}", error.len());
    folder.put_script("tools/t.sh", "kill -9 $$");
    let error = folder.call("t", json!({})).await.unwrap_err();
    assert_eq!(error, "t failed with killed by signal 9");
}

#[tokio::test]
async fn environment_has_three_variables() {
    let folder = ServedFolder::new().with_tool("t", "env").await;
    let printed = text(&folder, "t").await;
    let mut names: Vec<_> = printed
        .lines()
        .map(|line| line.split_once('=').unwrap().0)
        .collect();
    // Variables of the shell.
    names.retain(|name| !matches!(*name, "PWD" | "OLDPWD" | "SHLVL" | "_"));
    names.sort_unstable();
    assert_eq!(names, ["LANG", "PATH", "TIDINGS_WORKSPACE"]);
    assert!(
        printed.contains("LANG=C.UTF-8\n") || printed.ends_with("LANG=C.UTF-8"),
        "{printed}"
    );
    let dir = folder.config.dir.as_ref().unwrap().display();
    assert!(
        printed
            .lines()
            .any(|line| line == format!("TIDINGS_WORKSPACE={dir}")),
        "{printed}"
    );
}

#[tokio::test]
async fn time_limit_kills_all_processes() {
    let mut folder = ServedFolder::new();
    folder.tools_config.timeout = Duration::from_millis(1_500);
    let script =
        "sleep 1000 & echo $! >child.tmp; mv child.tmp child; echo $$ >own.tmp; mv own.tmp own; wait";
    let folder = folder.with_tool("t", script).await;
    let error = folder.call("t", json!({})).await.unwrap_err();
    assert_eq!(error, "t took longer than 1500ms and was stopped (tools.timeout)");
    for file in ["child", "own"] {
        folder.wait_dead(&folder.pid(file).await).await;
    }
    folder.put("tools/t.json", r#"{"timeout":"1s"}"#);
    until("the limit of the sidecar", async || {
        let error = folder.call("t", json!({})).await.unwrap_err();
        error == "t took longer than 1s and was stopped (timeout in tools/t.json)"
    })
    .await;
}

#[tokio::test]
async fn output_limit_kills_at_once() {
    let mut folder = ServedFolder::new();
    folder.tools_config.output_bytes_max = 4096;
    let folder = folder
        .with_tool("t", "echo $$ >own.tmp; mv own.tmp own; yes")
        .await;
    let error = folder.call("t", json!({})).await.unwrap_err();
    assert_eq!(
        error,
        "t printed more than 4KiB and was stopped (tools.output_bytes_max)"
    );
    folder.wait_dead(&folder.pid("own").await).await;
    folder.put_script("tools/t.sh", "head -c 4096 /dev/zero | tr '\\0' x");
    assert_eq!(text(&folder, "t").await.len(), 4096);
}

#[tokio::test]
async fn cancelled_call_kills_all_processes() {
    let script = "sleep 1000 & echo $! >child.tmp; mv child.tmp child; wait";
    let folder = ServedFolder::new().with_tool("t", script).await;
    let bus = folder.bus.clone();
    let calling = tokio::spawn(async move { call(&bus, "t", json!({})).await });
    let child = folder.pid("child").await;
    assert!(is_running(&child));
    calling.abort();
    folder.wait_dead(&child).await;
}

#[tokio::test]
async fn background_process_ends_with_the_call() {
    let folder = ServedFolder::new()
        .with_tool("t", "sleep 1000 & echo $! >child; echo done")
        .await;
    let begun = Instant::now();
    assert_eq!(text(&folder, "t").await, "done");
    assert!(begun.elapsed() < folder.tools_config.timeout / 2);
    folder.wait_dead(&folder.pid("child").await).await;
}

#[tokio::test]
async fn call_beyond_the_concurrency_says_busy() {
    let mut folder = ServedFolder::new();
    folder.tools_config.concurrency_max = 1;
    folder.tools_config.timeout = Duration::from_millis(300);
    folder.put_script(
        "tools/slow",
        "touch started; while [ ! -e go ]; do sleep 0.02; done; echo slow",
    );
    folder.put("tools/slow.json", r#"{"timeout":"1m"}"#);
    folder.put_script("tools/quick", "echo quick");
    folder.put("tools/quick.json", "{}");
    folder.start().await;
    let bus = folder.bus.clone();
    let slow = tokio::spawn(async move { call(&bus, "slow", json!({})).await });
    until("the slow one", async || folder.at("started").exists()).await;
    let error = folder.call("quick", json!({})).await.unwrap_err();
    assert_eq!(
        error,
        "quick is busy: 1 calls run already; try again later (tools.concurrency_max)"
    );
    fs::write(folder.at("go"), "").unwrap();
    assert_eq!(slow.await.unwrap().unwrap(), ToolOutput::text("slow"));
    until("a free place", async || {
        folder.call("quick", json!({})).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn replaced_executable_is_no_list_change() {
    let folder = ServedFolder::started_slow().await;
    folder.put_script("tools/t.sh", "echo one");
    folder.put("tools/t.json", "{}");
    folder.wait_tools(&["t"]).await;
    folder.source().rescan().await;
    let before = folder.list_changes().await;
    folder.put_script("tools/t.sh", "echo two");
    assert_eq!(text(&folder, "t").await, "two");
    fs::rename(folder.at("tools/t.sh"), folder.at("tools/t.bash")).unwrap();
    until("the renamed one", async || {
        folder.call("t", json!({})).await.is_ok()
    })
    .await;
    folder.source().rescan().await;
    folder.wait_list_changes(before).await;
}

#[tokio::test]
async fn several_tools_at_once_are_one_list_change() {
    let folder = ServedFolder::started_slow().await;
    let before = folder.list_changes().await;
    for name in ["a", "b", "c"] {
        folder.put_script(&format!("tools/{name}.sh"), "echo");
        folder.put(&format!("tools/{name}.json"), "{}");
    }
    folder.wait_tools(&["a", "b", "c"]).await;
    folder.wait_list_changes(before + 1).await;
    let looks = folder.stats().scans;
    for file in fs::read_dir(folder.at("tools")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        folder.age(&format!("tools/{name}"));
    }
    folder.wait_stats("a look", |stats| stats.scans > looks).await;
    folder.source().rescan().await;
    // Only times changed.
    folder.wait_list_changes(before + 1).await;
    folder.put("tools/a.json", r#"{"title":"A"}"#);
    fs::remove_file(folder.at("tools/b.json")).unwrap();
    folder.wait_tools(&["a", "c"]).await;
    folder.wait_list_changes(before + 2).await;
}

#[tokio::test]
async fn half_written_sidecar_keeps_the_last_one() {
    let folder = ServedFolder::new().with_tool("t", "echo t").await;
    let before = folder.list_changes().await;
    let reported = folder.stats().problems_reported;
    for half in [r#"{"title":"#, r#"{"title":"T","#] {
        fs::write(folder.at("tools/t.json"), half).unwrap();
        folder.source().rescan().await;
        assert!(folder.wait_problem("tools/t.json").await.contains("invalid JSON"));
    }
    assert_eq!(folder.stats().problems_reported, reported + 1);
    assert_eq!(
        (text(&folder, "t").await.as_str(), folder.list_changes().await),
        ("t", before)
    );
    folder.put("tools/t.json", r#"{"title":"T"}"#);
    folder
        .wait_stats("the end of it", |stats| stats.problems.is_empty())
        .await;
    folder.wait_list_changes(before + 1).await;
}

#[tokio::test]
async fn unsafe_executable_is_refused() {
    let mut folder = ServedFolder::new();
    for name in [
        "alone", "plain", "open", "linked", "twice", "schema", "fine", "bad name",
    ] {
        folder.put(&format!("tools/{name}.json"), "{}");
    }
    folder.put(
        "tools/schema.json",
        r#"{"inputSchema":{"type":"object","required":1}}"#,
    );
    folder.put_script("tools/schema", "echo");
    folder.put("tools/plain.sh", "echo");
    folder.put_as("tools/open.sh", "#!/bin/sh\n", 0o777);
    folder.put_script("outside", "echo");
    symlink("../outside", folder.at("tools/linked")).unwrap();
    for twin in ["tools/twice.sh", "tools/twice.py", "tools/stray", "tools/fine"] {
        folder.put_script(twin, "echo");
    }
    folder.put("tools/library.txt", "used by the tools");
    folder.start().await;
    assert_eq!(folder.tools().await, ["fine"]);
    let problems = folder.stats().problems;
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
    // An executable that becomes unsafe is refused by the call itself, before a scan finds it.
    let fine = folder.bus.tool("fine").await.unwrap().unwrap();
    folder.put_as("tools/fine", "#!/bin/sh\n", 0o777);
    let arguments = serde_json::Map::new();
    let refused = fine.call(arguments, tidings::CallContext::default()).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("chmod o-w"), "{error}");
    folder.wait_tools(&[]).await;
}

#[tokio::test]
async fn tool_of_others_is_not_replaced() {
    let mut folder = ServedFolder::new();
    tidings::etag_tools::install(&folder.bus, McpConfig::default())
        .await
        .unwrap();
    let others = folder.tools().await;
    for name in ["mine", "read_resource"] {
        folder.put_script(&format!("tools/{name}"), "echo mine");
        folder.put(&format!("tools/{name}.json"), "{}");
    }
    folder.start().await;
    assert!(folder.tools().await.contains(&"mine".to_owned()));
    assert!(
        folder
            .wait_problem("tool read_resource")
            .await
            .contains("rename it")
    );
    let error = folder
        .call("read_resource", json!({ "uri": "a:b" }))
        .await
        .unwrap_err();
    assert_eq!(error, "Resource not found: a:b");
    fs::remove_dir_all(folder.at("tools")).unwrap();
    until("the end of mine", async || folder.tools().await == others).await;
    folder
        .wait_stats("no problem", |stats| stats.problems.is_empty())
        .await;
}
