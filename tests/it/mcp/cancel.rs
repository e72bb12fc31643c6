//! Cancelled tool calls: the processes are gone and the place is free, on every revision and transport.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use super::client::{Client, LEGACY, initialize, modern, modern_post, stateless};
use super::http::{Reply, within};
use super::server::{Server, StdioClient};

const CONFIG: &str = "[workspace]\ndebounce = \"10ms\"\n[tools]\ntimeout = \"5m\"\n";

/// Adds a tool that waits with a child, whose two process ids it appends to a file, and one that answers.
fn put_tools(folder: &Path) {
    fs::create_dir_all(folder.join("tools")).expect("a folder");
    put_tool(folder, "slow", "sleep 600 & echo $! $$ >> pids; wait");
    put_tool(folder, "quick", "echo quick");
}

fn put_tool(folder: &Path, name: &str, script: &str) {
    let path = folder.join("new");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("an executable");
    fs::rename(&path, folder.join("tools").join(name)).expect("a tool");
    fs::write(folder.join("tools").join(format!("{name}.json")), "{}").expect("a sidecar");
}

/// Waits for the processes of that many calls of `slow` and returns their ids.
async fn processes(folder: &Path, calls: usize) -> Vec<String> {
    within("the processes of the calls", async {
        loop {
            let text = fs::read_to_string(folder.join("pids")).unwrap_or_default();
            let ids: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            if ids.len() == 2 * calls && text.ends_with('\n') {
                return ids;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

fn is_running(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The state follows the name; a dead process stays a zombie until its parent asks for it.
    match stat.rsplit_once(") ") {
        Some((_, state)) => !state.starts_with('Z'),
        None => false,
    }
}

async fn assert_gone(processes: &[String]) {
    within("the end of the processes", async {
        while processes.iter().any(|process| is_running(process)) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn call(name: &str) -> Value {
    json!({ "name": name, "arguments": {} })
}

fn cancelled(id: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } })
}

fn text_of(reply: &Reply) -> String {
    reply.json()["result"]["content"][0]["text"].to_string()
}

/// A service with the two tools.
async fn server() -> Server {
    let server = Server::with(CONFIG).await;
    put_tools(server.folder());
    within("the tools", async {
        while modern(server.address, "tools/call", call("quick")).await.json()["result"]["isError"] != false {
            tokio::task::yield_now().await;
        }
    })
    .await;
    server
}

#[tokio::test]
async fn dropped_calls_end_and_free_their_places() {
    let server = server().await;
    let mut calls = Vec::new();
    for id in 0..8 {
        let request = modern_post(&json!(id), "tools/call", call("slow"));
        let address = server.address;
        calls.push(tokio::spawn(async move { request.try_open(address).await }));
    }
    let processes = processes(server.folder(), 8).await;
    for call in &calls {
        call.abort();
    }
    let ninth = modern(server.address, "tools/call", call("quick")).await;
    assert_eq!(text_of(&ninth), "\"quick\"");
    assert_gone(&processes).await;
}

#[tokio::test]
async fn session_cancels_by_notification_alone() {
    for revision in LEGACY {
        let server = server().await;
        let client = Client::open(server.address, revision).await;
        let message = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call("slow") });
        let request = client.with_headers(super::http::Request::post(message.to_string()));
        let address = server.address;
        let opened = request.clone();
        let dropped = tokio::spawn(async move { opened.try_open(address).await });
        let first = processes(server.folder(), 1).await;
        dropped.abort();
        // A client of its own, so that the lost connection was seen by the time of the answer.
        client.tool("quick", json!({})).await;
        assert_eq!(
            client.post(&cancelled(json!("7"))).await.status,
            202,
            "another id"
        );
        client.tool("quick", json!({})).await;
        assert!(first.iter().all(|process| is_running(process)), "{revision}");
        assert_eq!(client.post(&cancelled(json!(7))).await.status, 202);
        assert_gone(&first).await;

        // A call that is waited for is answered without a response.
        fs::remove_file(server.folder().join("pids")).expect("the file of the first call");
        let waited = tokio::spawn(async move { request.send(address).await });
        let second = processes(server.folder(), 1).await;
        assert_eq!(client.post(&cancelled(json!(7))).await.status, 202);
        let answer = within("the answer", waited).await.expect("the call was sent");
        assert_eq!((answer.status, answer.text()), (200, ""), "{revision}");
        assert_gone(&second).await;
    }
}

#[tokio::test]
async fn end_of_a_session_ends_its_calls() {
    let server = server().await;
    let client = Client::open(server.address, "2025-11-25").await;
    let message = client.message("tools/call", call("slow"));
    let request = client.with_headers(super::http::Request::post(message.to_string()));
    let address = server.address;
    let waited = tokio::spawn(async move { request.send(address).await });
    let processes = processes(server.folder(), 1).await;
    assert_eq!(client.delete().await.status, 204);
    assert_gone(&processes).await;
    assert_eq!(
        within("the answer", waited).await.expect("it was sent").text(),
        ""
    );
}

#[tokio::test]
async fn stdio_call_is_cancelled_without_an_answer() {
    for revision in ["2025-11-25", "2026-07-28"] {
        let is_modern = revision == "2026-07-28";
        let params = |params| if is_modern { stateless(params) } else { params };
        let mut client = StdioClient::start(&[]);
        put_tools(client.folder());
        if !is_modern {
            client.send(&initialize(revision)).await;
            client.message().await;
            client
                .send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
                .await;
        }
        let mut is_found = false;
        while !is_found {
            let list = params(json!({}));
            client
                .send(&json!({ "jsonrpc": "2.0", "id": "list", "method": "tools/list", "params": list }))
                .await;
            let answer = client.message().await;
            is_found = answer.to_string().contains("\"slow\"");
        }
        let slow = params(call("slow"));
        client
            .send(&json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": slow }))
            .await;
        let processes = processes(client.folder(), 1).await;
        client.send(&cancelled(json!(7))).await;
        assert_gone(&processes).await;
        let list = params(json!({}));
        client
            .send(&json!({ "jsonrpc": "2.0", "id": 8, "method": "tools/list", "params": list }))
            .await;
        loop {
            let message = client.message().await;
            assert_ne!(message["id"], 7, "{message}");
            if message["id"] == 8 {
                break;
            }
        }
    }
}
