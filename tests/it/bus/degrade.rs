//! A store that hangs or fails: what goes on meanwhile, and what becomes of the changes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidings::{Bus, ListKind, Outcome, Owner, PublishError, ReadError, StoreState};
use tokio::task::JoinHandle;

use crate::memory_store::{MemoryStore, Mode};
use crate::support::{Bench, DEADLINE, list_options, run_ready_tasks, text, tool, until, uri, within};

fn bench(store: &MemoryStore) -> Bench {
    Bench::stored(|_| (), store.clone())
}

type Change = JoinHandle<Result<Outcome, PublishError>>;

fn put_later(bus: &Bus, name: &'static str, body: &'static str) -> Change {
    let bus = bus.clone();
    tokio::spawn(async move { bus.upsert(text(name, body)).await })
}

async fn until_working(bus: &Bus) {
    until("a store that works", async || {
        bus.store_state() == StoreState::Working
    })
    .await;
}

/// The URIs on the pages of the list.
async fn listed(bus: &Bus) -> Vec<String> {
    let mut uris = Vec::new();
    let mut after = None;
    loop {
        let page = within(bus.resources(after, 2)).await.unwrap();
        uris.extend(
            page.items
                .iter()
                .map(|(resource, _)| resource.uri().as_str().to_owned()),
        );
        after = page.next;
        if after.is_none() {
            return uris;
        }
    }
}

#[tokio::test]
async fn hanging_store_delays_nothing_but_changes() {
    let store = MemoryStore::new();
    let bench = bench(&store);
    for name in ["demo://a", "demo://b", "demo://gone"] {
        bench.put(name, "one").await;
    }
    store.set(Mode::Hold);
    let update = put_later(&bench.bus, "demo://a", "two");
    store.until_held().await;
    let created = put_later(&bench.bus, "demo://new", "one");
    let bus = bench.bus.clone();
    let removal = tokio::spawn(async move { bus.remove("demo://gone").await });
    run_ready_tasks().await;

    // Everything else is answered from what is durable.
    assert_eq!(listed(&bench.bus).await, ["demo://a", "demo://b", "demo://gone"]);
    let names = ["demo://a", "demo://gone", "demo://new"].map(uri);
    let etags = within(bench.bus.etags(names.to_vec())).await.unwrap();
    let versions: Vec<_> = etags.iter().map(|etag| etag.map(|etag| etag.version)).collect();
    assert_eq!(versions, [Some(1), Some(1), None]);
    let missing = within(bench.bus.read("demo://new")).await;
    assert!(matches!(missing, Err(ReadError::NotFound(_))));
    let client = bench
        .client_with(list_options(&[ListKind::Resources], false))
        .await;
    within(client.session.ready()).await.unwrap();
    assert_eq!(client.subscribe("demo://a").await, 1);
    assert_eq!(client.subscribe("demo://b").await, 1);
    assert_eq!(client.subscribe("demo://gone").await, 1);
    assert!(client.unsubscribe("demo://b").await);
    let refused = within(client.session.subscribe(vec![uri("demo://new")]))
        .await
        .unwrap();
    assert!(refused[0].is_err());
    let mut client = client.read_on(&bench.bus, 1).await;
    within(bench.bus.stats()).await.unwrap();
    assert!(!update.is_finished() && !created.is_finished() && !removal.is_finished());

    store.set(Mode::Keep);
    assert_eq!(within(update).await.unwrap().unwrap().etag.version, 2);
    assert_eq!(within(created).await.unwrap().unwrap().etag.version, 1);
    within(removal).await.unwrap().unwrap();
    let mut told = client.received();
    told.sort_unstable();
    assert_eq!(
        told,
        ["demo://a v2", "demo://gone v2 removed", "resources changed"]
    );
    assert_eq!(listed(&bench.bus).await, ["demo://a", "demo://b", "demo://new"]);
}

#[tokio::test]
async fn waiting_changes_leave_room_for_reads() {
    let store = MemoryStore::new();
    let bench = Bench::stored(|limits| limits.in_flight_max = 2, store.clone());
    bench.put("demo://a", "one").await;
    store.set(Mode::Hold);
    let mut changes = Vec::new();
    for body in ["two", "three", "four", "five"] {
        changes.push(put_later(&bench.bus, "demo://a", body));
    }
    store.until_held().await;
    run_ready_tasks().await;
    let mut client = bench.subscriber("demo://a").await;
    within(bench.bus.etags(vec![uri("demo://a")])).await.unwrap();
    store.set(Mode::Keep);
    for change in changes {
        within(change).await.unwrap().unwrap();
    }
    assert_eq!(client.received(), ["demo://a v5"]);
}

#[tokio::test]
async fn failing_store_refuses_until_it_works() {
    for mode in [Mode::Fail, Mode::FailKept, Mode::Full, Mode::Panic] {
        let store = MemoryStore::new();
        let bench = bench(&store);
        assert_eq!(bench.bus.store_state(), StoreState::Working);
        bench.put("demo://a", "one").await;
        bench.put("demo://b", "one").await;
        let mut client = bench.client_with(list_options(&ListKind::ALL, false)).await;
        within(client.session.ready()).await.unwrap();
        client.subscribe("demo://a").await;
        store.set(Mode::Hold);
        let first = put_later(&bench.bus, "demo://a", "two");
        store.until_held().await;
        let created = put_later(&bench.bus, "demo://new", "one");
        run_ready_tasks().await;
        store.set(mode);
        for change in [first, created] {
            let refused = within(change).await.unwrap();
            let Err(PublishError::StoreUnavailable { full, .. }) = refused else {
                panic!("{mode:?}: {refused:?}");
            };
            assert_eq!(full, mode == Mode::Full);
        }
        let later = within(bench.bus.remove("demo://b")).await;
        assert!(matches!(later, Err(PublishError::StoreUnavailable { .. })));
        let state = bench.bus.store_state();
        assert!(matches!(state, StoreState::Failing { .. }), "{mode:?}: {state:?}");
        // Reads, subscriptions and lists go on from what is durable.
        assert_eq!(listed(&bench.bus).await, ["demo://a", "demo://b"]);
        assert_eq!(within(bench.bus.read("demo://a")).await.unwrap().etag.version, 1);
        assert_eq!(client.subscribe("demo://b").await, 1);
        within(bench.bus.add_tool(tool("t"))).await.unwrap();
        assert_eq!(client.received(), ["tools changed"], "{mode:?}");

        store.set(Mode::Keep);
        until_working(&bench.bus).await;
        // A version that was refused is free for other content, since no client was told of it.
        assert_eq!(bench.put("demo://a", "three").await, 2);
        assert_eq!(client.received(), ["demo://a v2"]);
        assert_eq!(bench.put("demo://new", "other").await, 1);
        assert_eq!(client.received(), ["resources changed"]);
        let head = client.position.unwrap();
        drop(client);
        within(bench.bus.shutdown(DEADLINE)).await;
        let kept = store.checkpoint();
        assert_eq!(kept.offset, head.offset);
        let versions = kept
            .lines
            .iter()
            .map(|kept| (kept.uri.as_str(), kept.line.etag.version));
        let versions: BTreeMap<&str, u64> = versions.collect();
        assert_eq!(
            versions,
            [("demo://a", 2), ("demo://b", 1), ("demo://new", 1)].into()
        );
    }
}

#[tokio::test]
async fn refused_change_does_not_come_back() {
    let store = MemoryStore::new();
    let first = bench(&store);
    let api = first.bus.owned_by(Owner::Api);
    within(api.upsert(text("demo://a", "kept"))).await.unwrap();
    store.set(Mode::FailKept);
    within(api.upsert(text("demo://a", "refused"))).await.unwrap_err();
    store.set(Mode::Keep);
    until_working(&first.bus).await;
    within(first.bus.shutdown(DEADLINE)).await;

    let second = bench(&store);
    let read = within(second.bus.read("demo://a")).await.unwrap();
    assert_eq!((read.etag.version, read.body.as_text()), (1, Some("kept")));
}

#[tokio::test]
async fn removal_of_unclaimed_waits_for_the_store() {
    let store = MemoryStore::new();
    let first = bench(&store);
    first.put("demo://a", "one").await;
    within(first.bus.shutdown(DEADLINE)).await;

    let second = bench(&store);
    let mut client = second.subscriber("demo://a").await;
    store.set(Mode::Fail);
    assert_eq!(within(second.bus.remove_unclaimed()).await.unwrap(), 1);
    assert_eq!(client.received(), [""; 0]);
    store.set(Mode::Keep);
    client.until_received("demo://a", 2).await;
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8, u8),
    Touch(u8),
    Remove(u8),
    Set(Mode),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let mode = prop_oneof![
        3 => Just(Mode::Keep),
        1 => Just(Mode::Fail),
        1 => Just(Mode::FailKept),
        1 => Just(Mode::Full),
    ];
    let step = prop_oneof![
        8 => (0..4u8, 0..3u8).prop_map(|(name, body)| Step::Put(name, body)),
        2 => (0..4u8).prop_map(Step::Touch),
        3 => (0..4u8).prop_map(Step::Remove),
        3 => mode.prop_map(Step::Set),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

/// The acknowledged state of one resource.
#[derive(Debug, Clone, Default)]
struct Acknowledged {
    body: Option<String>,
    version: u64,
}

struct Run {
    store: MemoryStore,
    bench: Bench,
    model: BTreeMap<String, Acknowledged>,
    /// The content of each etag that a publisher was told.
    told: BTreeMap<(String, String), Option<String>>,
}

impl Run {
    fn new() -> Run {
        let store = MemoryStore::new();
        Run {
            bench: bench(&store),
            store,
            model: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    async fn step(&mut self, step: Step) {
        let api = self.bench.bus.owned_by(Owner::Api);
        match step {
            Step::Put(name, body) => {
                let name = format!("demo://{name}");
                let body = body.to_string();
                let answer = within(api.upsert(text(&name, &body))).await;
                self.note(name, answer, Some(body));
            }
            Step::Touch(name) => {
                let name = format!("demo://{name}");
                let body = self.model.get(&name).and_then(|known| known.body.clone());
                let answer = within(api.touch(name.as_str())).await;
                self.note(name, answer, body);
            }
            Step::Remove(name) => {
                let name = format!("demo://{name}");
                let answer = within(api.remove(name.as_str())).await;
                self.note(name, answer, None);
            }
            Step::Set(mode) => {
                self.store.set(mode);
                if mode == Mode::Keep {
                    until_working(&self.bench.bus).await;
                }
            }
            Step::Restart => {
                self.store.set(Mode::Keep);
                until_working(&self.bench.bus).await;
                within(self.bench.bus.shutdown(DEADLINE)).await;
                self.bench = bench(&self.store);
            }
        }
        self.check().await;
    }

    fn note(&mut self, name: String, answer: Result<Outcome, PublishError>, body: Option<String>) {
        let known = self.model.entry(name.clone()).or_default();
        match answer {
            Ok(outcome) => {
                assert!(outcome.etag.version >= known.version, "{name} went backward");
                assert_eq!(outcome.etag.version > known.version, outcome.changed, "{name}");
                known.version = outcome.etag.version;
                known.body.clone_from(&body);
                if let Some(before) = self.told.insert((name, outcome.etag.to_string()), body) {
                    assert_eq!(before, known.body, "one etag for two contents");
                }
            }
            Err(PublishError::NotFound(_)) => assert_eq!(known.body, None),
            Err(PublishError::StoreUnavailable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Compares what is visible with what was acknowledged.
    async fn check(&self) {
        let bus = &self.bench.bus;
        let mut names = Vec::new();
        for (name, known) in &self.model {
            match (within(bus.read(name.as_str())).await, &known.body) {
                (Ok(read), Some(body)) => {
                    assert_eq!(
                        (read.body.as_text(), read.etag.version),
                        (Some(body.as_str()), known.version)
                    );
                    names.push(name.clone());
                }
                (Err(ReadError::NotFound(_)), None) => {}
                (read, body) => panic!("{name} is {read:?} and was acknowledged as {body:?}"),
            }
        }
        assert_eq!(listed(bus).await, names);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever the store does, the acknowledged state alone is visible, also after a restart.
    #[test]
    fn only_acknowledged_changes_are_visible(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut run = Run::new();
            for step in steps {
                run.step(step).await;
            }
        });
    }
}
