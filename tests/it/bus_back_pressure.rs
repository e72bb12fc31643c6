//! Promise: a publisher that is too fast waits at one door, and a reader that is too slow costs nobody anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidings::{Change, Condition, OutboxEntry, PublishError};

use crate::support::{Bench, Client, Gate, let_tasks_run, options, text, uri, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_publisher_faster_than_the_bus_waits_and_is_always_answered() {
    let bench = Bench::with(|limits| limits.in_flight_max = 8);
    let mut client = bench.client().await;
    for task in 0..200 {
        bench.put(&format!("demo://{task}"), "0").await;
        client.subscribe(&format!("demo://{task}")).await;
    }
    let publishers: Vec<_> = (0..200)
        .map(|task| {
            let bus = bench.bus.clone();
            tokio::spawn(async move {
                for round in 1..=50u64 {
                    let resource = text(&format!("demo://{task}"), &round.to_string());
                    let outcome = bus.update(resource).await.unwrap();
                    assert_eq!(outcome.etag.version, round + 1, "in the order of its publisher");
                    assert_eq!(outcome.notified, 1);
                }
            })
        })
        .collect();
    let done = Arc::new(AtomicBool::new(false));
    let (bus, stop) = (bench.bus.clone(), done.clone());
    let watcher = tokio::spawn(async move {
        let mut most = 0;
        while !stop.load(Ordering::Relaxed) {
            most = most.max(bus.stats().await.unwrap().in_flight);
        }
        most
    });
    for publisher in publishers {
        within(publisher).await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    let most = within(watcher).await.unwrap();
    assert!((1..=8).contains(&most), "{most} in flight");
    let stats = bench.bus.stats().await.unwrap();
    assert_eq!((stats.notices, stats.mailbox_refused), (200 + 200 * 50, 0));
    for task in 0..200 {
        client.until_told(&format!("demo://{task}"), 51).await;
    }
}

#[tokio::test]
async fn try_publish_answers_busy_when_the_door_is_full() {
    let bench = Bench::with(|limits| {
        limits.in_flight_max = 2;
        limits.shards = 1;
    });
    bench.put("demo://a", "0").await;
    let client = bench.client().await;
    client.subscribe("demo://a").await;
    // While the shard's thread is busy nothing that somebody wants is answered.
    let gate = Gate::close(&bench.bus, 0).await;
    let publish = |body: &'static str| {
        let bus = bench.bus.clone();
        tokio::spawn(async move { bus.update(text("demo://a", body)).await })
    };
    let waiting = [publish("1"), publish("2"), publish("3")];
    let_tasks_run().await;
    let change = || Change::Update(text("demo://a", "4"));
    let busy = within(bench.bus.try_publish(change(), Condition::Always)).await;
    assert_eq!(busy, Err(PublishError::Busy(2)));
    gate.open();
    for publisher in waiting {
        within(publisher).await.unwrap().unwrap();
    }
    let open = within(bench.bus.try_publish(change(), Condition::Always)).await;
    assert_eq!(open.unwrap().etag.version, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_reader_among_a_hundred_changes_nothing_for_the_others() {
    const NAMES: [&str; 5] = ["demo://a", "demo://b", "demo://c", "demo://d", "demo://e"];
    const ROUNDS: u64 = 2_000;
    let bench = Bench::start();
    for name in NAMES {
        bench.put(name, "0").await;
    }
    let mut stalled = bench.client().await;
    let mut readers = Vec::new();
    for _ in 0..99 {
        let mut client = bench.client().await;
        client.session.subscribe(NAMES.map(uri).to_vec()).await.unwrap();
        readers.push(tokio::spawn(async move {
            for name in NAMES {
                client.until_told(name, ROUNDS + 1).await;
            }
        }));
    }
    stalled.session.subscribe(NAMES.map(uri).to_vec()).await.unwrap();
    for round in 1..=ROUNDS {
        for name in NAMES {
            let outcome = bench.bus.update(text(name, &round.to_string())).await.unwrap();
            assert_eq!(outcome.notified, 100);
        }
        if round % 500 == 0 {
            let pending = pending_of(&bench, &stalled).await;
            assert_eq!(pending, NAMES.len(), "bounded by its subscriptions");
        }
    }
    for reader in readers {
        within(reader).await.unwrap();
    }
    assert_eq!(pending_of(&bench, &stalled).await, NAMES.len());
    let newest = NAMES.map(|name| format!("{name} v{}", ROUNDS + 1));
    assert_eq!(stalled.told(), newest, "the newest of each, once");
    assert_eq!(stalled.told(), [""; 0]);
}

async fn pending_of(bench: &Bench, client: &Client) -> usize {
    let sessions = bench.bus.sessions().await.unwrap();
    sessions
        .iter()
        .find(|info| info.id == client.session.id())
        .unwrap()
        .pending
        .entries
}

#[tokio::test]
async fn one_drain_hands_out_what_one_write_can_carry_and_the_next_the_rest() {
    let bench = Bench::with(|limits| limits.drain_max = 10);
    let mut client = bench.client().await;
    for i in 0..25 {
        bench.put(&format!("demo://{i:02}"), "one").await;
        client.subscribe(&format!("demo://{i:02}")).await;
        bench.put(&format!("demo://{i:02}"), "two").await;
    }
    let mut sizes = Vec::new();
    for _ in 0..3 {
        let mut entries: Vec<OutboxEntry> = Vec::new();
        within(client.reader.drain(&mut entries)).await;
        sizes.push(entries.len());
    }
    assert_eq!(sizes, [10, 10, 5]);
}

/// Opening and ending sessions takes no permit, so their comings and goings must be bounded by their number.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sessions_that_come_and_go_fast_never_fill_a_mailbox() {
    let bench = Bench::with(|limits| {
        limits.in_flight_max = 4;
        limits.sessions_max = 4;
    });
    bench.put("demo://a", "one").await;
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let bus = bench.bus.clone();
            tokio::spawn(async move {
                for _ in 0..300 {
                    let Ok(session) = bus.open(options()).await else {
                        tokio::task::yield_now().await;
                        continue;
                    };
                    drop(session.reader());
                }
            })
        })
        .collect();
    for task in tasks {
        within(task).await.unwrap();
    }
    assert_eq!(bench.bus.stats().await.unwrap().mailbox_refused, 0);
}
