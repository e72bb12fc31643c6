//! Stores: no version is visible before it is durable, and versions outlive the bus.

use std::time::Duration;

use tidings::{Batch, Body, Bus, Checkpoint, ListKind, Record, StartError, Store, StoreError};

use crate::memory_store::{MemoryStore, Mode};
use crate::support::{Bench, DEADLINE, options, run_ready_tasks, text, tool, uri, within};

fn bench(store: &MemoryStore) -> Bench {
    Bench::stored(|_| (), store.clone())
}

fn cached_version(bench: &Bench) -> u64 {
    bench.bus.cached_etag("demo://a").unwrap().unwrap().version
}

#[tokio::test]
async fn version_is_invisible_until_it_is_durable() {
    let store = MemoryStore::new();
    let bench = bench(&store);
    bench.put("demo://a", "one").await;
    let mut client = bench.subscriber("demo://a").await;
    store.set(Mode::Hold);
    let bus = bench.bus.clone();
    let update = tokio::spawn(async move { bus.update(text("demo://a", "two")).await });
    store.until_held().await;
    let bus = bench.bus.clone();
    let no_op = tokio::spawn(async move { bus.update(text("demo://a", "two")).await.unwrap() });
    for _ in 0..5 {
        run_ready_tasks().await;
        // Requests that need no version are answered meanwhile.
        within(bench.bus.tools(None, 1)).await.unwrap();
        within(bench.bus.sessions()).await.unwrap();
        let read = within(bench.bus.read("demo://a")).await.unwrap();
        assert_eq!((read.etag.version, read.body), (1, Body::text("one")));
        assert_eq!(within(bench.bus.etag("demo://a")).await.unwrap().version, 1);
    }
    assert!(!update.is_finished() && !no_op.is_finished());
    assert_eq!(client.received(), [""; 0]);
    assert_eq!(cached_version(&bench), 1);

    store.set(Mode::Keep);
    assert_eq!(within(update).await.unwrap().unwrap().notified, 1);
    assert_eq!(cached_version(&bench), 2);
    let read = within(bench.bus.read("demo://a")).await.unwrap();
    assert_eq!((read.etag.version, read.body), (2, Body::text("two")));
    let no_op = within(no_op).await.unwrap();
    assert_eq!((no_op.changed, no_op.etag.version), (false, 2));
    assert_eq!(client.received(), ["demo://a v2"]);
}

#[tokio::test]
async fn changes_during_an_append_form_one_batch() {
    let store = MemoryStore::new();
    let bench = bench(&store);
    bench.put("demo://a", "0").await;
    let mut client = bench.subscriber("demo://a").await;
    store.set(Mode::Hold);
    let mut updates = Vec::new();
    for round in 1..=20u64 {
        let bus = bench.bus.clone();
        updates.push(tokio::spawn(async move {
            bus.update(text("demo://a", &round.to_string())).await
        }));
        run_ready_tasks().await;
    }
    store.until_held().await;
    store.set(Mode::Keep);
    for (round, update) in updates.into_iter().enumerate() {
        assert_eq!(
            within(update).await.unwrap().unwrap().etag.version,
            round as u64 + 2
        );
    }
    assert_eq!(client.received(), ["demo://a v21"]);
    let mut versions = Vec::new();
    let mut offsets = Vec::new();
    for record in store.records() {
        if let Record::Line { line, .. } = record {
            versions.push(line.etag.version);
            offsets.push(line.offset);
        }
    }
    assert!(offsets.is_sorted(), "{offsets:?}");
    assert!(versions.into_iter().eq(1..=21));
    // The first one begins the life of the bus.
    let batches = store.batches().len() - 1;
    assert!(batches <= 4, "{batches} batches for simultaneous changes");
}

#[tokio::test]
async fn restart_keeps_versions_and_positions() {
    let store = MemoryStore::new();
    let first = bench(&store);
    for body in ["one", "two", "three"] {
        first.put("demo://a", body).await;
        first.put("demo://b", body).await;
    }
    first.bus.remove("demo://b").await.unwrap();
    let mut client = first.client().await;
    client.subscribe("demo://a").await;
    first.put("demo://a", "four").await;
    client.received();
    let position = client.position.unwrap();
    let etag = first.bus.etag("demo://a").await.unwrap();
    drop(client);
    within(first.bus.shutdown(DEADLINE)).await;

    let second = bench(&store);
    second.pass_seconds(100);
    assert!(matches!(
        second.bus.read("demo://a").await,
        Err(tidings::ReadError::NotFound(_))
    ));
    let again = second.bus.register(text("demo://a", "four")).await.unwrap();
    assert!(again.created);
    assert_eq!(again.etag, etag, "the same content is the same version");
    assert_eq!(second.put("demo://a", "five").await, 5);
    assert_eq!(
        second.put("demo://b", "three").await,
        5,
        "it was removed at version 4"
    );
    let mut client = second.client().await;
    client.subscribe("demo://a").await;
    second.put("demo://a", "six").await;
    client.received();
    let later = client.position.unwrap();
    assert!(later.epoch > position.epoch);
    assert!(later.offset > position.offset);
    let known = second.bus.lineage().offset_of(position, later.offset);
    assert_eq!(known, Some(position.offset));
}

#[tokio::test]
async fn touched_content_after_restart_is_no_change() {
    let store = MemoryStore::new();
    let first = bench(&store);
    first.put("demo://a", "same").await;
    let touched = first.bus.touch("demo://a").await.unwrap();
    assert_eq!((touched.etag.version, touched.changed), (2, true));
    within(first.bus.shutdown(DEADLINE)).await;
    let second = bench(&store);
    assert_eq!(second.put("demo://a", "same").await, 2);
    assert_eq!(second.bus.etag("demo://a").await.unwrap(), touched.etag);
}

#[tokio::test]
async fn forgotten_removal_is_still_stored() {
    let store = MemoryStore::new();
    for life in 0..3 {
        let bench = Bench::stored(|limits| limits.removed_max = 0, store.clone());
        assert_eq!(bench.put("demo://a", "same").await, 2 * life + 1);
        assert_eq!(
            bench.bus.remove("demo://a").await.unwrap().etag.version,
            2 * life + 2
        );
        within(bench.bus.shutdown(DEADLINE)).await;
    }
}

#[tokio::test]
async fn list_change_stores_an_offset_without_line() {
    let store = MemoryStore::new();
    let bench = bench(&store);
    bench.bus.add_tool(tool("t")).await.unwrap();
    bench.bus.add_tool(tool("t")).await.unwrap();
    bench.put("demo://a", "one").await;
    let records = store.records();
    let [
        Record::Life(_),
        Record::List(ListKind::Tools, _, 1),
        Record::Line { uri: of, .. },
        _,
    ] = &records[..]
    else {
        panic!("other records: {records:?}");
    };
    assert_eq!(*of, uri("demo://a"));
}

#[tokio::test]
async fn shutdown_does_not_wait_for_a_hanging_store() {
    let store = MemoryStore::new();
    let bench = bench(&store);
    store.set(Mode::Hold);
    let bus = bench.bus.clone();
    let update = tokio::spawn(async move { bus.register(text("demo://a", "one")).await });
    store.until_held().await;
    within(bench.bus.shutdown(Duration::from_millis(50))).await;
    store.set(Mode::Keep);
    // The change may be stored or refused, but its publisher must not wait any longer.
    let _answer = within(update).await.unwrap();
}

/// The next bus may open the same file.
#[tokio::test]
async fn shutdown_returns_after_the_store_is_dropped() {
    for _ in 0..20 {
        let store = MemoryStore::new();
        let bench = bench(&store);
        bench.put("demo://a", "one").await;
        assert_eq!(store.clones(), 2);
        within(bench.bus.shutdown(DEADLINE)).await;
        assert_eq!(store.clones(), 1);
    }
}

#[test]
fn unreadable_store_prevents_the_start() {
    struct Broken;
    impl Store for Broken {
        fn load(&mut self) -> Result<Checkpoint, StoreError> {
            Err(StoreError::new("not a ledger"))
        }

        fn append(&mut self, _: &Batch) -> Result<(), StoreError> {
            Ok(())
        }
    }
    let error = Bus::builder().store(Broken).start().unwrap_err();
    assert!(matches!(error, StartError::Store(_)));
    assert_eq!(error.to_string(), "the store failed: not a ledger");
}

/// Many short sessions while the store is busy.
#[tokio::test]
async fn sessions_during_an_append_fill_no_mailbox() {
    let store = MemoryStore::new();
    let bench = Bench::stored(
        |limits| {
            limits.in_flight_max = 4;
            limits.sessions_max = 4;
            limits.shards = 1;
        },
        store.clone(),
    );
    store.set(Mode::Hold);
    let bus = bench.bus.clone();
    let update = tokio::spawn(async move { bus.register(text("demo://a", "one")).await });
    store.until_held().await;
    let mut opened = 0;
    for _ in 0..500 {
        if let Ok(session) = within(bench.bus.open(options())).await {
            opened += 1;
            drop(session);
        }
        tokio::task::yield_now().await;
    }
    assert!(opened >= 4);
    store.set(Mode::Keep);
    within(update).await.unwrap().unwrap();
    bench.until_sessions(0).await;
    assert_eq!(bench.bus.stats().await.unwrap().mailbox_refused, 0);
}
