//! A server that is killed again and again, under clients that watch and call: no last change is missed, no
//! session ends, every call is answered, and none is executed twice.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rmcp::model::{CallToolRequestParams, ProtocolVersion};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::client::Client;
use super::{Gateway, REVISIONS, kill, within};
use crate::mcp::server::binary;

const RESOURCES: usize = 50;

/// The longest time of a call: the wait for a connection, a process that starts, and a busy machine.
const ANSWER: Duration = Duration::from_secs(20);

/// Appends its argument to a file.
const TOOL: &str =
    "#!/bin/sh\nsed 's/.*\"id\": *\"\\([^\"]*\\)\".*/\\1/' >> \"$(dirname \"$0\")/../called\"\n";
const TOOL_ABOUT: &str = r#"{ "description": "Appends an id to a file.",
    "inputSchema": { "type": "object", "properties": { "id": { "type": "string" } } } }"#;

/// The folder of the server: resources, and the tool.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    for name in ["resources", "tools"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    for number in 0..RESOURCES {
        std::fs::write(file(folder.path(), number), "first").unwrap();
    }
    let tool = folder.path().join("tools/append");
    std::fs::write(&tool, TOOL).unwrap();
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(folder.path().join("tools/append.json"), TOOL_ABOUT).unwrap();
    folder
}

fn file(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("resources/{number}.txt"))
}

/// What went on meanwhile.
#[derive(Default)]
struct Storm {
    is_over: AtomicBool,
    kills: AtomicUsize,
    calls: AtomicUsize,
    refused: AtomicUsize,
    /// The longest time of a call in milliseconds.
    longest: AtomicUsize,
}

impl Storm {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::SeqCst)
    }
}

/// Calls the tool with an id of its own each time.
async fn call(client: Arc<Client>, name: String, storm: Arc<Storm>) {
    let mut number = 0;
    while storm.goes_on() {
        let id = format!("{name}-{number}");
        number += 1;
        let arguments = json!({ "id": id }).as_object().unwrap().clone();
        let call = CallToolRequestParams::new("append").with_arguments(arguments);
        let began = Instant::now();
        let answer = client.running.call_tool(call).await;
        let took = began.elapsed();
        assert!(took < ANSWER, "{id} was answered after {took:?}");
        storm
            .longest
            .fetch_max(took.as_millis() as usize, Ordering::SeqCst);
        storm.calls.fetch_add(1, Ordering::SeqCst);
        storm
            .refused
            .fetch_add(usize::from(answer.is_err()), Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Runs the storm for so long, with so many clients.
async fn rage(time: Duration, clients: usize) {
    let folder = folder();
    let path = folder.path().to_str().unwrap();
    let gateway = Gateway::start(&["--poll", "5s", "--", binary(), "serve", path, "--stdio"]).await;
    let storm = Arc::new(Storm::default());
    let first = Client::connect(&gateway.url, "first", &ProtocolVersion::V_2026_07_28).await;
    let resources = first.running.list_all_resources().await.unwrap();
    let uris: Vec<String> = resources.iter().map(|resource| resource.uri.clone()).collect();
    assert_eq!(uris.len(), RESOURCES);
    let mut all = vec![Arc::new(first)];
    for number in 1..clients {
        // Each client with a session has a process of its own once it calls, so there are few of them.
        let revision = match number % 25 == 0 {
            true => &REVISIONS[3],
            false => &REVISIONS[4],
        };
        all.push(Arc::new(
            Client::connect(&gateway.url, &number.to_string(), revision).await,
        ));
    }
    for client in &all {
        client.watch_all(&uris).await;
    }
    let mut callers = JoinSet::new();
    for number in [0, 1, 25 % clients] {
        callers.spawn(call(all[number].clone(), format!("c{number}"), storm.clone()));
    }
    let end = Instant::now() + time;
    let mut round = 0_usize;
    while Instant::now() < end {
        for child in gateway.children() {
            kill(child);
            storm.kills.fetch_add(1, Ordering::SeqCst);
        }
        // 0.5 to 3 s, by a sequence that repeats itself late.
        let rest = Duration::from_millis(500 + (round * 977 % 2_500) as u64);
        let until = (Instant::now() + rest).min(end);
        while Instant::now() < until {
            std::fs::write(file(folder.path(), round % RESOURCES), format!("round {round}")).unwrap();
            round += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    for number in 0..RESOURCES {
        std::fs::write(file(folder.path(), number), "last").unwrap();
    }
    storm.is_over.store(true, Ordering::SeqCst);
    while let Some(caller) = callers.join_next().await {
        caller.unwrap();
    }
    for uri in &uris {
        within("the last content", async {
            while !matches!(all[0].read(uri).await.as_deref(), Ok("last")) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
    let mut newest = std::collections::BTreeMap::new();
    for uri in &uris {
        newest.insert(uri.clone(), all[0].etag(uri).await.version);
    }
    for client in &all {
        client.until(|told| told.versions == newest).await;
        assert!(
            !client.told().has_ended && !client.running.is_closed(),
            "a session ended"
        );
    }
    let called = std::fs::read_to_string(folder.path().join("called")).unwrap_or_default();
    let ids: BTreeSet<&str> = called.lines().collect();
    assert_eq!(ids.len(), called.lines().count(), "a call was executed twice");
    let zombies = gateway
        .children()
        .into_iter()
        .filter(|child| is_zombie(*child))
        .count();
    eprintln!(
        "{} kills; {} calls, {} of them refused, the longest {} ms; {} executed; {zombies} zombies",
        storm.kills.load(Ordering::SeqCst),
        storm.calls.load(Ordering::SeqCst),
        storm.refused.load(Ordering::SeqCst),
        storm.longest.load(Ordering::SeqCst),
        ids.len(),
    );
    assert_eq!(zombies, 0);
}

fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().unwrap_or_default().starts_with('Z')
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_server_loses_nothing_of_its_clients() {
    rage(Duration::from_secs(5), 10).await;
}

#[ignore = "takes ten minutes; the short form above runs"]
#[tokio::test(flavor = "multi_thread")]
async fn server_killed_for_ten_minutes_loses_nothing() {
    rage(Duration::from_secs(600), 100).await;
}
