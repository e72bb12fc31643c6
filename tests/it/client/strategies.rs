//! The strategies of the watcher against servers that offer little, break promises, notify too much, or
//! restart.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::runtime::Runtime;

use tidings::client::{Era, ResourceChanged, Target, WatchEvent, WatchOptions, WatchStrategy, Watcher};
use tidings::mcp::{Endpoint, McpOptions};
use tidings::store::RedbStore;
use tidings::{Bus, Digest, Resource, etag_tools};

use super::server::{Offer, Server};
use super::{BOTH_ERAS, MS, change, changed, etag_if, event, lost, missing, quick, soon, watch, watcher};

/// Returns options with short waits, with which the server's promise is checked at once.
fn suspicious() -> WatchOptions {
    let mut options = quick();
    options.verify_first = 50 * MS;
    options.verify_every = 100 * MS;
    options.verify_grace = 300 * MS;
    options
}

#[tokio::test]
async fn server_without_offers_is_read() {
    for modern in [true, false] {
        let offer = Offer {
            modern,
            ..Offer::BARE
        };
        let server = Server::with(offer, &[("demo://a", None), ("demo://b", None)]).await;
        let mut watcher = watcher(&server.url(), Era::Auto, quick()).await;
        assert_eq!(watcher.strategy(), WatchStrategy::ReadAndHash);
        assert_eq!(watch(&mut watcher, &["demo://a", "demo://b"]).await, [None, None]);
        server.set("demo://a", "first", None);
        server.set("demo://b", "second", None);
        assert_eq!(
            change(&mut watcher).await,
            changed("demo://b", None, WatchStrategy::ReadAndHash)
        );
        server.set("demo://a", "third", None);
        assert_eq!(
            change(&mut watcher).await,
            changed("demo://a", None, WatchStrategy::ReadAndHash)
        );
        soon(watcher.close()).await;
    }
}

#[tokio::test]
async fn etag_tools_are_called_once_for_all_resources() {
    let offer = Offer {
        tools: true,
        ..Offer::BARE
    };
    let uris = ["demo://a", "demo://b", "demo://c"];
    let server = Server::with(offer, &uris.map(|uri| (uri, Some("v1-5")))).await;
    let mut watcher = watcher(&server.url(), Era::Auto, quick()).await;
    assert_eq!(watcher.strategy(), WatchStrategy::EtagTool);
    assert_eq!(
        watch(&mut watcher, &uris).await,
        [(); 3].map(|()| Some("v1-5".to_owned()))
    );
    assert_eq!(server.calls(), 1);
    server.set("demo://c", "second", Some("v2-6"));
    assert_eq!(
        change(&mut watcher).await,
        changed("demo://c", Some("v2-6"), WatchStrategy::EtagTool)
    );
    // A removed resource does not hide the others.
    server.remove("demo://a");
    assert_eq!(missing(&mut watcher).await, "demo://a");
    server.set("demo://b", "second", Some("v2-7"));
    assert_eq!(
        change(&mut watcher).await,
        changed("demo://b", Some("v2-7"), WatchStrategy::EtagTool)
    );
    server.set("demo://a", "back", Some("v2-8"));
    assert_eq!(
        change(&mut watcher).await,
        changed("demo://a", Some("v2-8"), WatchStrategy::EtagTool)
    );
}

#[tokio::test]
async fn resource_refused_by_the_best_strategy_takes_next() {
    for (era, best) in BOTH_ERAS {
        let server = Server::start(true, &[("demo://a", Some("v1-5")), ("demo://b", None)]).await;
        server.refuse_subscriptions("demo://b");
        let mut watcher = watcher(&server.url(), era, quick()).await;
        watch(&mut watcher, &["demo://a", "demo://b"]).await;
        assert_eq!(watcher.strategy_of("demo://a"), Some(best));
        assert_eq!(watcher.strategy_of("demo://b"), Some(WatchStrategy::ReadAndHash));
        let WatchEvent::SteppedDown { uri, from, to, .. } = event(&mut watcher).await else {
            panic!("the step is reported first");
        };
        assert_eq!(
            (uri.as_deref(), from, to),
            (Some("demo://b"), best, WatchStrategy::ReadAndHash)
        );
        server.update("demo://a", "second", Some("v2-6")).await;
        assert_eq!(
            change(&mut watcher).await,
            changed("demo://a", Some("v2-6"), best)
        );
        server.set("demo://b", "second", None);
        assert_eq!(
            change(&mut watcher).await,
            changed("demo://b", None, WatchStrategy::ReadAndHash)
        );
    }
}

#[tokio::test]
async fn silent_server_is_stepped_down_without_loss() {
    for (tools, to) in [
        (true, WatchStrategy::EtagTool),
        (false, WatchStrategy::ReadAndHash),
    ] {
        for (era, from) in BOTH_ERAS {
            let first = etag_if(tools, 1);
            let second = etag_if(tools, 2);
            let offer = Offer {
                modern: true,
                notifies: true,
                tools,
            };
            let resources = ["demo://a", "demo://b"].map(|uri| (uri, first.as_deref()));
            let server = Server::with(offer, &resources).await;
            let mut watcher = watcher(&server.url(), era, suspicious()).await;
            assert_eq!(watcher.strategy(), from);
            watch(&mut watcher, &["demo://a", "demo://b"]).await;
            server.set("demo://a", "changed silently", second.as_deref());
            let expected = WatchEvent::SteppedDown {
                uri: None,
                from,
                to,
                reason: "the server did not tell that demo://a changed".to_owned(),
            };
            assert_eq!(event(&mut watcher).await, expected);
            assert_eq!(
                change(&mut watcher).await,
                changed("demo://a", second.as_deref(), to)
            );
            server.set("demo://b", "changed silently", second.as_deref());
            assert_eq!(
                change(&mut watcher).await,
                changed("demo://b", second.as_deref(), to)
            );
        }
    }
}

#[tokio::test]
async fn honest_server_keeps_its_strategy() {
    for etags in [true, false] {
        for (era, strategy) in BOTH_ERAS {
            let server = Server::start(true, &[("demo://a", etag_if(etags, 1).as_deref())]).await;
            // Check far more often than the resource changes, with a generous grace period.
            let mut options = quick();
            options.verify_first = 10 * MS;
            options.verify_every = 10 * MS;
            options.verify_grace = Duration::from_secs(20);
            let mut watcher = watcher(&server.url(), era, options).await;
            watch(&mut watcher, &["demo://a"]).await;
            for version in 2..30 {
                let etag = etag_if(etags, version);
                let text = format!("text {version}");
                server.update("demo://a", &text, etag.as_deref()).await;
                assert_eq!(
                    change(&mut watcher).await,
                    changed("demo://a", etag.as_deref(), strategy)
                );
            }
        }
    }
}

#[tokio::test]
async fn repeated_notifications_of_a_change_are_one_event() {
    for (etag, eras) in [
        (Some("v2-6"), &[Era::Modern][..]),
        (None, &[Era::Modern, Era::Legacy]),
    ] {
        for era in eras.iter().copied() {
            let first = etag.map(|_| "v1-5");
            let server = Server::start(true, &[("demo://a", first), ("demo://b", first)]).await;
            let mut watcher = watcher(&server.url(), era, quick()).await;
            watch(&mut watcher, &["demo://a", "demo://b"]).await;
            server.set("demo://a", "second", etag);
            for _ in 0..2_000 {
                server.notify("demo://a", etag).await;
            }
            server.set("demo://b", "second", etag);
            // A stream that could not take them all is reopened, so the last notification is repeated until
            // it arrives.
            let mut changes = Vec::new();
            loop {
                tokio::select! {
                    changed = change(&mut watcher) => {
                        changes.push(changed.0);
                        if changes.ends_with(&["demo://b".to_owned()]) {
                            break;
                        }
                    }
                    () = tokio::time::sleep(100 * MS) => server.notify("demo://b", etag).await,
                }
            }
            assert_eq!(changes.len(), 2, "{changes:?}");
        }
    }
}

#[tokio::test]
async fn change_while_a_polled_server_is_gone_is_reported() {
    for tools in [true, false] {
        let offer = Offer { tools, ..Offer::BARE };
        let first = etag_if(tools, 1);
        let resources = ["demo://a", "demo://b"].map(|uri| (uri, first.as_deref()));
        let mut server = Server::with(offer, &resources).await;
        let mut watcher = watcher(&server.url(), Era::Auto, quick()).await;
        let strategy = watcher.strategy();
        watch(&mut watcher, &["demo://a", "demo://b"]).await;
        server.kill().await;
        let second = etag_if(tools, 2);
        server.set("demo://a", "changed meanwhile", second.as_deref());
        lost(&mut watcher).await;
        server.revive().await;
        assert_eq!(
            change(&mut watcher).await,
            changed("demo://a", second.as_deref(), strategy)
        );
        server.set("demo://b", "next", second.as_deref());
        assert_eq!(
            change(&mut watcher).await,
            changed("demo://b", second.as_deref(), strategy)
        );
    }
}

#[tokio::test]
async fn configured_strategy_is_used_or_refused() {
    let server = Server::start(true, &[("demo://a", Some("v1-5"))]).await;
    for strategy in [
        WatchStrategy::Listen,
        WatchStrategy::Subscribe,
        WatchStrategy::ReadAndHash,
    ] {
        let mut options = quick();
        options.strategy = Some(strategy);
        let mut watcher = watcher(&server.url(), Era::Auto, options).await;
        assert_eq!(watcher.strategy(), strategy);
        watch(&mut watcher, &["demo://a"]).await;
        let etag = format!("v2-{}", strategy as u8);
        server.update("demo://a", strategy.name(), Some(&etag)).await;
        assert_eq!(
            change(&mut watcher).await,
            changed("demo://a", Some(&etag), strategy)
        );
        soon(watcher.close()).await;
    }
    let mut options = quick();
    options.strategy = Some(WatchStrategy::EtagTool);
    let target = Target::http(&server.url()).unwrap();
    let error = soon(Watcher::connect_with(target, Era::Auto, options))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("offers no get_resource_etag"),
        "{error}"
    );
}

// ── Against our own server ────────────────────────────────────────────────────────────────────────────────

/// A bus with an MCP endpoint, which can be stopped and started again with the same store.
struct Tidings {
    address: SocketAddr,
    bus: Bus,
    runtime: Option<Runtime>,
}

impl Tidings {
    async fn start(address: SocketAddr, store: &Path) -> Tidings {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        // The threads of the server before close the store when they end.
        let opened = async {
            loop {
                match RedbStore::open(store, 1000) {
                    Ok(store) => return store,
                    Err(_) => tokio::time::sleep(10 * MS).await,
                }
            }
        };
        let bus = Bus::builder().store(soon(opened).await).start().unwrap();
        etag_tools::install(&bus, tidings::config::McpConfig::default())
            .await
            .unwrap();
        let served = bus.clone();
        let serving = runtime.spawn(async move {
            let endpoint = Endpoint::new(served, McpOptions::default());
            let app = axum::Router::new().route_service("/mcp", endpoint);
            let listener = tokio::net::TcpListener::bind(address).await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move { axum::serve(listener, app).await });
            address
        });
        let address = serving.await.unwrap();
        let runtime = Some(runtime);
        Tidings {
            address,
            bus,
            runtime,
        }
    }

    fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    async fn put(&self, uri: &str, text: &str) -> String {
        let resource = Resource::text(uri, text.to_owned()).unwrap();
        self.bus.upsert(resource).await.unwrap().etag.to_string()
    }

    /// Stops the server; its store remains.
    async fn stop(&mut self) {
        self.bus.shutdown(100 * MS).await;
        let runtime = self.runtime.take().unwrap();
        let gone = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(5)));
        gone.await.unwrap();
    }
}

impl Drop for Tidings {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[tokio::test]
async fn etag_strategy_waits_at_the_server() {
    let store = tempfile::tempdir().unwrap();
    let server = Tidings::start(([127, 0, 0, 1], 0).into(), store.path()).await;
    server.put("demo://a", "first").await;
    server.put("demo://b", "first").await;
    // With these intervals a poll on a timer would come long after the test's deadline.
    let mut options = quick();
    options.strategy = Some(WatchStrategy::EtagTool);
    options.poll_first = Duration::from_secs(3000);
    options.poll_max = Duration::from_secs(3000);
    let mut watcher = watcher(&server.url(), Era::Auto, options).await;
    watch(&mut watcher, &["demo://a"]).await;
    watch(&mut watcher, &["demo://b"]).await;
    for (uri, text) in [("demo://a", "2"), ("demo://b", "2"), ("demo://a", "3")] {
        let etag = server.put(uri, text).await;
        assert_eq!(
            change(&mut watcher).await,
            changed(uri, Some(&etag), WatchStrategy::EtagTool)
        );
    }
    assert!(soon(watcher.unsubscribe_resource("demo://a")).await.unwrap());
    server.put("demo://a", "4").await;
    let etag = server.put("demo://b", "3").await;
    assert_eq!(
        change(&mut watcher).await,
        changed("demo://b", Some(&etag), WatchStrategy::EtagTool)
    );
}

/// Returns pseudo-random numbers, the same in every run.
fn numbers(mut seed: u64) -> impl Iterator<Item = u64> {
    std::iter::repeat_with(move || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    })
}

const URIS: [&str; 5] = ["demo://a", "demo://b", "demo://c", "demo://d", "demo://e"];
const UPDATES: usize = 200;

/// Returns the version of a resource that is told apart by its contents.
fn digest(uri: &str, text: &str) -> String {
    let digest = Digest::of(&[uri.as_bytes(), b"text", text.as_bytes()]);
    format!("{:?}", Some(digest))
}

/// The changes that a watcher reported.
#[derive(Default)]
struct Heard {
    last: BTreeMap<String, String>,
    all: HashSet<(String, String)>,
}

impl Heard {
    /// Reads changes until the last version of each resource is the expected one.
    async fn until(&mut self, watcher: &mut Watcher, wanted: &BTreeMap<String, String>) {
        let hearing = async {
            while self.last != *wanted {
                self.hear(watcher.next().await.expect("the watcher runs"));
            }
        };
        if tokio::time::timeout(Duration::from_secs(40), hearing)
            .await
            .is_err()
        {
            panic!("last heard {:?}, expected {wanted:?}", self.last);
        }
    }

    /// Reads a change if one comes within a moment.
    async fn poll(&mut self, watcher: &mut Watcher) {
        if let Ok(Some(changed)) = tokio::time::timeout(5 * MS, watcher.next()).await {
            self.hear(changed);
        }
    }

    /// Takes in a change, which must not have been reported before.
    fn hear(&mut self, changed: ResourceChanged) {
        let version = changed.etag.unwrap_or_else(|| format!("{:?}", changed.digest));
        let new = self.all.insert((changed.uri.clone(), version.clone()));
        assert!(new, "{} {version} was reported twice", changed.uri);
        self.last.insert(changed.uri, version);
    }
}

#[tokio::test]
async fn every_push_strategy_survives_updates_and_a_restart() {
    for (index, strategy) in [
        WatchStrategy::Listen,
        WatchStrategy::Subscribe,
        WatchStrategy::EtagTool,
    ]
    .into_iter()
    .enumerate()
    {
        let store = tempfile::tempdir().unwrap();
        let mut server = Tidings::start(([127, 0, 0, 1], 0).into(), store.path()).await;
        let mut wanted = BTreeMap::new();
        for uri in URIS {
            server.put(uri, "first").await;
        }
        let mut options = quick();
        options.strategy = Some(strategy);
        let mut watcher = watcher(&server.url(), Era::Auto, options).await;
        assert_eq!(watcher.strategy(), strategy);
        watch(&mut watcher, &URIS).await;
        let mut heard = Heard::default();
        let mut numbers = numbers(index as u64);
        let mut texts: BTreeMap<&str, String> = URIS.map(|uri| (uri, "first".to_owned())).into();
        for update in 0..UPDATES {
            if update == UPDATES / 2 {
                let address = server.address;
                server.stop().await;
                drop(server);
                server = Tidings::start(address, store.path()).await;
                for (uri, text) in &texts {
                    let etag = server.put(uri, text).await;
                    wanted.insert((*uri).to_owned(), etag);
                }
            }
            let number = numbers.next().unwrap() as usize;
            let uri = URIS[number % URIS.len()];
            let text = format!("text {}", number % 7);
            let etag = server.put(uri, &text).await;
            texts.insert(uri, text);
            wanted.insert(uri.to_owned(), etag);
            if number.is_multiple_of(3) {
                heard.poll(&mut watcher).await;
            }
        }
        heard.until(&mut watcher, &wanted).await;
        let etag = server.put("demo://a", "the end").await;
        wanted.insert("demo://a".to_owned(), etag);
        heard.until(&mut watcher, &wanted).await;
        soon(watcher.close()).await;
        server.stop().await;
    }
}

#[tokio::test]
async fn reading_survives_updates_and_a_restart() {
    let mut server = Server::with(Offer::BARE, &URIS.map(|uri| (uri, None))).await;
    let mut watcher = watcher(&server.url(), Era::Auto, quick()).await;
    watch(&mut watcher, &URIS).await;
    let mut heard = Heard::default();
    let mut wanted = BTreeMap::new();
    for (update, number) in numbers(9).take(UPDATES).enumerate() {
        if update == UPDATES / 2 {
            server.kill().await;
        }
        if update == UPDATES / 2 + 20 {
            server.revive().await;
        }
        let uri = URIS[number as usize % URIS.len()];
        let text = format!("text {update}");
        server.set(uri, &text, None);
        wanted.insert(uri.to_owned(), digest(uri, &text));
        heard.poll(&mut watcher).await;
    }
    heard.until(&mut watcher, &wanted).await;
    server.set("demo://a", "the end", None);
    wanted.insert("demo://a".to_owned(), digest("demo://a", "the end"));
    heard.until(&mut watcher, &wanted).await;
}
