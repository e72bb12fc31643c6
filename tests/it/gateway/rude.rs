//! A server that floods, lies and shouts: its clients and the gateway live on, and the memory stays bounded.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rmcp::ServiceError;
use rmcp::model::{CallToolRequestParams, ProtocolVersion};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::Client;
use super::workshop::NOTE;
use super::{Gateway, within};

const SERVER: &str = include_str!("rude_server.py");

/// The memory that the gateway may ever have used: the memory at its start, and messages of 16 MiB with
/// everything that is made of them.
const MEMORY_MIB: usize = 256;

/// The gateway before the server, and a client that is told of changes of the note.
struct RudeSetting {
    gateway: Gateway,
    client: Client,
    folder: TempDir,
}

impl RudeSetting {
    async fn start() -> RudeSetting {
        let folder = TempDir::new().unwrap();
        let script = folder.path().join("rude_server.py");
        std::fs::write(&script, SERVER).unwrap();
        let errors = std::fs::File::create(folder.path().join("errors")).unwrap();
        let script = script.to_str().unwrap();
        // All requests go over one connection, so that the calls of one client meet those of others.
        let arguments = ["--isolation", "shared", "--poll", "1h", "--", "python3", script];
        let gateway = Gateway::start_with(&arguments, errors.into()).await;
        let client = Client::connect(&gateway.url, "a", &ProtocolVersion::V_2025_11_25).await;
        client.watch().await;
        RudeSetting {
            gateway,
            client,
            folder,
        }
    }

    async fn act(&self, name: &'static str, arguments: Value) -> Result<(), ServiceError> {
        let call = CallToolRequestParams::new(name).with_arguments(arguments.as_object().unwrap().clone());
        let called = self.client.running.call_tool(call);
        within("the answer of a call", called).await.map(drop)
    }

    /// Asserts that the gateway serves its clients, old and new, and is told of changes.
    async fn assert_served(&self) {
        // Before the change, whose notice may come before the answer to the call that makes it.
        let updates = self.client.told().updates;
        let text = format!("text {updates}");
        self.act("change", json!({ "text": text })).await.unwrap();
        self.client.until(|told| told.updates > updates).await;
        let read = within("a read", self.client.read(NOTE)).await;
        assert_eq!(read.unwrap(), text);
        let other = Client::connect(&self.gateway.url, "b", &ProtocolVersion::V_2026_07_28).await;
        let read = within("a read", other.read(NOTE)).await;
        assert_eq!(read.unwrap(), text);
        let used = self.gateway.peak_mebibytes();
        eprintln!("the gateway has used {used} MiB at most");
        assert!(used <= MEMORY_MIB, "{used} MiB");
    }

    async fn dropped(&self, reason: &str) -> usize {
        let name = format!("tidings_upstream_messages_dropped_total{{reason=\"{reason}\"}}");
        self.gateway.metric(&name).await
    }

    fn errors(&self) -> PathBuf {
        self.folder.path().join("errors")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_without_a_change_is_no_notice() {
    let setting = RudeSetting::start().await;
    let client = &setting.client;
    // Those of the resources and of the tools, as each client is told at first.
    client.until(|told| told.lists == 2).await;
    for round in 0..3 {
        setting.act("flood", json!({})).await.unwrap();
        setting
            .act("change", json!({ "text": round.to_string() }))
            .await
            .unwrap();
        client.until(|told| told.updates > round).await;
        // The flood before it was no notice, and the change was one.
        assert_eq!(client.told().updates, round + 1);
    }
    assert_eq!(client.told().lists, 2);
    setting.assert_served().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stray_messages_are_dropped_and_counted() {
    let setting = RudeSetting::start().await;
    setting
        .act("foreign_answers", json!({ "count": 90 }))
        .await
        .unwrap();
    setting.act("garbage", json!({ "count": 90 })).await.unwrap();
    setting
        .act("foreign_answers", json!({ "count": 90 }))
        .await
        .unwrap();
    setting.act("garbage", json!({ "count": 90 })).await.unwrap();
    setting.act("progress", json!({ "count": 1_000 })).await.unwrap();
    setting.assert_served().await;
    assert_eq!(setting.dropped("unknown_id").await, 180);
    assert_eq!(setting.dropped("malformed").await, 180);
    assert_eq!(
        setting
            .gateway
            .metric("tidings_upstream_notices_dropped_total")
            .await,
        1_000
    );
    assert_eq!(setting.gateway.metric("tidings_upstream_restarts_total").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_of_stray_messages_is_started_anew() {
    let setting = RudeSetting::start().await;
    for (restarts, act) in [(1, "garbage"), (2, "foreign_answers")] {
        let refusal = setting.act(act, json!({ "count": 100 })).await.unwrap_err();
        assert!(refusal.to_string().contains("restarted"), "{refusal}");
        setting.assert_served().await;
        assert_eq!(
            setting.gateway.metric("tidings_upstream_restarts_total").await,
            restarts
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_line_takes_no_memory() {
    let setting = RudeSetting::start().await;
    setting
        .act("long_line", json!({ "mebibytes": 1_024 }))
        .await
        .unwrap();
    setting.assert_served().await;
    assert_eq!(setting.dropped("too_long").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn list_without_an_end_is_refused() {
    let setting = RudeSetting::start().await;
    for (kind, reason) in [
        ("endless", "1000 pages"),
        ("crowded", "10000 items"),
        ("fat", "MiB"),
        ("million", "timeout"),
    ] {
        setting.act("list_tools", json!({ "kind": kind })).await.unwrap();
        let listed = within("an answer", setting.client.running.list_tools(None));
        let refusal = tokio::join!(listed, setting.assert_served()).0.unwrap_err();
        eprintln!("{kind}: {refusal}");
        assert!(refusal.to_string().contains(reason), "{kind}: {refusal}");
    }
    setting
        .act("list_tools", json!({ "kind": "usual" }))
        .await
        .unwrap();
    let tools = within("an answer", setting.client.running.list_all_tools())
        .await
        .unwrap();
    assert!(tools.iter().any(|tool| tool.name == "t0"), "{tools:?}");
    setting.assert_served().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn list_without_an_answer_delays_no_notice() {
    let setting = RudeSetting::start().await;
    setting
        .act("list_tools", json!({ "kind": "silent" }))
        .await
        .unwrap();
    // The gateway looks at the list, and waits 10 s for its answer.
    setting.act("flood", json!({})).await.unwrap();
    for round in 0..20 {
        let began = Instant::now();
        let updates = setting.client.told().updates;
        setting
            .act("change", json!({ "text": round.to_string() }))
            .await
            .unwrap();
        setting.client.until(|told| told.updates > updates).await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn error_output_is_copied_slowly() {
    let setting = RudeSetting::start().await;
    let began = Instant::now();
    setting.act("errors", json!({ "count": 20_000 })).await.unwrap();
    setting.assert_served().await;
    let log = within("the last line", async {
        loop {
            let log = std::fs::read_to_string(setting.errors()).unwrap();
            if log.contains("server: the last line\n") {
                return log;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let copied = log.lines().filter(|line| line.starts_with("server: ")).count();
    // 100 in each second, and two that tell of those left out.
    let seconds = began.elapsed().as_secs() as usize + 2;
    assert!(copied <= 102 * seconds, "{copied} lines in {seconds} s");
    let longest = log.lines().map(str::len).max().unwrap();
    assert!(longest <= (4 << 10) + 100, "a line of {longest} bytes");
    assert!(log.contains("lines were left out"));
}

#[tokio::test(flavor = "multi_thread")]
async fn control_characters_of_a_server_stay_in_json() {
    let setting = RudeSetting::start().await;
    let resources = setting.client.running.list_all_resources().await.unwrap();
    // As they are: JSON escapes them, and clients show them as they must show any text of a server.
    assert_eq!(resources[1].name, "\u{1b}[2J\u{7}\u{202e}gnp.exe\r\n");
    let read = within("a read", setting.client.read("note://steering")).await;
    assert_eq!(read.unwrap(), "one");
    // A URI with control characters is none.
    let refusal = within("a read", setting.client.read(&resources[2].uri)).await;
    eprintln!("{refusal:?}");
    setting.assert_served().await;
    let log = std::fs::read_to_string(setting.errors()).unwrap();
    assert!(
        !log.contains(|text: char| text.is_control() && text != '\n'),
        "{log:?}"
    );
}
