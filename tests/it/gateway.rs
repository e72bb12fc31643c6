//! The gateway as a process, before servers of every revision, with clients of every revision.

#![expect(
    clippy::unwrap_used,
    reason = "clippy excuses test functions but not the harness they share"
)]

mod brittle;
mod client;
mod crowd;
mod hostile;
mod hostile_server;
mod levels;
mod memory;
mod plain_server;
mod rights;
mod rude;
mod several;
mod storm;
mod views;
mod workshop;

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rmcp::ServiceError;
use rmcp::model::{CallToolRequestParams, ProtocolVersion};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use self::client::Client;
use self::plain_server::LONG_NOTE;
use self::workshop::{NOTE, Workshop};
use crate::mcp::client::{modern, modern_post};
use crate::mcp::http::Request;
use crate::mcp::server::binary;

const DEADLINE: Duration = Duration::from_secs(120);

const REVISIONS: [ProtocolVersion; 5] = [
    ProtocolVersion::V_2024_11_05,
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2026_07_28,
];

/// `tidings gateway` on a free port.
struct Gateway {
    url: String,
    process: Child,
}

impl Gateway {
    async fn start(arguments: &[&str]) -> Gateway {
        Gateway::start_with(arguments, Stdio::inherit()).await
    }

    /// Starts it with another error output.
    async fn start_with(arguments: &[&str], errors: Stdio) -> Gateway {
        let mut process = Command::new(binary())
            .arg("gateway")
            .args(["--port", "0"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = within("the address", lines.next_line()).await.unwrap().unwrap();
        let url = line.trim_start_matches("tidings listening on ").to_owned();
        Gateway { url, process }
    }

    fn address(&self) -> SocketAddr {
        let address = self.url.trim_start_matches("http://");
        address.trim_end_matches("/mcp").parse().unwrap()
    }

    /// Returns the value of a metric of the server, by its name and, in braces, another label.
    async fn metric(&self, name: &str) -> usize {
        let reply = Request::new("GET", "/metrics").send(self.address()).await;
        let (name, label) = name.trim_end_matches('}').split_once('{').unwrap_or((name, ""));
        let begin = format!("{name}{{upstream=\"server\"");
        let mut lines = reply.text().lines();
        let line = lines.find(|line| line.starts_with(&begin) && line.contains(label));
        match line.and_then(|line| line.rsplit(' ').next()) {
            Some(value) => value.parse().unwrap(),
            None => panic!("no metric {name}: {}", reply.text()),
        }
    }

    /// Returns the number of looks that it has made because the time was up.
    async fn timed_looks(&self) -> usize {
        self.metric("tidings_upstream_looks_total{reason=\"interval\"}")
            .await
    }

    /// Returns the most memory that it has ever used.
    fn peak_mebibytes(&self) -> usize {
        let pid = self.process.id().expect("the gateway runs");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = peak.unwrap().trim().trim_end_matches(" kB");
        kibibytes.parse::<usize>().unwrap() / 1024
    }

    /// The processes that it has started, by their ids.
    fn children(&self) -> Vec<u32> {
        let pid = self.process.id().unwrap();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let mut found: Vec<u32> = children
            .unwrap_or_default()
            .split_whitespace()
            .map(|child| child.parse().unwrap())
            .collect();
        // Any thread may have started one.
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
            let children = std::fs::read_to_string(task.unwrap().path().join("children"));
            let children = children.unwrap_or_default();
            found.extend(
                children
                    .split_whitespace()
                    .map(|child| child.parse::<u32>().unwrap()),
            );
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// A gateway on stdin and stdout, for the one client that the test is.
struct StdioGateway {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

impl StdioGateway {
    /// Starts it before a server in Python.
    fn start(server: &str) -> StdioGateway {
        let mut process = Command::new(binary())
            .args(["gateway", "--stdio", "--", "python3", "-c", server])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        StdioGateway {
            input: process.stdin.take().unwrap(),
            output: BufReader::new(process.stdout.take().unwrap()).lines(),
            _process: process,
        }
    }

    async fn send(&mut self, message: &Value) {
        let line = format!("{message}\n");
        within("a write", self.input.write_all(line.as_bytes()))
            .await
            .unwrap();
    }

    async fn receive(&mut self) -> Value {
        let line = within("a message", self.output.next_line())
            .await
            .unwrap()
            .unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

/// A server of one revision, and the gateway before it.
struct Setting {
    workshop: Arc<Workshop>,
    gateway: Gateway,
    serving: JoinHandle<()>,
}

impl Setting {
    async fn of(revision: ProtocolVersion, arguments: &[&str]) -> Setting {
        let workshop = Workshop::new(revision);
        let (url, serving) = workshop.serve().await;
        let arguments = [arguments, &[&url]].concat();
        let gateway = Gateway::start(&arguments).await;
        Setting {
            workshop,
            gateway,
            serving,
        }
    }

    async fn client(&self, name: &str, revision: &ProtocolVersion) -> Client {
        Client::connect(&self.gateway.url, name, revision).await
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited too long for {what}"),
    }
}

/// Calls a tool that waits, takes the call back once it runs, and waits until the server knows.
async fn cancel(setting: &Setting, client: Client) -> Client {
    let mut running = setting.workshop.running.subscribe();
    let mut cancelled = setting.workshop.cancelled.subscribe();
    let ran = *running.borrow_and_update();
    let had = *cancelled.borrow_and_update();
    let peer = client.running.peer().clone();
    let call = tokio::spawn(async move { peer.call_tool(CallToolRequestParams::new("wait")).await });
    within("the call", running.wait_for(|running| *running > ran))
        .await
        .unwrap();
    call.abort();
    within(
        "the cancellation",
        cancelled.wait_for(|cancelled| *cancelled > had),
    )
    .await
    .unwrap();
    client
}

/// Does with one client everything that a client does.
async fn use_all(setting: &Setting, revision: &ProtocolVersion) {
    let name = format!("client of {revision}");
    let client = setting.client(&name, revision).await;
    let tools = client.running.list_all_tools().await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "hello"), "{tools:?}");
    let resources = client.running.list_all_resources().await.unwrap();
    assert_eq!(resources[0].uri, NOTE);

    let text = format!("before {name}");
    setting.workshop.write(&text);
    assert_eq!(client.read(NOTE).await.unwrap(), text);
    client.watch().await;
    let text = format!("changed for {name}");
    setting.workshop.change(&text, 1).await;
    client.until(|told| told.updates == 1).await;
    assert_eq!(client.read(NOTE).await.unwrap(), text);

    assert_eq!(client.call("hello").await.unwrap(), "hello");
    assert_eq!(client.call("progress").await.unwrap(), "done");
    client.until(|told| told.progress.len() == 3).await;
    let client = cancel(setting, client).await;
    for tool in ["sample", "elicit"] {
        let answer = client.call(tool).await.unwrap();
        assert!(answer.contains(&format!("I am {name}")), "{tool}: {answer}");
    }
}

async fn every_client_uses(revision: ProtocolVersion) {
    let setting = Setting::of(revision, &[]).await;
    for revision in &REVISIONS {
        eprintln!("client of {revision}");
        use_all(&setting, revision).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_uses_a_server_of_2025_06_18() {
    every_client_uses(ProtocolVersion::V_2025_06_18).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_uses_a_server_of_2025_11_25() {
    every_client_uses(ProtocolVersion::V_2025_11_25).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_uses_a_server_of_2026_07_28() {
    every_client_uses(ProtocolVersion::V_2026_07_28).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clients_are_one_subscription() {
    for revision in [ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28] {
        let setting = Setting::of(revision, &["--poll", "1h"]).await;
        let mut clients = Vec::new();
        for number in 0..20 {
            let client = setting
                .client(&number.to_string(), &REVISIONS[3 + number % 2])
                .await;
            client.watch().await;
            clients.push(client);
        }
        assert_eq!(setting.workshop.subscriptions.load(Ordering::SeqCst), 1);
        let reads = setting.workshop.reads.load(Ordering::SeqCst);
        // Many notices of one content are one.
        setting.workshop.change("two", 100).await;
        for client in &clients {
            client.until(|told| told.updates == 1).await;
        }
        let made = setting.workshop.reads.load(Ordering::SeqCst) - reads;
        assert!(made <= 3, "{made} reads for one change");
        // Notices without a change are none: the next change is the second notice.
        setting.workshop.change("two", 100).await;
        setting.workshop.change("three", 1).await;
        for client in &clients {
            client.until(|told| told.updates >= 2).await;
            assert_eq!(client.told().updates, 2);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_reach_the_caller_alone() {
    let setting = Setting::of(ProtocolVersion::V_2025_11_25, &[]).await;
    let alice = setting.client("alice", &ProtocolVersion::V_2025_11_25).await;
    let bob = setting.client("bob", &ProtocolVersion::V_2025_11_25).await;
    let carol = setting.client("carol", &ProtocolVersion::V_2026_07_28).await;
    let dave = setting.client("dave", &ProtocolVersion::V_2026_07_28).await;
    let calls = [
        (&alice, "sample"),
        (&bob, "elicit"),
        (&carol, "sample"),
        (&dave, "elicit"),
    ];
    // Each at its own pace, so that the calls meet in every order.
    futures_util::future::join_all(calls.map(async |(client, tool)| {
        for _ in 0..250 {
            let answer = client.call(tool).await.unwrap();
            assert!(answer.contains(&format!("I am {}", client.name)), "{answer}");
        }
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_calls_hold_up_no_read() {
    let setting = Setting::of(ProtocolVersion::V_2026_07_28, &[]).await;
    let server = setting.gateway.address();
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..100 {
        let call = modern_post(&json!(number), "tools/call", json!({ "name": "wait" }));
        calls.spawn(async move { call.try_open(server).await.map(drop) });
    }
    let mut running = setting.workshop.running.subscribe();
    within("all calls", running.wait_for(|running| *running == 100))
        .await
        .unwrap();
    let read = within("a read", modern(server, "resources/read", json!({ "uri": NOTE }))).await;
    assert_eq!(read.json()["result"]["contents"][0]["text"], "one");
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_that_is_too_long_ends_no_connection() {
    let (url, serving) = plain_server::serve().await;
    let gateway = Gateway::start(&[&url]).await;
    let client = Client::connect(&gateway.url, "a", &ProtocolVersion::V_2025_11_25).await;
    let refusal = within("an answer", client.read(LONG_NOTE)).await.unwrap_err();
    assert!(refusal.to_string().contains("too_long"), "{refusal}");
    assert_eq!(client.read(NOTE).await.unwrap(), "one");
    assert_eq!(gateway.metric("tidings_upstream_restarts_total").await, 0);
    serving.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_connection_asks_the_caller_alone() {
    let setting = Setting::of(ProtocolVersion::V_2025_11_25, &["--isolation", "shared"]).await;
    let alice = setting.client("alice", &ProtocolVersion::V_2025_11_25).await;
    let bob = setting.client("bob", &ProtocolVersion::V_2025_11_25).await;
    let carol = setting.client("carol", &ProtocolVersion::V_2026_07_28).await;
    let calls = [(&alice, "sample"), (&bob, "elicit"), (&carol, "sample")];
    // Each at its own pace, so that the calls meet in every order.
    futures_util::future::join_all(calls.map(async |(client, tool)| {
        for _ in 0..50 {
            let answer = client.call(tool).await.unwrap();
            assert!(answer.contains(&format!("I am {}", client.name)), "{answer}");
        }
    }))
    .await;
    // A question that came on the stream of notifications may be meant for anyone.
    let refusal = alice.call("sample_aside").await.unwrap_err().to_string();
    assert!(refusal.contains("cannot tell which one is asked"), "{refusal}");
    assert_eq!(setting.workshop.sessions.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_requests_are_refused_with_their_codes() {
    let setting = Setting::of(ProtocolVersion::V_2025_11_25, &[]).await;
    for (revision, code) in [
        (ProtocolVersion::V_2025_11_25, -32002),
        (ProtocolVersion::V_2026_07_28, -32602),
    ] {
        let client = setting.client("a", &revision).await;
        let ServiceError::McpError(refusal) = client.read("note://none").await.unwrap_err() else {
            panic!("no answer of the server");
        };
        assert_eq!(refusal.code.0, code, "{refusal}");
    }
}

/// The one process that the gateway has started.
async fn child_of(gateway: &Gateway, other_than: Option<u32>) -> u32 {
    within("a new process", async {
        loop {
            match gateway.children().as_slice() {
                [child] if Some(*child) != other_than => return *child,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await
}

fn kill(pid: u32) {
    signal(pid, "-KILL");
}

fn signal(pid: u32, name: &str) {
    let status = std::process::Command::new("kill")
        .args([name, &pid.to_string()])
        .status();
    assert!(status.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn etags_are_those_of_the_gateway() {
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join("resources")).unwrap();
    std::fs::write(folder.path().join("resources/a.txt"), "one").unwrap();
    let path = folder.path().to_str().unwrap();
    // A server that has etags itself.
    let gateway = Gateway::start(&["--", binary(), "serve", path, "--stdio"]).await;
    let client = Client::connect(&gateway.url, "a", &ProtocolVersion::V_2026_07_28).await;
    let resources = client.running.list_all_resources().await.unwrap();
    assert_eq!(resources[0].meta, None, "an etag of the server");
    let etag = client.etag(&resources[0].uri).await;
    let resources = client.running.list_all_resources().await.unwrap();
    let listed = resources[0].meta.as_ref().unwrap().0[tidings::mcp::ETAG_META_KEY].clone();
    assert_eq!(listed, etag.to_string());
    let tools = client.running.list_all_tools().await.unwrap();
    let polls = tools.iter().filter(|tool| tool.name == "get_resource_etag");
    assert_eq!(polls.count(), 1);
    let arguments = serde_json::json!({ "uri": resources[0].uri });
    let call = CallToolRequestParams::new("get_resource_etag")
        .with_arguments(arguments.as_object().unwrap().clone());
    let answer = client
        .running
        .call_tool(call)
        .await
        .unwrap()
        .structured_content
        .unwrap();
    assert_eq!(answer["etag_encoded"], etag.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_server_comes_back_under_its_clients() {
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join("resources")).unwrap();
    let file = folder.path().join("resources/a.txt");
    std::fs::write(&file, "one").unwrap();
    let path = folder.path().to_str().unwrap();
    let gateway = Gateway::start(&["--", binary(), "serve", path, "--stdio"]).await;
    let client = Client::connect(&gateway.url, "a", &ProtocolVersion::V_2026_07_28).await;
    let resources = client.running.list_all_resources().await.unwrap();
    let uri = resources[0].uri.clone();
    let mut filter = rmcp::model::SubscriptionFilter::default();
    filter.resource_subscriptions = Some(vec![uri.clone()]);
    let mut stream = client.running.listen(filter).await.unwrap();
    let mut last = None;
    for round in 0..3 {
        let child = child_of(&gateway, last).await;
        last = Some(child);
        kill(child);
        let text = format!("written while it was gone, {round}");
        std::fs::write(&file, &text).unwrap();
        // One notice for the change, on the stream that was open before.
        let notice = within("the notice", stream.next()).await.unwrap().unwrap();
        drop(notice);
        assert_eq!(client.read(&uri).await.unwrap(), text);
    }
}
