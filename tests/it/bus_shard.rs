//! Promise: a session may be carried by any shard's thread, and moving it loses nothing and repeats nothing.
//!
//! While a shard stands still behind a gate, another may be ahead of it: what it marks when it goes on is older than
//! what the session knows by then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidings::{Bus, ListKind, SessionOptions};

use crate::support::{
    Bench, Client, Gate, let_tasks_run, list_options, on_shard, options, text, tool, uri, within,
};

/// Opens the client's reader on a shard's thread; answers when the session's requests go there.
async fn carried_by(bus: &Bus, shard: usize, client: Client) -> Client {
    let client = on_shard(bus, shard, move || async move {
        let mut client = client;
        client.reader = client.session.reader();
        client
    })
    .await;
    // Behind the move in the one order of all requests.
    within(client.session.subscribe(Vec::new())).await.unwrap();
    client
}

/// A client whose session lives on shard 1 and is marked by shard 0.
async fn marked_by_shard_0(bench: &Bench, options: SessionOptions) -> Client {
    let bus = bench.bus.clone();
    let client = on_shard(&bench.bus, 1, move || async move {
        Client::of(bus.open(options).await.unwrap())
    })
    .await;
    carried_by(&bench.bus, 0, client).await
}

/// Starts a change that cannot be answered yet; answers when the Etag actor has stamped it.
async fn start<T: Send + 'static>(
    bus: &Bus,
    change: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    let started = tokio::spawn(change);
    let_tasks_run().await;
    within(bus.etags(Vec::new())).await.unwrap();
    started
}

fn put(bus: &Bus, name: &'static str, body: &'static str) -> impl Future<Output = u64> + Send + 'static {
    let bus = bus.clone();
    async move { bus.upsert(text(name, body)).await.unwrap().etag.version }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_moves_between_shards_loses_nothing_and_sees_nothing_twice() {
    const NAMES: [&str; 8] = [
        "demo://a", "demo://b", "demo://c", "demo://d", "demo://e", "demo://f", "demo://g", "demo://h",
    ];
    let bench = Bench::with(|limits| limits.shards = 3);
    for name in NAMES {
        bench.put(name, "0").await;
    }
    let mut client = bench.list_client().await;
    client.session.subscribe(NAMES.map(uri).to_vec()).await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let publishers: Vec<_> = (0..2)
        .map(|half| {
            let (bus, done) = (bench.bus.clone(), done.clone());
            tokio::spawn(async move {
                let mut round = 0u64;
                while !done.load(Ordering::Relaxed) {
                    round += 1;
                    let name = NAMES[4 * half + round as usize % 4];
                    bus.update(text(name, &round.to_string())).await.unwrap();
                    bus.replace_tools(vec![tool(&format!("t{half}{}", round % 3))])
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    for hop in 0..300 {
        client = on_shard(&bench.bus, hop % 3, move || async move {
            client.reader = client.session.reader();
            client.next().await.unwrap();
            client
        })
        .await;
    }
    done.store(true, Ordering::Relaxed);
    for publisher in publishers {
        within(publisher).await.unwrap();
    }
    client.told();
    for name in NAMES {
        let newest = bench.bus.etag(name).await.unwrap().version;
        if newest > 1 {
            assert_eq!(client.newest(name), newest, "{name}");
        }
    }
    let mut fresh = bench.list_client().await;
    fresh.told();
    let sessions = bench.bus.sessions().await.unwrap();
    assert_eq!(
        sessions[0].pending.lists_notified,
        sessions[1].pending.lists_notified
    );
}

#[tokio::test]
async fn a_list_that_a_late_shard_saw_change_and_change_back_is_not_told() {
    let bench = Bench::start();
    bench.bus.add_tool(tool("t")).await.unwrap();
    let client = marked_by_shard_0(&bench, list_options(&[ListKind::Tools], true)).await;
    within(client.session.ready()).await.unwrap();
    let mut client = client;
    assert_eq!(client.told(), ["tools changed"]);

    let gate = Gate::close(&bench.bus, 0).await;
    let bus = bench.bus.clone();
    let added = start(&bench.bus, async move { bus.add_tool(tool("u")).await }).await;
    client = carried_by(&bench.bus, 1, client).await;
    let bus = bench.bus.clone();
    let removed = start(&bench.bus, async move { bus.remove_tool("u").await }).await;
    gate.open();
    within(added).await.unwrap().unwrap();
    within(removed).await.unwrap().unwrap();
    assert_eq!(client.told(), [""; 0]);
    bench.bus.add_tool(tool("u")).await.unwrap();
    assert_eq!(client.told(), ["tools changed"]);
}

#[tokio::test]
async fn what_a_late_shard_marks_is_behind_no_position_that_was_handed_out() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    bench.put("demo://b", "one").await;
    let mut client = marked_by_shard_0(&bench, options()).await;
    client.subscribe("demo://a").await;
    client.subscribe("demo://b").await;

    let gate = Gate::close(&bench.bus, 0).await;
    let first = start(&bench.bus, put(&bench.bus, "demo://a", "two")).await;
    client = carried_by(&bench.bus, 1, client).await;
    let second = start(&bench.bus, put(&bench.bus, "demo://b", "two")).await;
    client.until_told("demo://b", 2).await;
    let reached = client.position.unwrap();
    gate.open();
    assert_eq!(
        (within(first).await.unwrap(), within(second).await.unwrap()),
        (2, 2)
    );
    assert_eq!(client.told(), ["demo://a v2"]);

    // The write that carried it is lost with its connection.
    client.forget();
    client.reader.resume_after(reached);
    assert_eq!(client.told(), ["demo://a v2"]);
}

#[tokio::test]
async fn a_late_shard_does_not_mark_what_took_the_place_of_an_ended_subscription() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    bench.put("demo://b", "one").await;
    let mut client = marked_by_shard_0(&bench, options()).await;
    client.subscribe("demo://a").await;

    let gate = Gate::close(&bench.bus, 0).await;
    let late = start(&bench.bus, put(&bench.bus, "demo://a", "two")).await;
    client = carried_by(&bench.bus, 1, client).await;
    assert!(client.unsubscribe("demo://a").await);
    client.subscribe("demo://b").await;
    gate.open();
    within(late).await.unwrap();
    assert_eq!(client.told(), [""; 0], "it no longer asks for a");
    bench.put("demo://b", "two").await;
    assert_eq!(client.told(), ["demo://b v2"]);
}

#[tokio::test]
async fn a_subscription_that_is_under_way_when_its_subscriber_moves_is_not_lost() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let client = marked_by_shard_0(&bench, options()).await;
    let gate = Gate::close(&bench.bus, 0).await;
    let bus = bench.bus.clone();
    let mut client = on_shard(&bench.bus, 1, move || async move {
        let Client { session, reader, .. } = client;
        drop(reader);
        let mut subscribing = Box::pin(session.subscribe(vec![uri("demo://a")]));
        // It is on its way when it is polled first, and behind it the move.
        let first = std::future::poll_fn(|cx| std::task::Poll::Ready(subscribing.as_mut().poll(cx)));
        assert!(first.await.is_pending());
        let reader = session.reader();
        // The session's actor lives on this thread too; when this is answered the Etag actor has seen both.
        let_tasks_run().await;
        within(bus.etags(Vec::new())).await.unwrap();
        gate.open();
        within(subscribing).await.unwrap()[0].clone().unwrap();
        drop(reader);
        Client::of(session)
    })
    .await;
    let outcome = bench.bus.update(text("demo://a", "two")).await.unwrap();
    assert_eq!(outcome.notified, 1);
    assert_eq!(client.told(), ["demo://a v2"]);
}

/// A client that opens one stream after the other must not be able to fill a mailbox.
#[tokio::test]
async fn readers_opened_in_quick_succession_on_changing_shards_fill_no_mailbox() {
    let bench = Bench::with(|limits| {
        limits.shards = 2;
        limits.in_flight_max = 4;
        limits.sessions_max = 2;
    });
    bench.put("demo://a", "one").await;
    let mut client = marked_by_shard_0(&bench, options()).await;
    client.subscribe("demo://a").await;
    for shard in [1, 0, 1] {
        client = on_shard(&bench.bus, shard, move || async move {
            for _ in 0..500 {
                client.reader = client.session.reader();
            }
            client
        })
        .await;
    }
    bench.put("demo://a", "two").await;
    assert_eq!(client.told(), ["demo://a v2"]);
    assert_eq!(bench.bus.stats().await.unwrap().mailbox_refused, 0);
}
