//! Back-pressure: a publisher that is too fast waits for admission, and a slow reader costs the others
//! nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidings::{Change, Condition, OutboxEntry, PublishError};

use crate::support::{Bench, Gate, options, run_ready_tasks, text, uri, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fast_publishers_wait_and_are_all_answered() {
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
                    assert_eq!(
                        outcome.etag.version,
                        round + 1,
                        "changes of one publisher are out of order"
                    );
                    assert_eq!(outcome.notified, 1);
                }
            })
        })
        .collect();
    let done = Arc::new(AtomicBool::new(false));
    let bus = bench.bus.clone();
    let stop = done.clone();
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
        client.until_received(&format!("demo://{task}"), 51).await;
    }
}

#[tokio::test]
async fn try_publish_at_the_limit_fails_with_busy() {
    let bench = Bench::with(|limits| {
        limits.in_flight_max = 2;
        limits.shards = 1;
    });
    bench.put("demo://a", "0").await;
    let _client = bench.subscriber("demo://a").await;
    // A change with subscribers is answered by the shard, which is blocked.
    let gate = Gate::close(&bench.bus, 0).await;
    let waiting = ["1", "2", "3"].map(|body| {
        let bus = bench.bus.clone();
        tokio::spawn(async move { bus.update(text("demo://a", body)).await })
    });
    run_ready_tasks().await;
    let change = Change::Update(text("demo://a", "4"));
    let busy = within(bench.bus.try_publish(change.clone(), Condition::Always)).await;
    assert_eq!(busy, Err(PublishError::Busy(2)));
    gate.open();
    for publisher in waiting {
        within(publisher).await.unwrap().unwrap();
    }
    let open = within(bench.bus.try_publish(change, Condition::Always)).await;
    assert_eq!(open.unwrap().etag.version, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_reader_does_not_affect_others() {
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
                client.until_received(name, ROUNDS + 1).await;
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
            // Pending entries are bounded by the subscriptions.
            assert_eq!(bench.info(&stalled).await.pending.entries, NAMES.len());
        }
    }
    for reader in readers {
        within(reader).await.unwrap();
    }
    assert_eq!(bench.info(&stalled).await.pending.entries, NAMES.len());
    let newest = NAMES.map(|name| format!("{name} v{}", ROUNDS + 1));
    assert_eq!(stalled.received(), newest, "the newest of each, exactly once");
    assert_eq!(stalled.received(), [""; 0]);
}

#[tokio::test]
async fn drain_returns_at_most_drain_max_entries() {
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

/// Opening and ending sessions takes no permit, so the number of sessions has to bound their messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn short_sessions_never_fill_a_mailbox() {
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
                    let _reader = session.reader();
                }
            })
        })
        .collect();
    for task in tasks {
        within(task).await.unwrap();
    }
    assert_eq!(bench.bus.stats().await.unwrap().mailbox_refused, 0);
}
