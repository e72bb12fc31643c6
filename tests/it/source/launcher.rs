//! Tools of the real binary: their limits, their privileges and the files that they get.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::mcp::client::modern;
use crate::mcp::http::within;
use crate::mcp::server::Server;

/// Puts a tool into the served folder and calls it until it is there; returns the result.
async fn call(server: &Server, name: &str, script: &str) -> Value {
    let tools = server.folder().join("tools");
    fs::create_dir_all(&tools).expect("a folder");
    let path = server.folder().join("new");
    fs::write(&path, script).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("an executable");
    fs::rename(&path, tools.join(name)).expect("a tool");
    fs::write(tools.join(format!("{name}.json")), "{}").expect("a sidecar");
    within("the tool", async {
        loop {
            let call = json!({ "name": name, "arguments": {} });
            let mut answer = modern(server.address, "tools/call", call).await.json();
            if answer.get("result").is_some() {
                return answer["result"].take();
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().expect("a text")
}

const DEBOUNCE: &str = "[workspace]\ndebounce = \"10ms\"\n";

#[tokio::test]
async fn tool_has_its_limits_and_no_privileges() {
    let limits = "[tools]\naddress_space_max = \"512MiB\"\nprocesses_max = 3_000_000\n\
                  cpu_max = \"5s\"\nopen_files_max = 64\n";
    let server = Server::with(&format!("{DEBOUNCE}{limits}")).await;
    let script = "#!/bin/sh\nulimit -v; ulimit -t; ulimit -n; ulimit -c\n\
                  grep NoNewPrivs /proc/self/status | tr -d '\\t'\n\
                  dd if=/dev/zero of=/dev/null bs=600M count=1 2>/dev/null || echo refused";
    let result = call(&server, "limits", script).await;
    assert_eq!(text(&result), "524288\n5\n64\n0\nNoNewPrivs:1\nrefused");
}

#[tokio::test]
async fn tool_inherits_no_file() {
    let server = Server::with(DEBOUNCE).await;
    let inherited = fs::read_link(format!("/proc/{}/fd/7", server.pid())).expect("the service has it");
    assert_eq!(inherited.to_str(), Some("/dev/null"));
    // The last one is the folder that `ls` reads.
    let result = call(&server, "files", "#!/bin/sh\nls /proc/self/fd").await;
    assert_eq!(text(&result), "0\n1\n2\n3");
    let result = call(&server, "limit", "#!/bin/sh\nulimit -n; ulimit -v").await;
    assert_eq!(text(&result), "1024\nunlimited", "the defaults");
}

#[tokio::test]
async fn tool_without_its_interpreter_is_not_started() {
    let server = Server::with(DEBOUNCE).await;
    let result = call(&server, "lost", "#!/nowhere/sh\n").await;
    assert_eq!(result["isError"], true);
    assert_eq!(
        text(&result),
        "lost could not be started: No such file or directory (os error 2)"
    );
}

#[tokio::test]
async fn tool_that_computes_for_too_long_is_stopped() {
    let server = Server::with(&format!("{DEBOUNCE}[tools]\ncpu_max = \"1s\"\n")).await;
    let result = call(&server, "spin", "#!/bin/sh\nwhile :; do :; done").await;
    assert_eq!(result["isError"], true);
    assert_eq!(
        text(&result),
        "spin used up its processor time and was stopped (tools.cpu_max)"
    );
}
