//! A thousand clients of one resource: the server has one subscription and one read for each change, and each
//! client one notice.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use futures_util::StreamExt;
use rmcp::model::ProtocolVersion;
use serde_json::json;

use super::Setting;
use super::workshop::NOTE;
use crate::mcp::client::{Client, listen, updates};
use crate::mcp::events::{Events, updated_etag, updated_uri, version};

const CLIENTS: usize = 1_000;

/// Clients that connect, or read, at once.
const AT_ONCE: usize = 32;

/// A client that is told of changes of the note.
struct Listener {
    events: Events,
    /// The session of a client of 2025-11-25.
    _session: Option<Client>,
}

impl Listener {
    /// Connects a client of 2025-11-25, or of 2026-07-28 for an odd number.
    async fn connect(server: SocketAddr, number: usize) -> Listener {
        if number % 2 == 1 {
            let (acknowledged, events) = listen(server, &json!(number), updates(&[NOTE])).await;
            let accepted = &acknowledged["params"]["notifications"];
            assert_eq!(accepted["resourceSubscriptions"], json!([NOTE]));
            return Listener {
                events,
                _session: None,
            };
        }
        let session = Client::open(server, "2025-11-25").await;
        let events = session.stream().await;
        session.subscribe(NOTE).await;
        Listener {
            events,
            _session: Some(session),
        }
    }

    /// Returns the version in the next notice of the note.
    async fn told(&mut self) -> u64 {
        loop {
            let message = self.events.message().await;
            if updated_uri(&message) == Some(NOTE) {
                return version(&updated_etag(&message));
            }
        }
    }
}

/// Returns the version that every client is told next, which has to be the same.
async fn told(clients: &mut [Listener]) -> u64 {
    let told = futures_util::stream::iter(clients)
        .map(Listener::told)
        .buffer_unordered(AT_ONCE);
    let versions: Vec<u64> = told.collect().await;
    let first = versions[0];
    assert!(versions.iter().all(|version| *version == first), "{versions:?}");
    first
}

async fn thousand_clients_are_one_subscription(revision: ProtocolVersion) {
    let setting = Setting::of(revision, &["--poll", "1h"]).await;
    let workshop = &setting.workshop;
    let server = setting.gateway.address();
    let mut clients: Vec<Listener> = futures_util::stream::iter(0..CLIENTS)
        .map(|number| Listener::connect(server, number))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    assert_eq!(workshop.subscriptions.load(Ordering::SeqCst), 1);
    assert_eq!(setting.gateway.metric("tidings_upstream_subscriptions").await, 1);

    let mut last = None;
    for (text, notices) in [("two", 100), ("three", 1), ("four", 1)] {
        let reads = workshop.reads.load(Ordering::SeqCst);
        let timed = setting.gateway.timed_looks().await;
        workshop.change(text, notices).await;
        let version = told(&mut clients).await;
        // The looks of the timer are made without a change, too.
        let timed = setting.gateway.timed_looks().await - timed;
        let reads = workshop.reads.load(Ordering::SeqCst) - reads;
        assert!(
            reads <= 2 + timed,
            "{reads} reads for one change, {timed} of the timer"
        );
        // One notice for each change: the next one that a client gets is that of the next version.
        if let Some(last) = last {
            assert_eq!(version, last + 1);
        }
        last = Some(version);
    }
    assert_eq!(workshop.subscriptions.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_clients_are_one_subscription_2025() {
    thousand_clients_are_one_subscription(ProtocolVersion::V_2025_11_25).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_clients_are_one_subscription_2026() {
    thousand_clients_are_one_subscription(ProtocolVersion::V_2026_07_28).await;
}
