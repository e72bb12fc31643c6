//! The end of the bus: gracefully on request, loudly after a failure, and without a thread left behind.

use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use tidings::callback::ReadBody;
use tidings::{
    Body, BoxFuture, Bus, CallbackError, Closed, Descriptor, EndReason, OpenError, PublishError, ReadError,
    Resource, ResourceTemplate, ResourceUri, Tool, ToolOutput, Variables,
};

use crate::support::{Bench, Client, DEADLINE, NoStore, on_shard, options, text, tool, uri, within};

#[tokio::test]
async fn shutdown_hands_out_pending_entries_first() {
    let bench = Bench::start();
    let mut clients = Vec::new();
    for name in ["demo://a", "demo://b"] {
        bench.put(name, "one").await;
    }
    for _ in 0..10 {
        let client = bench.client().await;
        client
            .session
            .subscribe(vec![uri("demo://a"), uri("demo://b")])
            .await
            .unwrap();
        clients.push(client);
    }
    bench.put("demo://b", "two").await;
    bench.put("demo://a", "two").await;
    let bus = bench.bus.clone();
    let shutdown = tokio::spawn(async move { bus.shutdown(DEADLINE).await });
    for mut client in clients {
        let (received, reason) = client.until_end().await;
        assert_eq!(received, ["demo://b v2", "demo://a v2"]);
        assert_eq!(reason, EndReason::Shutdown);
    }
    assert_eq!(within(shutdown).await.unwrap().streams_cut, 0);
    assert_eq!(within(bench.bus.stopped()).await, None);
}

#[tokio::test]
async fn shutdown_cuts_a_stream_that_stays_open() {
    let bench = Bench::start();
    let mut client = bench.client().await;
    let report = within(bench.bus.shutdown(Duration::from_millis(30))).await;
    assert_eq!(report.streams_cut, 1);
    assert_eq!(client.until_end().await.1, EndReason::Shutdown);
}

#[tokio::test]
async fn calls_after_shutdown_fail_with_closed() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let Client { session, reader, .. } = bench.client().await;
    drop(reader);
    let bus = &bench.bus;
    within(bus.shutdown(DEADLINE)).await;
    assert!(!bus.is_running());
    let closed = PublishError::Closed(Closed);
    assert_eq!(
        within(bus.register(text("demo://b", "x"))).await,
        Err(closed.clone())
    );
    assert_eq!(within(bus.touch("demo://a")).await, Err(closed.clone()));
    assert_eq!(within(bus.remove("demo://a")).await, Err(closed.clone()));
    let change = tidings::Change::Remove(uri("demo://a"));
    assert_eq!(
        within(bus.try_publish(change, tidings::Condition::Always)).await,
        Err(closed.clone())
    );
    assert_eq!(within(bus.add_tool(tool("t"))).await, Err(closed.clone()));
    assert_eq!(within(bus.listed_members()).await, Err(closed.clone()));
    assert!(matches!(
        within(bus.read("demo://a")).await,
        Err(ReadError::Closed(Closed))
    ));
    assert!(matches!(
        within(bus.etag("demo://a")).await,
        Err(ReadError::Closed(Closed))
    ));
    assert_eq!(within(bus.etags(Vec::new())).await, Err(Closed));
    assert!(within(bus.resources(None, 1)).await.is_err());
    assert!(within(bus.tools(None, 1)).await.is_err());
    assert!(within(bus.prompts(None, 1)).await.is_err());
    assert!(within(bus.templates()).await.is_err());
    assert!(within(bus.tool("t")).await.is_err());
    assert_eq!(within(bus.sessions()).await, Err(Closed));
    assert_eq!(within(bus.subscribers(&uri("demo://a"))).await, Err(Closed));
    assert_eq!(within(bus.stats()).await, Err(Closed));
    assert_eq!(
        within(bus.open(options())).await.unwrap_err(),
        OpenError::Closed(Closed)
    );
    assert_eq!(
        within(session.subscribe(vec![uri("demo://a")])).await,
        Err(Closed)
    );
    assert_eq!(session.ended(), Some(EndReason::Shutdown));
    assert!(!bus.shards()[0].spawn(|| async {}));
    assert_eq!(
        within(bus.shutdown(DEADLINE)).await.streams_cut,
        0,
        "a second one has nothing to do"
    );
}

/// Every answered change reaches the reader, whenever the shutdown begins.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn shutdown_loses_no_answered_change() {
    let bench = Bench::start();
    bench.put("demo://a", "0").await;
    let mut client = bench.subscriber("demo://a").await;
    let bus = bench.bus.clone();
    let publisher = tokio::spawn(async move {
        for round in 1u64.. {
            match bus.update(text("demo://a", &round.to_string())).await {
                Ok(outcome) => assert_eq!(outcome.etag.version, round + 1),
                Err(error) => {
                    assert_eq!(error, PublishError::Closed(Closed));
                    return round;
                }
            }
        }
        0
    });
    while client.newest("demo://a") < 100 {
        client.next().await.unwrap();
    }
    let bus = bench.bus.clone();
    let shutdown = tokio::spawn(async move { bus.shutdown(DEADLINE).await });
    let reader = tokio::spawn(async move {
        assert_eq!(client.until_end().await.1, EndReason::Shutdown);
        client.newest("demo://a")
    });
    let last = within(publisher).await.unwrap();
    assert_eq!(within(reader).await.unwrap(), last);
    assert_eq!(within(shutdown).await.unwrap().streams_cut, 0);
}

#[tokio::test]
async fn draining_bus_admits_no_requests() {
    let bench = Bench::start();
    let mut client = bench.client().await;
    let bus = bench.bus.clone();
    let shutdown = tokio::spawn(async move { bus.shutdown(DEADLINE).await });
    assert_eq!(client.until_end().await.1, EndReason::Shutdown);
    // The stream of the client is still open, so the bus waits.
    let opened = within(bench.bus.open(options())).await;
    assert_eq!(opened.unwrap_err(), OpenError::Closed(Closed));
    let put = within(bench.bus.upsert(text("demo://a", "one"))).await;
    assert_eq!(put, Err(PublishError::Closed(Closed)));
    drop(client);
    assert_eq!(within(shutdown).await.unwrap().streams_cut, 0);
}

/// Panics instead of returning the output of a callback.
fn never<T>(reason: &str) -> Result<T, CallbackError> {
    panic!("{reason}")
}

#[tokio::test]
async fn panicking_callback_fails_only_its_caller() {
    struct AtOnce;
    impl ReadBody for AtOnce {
        fn read(&self) -> BoxFuture<Result<Body, CallbackError>> {
            panic!("before there is a future");
        }
    }
    let bench = Bench::start();
    let later = Resource::lazy("demo://later", || async { never("a reader that panics") }).unwrap();
    bench.bus.register(later).await.unwrap();
    let at_once = Resource::lazy("demo://at-once", AtOnce).unwrap();
    bench.bus.register(at_once).await.unwrap();
    let family = ResourceTemplate::new("app://{id}", |_: ResourceUri, _: Variables| async {
        never("a member that panics")
    });
    let family = family.unwrap();
    bench.bus.add_template(family.clone()).await.unwrap();
    for name in ["demo://later", "demo://at-once", "app://1"] {
        let error = within(bench.bus.read(name)).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("Resource could not be read: {name}: its callback panicked")
        );
    }
    let failing = family.list(|| async { never::<Vec<Descriptor>>("a lister that panics") });
    let error = within(bench.bus.add_template(failing)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "template app://{id} cannot list its members: its callback panicked"
    );
    assert_eq!(bench.put("demo://a", "one").await, 1);
    assert!(bench.bus.is_running());
}

/// A waker that panics in the thread that wakes it.
struct BadWaker;

impl Wake for BadWaker {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

#[tokio::test]
async fn death_of_a_shard_stops_the_bus() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let mut clients = Vec::new();
    for shard in [0, 1] {
        let bus = bench.bus.clone();
        let opened = on_shard(&bench.bus, shard, move || async move {
            Client::of(bus.open(options()).await.unwrap())
        });
        let client = opened.await;
        client.subscribe("demo://a").await;
        clients.push(client);
    }
    let waker = Waker::from(Arc::new(BadWaker));
    let poll = clients[0]
        .reader
        .poll_drain(&mut Context::from_waker(&waker), |_| ());
    assert!(poll.is_pending());
    drop(within(bench.bus.update(text("demo://a", "two"))).await);
    assert_eq!(within(bench.bus.stopped()).await, Some("publisher"));
    for client in &mut clients {
        assert_eq!(client.until_end().await.1, EndReason::Failed);
    }
    let late = within(bench.bus.update(text("demo://a", "three"))).await;
    assert_eq!(late, Err(PublishError::Closed(Closed)));
}

/// A callback that panics when an actor drops it.
struct BadReader;

impl ReadBody for BadReader {
    fn read(&self) -> BoxFuture<Result<Body, CallbackError>> {
        Box::pin(async { Ok(Body::text("x")) })
    }
}

impl Drop for BadReader {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("a reader that panics when it is dropped");
        }
    }
}

#[tokio::test]
async fn death_of_the_etag_actor_stops_the_bus() {
    let bench = Bench::start();
    let mut client = bench.client().await;
    bench
        .bus
        .register(Resource::lazy("demo://a", BadReader).unwrap())
        .await
        .unwrap();
    client.subscribe("demo://a").await;
    let removed = within(bench.bus.remove("demo://a")).await;
    assert_eq!(removed, Err(PublishError::Closed(Closed)));
    assert_eq!(within(bench.bus.stopped()).await, Some("etag"));
    assert_eq!(client.until_end().await.1, EndReason::Failed);
}

#[tokio::test]
async fn death_of_the_registry_stops_the_bus() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let mut client = bench.subscriber("demo://a").await;
    let reader = BadReader;
    let tool = Tool::new("bad", move |_: serde_json::Map<String, serde_json::Value>| {
        let _held = &reader;
        async { Ok(ToolOutput::text("")) }
    });
    bench.bus.add_tool(tool).await.unwrap();
    let removed = within(bench.bus.remove_tool("bad")).await;
    assert_eq!(removed, Err(PublishError::Closed(Closed)));
    assert_eq!(within(bench.bus.stopped()).await, Some("registry"));
    assert_eq!(client.until_end().await.1, EndReason::Failed);
}

#[tokio::test]
async fn last_handle_dropped_ends_every_session() {
    for _ in 0..20 {
        let bus = Bus::builder().start().unwrap();
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(Client::of(bus.open(options()).await.unwrap()));
        }
        drop(bus);
        for client in &mut clients {
            assert_eq!(client.until_end().await.1, EndReason::Shutdown);
            assert_eq!(within(client.session.subscribe(Vec::new())).await, Err(Closed));
        }
    }
}

#[tokio::test]
async fn buses_start_inside_and_outside_a_runtime() {
    let outside = std::thread::spawn(|| Bus::builder().start().unwrap())
        .join()
        .unwrap();
    let inside = Bus::builder().start().unwrap();
    outside.register(text("demo://a", "one")).await.unwrap();
    assert_eq!(inside.etag("demo://a").await.unwrap().version, 0);
    within(outside.shutdown(DEADLINE)).await;
    assert!(inside.is_running());
    within(inside.shutdown(DEADLINE)).await;
}

#[test]
fn shutdown_leaves_no_thread() {
    if !alone("bus::shutdown::shutdown_leaves_no_thread") {
        return;
    }
    let (runtime, before) = runtime_and_threads();
    runtime.block_on(async {
        let bus = Bus::builder().store(NoStore).start().unwrap();
        bus.register(text("demo://a", "one")).await.unwrap();
        let Client { session, reader, .. } = Client::of(bus.open(options()).await.unwrap());
        drop(reader);
        assert!(threads() >= before + 4, "{} threads", threads());
        bus.shutdown(DEADLINE).await;
        drop(session);
    });
    drop(runtime);
    threads_become(before - 1);
}

#[test]
fn last_handle_dropped_leaves_no_thread() {
    if !alone("bus::shutdown::last_handle_dropped_leaves_no_thread") {
        return;
    }
    let (runtime, before) = runtime_and_threads();
    let session = runtime.block_on(async {
        let bus = Bus::builder().store(NoStore).start().unwrap();
        let other = bus.clone();
        drop(bus);
        other.register(text("demo://a", "one")).await.unwrap();
        other.open(options()).await.unwrap()
    });
    threads_become(before);
    drop(session);
}

/// Runs `test` once more in a process of its own, because threads can be counted only while no other test
/// runs. Returns true in that process.
fn alone(test: &str) -> bool {
    const ALONE: &str = "TIDINGS_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--test-threads=1"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
    false
}

/// Starts a runtime with one worker. Returns it with the number of threads.
fn runtime_and_threads() -> (tokio::runtime::Runtime, usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    (runtime, threads())
}

/// Waits until the process has `count` threads. A thread is still counted for a moment after it was joined.
fn threads_become(count: usize) {
    let deadline = Instant::now() + DEADLINE;
    while threads() != count {
        assert!(
            Instant::now() < deadline,
            "{} threads instead of {count}",
            threads()
        );
        std::thread::yield_now();
    }
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}
