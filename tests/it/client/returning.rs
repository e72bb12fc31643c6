//! The watcher against Tidings itself: after a restart it hands its etags over, so nothing is told late.

use std::net::SocketAddr;
use std::time::Duration;

use tidings::client::{WatchEvent, WatchOptions, Watcher};
use tidings::mcp::{Endpoint, McpOptions};
use tidings::{Bus, Limits, Resource};

use super::{BOTH_ERAS, change, event, quick, restored, soon, watch, watcher};
use crate::memory_store::MemoryStore;

const A: &str = "demo://a";
const B: &str = "demo://b";

/// One life of a server. Its runtime ends with it, and with that every socket, as after a kill.
struct Life {
    bus: Bus,
    address: SocketAddr,
    runtime: tokio::runtime::Runtime,
}

impl Life {
    async fn start(address: SocketAddr, store: Option<MemoryStore>) -> Life {
        let mut limits = Limits::default();
        limits.shards = 1;
        let mut builder = Bus::builder().limits(limits);
        if let Some(store) = store {
            builder = builder.store(store);
        }
        let bus = builder.start().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let endpoint = Endpoint::new(bus.clone(), McpOptions::default());
        let serving = runtime.spawn(async move {
            let listener = tokio::net::TcpListener::bind(address).await.unwrap();
            let address = listener.local_addr().unwrap();
            let router = axum::Router::new().route_service("/mcp", endpoint);
            tokio::spawn(async move { axum::serve(listener, router).await });
            address
        });
        let address = serving.await.unwrap();
        Life {
            bus,
            address,
            runtime,
        }
    }

    fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    async fn put(&self, uri: &str, text: &str) -> String {
        let resource = Resource::text(uri, text).unwrap();
        self.bus.upsert(resource).await.unwrap().etag.to_string()
    }

    /// Ends it; returns its address for the next one.
    async fn end(self) -> SocketAddr {
        let Life {
            bus,
            address,
            runtime,
        } = self;
        bus.shutdown(Duration::ZERO).await;
        let gone = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(5)));
        gone.await.unwrap();
        address
    }
}

fn any_port() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// Waits that no test would live to see: a change that is found by asking again is never found.
fn patient() -> WatchOptions {
    let mut options = quick();
    options.poll_first = Duration::from_secs(600);
    options.poll_max = Duration::from_secs(600);
    options
}

async fn until_missing(watcher: &mut Watcher) -> String {
    loop {
        match event(watcher).await {
            WatchEvent::Missing { uri, .. } => return uri,
            WatchEvent::Changed(changed) => panic!("{changed:?}"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn absent_resource_is_told_at_its_creation() {
    for (era, strategy) in BOTH_ERAS {
        let life = Life::start(any_port(), None).await;
        life.put(B, "1").await;
        let mut watcher = watcher(&life.url(), era, patient()).await;
        let etags = watch(&mut watcher, &[A, B]).await;
        assert_eq!(etags[0], None);
        assert_eq!(until_missing(&mut watcher).await, A);
        let created = life.put(A, "1").await;
        assert_eq!(
            change(&mut watcher).await,
            (A.to_owned(), Some(created), strategy)
        );
        let next = life.put(A, "2").await;
        assert_eq!(change(&mut watcher).await, (A.to_owned(), Some(next), strategy));
        soon(watcher.close()).await;
        life.end().await;
    }
}

#[tokio::test]
async fn watcher_returns_before_the_publisher() {
    for (era, strategy) in BOTH_ERAS {
        for store in [Some(MemoryStore::new()), None] {
            let life = Life::start(any_port(), store.clone()).await;
            life.put(A, "1").await;
            let kept = life.put(B, "1").await;
            let mut watcher = watcher(&life.url(), era, patient()).await;
            assert_eq!(watch(&mut watcher, &[A, B]).await[1], Some(kept.clone()));
            let address = life.end().await;
            let life = Life::start(address, store.clone()).await;
            restored(&mut watcher).await;
            if store.is_none() {
                // Nothing is known of either.
                let mut missing = [
                    until_missing(&mut watcher).await,
                    until_missing(&mut watcher).await,
                ];
                missing.sort();
                assert_eq!(missing, [A, B]);
            }
            let same = life.put(B, "1").await;
            if store.is_some() {
                assert_eq!(same, kept);
            } else {
                assert_eq!(change(&mut watcher).await, (B.to_owned(), Some(same), strategy));
            }
            let new = life.put(A, "2").await;
            assert_eq!(change(&mut watcher).await, (A.to_owned(), Some(new), strategy));
            soon(watcher.close()).await;
            life.end().await;
        }
    }
}

#[tokio::test]
async fn removal_during_an_outage_is_told() {
    for (era, strategy) in BOTH_ERAS {
        let store = MemoryStore::new();
        let life = Life::start(any_port(), Some(store.clone())).await;
        life.put(A, "1").await;
        let mut watcher = watcher(&life.url(), era, patient()).await;
        watch(&mut watcher, &[A]).await;
        let address = life.end().await;
        // A life that the watcher does not see.
        let between = Life::start(any_port(), Some(store.clone())).await;
        between.put(A, "1").await;
        let removed = between.bus.remove(A).await.unwrap().etag.to_string();
        between.end().await;
        let life = Life::start(address, Some(store)).await;
        assert_eq!(
            change(&mut watcher).await,
            (A.to_owned(), Some(removed), strategy)
        );
        let again = life.put(A, "2").await;
        assert_eq!(change(&mut watcher).await, (A.to_owned(), Some(again), strategy));
        soon(watcher.close()).await;
        life.end().await;
    }
}
