//! Random runs of the bus, compared with a model that is one plain struct.
//!
//! With a single publisher each step is awaited, so every answer and every drain is known exactly. With
//! concurrent publishers only the end is known: every subscriber has the newest of all its subscriptions.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tidings::{Change, Condition, ListKind, PublishError};
use tidings_actors::{Filter, UriPattern};

use crate::support::{Bench, Client, list_options, text, tool, until, uri, within};

const NAMES: u8 = 4;
const PEERS: u8 = 3;

#[derive(Debug, Clone)]
enum Step {
    Register(u8, u8),
    Update(u8, u8),
    Upsert(u8, u8),
    Touch(u8),
    Remove(u8),
    AddTool(u8, u8),
    RemoveTool(u8),
    Open(u8, bool),
    Ready(u8),
    Subscribe(u8, u8),
    Unsubscribe(u8, u8),
    Watch(u8),
    Drain(u8),
    Move(u8, u8),
    Disconnect(u8),
}

fn publishing() -> impl Strategy<Value = Step> {
    let name = 0..NAMES;
    let body = 0..3u8;
    prop_oneof![
        2 => (name.clone(), body.clone()).prop_map(|(n, b)| Step::Register(n, b)),
        3 => (name.clone(), body.clone()).prop_map(|(n, b)| Step::Update(n, b)),
        4 => (name.clone(), body).prop_map(|(n, b)| Step::Upsert(n, b)),
        1 => name.clone().prop_map(Step::Touch),
        2 => name.prop_map(Step::Remove),
        2 => (0..2u8, 0..2u8).prop_map(|(n, d)| Step::AddTool(n, d)),
        1 => (0..2u8).prop_map(Step::RemoveTool),
    ]
}

fn subscribing() -> impl Strategy<Value = Step> {
    let peer = 0..PEERS;
    let name = 0..NAMES;
    prop_oneof![
        3 => (peer.clone(), any::<bool>()).prop_map(|(p, a)| Step::Open(p, a)),
        2 => peer.clone().prop_map(Step::Ready),
        5 => (peer.clone(), name.clone()).prop_map(|(p, n)| Step::Subscribe(p, n)),
        1 => (peer.clone(), name).prop_map(|(p, n)| Step::Unsubscribe(p, n)),
        1 => peer.clone().prop_map(Step::Watch),
        3 => peer.clone().prop_map(Step::Drain),
        1 => (peer.clone(), 0..2u8).prop_map(|(p, s)| Step::Move(p, s)),
        1 => peer.prop_map(Step::Disconnect),
    ]
}

fn config(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..Config::default()
    }
}

/// The expected state of one session.
struct Peer {
    client: Client,
    announce: bool,
    /// Its subscriptions, with the newest version that it knows or has pending.
    known: BTreeMap<u8, u64>,
    /// True if it watches every resource of the run.
    watches: bool,
    /// The last notified contents of the resources and the tools, once it is ready.
    lists: Option<[String; 2]>,
    /// The pending entries, oldest first, with the line that will be received.
    queue: Vec<(Key, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Resource(u8),
    List(usize),
}

const LIST_NAMES: [&str; 2] = ["resources changed", "tools changed"];

/// The expected state of the bus.
struct Model<'a> {
    bench: &'a Bench,
    /// A part of the names of this run, because versions outlive resources.
    run: u64,
    bodies: BTreeMap<u8, u8>,
    versions: BTreeMap<u8, u64>,
    tools: BTreeMap<u8, u8>,
    peers: BTreeMap<u8, Peer>,
}

impl Model<'_> {
    fn name(&self, name: u8) -> String {
        format!("demo://{}/{name}", self.run)
    }

    fn lists(&self) -> [String; 2] {
        let resources: BTreeSet<_> = self.bodies.keys().collect();
        [format!("{resources:?}"), format!("{:?}", self.tools)]
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Register(name, body) => self.write(step, name, body).await,
            Step::Update(name, body) => self.write(step, name, body).await,
            Step::Upsert(name, body) => self.write(step, name, body).await,
            Step::Touch(name) => self.change(name, Change::Touch(uri(&self.name(name)))).await,
            Step::Remove(name) => self.change(name, Change::Remove(uri(&self.name(name)))).await,
            Step::AddTool(name, description) => {
                let added = tool(&format!("t{name}")).description(format!("{description}"));
                let changed = self.bench.bus.add_tool(added).await.unwrap().changed;
                assert_eq!(changed, self.tools.insert(name, description) != Some(description));
                self.lists_changed();
            }
            Step::RemoveTool(name) => {
                let outcome = self.bench.bus.remove_tool(&format!("t{name}")).await.unwrap();
                assert_eq!(outcome.changed, self.tools.remove(&name).is_some());
                self.lists_changed();
            }
            Step::Open(peer, announce) => {
                let options = list_options(&[ListKind::Resources, ListKind::Tools], announce);
                let client = self.bench.client_with(options).await;
                let opened = Peer {
                    client,
                    announce,
                    known: BTreeMap::new(),
                    watches: false,
                    lists: None,
                    queue: Vec::new(),
                };
                self.peers.entry(peer).or_insert(opened);
            }
            Step::Ready(peer) => self.ready(peer).await,
            Step::Subscribe(peer, name) => self.subscribe(peer, name).await,
            Step::Unsubscribe(peer, name) => {
                let full = self.name(name);
                if let Some(peer) = self.peers.get_mut(&peer) {
                    let had = peer.known.remove(&name).is_some();
                    assert_eq!(peer.client.unsubscribe(&full).await, had);
                    if !peer.watches {
                        peer.queue.retain(|(key, _)| *key != Key::Resource(name));
                    }
                }
            }
            Step::Watch(peer) => {
                let filter = all_of(self.run);
                if let Some(peer) = self.peers.get_mut(&peer) {
                    within(peer.client.session.watch(filter, 64)).await.unwrap();
                    peer.watches = true;
                }
            }
            Step::Drain(peer) => self.drain(peer),
            Step::Move(peer, shard) => {
                if let Some(mut peer_state) = self.peers.remove(&peer) {
                    peer_state.client = peer_state
                        .client
                        .read_on(&self.bench.bus, usize::from(shard))
                        .await;
                    self.peers.insert(peer, peer_state);
                }
            }
            Step::Disconnect(peer) => {
                if self.peers.remove(&peer).is_some() {
                    // Until its end has arrived at the shard, a change may still notify it.
                    let left = self.peers.len();
                    until("the end of a session", async || {
                        self.bench.bus.stats().await.unwrap().sessions == left
                    })
                    .await;
                }
            }
        }
    }

    async fn write(&mut self, step: Step, name: u8, body: u8) {
        let resource = text(&self.name(name), &body.to_string());
        let change = match step {
            Step::Register(..) => Change::Register(resource),
            Step::Update(..) => Change::Update(resource),
            _ => Change::Upsert(resource),
        };
        self.change(name, change).await;
    }

    async fn change(&mut self, name: u8, change: Change) {
        let full = uri(&self.name(name));
        let held = self.bodies.get(&name).copied();
        let refused = match (&change, held) {
            (Change::Register(_), Some(_)) => Some(PublishError::AlreadyExists(full)),
            (Change::Update(_) | Change::Touch(_) | Change::Remove(_), None) => {
                Some(PublishError::NotFound(full))
            }
            _ => None,
        };
        let body = match &change {
            Change::Register(resource) | Change::Update(resource) | Change::Upsert(resource) => {
                match resource.content() {
                    tidings::Content::Held(body) => Some(body.as_text().unwrap().parse::<u8>().unwrap()),
                    tidings::Content::Lazy(_) => None,
                }
            }
            _ => None,
        };
        let no_op = body.is_some() && body == held;
        let removes = matches!(change, Change::Remove(_));
        let answer = self.bench.bus.publish(change, Condition::Always).await;
        if let Some(error) = refused {
            return assert_eq!(answer, Err(error));
        }
        let outcome = answer.unwrap();
        assert_eq!((outcome.changed, outcome.created), (!no_op, held.is_none()));
        if !no_op {
            *self.versions.entry(name).or_insert(0) += 1;
        }
        let version = self.versions[&name];
        assert_eq!(outcome.etag.version, version);
        match body {
            Some(body) => _ = self.bodies.insert(name, body),
            None if removes => _ = self.bodies.remove(&name),
            None => {}
        }
        let cached = self.bench.bus.cached_etag(&self.name(name)).unwrap();
        let exists = self.bodies.contains_key(&name);
        assert_eq!(cached, exists.then_some(outcome.etag));
        let notified = if no_op {
            0
        } else {
            self.notify(name, version, removes)
        };
        assert_eq!(outcome.notified, notified);
        self.lists_changed();
    }

    fn notify(&mut self, name: u8, version: u64, removed: bool) -> usize {
        let end = if removed { " removed" } else { "" };
        let line = format!("{} v{version}{end}", self.name(name));
        let mut notified = 0;
        for peer in self.peers.values_mut() {
            let known = peer.known.get_mut(&name);
            if peer.watches || known.is_some() {
                notified += 1;
                if let Some(known) = known {
                    *known = version;
                }
                match peer.queue.iter_mut().find(|(key, _)| *key == Key::Resource(name)) {
                    Some((_, pending)) => pending.clone_from(&line),
                    None => peer.queue.push((Key::Resource(name), line.clone())),
                }
            }
        }
        notified
    }

    fn lists_changed(&mut self) {
        let current = self.lists();
        for peer in self.peers.values_mut() {
            peer.lists_are(&current);
        }
    }

    async fn ready(&mut self, peer: u8) {
        let current = self.lists();
        if let Some(peer) = self.peers.get_mut(&peer) {
            within(peer.client.session.ready()).await.unwrap();
            let known = match peer.announce {
                true => ["{}".to_owned(), "{}".to_owned()],
                false => current.clone(),
            };
            peer.lists.get_or_insert(known);
            peer.lists_are(&current);
        }
    }

    async fn subscribe(&mut self, peer: u8, name: u8) {
        let full = uri(&self.name(name));
        let version = self.bodies.get(&name).map(|_| self.versions[&name]);
        if let Some(peer) = self.peers.get_mut(&peer) {
            let answers = within(peer.client.session.subscribe(vec![full])).await.unwrap();
            let answered = answers[0].as_ref().ok().map(|etag| etag.version);
            assert_eq!(answered, version);
            if let Some(version) = version {
                peer.known.entry(name).or_insert(version);
            }
        }
    }

    fn drain(&mut self, peer: u8) {
        let current = self.lists();
        if let Some(peer) = self.peers.get_mut(&peer) {
            let expected: Vec<_> = peer.queue.drain(..).collect();
            let lines: Vec<_> = expected.iter().map(|(_, line)| line.as_str()).collect();
            assert_eq!(peer.client.received(), lines);
            for (key, _) in &expected {
                if let (Key::List(list), Some(known)) = (key, &mut peer.lists) {
                    known[*list].clone_from(&current[*list]);
                }
            }
        }
    }

    /// Compares the last entries of the sessions, and ends them.
    async fn finish(mut self) {
        for peer in 0..PEERS {
            self.drain(peer);
        }
        for peer in self.peers.values() {
            for (name, known) in &peer.known {
                assert_eq!(self.versions[name], *known);
            }
        }
        self.peers.clear();
    }
}

impl Peer {
    fn lists_are(&mut self, current: &[String; 2]) {
        let Some(known) = &self.lists else { return };
        for list in 0..2 {
            let pending = self.queue.iter().any(|(key, _)| *key == Key::List(list));
            if known[list] == current[list] {
                self.queue.retain(|(key, _)| *key != Key::List(list));
            } else if !pending {
                self.queue.push((Key::List(list), LIST_NAMES[list].to_owned()));
            }
        }
    }
}

/// A filter for the resources of a run.
fn all_of(run: u64) -> Arc<Filter> {
    let pattern = format!("demo://{run}/*").parse::<UriPattern>().unwrap();
    Arc::new(Filter::of(vec![pattern]).unwrap())
}

/// Removes the sessions, resources and tools of the last run, which may have failed.
async fn clean(bench: &Bench) {
    let bus = &bench.bus;
    until("the end of the last run's sessions", async || {
        bus.stats().await.unwrap().sessions == 0
    })
    .await;
    for (resource, _) in bus.resources(None, 100).await.unwrap().items {
        bus.remove(resource.uri()).await.unwrap();
    }
    bus.replace_tools(Vec::new()).await.unwrap();
}

#[test]
fn single_publisher_matches_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let bench = Bench::start();
    let step = prop_oneof![publishing(), subscribing()].boxed();
    let runs = prop_oneof![
        9 => prop::collection::vec(step.clone(), 1..6),
        1 => prop::collection::vec(step, 20..40),
    ];
    let run = Cell::new(0);
    let mut runner = TestRunner::new(config(10_000));
    let checked = runner.run(&runs, |steps: Vec<Step>| {
        run.set(run.get() + 1);
        runtime.block_on(async {
            clean(&bench).await;
            let mut model = Model {
                bench: &bench,
                run: run.get(),
                bodies: BTreeMap::new(),
                versions: BTreeMap::new(),
                tools: BTreeMap::new(),
                peers: BTreeMap::new(),
            };
            for step in steps {
                model.step(step).await;
            }
            model.finish().await;
        });
        Ok(())
    });
    checked.unwrap();
}

fn name_of(run: u32, name: u8) -> String {
    format!("demo://{run}/{name}")
}

/// Performs the steps of one publisher.
async fn publish_all(bench: Arc<Bench>, run: u32, steps: Vec<Step>) {
    let bus = &bench.bus;
    for step in steps {
        // The order of the publishers is open, so any answer but a failure of the bus is right.
        let closed = match step {
            Step::Register(n, b) => bus.register(text(&name_of(run, n), &b.to_string())).await.err(),
            Step::Update(n, b) => bus.update(text(&name_of(run, n), &b.to_string())).await.err(),
            Step::Upsert(n, b) => bus.upsert(text(&name_of(run, n), &b.to_string())).await.err(),
            Step::Touch(n) => bus.touch(&uri(&name_of(run, n))).await.err(),
            Step::Remove(n) => bus.remove(&uri(&name_of(run, n))).await.err(),
            Step::AddTool(n, d) => bus
                .add_tool(tool(&format!("t{n}")).description(format!("{d}")))
                .await
                .err(),
            Step::RemoveTool(n) => bus.remove_tool(&format!("t{n}")).await.err(),
            _ => None,
        };
        assert!(!matches!(closed, Some(PublishError::Closed(_))), "{step:?}");
    }
}

/// Performs the steps of one subscriber. Returns its client and its subscriptions with the versions that it
/// knows.
async fn subscribe_all(bench: Arc<Bench>, run: u32, steps: Vec<Step>) -> (Client, BTreeMap<u8, u64>) {
    let mut client = bench.list_client().await;
    let mut known = BTreeMap::new();
    for step in steps {
        match step {
            Step::Open(..) | Step::Disconnect(_) => {
                client = bench.list_client().await;
                known.clear();
            }
            Step::Ready(_) => within(client.session.ready()).await.unwrap(),
            Step::Subscribe(_, n) => {
                let answers = within(client.session.subscribe(vec![uri(&name_of(run, n))]))
                    .await
                    .unwrap();
                if let Ok(etag) = answers[0] {
                    known.entry(n).or_insert(etag.version);
                }
            }
            Step::Unsubscribe(_, n) => {
                let had = client.unsubscribe(&name_of(run, n)).await;
                assert_eq!(had, known.remove(&n).is_some());
            }
            Step::Watch(_) => within(client.session.watch(all_of(run.into()), 64))
                .await
                .unwrap(),
            Step::Drain(_) => _ = client.received(),
            Step::Move(_, shard) => client = client.read_on(&bench.bus, usize::from(shard)).await,
            _ => {}
        }
    }
    (client, known)
}

#[test]
fn concurrent_publishers_end_with_the_newest() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let _guard = runtime.enter();
    let bench = Arc::new(Bench::start());
    let shares = (
        prop::collection::vec(prop::collection::vec(publishing(), 1..30), 3),
        prop::collection::vec(prop::collection::vec(subscribing(), 1..20), 3),
    );
    let run = Cell::new(0);
    let mut runner = TestRunner::new(config(200));
    let checked = runner.run(
        &shares,
        |(publishers, subscribers): (Vec<Vec<Step>>, Vec<Vec<Step>>)| {
            run.set(run.get() + 1);
            let run = run.get();
            runtime.block_on(async {
                clean(&bench).await;
                let publishers = publishers
                    .into_iter()
                    .map(|steps| tokio::spawn(publish_all(bench.clone(), run, steps)));
                let publishers: Vec<_> = publishers.collect();
                let subscribers = subscribers
                    .into_iter()
                    .map(|s| tokio::spawn(subscribe_all(bench.clone(), run, s)));
                let subscribers: Vec<_> = subscribers.collect();
                for publisher in publishers {
                    within(publisher).await.unwrap();
                }
                let mut ends = Vec::new();
                for subscriber in subscribers {
                    ends.push(within(subscriber).await.unwrap());
                }
                compare(&bench, run, ends).await;
            });
            Ok(())
        },
    );
    checked.unwrap();
}

/// Lets every session receive the rest, and compares them with a new session.
async fn compare(bench: &Bench, run: u32, mut ends: Vec<(Client, BTreeMap<u8, u64>)>) {
    let mut fresh = bench.list_client().await;
    fresh.received();
    // Registering the URIs again shows the versions of those that were removed.
    for name in 0..NAMES {
        bench.put(&format!("demo://{run}/{name}"), "the end").await;
    }
    for (client, known) in &mut ends {
        client.received();
        for (name, version) in known {
            let name = format!("demo://{run}/{name}");
            let newest = bench.bus.etag(&*name).await.unwrap().version;
            assert_eq!(newest, client.newest(&name).max(*version), "{name}");
        }
    }
    fresh.received();
    // Those that subscribers have replaced may still be ending.
    bench.until_sessions(ends.len() + 1).await;
    let sessions = bench.bus.sessions().await.unwrap();
    for info in &sessions {
        assert_eq!(
            info.pending.lists_notified, sessions[0].pending.lists_notified,
            "{}",
            info.id
        );
        assert_eq!(info.pending.entries, 0);
    }
}
