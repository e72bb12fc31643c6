//! A server over HTTP that floods, lies and falls silent: one request fails, and the others of the connection
//! that all clients share do not notice; the memory stays bounded.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rmcp::ServiceError;
use rmcp::model::{CallToolRequestParams, ProtocolVersion};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::client::Client;
use super::hostile_server::HostileServer;
use super::workshop::{NOTE, Workshop};
use super::{Gateway, Setting, within};

/// The memory that the gateway may ever have used.
const MEMORY_MIB: usize = 256;

/// The gateway before the server, a client that misuses the server, and one that waits for an answer
/// meanwhile.
struct HostileSetting {
    server: Arc<HostileServer>,
    gateway: Gateway,
    client: Client,
    other: Client,
    serving: JoinHandle<()>,
}

impl Drop for HostileSetting {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl HostileSetting {
    async fn start(arguments: &[&str]) -> HostileSetting {
        let (server, url, serving) = HostileServer::serve().await;
        let arguments = [&["--isolation", "shared", "--poll", "1h"], arguments, &[&url]].concat();
        let gateway = Gateway::start(&arguments).await;
        let client = Client::connect(&gateway.url, "a", &ProtocolVersion::V_2025_11_25).await;
        client.watch().await;
        let other = Client::connect(&gateway.url, "b", &ProtocolVersion::V_2026_07_28).await;
        HostileSetting {
            server,
            gateway,
            client,
            other,
            serving,
        }
    }

    async fn act(&self, name: &'static str, arguments: Value) -> Result<(), ServiceError> {
        let call = CallToolRequestParams::new(name).with_arguments(arguments.as_object().unwrap().clone());
        within("the answer of a call", self.client.running.call_tool(call))
            .await
            .map(drop)
    }

    /// Has the server do something while a call of the other client is under way. Asserts that this call is
    /// answered, and everything else too, over the same connection.
    async fn disturb(&self, name: &'static str) -> Result<(), ServiceError> {
        self.server.released.send_replace(false);
        let mut waiting = self.server.waiting.subscribe();
        let calling = async {
            let answer = within("the answer of the other", self.other.call("wait")).await;
            assert_eq!(answer.unwrap(), "done", "{name}");
        };
        let disturbing = async {
            within("the other call", waiting.wait_for(|waiting| *waiting == 1))
                .await
                .unwrap();
            let disturbed = self.act(name, json!({})).await;
            self.assert_served().await;
            self.server.released.send_replace(true);
            disturbed
        };
        let (disturbed, ()) = tokio::join!(disturbing, calling);
        assert_eq!(
            self.gateway.metric("tidings_upstream_restarts_total").await,
            0,
            "{name}"
        );
        disturbed
    }

    /// Asserts that the gateway serves its clients, and is told of changes.
    async fn assert_served(&self) {
        let updates = self.client.told().updates;
        let text = format!("text {updates}");
        self.act("change", json!({ "text": text })).await.unwrap();
        self.client.until(|told| told.updates > updates).await;
        let read = within("a read", self.other.read(NOTE)).await;
        assert_eq!(read.unwrap(), text);
        let used = self.gateway.peak_mebibytes();
        eprintln!("the gateway has used {used} MiB at most");
        assert!(used <= MEMORY_MIB, "{used} MiB");
    }

    /// Asserts that a request is given up in time, and that others are answered meanwhile.
    async fn assert_times_out(&self, name: &'static str, arguments: Value) {
        let began = Instant::now();
        let (refusal, ()) = tokio::join!(self.act(name, arguments), self.assert_served());
        let refusal = refusal.unwrap_err().to_string();
        assert!(refusal.contains("timeout"), "{name}: {refusal}");
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{name}: {:?}",
            began.elapsed()
        );
    }

    async fn dropped(&self, reason: &str) -> usize {
        let name = format!("tidings_upstream_messages_dropped_total{{reason=\"{reason}\"}}");
        self.gateway.metric(&name).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_answer_fails_its_request_alone() {
    let setting = HostileSetting::start(&[]).await;
    for (count, act) in [(1, "long_event"), (2, "long_progress"), (3, "long_body")] {
        let refusal = setting.disturb(act).await.unwrap_err().to_string();
        assert!(
            refusal.contains("too_long") && refusal.contains("16 MiB"),
            "{act}: {refusal}"
        );
        assert_eq!(setting.dropped("too_long").await, count, "{act}");
    }
    let failed = "tidings_upstream_calls_total{result=\"failed\"}";
    assert_eq!(setting.gateway.metric(failed).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_answer_of_each_revision_is_refused() {
    for revision in [ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28] {
        let setting = Setting::of(revision.clone(), &["--isolation", "shared"]).await;
        let waiting = setting.client("a", &ProtocolVersion::V_2026_07_28).await;
        let mut running = setting.workshop.running.subscribe();
        let peer = waiting.running.peer().clone();
        let call = tokio::spawn(async move { peer.call_tool(CallToolRequestParams::new("wait")).await });
        within("the call", running.wait_for(|running| *running == 1))
            .await
            .unwrap();
        let client = setting.client("b", &ProtocolVersion::V_2025_11_25).await;
        let refusal = client.call("long").await.unwrap_err().to_string();
        assert!(refusal.contains("too_long"), "{revision}: {refusal}");
        assert_eq!(client.call("hello").await.unwrap(), "hello");
        assert!(
            !call.is_finished(),
            "{revision}: the call of another client has ended"
        );
        call.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_notice_is_dropped_and_counted() {
    let setting = HostileSetting::start(&[]).await;
    let mut streams = setting.server.streams.subscribe();
    setting.act("long_notice", json!({})).await.unwrap();
    within("another stream", streams.wait_for(|streams| *streams == 2))
        .await
        .unwrap();
    setting.assert_served().await;
    assert_eq!(setting.dropped("too_long").await, 1);
    assert_eq!(setting.gateway.metric("tidings_upstream_restarts_total").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_without_an_answer_fails_its_request() {
    let setting = HostileSetting::start(&[]).await;
    for act in ["cut", "garbage"] {
        let refusal = setting.disturb(act).await.unwrap_err().to_string();
        assert!(refusal.contains("restarted"), "{act}: {refusal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_to_other_requests_are_counted() {
    let setting = HostileSetting::start(&[]).await;
    setting.disturb("foreign_answers").await.unwrap();
    assert_eq!(setting.dropped("unknown_id").await, 200);
    assert_eq!(setting.dropped("malformed").await, 2);
    let refusal = setting.disturb("foreign_body").await.unwrap_err().to_string();
    assert!(refusal.contains("another kind"), "{refusal}");
    assert_eq!(setting.dropped("unknown_id").await, 201);
    let refusal = setting.disturb("no_id").await.unwrap_err().to_string();
    assert!(refusal.contains("not read"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn list_over_http_without_an_end_is_refused() {
    let setting = HostileSetting::start(&[]).await;
    for (kind, reason) in [
        ("endless", "1000 pages"),
        ("crowded", "10000 items"),
        ("fat", "MiB"),
        ("million", "too_long"),
        ("silent", "timeout"),
    ] {
        setting.act("list_tools", json!({ "kind": kind })).await.unwrap();
        let listed = within("an answer", setting.client.running.list_tools(None));
        let refusal = tokio::join!(listed, setting.assert_served()).0.unwrap_err();
        let refusal = refusal.to_string();
        // On a busy machine the time may be up first.
        assert!(
            refusal.contains(reason) || refusal.contains("timeout"),
            "{kind}: {refusal}"
        );
    }
    // One that is not waited for any more takes no place of the connection.
    let mut unanswered = setting.server.unanswered.subscribe();
    within("the end of the lists", unanswered.wait_for(|count| *count == 0))
        .await
        .unwrap();
    setting
        .act("list_tools", json!({ "kind": "usual" }))
        .await
        .unwrap();
    let tools = within("an answer", setting.client.running.list_all_tools()).await;
    assert!(tools.unwrap().iter().any(|tool| tool.name == "t0"));
    setting.assert_served().await;
    assert_eq!(setting.gateway.metric("tidings_upstream_restarts_total").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_ever_new_names_are_bounded() {
    let setting = Setting::of(ProtocolVersion::V_2026_07_28, &["--poll", "1h"]).await;
    let client = setting.client("a", &ProtocolVersion::V_2026_07_28).await;
    setting.workshop.crowd.store(9_000, Ordering::SeqCst);
    within("another connection", async {
        while setting.gateway.metric("tidings_upstream_restarts_total").await == 0 {
            within("an answer", client.running.list_tools(None)).await.ok();
        }
    })
    .await;
    setting.workshop.crowd.store(0, Ordering::SeqCst);
    let tools = within("an answer", client.running.list_all_tools()).await;
    assert!(tools.unwrap().iter().any(|tool| tool.name == "hello"));
    assert_eq!(client.call("hello").await.unwrap(), "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_server_is_not_waited_for() {
    let setting = HostileSetting::start(&["--call-timeout", "2s"]).await;
    // Seen by the server for a request that it has read; the end of another one is behind its body.
    setting.assert_times_out("silent", json!({})).await;
    let mut unanswered = setting.server.unanswered.subscribe();
    within("the end of the request", unanswered.wait_for(|count| *count == 0))
        .await
        .unwrap();
    let long = "x".repeat(2 << 20);
    setting.assert_times_out("deaf", json!({ "text": long })).await;
    assert_eq!(setting.gateway.metric("tidings_upstream_restarts_total").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_listen_stream_is_opened_again() {
    let workshop = Workshop::new(ProtocolVersion::V_2026_07_28);
    let (url, serving) = workshop.serve().await;
    let gateway = Gateway::start(&["--poll", "1h", &url]).await;
    let client = Client::connect(&gateway.url, "a", &ProtocolVersion::V_2026_07_28).await;
    client.watch().await;
    // By now the gateway looks at most every 8 s by itself, at the note and at everything else.
    within("some looks", async {
        while gateway.timed_looks().await < 8 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    workshop.end_streams();
    // Without a word: the stream that has ended announces nothing.
    workshop.write("written");
    let told = client.until(|told| told.updates == 1);
    let told = tokio::time::timeout(Duration::from_secs(6), told).await;
    assert!(told.is_ok(), "no look at the end of the stream");
    workshop.change("announced", 1).await;
    client.until(|told| told.updates == 2).await;
    serving.abort();
}
