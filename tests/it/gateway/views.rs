//! Each client is shown the tools that the server has for it: for its capabilities, and for its session.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use rmcp::model::{ClientCapabilities, ProtocolVersion};
use serde_json::{Value, json};

use super::client::Client;
use super::several::gateway;
use super::workshop::Workshop;
use super::{REVISIONS, Setting, StdioGateway, within};

/// A server over stdio that lists a tool for clients with roots. It asks for them at once, and tells them and
/// its client's name in a log message.
const SERVER: &str = r#"
import json, sys
def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
about = {"name": "roots", "version": "1"}
has_roots, name = False, ""
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        has_roots, name = "roots" in params["capabilities"], params["clientInfo"]["name"]
        result = {"protocolVersion": params["protocolVersion"], "serverInfo": about}
        send({"id": message["id"], "result": {**result, "capabilities": {"tools": {}, "logging": {}}}})
    elif method == "notifications/initialized" and has_roots:
        send({"id": "roots", "method": "roots/list"})
    elif message.get("id") == "roots":
        told = name + " has " + message["result"]["roots"][0]["uri"]
        send({"method": "notifications/message", "params": {"level": "info", "data": told}})
    elif method == "tools/list":
        names = ["any"] + ["with_roots"] * has_roots
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
        send({"id": message["id"], "result": {"tools": tools}})
    elif "id" in message and method:
        send({"id": message["id"], "result": {}})
"#;

fn without_sampling() -> ClientCapabilities {
    ClientCapabilities::builder().enable_elicitation().build()
}

async fn tools(client: &Client) -> BTreeSet<String> {
    let tools = within("the tools", client.running.list_all_tools())
        .await
        .unwrap();
    tools.into_iter().map(|tool| tool.name.into_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_shown_what_they_can_use() {
    for upstream in [&REVISIONS[2], &REVISIONS[3], &REVISIONS[4]] {
        let setting = Setting::of(upstream.clone(), &[]).await;
        let url = &setting.gateway.url;
        for revision in &REVISIONS {
            let able = setting.client("able", revision).await;
            let unable = Client::connect_with(url, "unable", revision, without_sampling()).await;
            for _ in 0..2 {
                let (able, unable) = tokio::join!(tools(&able), tools(&unable));
                assert!(
                    able.contains("sample") && !able.contains("without_sampling"),
                    "{able:?}"
                );
                assert!(
                    unable.contains("without_sampling") && !unable.contains("sample"),
                    "{unable:?}"
                );
            }
            assert_eq!(unable.call("without_sampling").await.unwrap(), "hello");
            assert!(tools(&unable).await.contains("without_sampling"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_capabilities_share_one_connection() {
    let setting = Setting::of(ProtocolVersion::V_2025_11_25, &[]).await;
    let mut clients = Vec::new();
    for number in 0..20 {
        let client = setting
            .client(&number.to_string(), &REVISIONS[3 + number % 2])
            .await;
        assert!(tools(&client).await.contains("sample"));
        clients.push(client);
    }
    // That of the watcher, and theirs.
    assert_eq!(setting.workshop.sessions.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn shown_tool_is_found_under_its_prefix() {
    let workshop = Workshop::new(ProtocolVersion::V_2025_11_25);
    let (url, _serving) = workshop.serve().await;
    let (gateway, _config) = gateway(&format!(
        "[gateway.upstream.a]\nurl = '{url}'\n[gateway.upstream.b]\nurl = '{url}'\n"
    ))
    .await;
    let revision = ProtocolVersion::V_2025_11_25;
    let client = Client::connect_with(&gateway.url, "c", &revision, without_sampling()).await;
    // Before it has listed anything.
    assert_eq!(client.call("a__without_sampling").await.unwrap(), "hello");
    assert_eq!(client.call("b__unlock").await.ok(), None);
    let listed = tools(&client).await;
    assert!(
        listed.contains("b__without_sampling") && !listed.contains("b__sample"),
        "{listed:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_of_a_session_is_told_its_client_alone() {
    let setting = Setting::of(ProtocolVersion::V_2025_11_25, &["--poll", "1h"]).await;
    let alice = setting.client("alice", &ProtocolVersion::V_2025_11_25).await;
    let bob = setting.client("bob", &ProtocolVersion::V_2025_11_25).await;
    // Each is told of the two lists that are not empty.
    for client in [&alice, &bob] {
        client.until(|told| told.lists == 2).await;
        assert!(!tools(client).await.contains("unlocked"));
    }
    assert_eq!(alice.call("unlock").await.unwrap(), "unlocked");
    alice.until(|told| told.lists == 3).await;
    assert!(tools(&alice).await.contains("unlocked"));
    assert!(!tools(&bob).await.contains("unlocked"));
    assert_eq!(bob.call("hello").await.unwrap(), "hello");
    assert!(!tools(&bob).await.contains("unlocked"));

    // One that every connection sees is told once, also to those that have their own.
    setting.workshop.add_tool().await;
    for client in [&alice, &bob] {
        client.until(|told| told.lists > 2).await;
    }
    alice.until(|told| told.lists == 4).await;
    assert!(tools(&bob).await.contains("extra"));
    assert_eq!(bob.call("unlock").await.unwrap(), "unlocked");
    bob.until(|told| told.lists >= 4).await;
    assert!(tools(&bob).await.contains("unlocked"));
    assert_eq!((alice.told().lists, bob.told().lists), (4, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn change_for_some_capabilities_is_told() {
    let setting = Setting::of(ProtocolVersion::V_2025_11_25, &["--poll", "1h"]).await;
    let revision = ProtocolVersion::V_2025_11_25;
    let bob = Client::connect_with(&setting.gateway.url, "bob", &revision, without_sampling()).await;
    bob.until(|told| told.lists == 2).await;
    assert!(!tools(&bob).await.contains("extra_for_some"));
    setting.workshop.add_tool_for_some().await;
    bob.until(|told| told.lists == 3).await;
    assert!(tools(&bob).await.contains("extra_for_some"));
    assert_eq!(setting.gateway.metric("tidings_upstream_views").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_that_one_client_is_shown_is_told() {
    let setting = Setting::of(ProtocolVersion::V_2025_11_25, &["--poll", "1h"]).await;
    let url = &setting.gateway.url;
    let alice = setting.client("alice", &ProtocolVersion::V_2025_11_25).await;
    alice.until(|told| told.lists == 2).await;
    let revision = ProtocolVersion::V_2026_07_28;
    let bob = Client::connect_with(url, "bob", &revision, without_sampling()).await;
    assert!(!tools(&bob).await.contains("extra"));
    setting.workshop.add_tool_in_silence();
    assert!(tools(&bob).await.contains("extra"));
    alice.until(|told| told.lists == 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_a_session_change_later_lists() {
    let setting = Setting::of(ProtocolVersion::V_2025_11_25, &["--poll", "1h"]).await;
    let every_capability = json!({ "roots": { "listChanged": true }, "sampling": {}, "elicitation": {} });
    let every_capability: ClientCapabilities = serde_json::from_value(every_capability).unwrap();
    for capabilities in [without_sampling(), every_capability] {
        let url = &setting.gateway.url;
        let client = Client::connect_with(url, "alice", &ProtocolVersion::V_2026_07_28, capabilities).await;
        assert!(!tools(&client).await.contains("unlocked"));
        assert_eq!(client.call("unlock").await.unwrap(), "unlocked");
        assert!(tools(&client).await.contains("unlocked"));
    }
}

/// Sends a client's messages to a gateway on stdin, and returns its answers once the last one has come: the
/// one of which `is_last` is true.
async fn talk(messages: &[Value], is_last: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut gateway = StdioGateway::start(SERVER);
    for message in messages {
        gateway.send(message).await;
    }
    let mut answers = Vec::new();
    loop {
        let answer = gateway.receive().await;
        if answer["method"] == "roots/list" {
            let roots = json!({ "roots": [{ "uri": "file:///home" }] });
            let reply = json!({ "jsonrpc": "2.0", "id": answer["id"], "result": roots });
            gateway.send(&reply).await;
        }
        let ends = is_last(&answer);
        answers.push(answer);
        if ends {
            return answers;
        }
    }
}

fn request(id: usize, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn names(answers: &[Value], id: usize) -> Vec<&str> {
    let answer = answers.iter().find(|answer| answer["id"] == id).unwrap();
    let tools = answer["result"]["tools"].as_array().unwrap();
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
    // The gateway's own tools have longer ones.
    names
        .filter(|name| ["any", "with_roots"].contains(name))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_client_is_known_to_its_server() {
    let about = json!({ "name": "host", "version": "1" });
    for (capabilities, expected) in [
        (json!({}), vec!["any"]),
        (json!({ "roots": {} }), vec!["any", "with_roots"]),
    ] {
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": about });
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let messages = [
            request(1, "initialize", &params),
            ready,
            request(2, "tools/list", &json!({})),
        ];
        let answers = talk(&messages, |answer| answer["id"] == 2).await;
        assert_eq!(names(&answers, 2), expected);

        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities,
            "io.modelcontextprotocol/clientInfo": about,
        });
        let params = json!({ "_meta": meta });
        let messages = [
            request(1, "server/discover", &params),
            request(2, "tools/list", &params),
        ];
        let answers = talk(&messages, |answer| answer["id"] == 2).await;
        assert_eq!(names(&answers, 2), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_client_is_asked_between_its_requests() {
    let about = json!({ "name": "host", "version": "1" });
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": { "roots": {} }, "clientInfo": about });
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let messages = [request(1, "initialize", &params), ready];
    let answers = talk(&messages, |answer| answer["method"] == "notifications/message").await;
    let told = answers.last().unwrap();
    assert_eq!(told["params"]["data"], "host has file:///home");
}
