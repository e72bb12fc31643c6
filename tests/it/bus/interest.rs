//! Routing: a change goes only to the shards with an interested subscriber, and none of these is missed.
//!
//! A blocked shard shows both: a change that is answered meanwhile was not sent to it, and a subscriber that
//! was on its way to the shard gets the change when the shard continues.

use tidings::{Bus, Outcome};
use tidings_actors::{Filter, UriPattern};
use tokio::task::JoinHandle;

use crate::support::{
    Bench, Client, DEADLINE, Gate, on_shard, options, run_ready_tasks, text, until, within,
};

fn put(bus: &Bus, name: &'static str, body: &str) -> JoinHandle<Outcome> {
    let bus = bus.clone();
    let resource = text(name, body);
    tokio::spawn(async move { bus.upsert(resource).await.unwrap() })
}

/// Opens a client whose session lives on this shard and is marked by it.
async fn client_on(bench: &Bench, shard: usize) -> Client {
    let bus = bench.bus.clone();
    on_shard(&bench.bus, shard, move || async move {
        Client::of(bus.open(options()).await.unwrap())
    })
    .await
}

/// Opens a client that lives on shard 1 and is marked by shard 0, so that it can send requests while shard 0
/// is blocked.
async fn marked_by_shard_0(bench: &Bench) -> Client {
    let client = client_on(bench, 1).await.read_on(&bench.bus, 0).await;
    within(client.session.subscribe(Vec::new())).await.unwrap();
    client
}

/// Starts a request of a client to shard 0, which is blocked. Returns once the Etag actor has forwarded it.
async fn forwarded<T: Send + 'static>(
    bench: &Bench,
    request: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let request = tokio::spawn(request);
    run_ready_tasks().await;
    // The session's actor on shard 1 forwards it first, then the Registry and the Etag actor do.
    on_shard(&bench.bus, 1, || async { run_ready_tasks().await }).await;
    bench.until_routed().await;
    request
}

fn everything() -> Filter {
    Filter::of(vec!["demo://*".parse::<UriPattern>().unwrap()]).unwrap()
}

/// Returns true if a change is answered while every shard is blocked.
async fn needs_no_shard(bench: &Bench, name: &'static str, body: &str) -> bool {
    let gates = [Gate::close(&bench.bus, 0).await, Gate::close(&bench.bus, 1).await];
    let change = put(&bench.bus, name, body);
    bench.until_routed().await;
    let answered = change.is_finished();
    gates.into_iter().for_each(Gate::open);
    let outcome = within(change).await.unwrap();
    assert!(outcome.changed && !(answered && outcome.notified > 0));
    answered
}

#[tokio::test]
async fn unwanted_change_needs_no_shard() {
    let bench = Bench::start();
    bench.put("demo://a", "").await;
    bench.put("demo://b", "").await;
    // Every change needs a new body.
    let mut bodies = (1..).map(|count: u64| count.to_string());
    until("the first change", async || {
        needs_no_shard(&bench, "demo://a", &bodies.next().unwrap()).await
    })
    .await;

    let client = marked_by_shard_0(&bench).await;
    client.subscribe("demo://a").await;
    client.subscribe("demo://a").await;
    assert!(!needs_no_shard(&bench, "demo://a", &bodies.next().unwrap()).await);
    until("a change of another resource", async || {
        needs_no_shard(&bench, "demo://b", &bodies.next().unwrap()).await
    })
    .await;
    assert!(client.unsubscribe("demo://a").await);
    until("the end of a subscription", async || {
        needs_no_shard(&bench, "demo://a", &bodies.next().unwrap()).await
    })
    .await;

    client.subscribe("demo://a").await;
    within(client.session.watch(everything().into(), 8))
        .await
        .unwrap();
    assert!(!needs_no_shard(&bench, "demo://b", &bodies.next().unwrap()).await);
    let client = client.read_on(&bench.bus, 1).await;
    assert!(!needs_no_shard(&bench, "demo://a", &bodies.next().unwrap()).await);
    drop(client);
    for name in ["demo://a", "demo://b"] {
        until("the end of a session", async || {
            needs_no_shard(&bench, name, &bodies.next().unwrap()).await
        })
        .await;
    }
}

#[tokio::test]
async fn subscription_under_way_is_notified() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let client = marked_by_shard_0(&bench).await;
    let gate = Gate::close(&bench.bus, 0).await;
    let subscribing = forwarded(&bench, async move {
        client.subscribe("demo://a").await;
        client
    })
    .await;
    let change = put(&bench.bus, "demo://a", "two");
    bench.until_routed().await;
    gate.open();
    let mut client = within(subscribing).await.unwrap();
    assert_eq!(within(change).await.unwrap().notified, 1);
    assert_eq!(client.received(), ["demo://a v2"]);
}

#[tokio::test]
async fn filter_under_way_is_notified() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let client = marked_by_shard_0(&bench).await;
    let gate = Gate::close(&bench.bus, 0).await;
    let watching = forwarded(&bench, async move {
        within(client.session.watch(everything().into(), 8))
            .await
            .unwrap();
        client
    })
    .await;
    let change = put(&bench.bus, "demo://a", "two");
    bench.until_routed().await;
    gate.open();
    let mut client = within(watching).await.unwrap();
    assert_eq!(within(change).await.unwrap().notified, 1);
    assert_eq!(client.received(), ["demo://a v2"]);
}

/// The shard to which a subscriber moves is blocked from before the move until after the change.
#[tokio::test]
async fn moving_session_is_notified() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let mut client = client_on(&bench, 0).await;
    client.subscribe("demo://a").await;
    let (moved, arrives) = tokio::sync::oneshot::channel();
    let (gate, opened) = std::sync::mpsc::sync_channel::<()>(1);
    bench.bus.shards()[1].spawn(move || async move {
        client.reader = client.session.reader();
        assert!(moved.send(client).is_ok());
        assert!(opened.recv().is_err(), "the gate is opened by being dropped");
    });
    let mut client = within(arrives).await.unwrap();
    // The shard that it leaves notifies it until the move has passed the Etag actor.
    let started = std::time::Instant::now();
    let late = loop {
        assert!(started.elapsed() < DEADLINE, "the session never moved");
        let change = put(&bench.bus, "demo://a", &format!("{:?}", started.elapsed()));
        bench.until_routed().await;
        // Shard 0 processes the messages that the Etag actor sent to it before.
        on_shard(&bench.bus, 0, || async { run_ready_tasks().await }).await;
        run_ready_tasks().await;
        if !change.is_finished() {
            break change;
        }
        assert_eq!(change.await.unwrap().notified, 1);
    };
    drop(gate);
    let outcome = within(late).await.unwrap();
    assert_eq!(outcome.notified, 1);
    client.until_received("demo://a", outcome.etag.version).await;
}
