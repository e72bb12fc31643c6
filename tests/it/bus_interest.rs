//! Promise: a change is handed only to the shards in which somebody wants it, and nobody who wants it is missed.
//!
//! A shard that stands still shows both: what is answered meanwhile was not handed to it, and who was on the way to it
//! when a change was made is told when it goes on.

use std::time::Duration;

use tidings::{Bus, Outcome};
use tidings_actors::{Filter, UriPattern};
use tokio::task::JoinHandle;

use crate::support::{Bench, Client, DEADLINE, Gate, let_tasks_run, on_shard, options, text, until, within};

/// How long a change that a shard has to see is given to prove the contrary.
const A_MOMENT: Duration = Duration::from_millis(100);

fn put(bus: &Bus, name: &'static str, body: &str) -> JoinHandle<Outcome> {
    let (bus, resource) = (bus.clone(), text(name, body));
    tokio::spawn(async move { bus.upsert(resource).await.unwrap() })
}

/// A client whose session lives on, and is marked by, this shard.
async fn living_on(bench: &Bench, shard: usize) -> Client {
    let bus = bench.bus.clone();
    on_shard(&bench.bus, shard, move || async move {
        Client::of(bus.open(options()).await.unwrap())
    })
    .await
}

/// The same, marked by shard 0 though it lives on shard 1, so that its requests pass while shard 0 stands still.
async fn marked_by_shard_0(bench: &Bench) -> Client {
    let mut client = living_on(bench, 1).await;
    client = on_shard(&bench.bus, 0, move || async move {
        client.reader = client.session.reader();
        client
    })
    .await;
    within(client.session.subscribe(Vec::new())).await.unwrap();
    client
}

/// Starts what a client asks of shard 0, which stands still; answers when the Etag actor has passed it on.
async fn passed_on<T: Send + 'static>(
    bench: &Bench,
    asking: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let asking = tokio::spawn(asking);
    let_tasks_run().await;
    // The session's actor has passed it on before this, and the others after it.
    on_shard(&bench.bus, 1, || async { let_tasks_run().await }).await;
    within(bench.bus.etags(Vec::new())).await.unwrap();
    asking
}

fn everything() -> Filter {
    Filter::of(vec!["demo://*".parse::<UriPattern>().unwrap()]).unwrap()
}

/// Whether a change is answered though every shard stands still.
async fn is_nobodys(bench: &Bench, name: &'static str, body: &str) -> bool {
    let gates = [Gate::close(&bench.bus, 0).await, Gate::close(&bench.bus, 1).await];
    let mut change = put(&bench.bus, name, body);
    let answered = tokio::time::timeout(A_MOMENT, &mut change).await;
    gates.into_iter().for_each(Gate::open);
    let quiet = answered.is_ok();
    let outcome = match answered {
        Ok(outcome) => outcome.unwrap(),
        Err(_late) => within(change).await.unwrap(),
    };
    assert!(outcome.changed && !(quiet && outcome.notified > 0));
    quiet
}

#[tokio::test]
async fn what_nobody_wants_any_more_is_answered_though_every_shard_stands_still() {
    let bench = Bench::start();
    bench.put("demo://a", "").await;
    bench.put("demo://b", "").await;
    let mut count = 0;
    let mut body = || {
        count += 1;
        count.to_string()
    };
    until("the first change", async || {
        is_nobodys(&bench, "demo://a", &body()).await
    })
    .await;

    let client = marked_by_shard_0(&bench).await;
    client.subscribe("demo://a").await;
    client.subscribe("demo://a").await;
    assert!(!is_nobodys(&bench, "demo://a", &body()).await);
    until("another's change", async || {
        is_nobodys(&bench, "demo://b", &body()).await
    })
    .await;
    assert!(client.unsubscribe("demo://a").await);
    until("the end of a subscription", async || {
        is_nobodys(&bench, "demo://a", &body()).await
    })
    .await;

    client.subscribe("demo://a").await;
    within(client.session.watch(everything().into(), 8))
        .await
        .unwrap();
    assert!(!is_nobodys(&bench, "demo://b", &body()).await);
    let client = on_shard(&bench.bus, 1, move || async move {
        let mut client = client;
        client.reader = client.session.reader();
        client
    })
    .await;
    assert!(!is_nobodys(&bench, "demo://a", &body()).await);
    drop(client);
    for name in ["demo://a", "demo://b"] {
        until("the end of a session", async || {
            is_nobodys(&bench, name, &body()).await
        })
        .await;
    }
}

#[tokio::test]
async fn a_subscription_on_its_way_is_not_missed() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let client = marked_by_shard_0(&bench).await;
    let gate = Gate::close(&bench.bus, 0).await;
    let subscribing = passed_on(&bench, async move {
        client.subscribe("demo://a").await;
        client
    })
    .await;
    let change = put(&bench.bus, "demo://a", "two");
    let_tasks_run().await;
    within(bench.bus.etags(Vec::new())).await.unwrap();
    gate.open();
    let mut client = within(subscribing).await.unwrap();
    assert_eq!(within(change).await.unwrap().notified, 1);
    assert_eq!(client.told(), ["demo://a v2"]);
}

#[tokio::test]
async fn whoever_is_about_to_watch_everything_is_not_missed() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let client = marked_by_shard_0(&bench).await;
    let gate = Gate::close(&bench.bus, 0).await;
    let watching = passed_on(&bench, async move {
        within(client.session.watch(everything().into(), 8))
            .await
            .unwrap();
        client
    })
    .await;
    let change = put(&bench.bus, "demo://a", "two");
    let_tasks_run().await;
    within(bench.bus.etags(Vec::new())).await.unwrap();
    gate.open();
    let mut client = within(watching).await.unwrap();
    assert_eq!(within(change).await.unwrap().notified, 1);
    assert_eq!(client.told(), ["demo://a v2"]);
}

/// The shard that a subscriber moves to stands still from before the move until after the change.
#[tokio::test]
async fn whoever_is_on_the_way_to_another_shard_is_not_missed() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let mut client = living_on(&bench, 0).await;
    client.subscribe("demo://a").await;
    let (moved, arrives) = tokio::sync::oneshot::channel();
    let (gate, opened) = std::sync::mpsc::sync_channel::<()>(1);
    bench.bus.shards()[1].spawn(move || async move {
        client.reader = client.session.reader();
        assert!(moved.send(client).is_ok());
        assert!(opened.recv().is_err(), "it is opened by being dropped");
    });
    let mut client = within(arrives).await.unwrap();
    // Told by the shard it comes from until the move has passed the Etag actor.
    let started = std::time::Instant::now();
    let late = loop {
        assert!(started.elapsed() < DEADLINE, "it never moved");
        let mut change = put(&bench.bus, "demo://a", &format!("{:?}", started.elapsed()));
        match tokio::time::timeout(A_MOMENT, &mut change).await {
            Ok(outcome) => assert_eq!(outcome.unwrap().notified, 1),
            Err(_waits) => break change,
        }
    };
    drop(gate);
    let outcome = within(late).await.unwrap();
    assert_eq!(outcome.notified, 1);
    client.until_told("demo://a", outcome.etag.version).await;
}
