//! The strategies of the watcher against servers that offer little, promise too much, talk too much, or come
//! and go.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::time::Duration;

use tokio::runtime::Runtime;

use tidings::client::{
    Backoff, Era, ResourceChanged, Target, WatchEvent, WatchOptions, WatchStrategy, Watcher,
};
use tidings::mcp::{Endpoint, McpOptions};
use tidings::store::RedbStore;
use tidings::{Bus, Digest, Resource, etag_tools};

use super::server::{Manners, Server};
use super::soon;

const MS: Duration = Duration::from_millis(1);

/// Questions come quickly, verification not at all.
fn quick() -> WatchOptions {
    let mut options = WatchOptions::default();
    options.backoff = Backoff::new(20 * MS, 200 * MS);
    options.poll_first = 20 * MS;
    options.poll_max = 100 * MS;
    options.verify_first = Duration::from_secs(600);
    options
}

/// The same, and the server's promise is verified at once.
fn wary() -> WatchOptions {
    let mut options = quick();
    options.verify_first = 50 * MS;
    options.verify_every = 100 * MS;
    options.verify_grace = 300 * MS;
    options
}

async fn watcher(url: &str, era: Era, options: WatchOptions) -> Watcher {
    let target = Target::http(url).unwrap();
    soon(Watcher::connect_with(target, era, options)).await.unwrap()
}

async fn watch(watcher: &mut Watcher, uris: &[&str]) -> Vec<Option<String>> {
    let uris = uris.iter().map(|uri| (*uri).to_owned()).collect();
    soon(watcher.subscribe_resources(uris)).await.unwrap()
}

async fn event(watcher: &mut Watcher) -> WatchEvent {
    soon(watcher.next_event()).await.expect("the watcher runs")
}

async fn change(watcher: &mut Watcher) -> (String, Option<String>, WatchStrategy) {
    let changed = soon(watcher.next()).await.expect("the watcher runs");
    (changed.uri, changed.etag, changed.strategy)
}

fn told(uri: &str, etag: Option<&str>, strategy: WatchStrategy) -> (String, Option<String>, WatchStrategy) {
    (uri.to_owned(), etag.map(str::to_owned), strategy)
}

#[tokio::test]
async fn a_server_that_offers_nothing_is_read_and_each_content_reported_once() {
    for modern in [true, false] {
        let manners = Manners {
            modern,
            ..Manners::BARE
        };
        let server = Server::with(manners, &[("demo://a", None), ("demo://b", None)]).await;
        let mut watcher = watcher(&server.url(), Era::Auto, quick()).await;
        assert_eq!(watcher.strategy(), WatchStrategy::ReadAndHash);
        assert_eq!(watch(&mut watcher, &["demo://a", "demo://b"]).await, [None, None]);
        server.set("demo://a", "first", None);
        server.set("demo://b", "second", None);
        assert_eq!(
            change(&mut watcher).await,
            told("demo://b", None, WatchStrategy::ReadAndHash)
        );
        server.set("demo://a", "third", None);
        assert_eq!(
            change(&mut watcher).await,
            told("demo://a", None, WatchStrategy::ReadAndHash)
        );
        soon(watcher.close()).await;
    }
}

#[tokio::test]
async fn a_server_with_etag_tools_alone_is_asked_with_one_call_for_all() {
    let manners = Manners {
        tools: true,
        ..Manners::BARE
    };
    let uris = ["demo://a", "demo://b", "demo://c"];
    let server = Server::with(manners, &uris.map(|uri| (uri, Some("v1-5")))).await;
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
        told("demo://c", Some("v2-6"), WatchStrategy::EtagTool)
    );
    // One that is gone does not hide the others.
    server.remove("demo://a");
    let WatchEvent::Missing { uri, .. } = event(&mut watcher).await else {
        panic!("a removed resource is missing");
    };
    assert_eq!(uri, "demo://a");
    server.set("demo://b", "second", Some("v2-7"));
    assert_eq!(
        change(&mut watcher).await,
        told("demo://b", Some("v2-7"), WatchStrategy::EtagTool)
    );
    server.set("demo://a", "back", Some("v2-8"));
    assert_eq!(
        change(&mut watcher).await,
        told("demo://a", Some("v2-8"), WatchStrategy::EtagTool)
    );
}

#[tokio::test]
async fn a_resource_that_the_best_road_refuses_takes_the_next_alone() {
    for (era, best) in [
        (Era::Modern, WatchStrategy::Listen),
        (Era::Legacy, WatchStrategy::Subscribe),
    ] {
        let server = Server::start(true, &[("demo://a", Some("v1-5")), ("demo://b", None)]).await;
        server.refuse_to_tell("demo://b");
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
        assert_eq!(change(&mut watcher).await, told("demo://a", Some("v2-6"), best));
        server.set("demo://b", "second", None);
        assert_eq!(
            change(&mut watcher).await,
            told("demo://b", None, WatchStrategy::ReadAndHash)
        );
    }
}

#[tokio::test]
async fn a_server_that_keeps_silent_loses_its_road_and_no_change_is_lost() {
    for (tools, to) in [
        (true, WatchStrategy::EtagTool),
        (false, WatchStrategy::ReadAndHash),
    ] {
        for (era, from) in [
            (Era::Modern, WatchStrategy::Listen),
            (Era::Legacy, WatchStrategy::Subscribe),
        ] {
            let etag = |etag: &'static str| tools.then_some(etag);
            let manners = Manners {
                modern: true,
                tells: true,
                tools,
            };
            let resources = [("demo://a", etag("v1-5")), ("demo://b", etag("v1-5"))];
            let server = Server::with(manners, &resources).await;
            let mut watcher = watcher(&server.url(), era, wary()).await;
            assert_eq!(watcher.strategy(), from);
            watch(&mut watcher, &["demo://a", "demo://b"]).await;
            server.set("demo://a", "told to nobody", etag("v2-6"));
            let expected = WatchEvent::SteppedDown {
                uri: None,
                from,
                to,
                reason: "the server did not tell that demo://a changed".to_owned(),
            };
            assert_eq!(event(&mut watcher).await, expected);
            assert_eq!(change(&mut watcher).await, told("demo://a", etag("v2-6"), to));
            server.set("demo://b", "told to nobody", etag("v2-7"));
            assert_eq!(change(&mut watcher).await, told("demo://b", etag("v2-7"), to));
        }
    }
}

#[tokio::test]
async fn a_server_that_keeps_its_promise_keeps_its_road() {
    for etags in [true, false] {
        for (era, strategy) in [
            (Era::Modern, WatchStrategy::Listen),
            (Era::Legacy, WatchStrategy::Subscribe),
        ] {
            let etag = |version: u32| etags.then(|| format!("v{version}-5"));
            let server = Server::start(true, &[("demo://a", etag(1).as_deref())]).await;
            // Verified far more often than it changes, yet with all the time it may need.
            let mut options = quick();
            options.verify_first = 10 * MS;
            options.verify_every = 10 * MS;
            options.verify_grace = Duration::from_secs(20);
            let mut watcher = watcher(&server.url(), era, options).await;
            watch(&mut watcher, &["demo://a"]).await;
            for version in 2..30 {
                server
                    .update("demo://a", &format!("text {version}"), etag(version).as_deref())
                    .await;
                assert_eq!(
                    change(&mut watcher).await,
                    told("demo://a", etag(version).as_deref(), strategy)
                );
            }
        }
    }
}

#[tokio::test]
async fn two_thousand_notifications_of_one_change_are_one_event() {
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
                server.tell("demo://a", etag).await;
            }
            server.set("demo://b", "second", etag);
            // A stream that could not take them all is opened again, so the last is told until it is heard.
            let mut changes = Vec::new();
            while changes.last().is_none_or(|(uri, _, _)| uri != "demo://b") {
                tokio::select! {
                    changed = change(&mut watcher) => changes.push(changed),
                    () = tokio::time::sleep(100 * MS) => server.tell("demo://b", etag).await,
                }
            }
            assert_eq!(changes.len(), 2, "{changes:?}");
        }
    }
}

#[tokio::test]
async fn what_changed_while_a_polled_server_was_gone_is_reported_once() {
    for tools in [true, false] {
        let manners = Manners {
            tools,
            ..Manners::BARE
        };
        let etag = |etag: &'static str| tools.then_some(etag);
        let resources = [("demo://a", etag("v1-5")), ("demo://b", etag("v1-5"))];
        let mut server = Server::with(manners, &resources).await;
        let mut watcher = watcher(&server.url(), Era::Auto, quick()).await;
        let strategy = watcher.strategy();
        watch(&mut watcher, &["demo://a", "demo://b"]).await;
        server.kill().await;
        server.set("demo://a", "changed meanwhile", etag("v2-9"));
        while !matches!(event(&mut watcher).await, WatchEvent::Lost { .. }) {}
        server.revive().await;
        assert_eq!(
            change(&mut watcher).await,
            told("demo://a", etag("v2-9"), strategy)
        );
        server.set("demo://b", "next", etag("v2-10"));
        assert_eq!(
            change(&mut watcher).await,
            told("demo://b", etag("v2-10"), strategy)
        );
    }
}

#[tokio::test]
async fn a_road_that_is_forced_is_taken_or_refused() {
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
            told("demo://a", Some(&etag), strategy)
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

// ── Against our own server ──────────────────────────────────────────────────────────────────────────────────────────

/// A bus with an MCP endpoint, which can be stopped and started anew over the same store.
struct Tidings {
    address: std::net::SocketAddr,
    bus: Bus,
    runtime: Option<Runtime>,
}

impl Tidings {
    async fn start(address: std::net::SocketAddr, store: &Path) -> Tidings {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        // The threads of a life before let go of the store when they end.
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

    /// Ends it and everything it holds, but not the store.
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
async fn the_etag_road_waits_at_the_server_where_it_can() {
    let store = tempfile::tempdir().unwrap();
    let server = Tidings::start(([127, 0, 0, 1], 0).into(), store.path()).await;
    server.put("demo://a", "first").await;
    server.put("demo://b", "first").await;
    // On a timer, nothing would be seen within the time a test has.
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
            told(uri, Some(&etag), WatchStrategy::EtagTool)
        );
    }
    assert!(soon(watcher.unsubscribe_resource("demo://a")).await.unwrap());
    server.put("demo://a", "4").await;
    let etag = server.put("demo://b", "3").await;
    assert_eq!(
        change(&mut watcher).await,
        told("demo://b", Some(&etag), WatchStrategy::EtagTool)
    );
}

/// Numbers that look random and are the same in every run.
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

/// What a watcher said, in order.
#[derive(Default)]
struct Heard {
    last: BTreeMap<String, String>,
    all: HashSet<(String, String)>,
}

impl Heard {
    /// Takes in what is there, waiting until the last word of each resource is what it should be.
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

    fn hear(&mut self, changed: ResourceChanged) {
        let version = changed.etag.unwrap_or_else(|| format!("{:?}", changed.digest));
        let news = self.all.insert((changed.uri.clone(), version.clone()));
        assert!(news, "{} {version} was reported twice", changed.uri);
        self.last.insert(changed.uri, version);
    }
}

#[tokio::test]
async fn every_final_state_of_200_random_updates_on_each_road_across_a_restart_without_duplicates() {
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
            let (uri, text) = (URIS[number % URIS.len()], format!("text {}", number % 7));
            let etag = server.put(uri, &text).await;
            texts.insert(uri, text);
            wanted.insert(uri.to_owned(), etag);
            if number.is_multiple_of(3) {
                let changed = tokio::time::timeout(5 * MS, watcher.next()).await;
                changed
                    .into_iter()
                    .flatten()
                    .for_each(|changed| heard.hear(changed));
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
async fn every_final_state_of_200_random_updates_is_read_across_a_restart_without_duplicates() {
    let mut server = Server::with(Manners::BARE, &URIS.map(|uri| (uri, None))).await;
    let mut watcher = watcher(&server.url(), Era::Auto, quick()).await;
    watch(&mut watcher, &URIS).await;
    let digest = |uri: &str, text: &str| {
        let digest = Digest::of(&[uri.as_bytes(), b"text", text.as_bytes()]);
        format!("{:?}", Some(digest))
    };
    let (mut heard, mut wanted) = (Heard::default(), BTreeMap::new());
    for (update, number) in numbers(9).take(UPDATES).enumerate() {
        if update == UPDATES / 2 {
            server.kill().await;
        }
        if update == UPDATES / 2 + 20 {
            server.revive().await;
        }
        let (uri, text) = (URIS[number as usize % URIS.len()], format!("text {update}"));
        server.set(uri, &text, None);
        wanted.insert(uri.to_owned(), digest(uri, &text));
        let changed = tokio::time::timeout(5 * MS, watcher.next()).await;
        changed
            .into_iter()
            .flatten()
            .for_each(|changed| heard.hear(changed));
    }
    heard.until(&mut watcher, &wanted).await;
    server.set("demo://a", "the end", None);
    wanted.insert("demo://a".to_owned(), digest("demo://a", "the end"));
    heard.until(&mut watcher, &wanted).await;
}
