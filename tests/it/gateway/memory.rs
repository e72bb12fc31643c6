//! The memory of clients that are connected and ask nothing.

use rmcp::model::ProtocolVersion;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::workshop::NOTE;
use super::{DEADLINE, Gateway, Setting};
use crate::mcp::client::Client;
use crate::mcp::events::{Events, updated_uri};

/// The clients that are connected before memory is measured, since the first ones fill what all share.
const EARLIER: usize = 100;

const MEASURED: usize = 400;

/// The most memory of one client without a connection of its own, in kilobytes.
const KILOBYTES_MAX: usize = 12;

/// Connects clients of 2025-11-25, each with a stream and a subscription.
async fn connect(gateway: &Gateway, number: usize) -> Vec<(Client, Events)> {
    let mut connected = Vec::new();
    for _ in 0..number {
        let client = Client::open(gateway.address(), "2025-11-25").await;
        let events = client.stream().await;
        client.subscribe(NOTE).await;
        client.call("tools/list", serde_json::json!({})).await;
        connected.push((client, events));
    }
    connected
}

/// Returns the memory of a gateway that is no file's, in bytes.
fn memory(gateway: &Gateway) -> usize {
    let pid = gateway.process.id().expect("the gateway runs");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kibibytes = anonymous.unwrap().trim().trim_end_matches(" kB");
    kibibytes.parse::<usize>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_sessions_need_little_memory() {
    let setting = Setting::of(ProtocolVersion::V_2025_11_25, &["--poll", "1h"]).await;
    let _earlier = connect(&setting.gateway, EARLIER).await;
    let before = memory(&setting.gateway);
    let mut measured = connect(&setting.gateway, MEASURED).await;
    // The services of the last requests end on other threads.
    let mut grown = 0;
    let settled = timeout(DEADLINE, async {
        loop {
            grown = memory(&setting.gateway).saturating_sub(before);
            if grown <= MEASURED * KILOBYTES_MAX * 1_000 {
                return;
            }
            yield_now().await;
        }
    });
    let is_settled = settled.await.is_ok();
    assert!(
        is_settled,
        "{} bytes for each of {MEASURED} sessions",
        grown / MEASURED
    );
    // They are as awake as ever.
    setting.workshop.change("two", 1).await;
    let (client, events) = &mut measured[0];
    while updated_uri(&events.message().await) != Some(NOTE) {}
    assert_eq!(client.delete().await.status, 204);
}
