//! Log messages reach the client that asked for them, from the level on that it has set, and no other.

#![expect(deprecated, reason = "the older revisions have a request for the level")]

use rmcp::model::{LoggingLevel, ProtocolVersion, SetLevelRequestParams};
use serde_json::json;

use super::client::Client;
use super::{Setting, StdioGateway, cancel, within};

/// A server over stdio whose tool tells the log level that was set, and another one ends it.
const SERVER: &str = r#"
import json, os, sys
level = "none"
for line in sys.stdin:
    request = json.loads(line)
    method, params = request.get("method"), request.get("params") or {}
    if method == "logging/setLevel":
        level = params["level"]
    if params.get("name") == "end":
        os._exit(1)
    result = {}
    if method == "initialize":
        about = {"name": "levels", "version": "1"}
        capabilities = {"tools": {}, "logging": {}}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": about}
    if method == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ["level", "end"]]}
    if method == "tools/call":
        result = {"content": [{"type": "text", "text": level}]}
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"#;

/// Sets the log level of a client of an older revision.
async fn set_level(client: &Client, level: LoggingLevel) {
    let request = SetLevelRequestParams::new(level);
    within("the level", client.running.set_level(request))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn log_messages_reach_the_caller_alone() {
    let setting = Setting::of(ProtocolVersion::V_2026_07_28, &[]).await;
    let alice = setting.client("alice", &ProtocolVersion::V_2026_07_28).await;
    let bob = setting.client("bob", &ProtocolVersion::V_2026_07_28).await;
    let logging = tokio::spawn(alice.call_for_logs("log"));
    let bob = cancel(&setting, bob).await;
    within("the answer", logging).await.unwrap().unwrap();
    alice.until(|told| told.warnings == ["\"for you\""]).await;
    assert_eq!(bob.told().warnings, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn level_of_a_session_is_that_of_its_requests() {
    for revision in [ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28] {
        let setting = Setting::of(revision.clone(), &[]).await;
        let alice = setting.client("alice", &ProtocolVersion::V_2025_11_25).await;
        // The same person for the gateway, who has no name there.
        let bob = setting.client("bob", &ProtocolVersion::V_2025_11_25).await;
        set_level(&alice, LoggingLevel::Info).await;
        let bob = cancel(&setting, bob).await;
        assert_eq!(alice.call("log").await.unwrap(), "logged");
        alice.until(|told| told.warnings == ["\"for you\""]).await;
        assert_eq!(bob.call("log").await.unwrap(), "logged");
        // The server sends it all the same.
        set_level(&alice, LoggingLevel::Error).await;
        assert_eq!(alice.call("log").await.unwrap(), "logged");
        set_level(&alice, LoggingLevel::Debug).await;
        assert_eq!(alice.call("log").await.unwrap(), "logged");
        alice.until(|told| told.warnings.len() >= 2).await;
        assert_eq!(alice.told().warnings.len(), 2, "{revision}");
        assert_eq!(bob.told().warnings, Vec::<String>::new(), "{revision}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn isolated_client_calls_a_server_of_2026_07_28() {
    let setting = Setting::of(ProtocolVersion::V_2026_07_28, &["--isolation", "client"]).await;
    let client = setting.client("a", &ProtocolVersion::V_2025_11_25).await;
    assert_eq!(client.call("hello").await.unwrap(), "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn level_of_a_request_is_set_at_an_older_server() {
    let setting = Setting::of(ProtocolVersion::V_2025_11_25, &[]).await;
    let alice = setting.client("alice", &ProtocolVersion::V_2026_07_28).await;
    let bob = setting.client("bob", &ProtocolVersion::V_2026_07_28).await;
    let bob = cancel(&setting, bob).await;
    let logged = within("the answer", alice.call_for_logs("log")).await;
    logged.unwrap();
    alice.until(|told| told.warnings == ["\"for you\""]).await;
    assert_eq!(bob.call("log").await.unwrap(), "logged");
    assert_eq!(bob.told().warnings, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn level_of_the_one_client_outlives_its_server() {
    let mut gateway = StdioGateway::start(SERVER);
    let client = json!({ "name": "a", "version": "1" });
    let initialize = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let requests = [
        ("initialize", initialize, ""),
        ("logging/setLevel", json!({ "level": "debug" }), ""),
        ("tools/call", json!({ "name": "level" }), "debug"),
        ("tools/call", json!({ "name": "end" }), ""),
        ("tools/call", json!({ "name": "level" }), "debug"),
    ];
    for (id, (method, params, text)) in requests.into_iter().enumerate() {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        gateway.send(&request).await;
        if id == 0 {
            let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            gateway.send(&ready).await;
        }
        let answer = loop {
            let message = gateway.receive().await;
            if message["id"] == id {
                break message;
            }
        };
        if !text.is_empty() {
            assert_eq!(answer["result"]["content"][0]["text"], text, "{answer}");
        }
    }
}
