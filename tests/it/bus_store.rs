//! Promise: with a store, nobody is told of a version that a restart could take back, and versions outlive the bus.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tidings::{Bus, Checkpoint, EndReason, PublishError, Record, StartError, Store, StoreError};

use crate::support::{Bench, DEADLINE, let_tasks_run, options, text, tool, uri, within};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Keep,
    Hold,
    Fail,
    Panic,
}

struct State {
    mode: Mode,
    /// Whether an append waits for the mode to change.
    held: bool,
    batches: Vec<Vec<Record>>,
}

/// Records in memory, kept through several lives of a bus.
#[derive(Clone)]
struct Shelf(Arc<(Mutex<State>, Condvar)>);

impl Shelf {
    fn new() -> Shelf {
        let state = State {
            mode: Mode::Keep,
            held: false,
            batches: Vec::new(),
        };
        Shelf(Arc::new((Mutex::new(state), Condvar::new())))
    }

    fn set(&self, mode: Mode) {
        self.0.0.lock().unwrap().mode = mode;
        self.0.1.notify_all();
    }

    fn records(&self) -> Vec<Record> {
        self.0.0.lock().unwrap().batches.concat()
    }

    async fn until_held(&self) {
        crate::support::until("an append that is held back", async || {
            self.0.0.lock().unwrap().held
        })
        .await;
    }
}

impl Store for Shelf {
    fn load(&mut self) -> Result<Checkpoint, StoreError> {
        let mut checkpoint = Checkpoint {
            epoch: 77,
            ..Checkpoint::default()
        };
        for record in self.records() {
            (checkpoint.offset, checkpoint.floor) = (record.offset, record.floor);
            if let Some((uri, line)) = record.line {
                checkpoint.lines.retain(|(known, _)| *known != uri);
                checkpoint.lines.push((uri, line));
            }
        }
        Ok(checkpoint)
    }

    fn append(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        state.held = true;
        while state.mode == Mode::Hold {
            state = changed.wait_timeout(state, DEADLINE).unwrap().0;
        }
        state.held = false;
        match state.mode {
            Mode::Fail => return Err(StoreError("no space left".into())),
            Mode::Panic => {
                drop(state);
                panic!("a store that panics");
            }
            Mode::Keep | Mode::Hold => state.batches.push(records.to_vec()),
        }
        Ok(())
    }
}

fn bench(shelf: &Shelf) -> Bench {
    Bench::stored(|_| (), shelf.clone())
}

#[tokio::test]
async fn nobody_is_told_and_no_read_shows_a_version_before_it_is_kept() {
    let shelf = Shelf::new();
    let bench = bench(&shelf);
    bench.put("demo://a", "one").await;
    let mut client = bench.client().await;
    client.subscribe("demo://a").await;
    shelf.set(Mode::Hold);
    let bus = bench.bus.clone();
    let update = tokio::spawn(async move { bus.update(text("demo://a", "two")).await });
    shelf.until_held().await;
    let bus = bench.bus.clone();
    let read = tokio::spawn(async move { bus.read("demo://a").await.unwrap().etag.version });
    let bus = bench.bus.clone();
    let look = tokio::spawn(async move { bus.etag("demo://a").await.unwrap().version });
    let bus = bench.bus.clone();
    let no_op = tokio::spawn(async move { bus.update(text("demo://a", "two")).await.unwrap() });
    for _ in 0..5 {
        let_tasks_run().await;
        // What needs no version is answered meanwhile.
        within(bench.bus.tools(None, 1)).await.unwrap();
        within(bench.bus.sessions()).await.unwrap();
    }
    assert!(!update.is_finished() && !read.is_finished() && !look.is_finished() && !no_op.is_finished());
    assert_eq!(client.told(), [""; 0]);
    let shown = || bench.bus.cached_etag("demo://a").unwrap().unwrap().version;
    assert_eq!(shown(), 1);

    shelf.set(Mode::Keep);
    assert_eq!(within(update).await.unwrap().unwrap().notified, 1);
    assert_eq!(shown(), 2);
    assert_eq!((within(read).await.unwrap(), within(look).await.unwrap()), (2, 2));
    let no_op = within(no_op).await.unwrap();
    assert_eq!((no_op.changed, no_op.etag.version), (false, 2));
    assert_eq!(client.told(), ["demo://a v2"]);
}

#[tokio::test]
async fn what_comes_while_the_store_is_busy_is_kept_as_one_batch_in_its_order() {
    let shelf = Shelf::new();
    let bench = bench(&shelf);
    bench.put("demo://a", "0").await;
    let mut client = bench.client().await;
    client.subscribe("demo://a").await;
    shelf.set(Mode::Hold);
    let mut updates = Vec::new();
    for round in 1..=20u64 {
        let bus = bench.bus.clone();
        updates.push(tokio::spawn(async move {
            bus.update(text("demo://a", &round.to_string())).await
        }));
        let_tasks_run().await;
    }
    shelf.until_held().await;
    shelf.set(Mode::Keep);
    for (round, update) in updates.into_iter().enumerate() {
        assert_eq!(
            within(update).await.unwrap().unwrap().etag.version,
            round as u64 + 2
        );
    }
    assert_eq!(client.told(), ["demo://a v21"]);
    let offsets: Vec<_> = shelf.records().iter().map(|record| record.offset).collect();
    assert!(offsets.is_sorted(), "{offsets:?}");
    let versions = shelf
        .records()
        .into_iter()
        .map(|record| record.line.unwrap().1.etag.version);
    assert!(versions.eq(1..=21));
    let batches = shelf.0.0.lock().unwrap().batches.len();
    assert!(batches <= 4, "{batches} batches for what came at once");
}

#[tokio::test]
async fn a_store_that_fails_or_panics_stops_the_bus_loudly() {
    for mode in [Mode::Fail, Mode::Panic] {
        let shelf = Shelf::new();
        let bench = bench(&shelf);
        bench.put("demo://a", "one").await;
        let mut client = bench.client().await;
        client.subscribe("demo://a").await;
        shelf.set(Mode::Hold);
        let updates = ["two", "three"].map(|body| {
            let bus = bench.bus.clone();
            tokio::spawn(async move { bus.update(text("demo://a", body)).await })
        });
        shelf.until_held().await;
        let_tasks_run().await;
        shelf.set(mode);
        for update in updates {
            let refused = within(update).await.unwrap();
            assert_eq!(refused, Err(PublishError::Closed(tidings::Closed)), "{mode:?}");
        }
        assert_eq!(within(bench.bus.stopped()).await, Some("etag"), "{mode:?}");
        assert!(!bench.bus.is_running());
        let (told, reason) = client.until_the_end().await;
        assert_eq!((told.len(), reason), (0, EndReason::Failed), "{mode:?}");
        assert!(within(bench.bus.read("demo://a")).await.is_err());
        assert!(within(bench.bus.open(options())).await.is_err());

        drop(client);
        within(bench.bus.shutdown(DEADLINE)).await;
        assert_eq!(
            within(bench.bus.stopped()).await,
            Some("etag"),
            "a shutdown does not hide why"
        );
    }
}

#[tokio::test]
async fn a_restart_from_the_same_records_keeps_versions_and_positions() {
    let shelf = Shelf::new();
    let first = bench(&shelf);
    for body in ["one", "two", "three"] {
        first.put("demo://a", body).await;
        first.put("demo://b", body).await;
    }
    first.bus.remove("demo://b").await.unwrap();
    let mut client = first.client().await;
    client.subscribe("demo://a").await;
    first.put("demo://a", "four").await;
    client.told();
    let position = client.position.unwrap();
    let etag = first.bus.etag("demo://a").await.unwrap();
    drop(client);
    within(first.bus.shutdown(DEADLINE)).await;

    let second = bench(&shelf);
    second.pass_seconds(100);
    assert!(matches!(
        second.bus.read("demo://a").await,
        Err(tidings::ReadError::NotFound(_))
    ));
    let again = second.bus.register(text("demo://a", "four")).await.unwrap();
    assert!(again.created);
    assert_eq!(again.etag, etag, "the same content is the same version");
    assert_eq!(second.put("demo://a", "five").await, 5);
    assert_eq!(second.put("demo://b", "three").await, 5, "removed at version 4");
    let mut client = second.client().await;
    client.subscribe("demo://a").await;
    second.put("demo://a", "six").await;
    client.told();
    let later = client.position.unwrap();
    assert_eq!((later.epoch, position.epoch), (77, 77));
    assert!(later.offset > position.offset);
}

#[tokio::test]
async fn a_removal_that_is_forgotten_at_once_is_kept_all_the_same() {
    let shelf = Shelf::new();
    for life in 0..3 {
        let bench = Bench::stored(|limits| limits.removed_max = 0, shelf.clone());
        assert_eq!(bench.put("demo://a", "same").await, 2 * life + 1);
        assert_eq!(
            bench.bus.remove("demo://a").await.unwrap().etag.version,
            2 * life + 2
        );
        within(bench.bus.shutdown(DEADLINE)).await;
    }
}

#[tokio::test]
async fn a_list_change_takes_an_offset_and_no_line() {
    let shelf = Shelf::new();
    let bench = bench(&shelf);
    bench.bus.add_tool(tool("t")).await.unwrap();
    bench.bus.add_tool(tool("t")).await.unwrap();
    bench.put("demo://a", "one").await;
    let records = shelf.records();
    assert_eq!(
        records[0],
        Record {
            floor: 0,
            offset: 1,
            line: None
        }
    );
    assert_eq!(records[1].line.as_ref().unwrap().0, uri("demo://a"));
    assert_eq!(records.len(), 2);
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_a_store_longer_than_it_was_given() {
    let shelf = Shelf::new();
    let bench = bench(&shelf);
    shelf.set(Mode::Hold);
    let bus = bench.bus.clone();
    let update = tokio::spawn(async move { bus.register(text("demo://a", "one")).await });
    shelf.until_held().await;
    within(bench.bus.shutdown(Duration::from_millis(50))).await;
    shelf.set(Mode::Keep);
    // Whether or not it was kept, its publisher is not left waiting.
    drop(within(update).await.unwrap());
}

/// The next bus may want to open the same file.
#[tokio::test]
async fn a_shutdown_returns_when_the_store_is_let_go() {
    for _ in 0..20 {
        let shelf = Shelf::new();
        let bench = bench(&shelf);
        bench.put("demo://a", "one").await;
        assert_eq!(Arc::strong_count(&shelf.0), 2);
        within(bench.bus.shutdown(DEADLINE)).await;
        assert_eq!(Arc::strong_count(&shelf.0), 1);
    }
}

#[test]
fn a_store_that_cannot_be_read_lets_no_bus_start() {
    struct Broken;
    impl Store for Broken {
        fn load(&mut self) -> Result<Checkpoint, StoreError> {
            Err(StoreError("not a ledger".into()))
        }

        fn append(&mut self, _: &[Record]) -> Result<(), StoreError> {
            Ok(())
        }
    }
    let error = Bus::builder().store(Broken).start().unwrap_err();
    assert!(matches!(error, StartError::Store(_)));
    assert_eq!(error.to_string(), "the etag store failed: not a ledger");
}

/// What a subscriber sends while the store is busy waits with everything else, so a crowd of sessions that come and
/// go meanwhile arrives at the publishers at once.
#[tokio::test]
async fn sessions_that_come_and_go_while_the_store_is_busy_fill_no_mailbox() {
    let shelf = Shelf::new();
    let small = |limits: &mut tidings::Limits| {
        limits.in_flight_max = 4;
        limits.sessions_max = 4;
        limits.shards = 1;
    };
    let bench = Bench::stored(small, shelf.clone());
    shelf.set(Mode::Hold);
    let bus = bench.bus.clone();
    let update = tokio::spawn(async move { bus.register(text("demo://a", "one")).await });
    shelf.until_held().await;
    let mut opened = 0;
    for _ in 0..500 {
        if let Ok(session) = within(bench.bus.open(options())).await {
            opened += 1;
            drop(session);
        }
        tokio::task::yield_now().await;
    }
    assert!(opened >= 4);
    shelf.set(Mode::Keep);
    within(update).await.unwrap().unwrap();
    bench.sessions_are(0).await;
    assert_eq!(bench.bus.stats().await.unwrap().mailbox_refused, 0);
}
