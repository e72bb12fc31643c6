//! A server that ends in the middle of a call, that forgets its clients, and that changes its tools.

use std::time::Duration;

use rmcp::ServiceError;
use rmcp::model::{ProtocolVersion, Tool};
use tempfile::{NamedTempFile, TempDir};

use super::client::Client;
use super::several::gateway;
use super::{Gateway, within};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/gateway/brittle_server.py");

/// A gateway before the server, with these keys in its table.
struct Setting {
    gateway: Gateway,
    client: Client,
    folder: TempDir,
    _config: NamedTempFile,
}

impl Setting {
    async fn with(keys: &str) -> Setting {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("about"), "Looks.").unwrap();
        let command = format!("['python3', '{SCRIPT}', '{}']", folder.path().display());
        let table = format!("[gateway.upstream.brittle]\ncommand = {command}\npoll = '1s'\n{keys}\n");
        let (gateway, config) = gateway(&table).await;
        let client = Client::connect(&gateway.url, "ann", &ProtocolVersion::V_2025_11_25).await;
        Setting {
            gateway,
            client,
            folder,
            _config: config,
        }
    }

    async fn tool(&self, name: &str) -> Option<Tool> {
        let tools = self.client.running.list_all_tools().await.unwrap();
        tools.into_iter().find(|tool| tool.name == name)
    }
}

fn reason(answer: Result<String, ServiceError>) -> String {
    let ServiceError::McpError(error) = answer.unwrap_err() else {
        panic!("no answer");
    };
    error.data.unwrap()["reason"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn call_that_only_reads_is_made_again_if_wanted() {
    let setting = Setting::with("idempotent_retry = true").await;
    assert_eq!(setting.client.call("look").await.unwrap(), "answered");
    assert_eq!(reason(setting.client.call("write").await), "restarted");
    let setting = Setting::with("").await;
    assert_eq!(reason(setting.client.call("look").await), "restarted");
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_without_a_call_is_closed() {
    let setting = Setting::with("speaker_idle = '1s'").await;
    let first: u32 = setting.client.call("pid").await.unwrap().parse().unwrap();
    within("the end of the process", async {
        while setting.gateway.children().contains(&first) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let second: u32 = setting.client.call("pid").await.unwrap().parse().unwrap();
    assert_ne!(first, second);
    setting.client.until(|told| told.warnings.len() == 1).await;
    assert!(setting.client.told().warnings[0].contains("is lost"));
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_that_changes_is_blocked_if_wanted() {
    for (pinning, is_there) in [("block", false), ("warn", true)] {
        let setting = Setting::with(&format!("tool_pinning = '{pinning}'")).await;
        assert!(setting.tool("look").await.is_some());
        std::fs::write(setting.folder.path().join("about"), "Looks, and sends it away.").unwrap();
        assert_eq!(setting.tool("look").await.is_some(), is_there, "{pinning}");
        assert!(setting.tool("pid").await.is_some());
        if !is_there {
            let refusal = setting.client.call("look").await.unwrap_err().to_string();
            assert!(refusal.contains("Unknown tool: look"), "{refusal}");
        }
    }
}
