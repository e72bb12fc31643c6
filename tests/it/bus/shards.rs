//! Shards: a session may be carried by the thread of any shard, and a move loses nothing and repeats nothing.
//!
//! While one shard is blocked by a gate, another may be ahead of it. The marks of the first, when it
//! continues, are then older than the state of the session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidings::{Bus, ListKind, SessionOptions};

use crate::support::{
    Bench, Client, Gate, list_options, on_shard, options, run_ready_tasks, text, tool, uri, within,
};

/// Opens the client's reader on a shard's thread. Returns once the session has moved there.
async fn carried_by(bus: &Bus, shard: usize, client: Client) -> Client {
    let client = client.read_on(bus, shard).await;
    // Answered after the move, which was sent before.
    within(client.session.subscribe(Vec::new())).await.unwrap();
    client
}

/// Opens a client whose session lives on shard 1 and is marked by shard 0.
async fn marked_by_shard_0(bench: &Bench, options: SessionOptions) -> Client {
    let bus = bench.bus.clone();
    let client = on_shard(&bench.bus, 1, move || async move {
        Client::of(bus.open(options).await.unwrap())
    })
    .await;
    carried_by(&bench.bus, 0, client).await
}

/// Starts a change that cannot be answered yet. Returns once the Etag actor has given it a version.
async fn start<T: Send + 'static>(
    bench: &Bench,
    change: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    let started = tokio::spawn(change);
    bench.until_routed().await;
    started
}

fn put(bus: &Bus, name: &'static str, body: &'static str) -> impl Future<Output = u64> + Send + 'static {
    let bus = bus.clone();
    async move { bus.upsert(text(name, body)).await.unwrap().etag.version }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moving_session_gets_each_notice_once() {
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
            let bus = bench.bus.clone();
            let done = done.clone();
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
    client.received();
    for name in NAMES {
        let newest = bench.bus.etag(name).await.unwrap().version;
        if newest > 1 {
            assert_eq!(client.newest(name), newest, "{name}");
        }
    }
    let mut fresh = bench.list_client().await;
    fresh.received();
    let sessions = bench.bus.sessions().await.unwrap();
    assert_eq!(
        sessions[0].pending.lists_notified,
        sessions[1].pending.lists_notified
    );
}

#[tokio::test]
async fn late_shard_does_not_mark_a_reverted_list() {
    let bench = Bench::start();
    bench.bus.add_tool(tool("t")).await.unwrap();
    let client = marked_by_shard_0(&bench, list_options(&[ListKind::Tools], true)).await;
    within(client.session.ready()).await.unwrap();
    let mut client = client;
    assert_eq!(client.received(), ["tools changed"]);

    let gate = Gate::close(&bench.bus, 0).await;
    let bus = bench.bus.clone();
    let added = start(&bench, async move { bus.add_tool(tool("u")).await }).await;
    client = carried_by(&bench.bus, 1, client).await;
    let bus = bench.bus.clone();
    let removed = start(&bench, async move { bus.remove_tool("u").await }).await;
    gate.open();
    within(added).await.unwrap().unwrap();
    within(removed).await.unwrap().unwrap();
    assert_eq!(client.received(), [""; 0]);
    bench.bus.add_tool(tool("u")).await.unwrap();
    assert_eq!(client.received(), ["tools changed"]);
}

#[tokio::test]
async fn late_marks_follow_every_returned_position() {
    let bench = Bench::with_resources(["demo://a", "demo://b"]).await;
    let mut client = marked_by_shard_0(&bench, options()).await;
    client.subscribe("demo://a").await;
    client.subscribe("demo://b").await;

    let gate = Gate::close(&bench.bus, 0).await;
    let first = start(&bench, put(&bench.bus, "demo://a", "two")).await;
    client = carried_by(&bench.bus, 1, client).await;
    let second = start(&bench, put(&bench.bus, "demo://b", "two")).await;
    client.until_received("demo://b", 2).await;
    let reached = client.position.unwrap();
    gate.open();
    assert_eq!(
        (within(first).await.unwrap(), within(second).await.unwrap()),
        (2, 2)
    );
    assert_eq!(client.received(), ["demo://a v2"]);

    // The write with the last entry is lost with its connection.
    client.forget();
    client.reader.resume_after(reached);
    assert_eq!(client.received(), ["demo://a v2"]);
}

#[tokio::test]
async fn late_shard_does_not_mark_a_reused_slot() {
    let bench = Bench::with_resources(["demo://a", "demo://b"]).await;
    let mut client = marked_by_shard_0(&bench, options()).await;
    client.subscribe("demo://a").await;

    let gate = Gate::close(&bench.bus, 0).await;
    let late = start(&bench, put(&bench.bus, "demo://a", "two")).await;
    client = carried_by(&bench.bus, 1, client).await;
    assert!(client.unsubscribe("demo://a").await);
    client.subscribe("demo://b").await;
    gate.open();
    within(late).await.unwrap();
    assert_eq!(client.received(), [""; 0], "it is not subscribed to a");
    bench.put("demo://b", "two").await;
    assert_eq!(client.received(), ["demo://b v2"]);
}

#[tokio::test]
async fn subscription_survives_a_concurrent_move() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let client = marked_by_shard_0(&bench, options()).await;
    let gate = Gate::close(&bench.bus, 0).await;
    let bus = bench.bus.clone();
    let mut client = on_shard(&bench.bus, 1, move || async move {
        let Client { session, reader, .. } = client;
        drop(reader);
        let mut subscribing = Box::pin(session.subscribe(vec![uri("demo://a")]));
        // The first poll sends the request; the move is sent after it.
        let first = std::future::poll_fn(|cx| std::task::Poll::Ready(subscribing.as_mut().poll(cx)));
        assert!(first.await.is_pending());
        let reader = session.reader();
        // The session's actor runs on this thread. The answer means that the Etag actor has seen both
        // messages.
        run_ready_tasks().await;
        within(bus.etags(Vec::new())).await.unwrap();
        gate.open();
        within(subscribing).await.unwrap()[0].clone().unwrap();
        drop(reader);
        Client::of(session)
    })
    .await;
    let outcome = bench.update("demo://a", "two").await;
    assert_eq!(outcome.notified, 1);
    assert_eq!(client.received(), ["demo://a v2"]);
}

/// A client that opens one stream after the other must not fill a mailbox.
#[tokio::test]
async fn many_moves_fill_no_mailbox() {
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
    assert_eq!(client.received(), ["demo://a v2"]);
    assert_eq!(bench.bus.stats().await.unwrap().mailbox_refused, 0);
}
