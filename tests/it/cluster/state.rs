//! The state that nodes share beside the log: entries under conditions, leases, and the nodes that are there.

use std::future::Future;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidings::cluster::{
    ClusterSettings, Expected, LEASE_TTL, Lease, NodeLists, NodePresence, NodeReport, SharedState,
    StateError, StateKey, StateKind, present_nodes,
};

use super::brokers::{self, Brokers};

/// The time for which a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(120);

fn open(brokers: &Brokers, namespace: &str, node: &str) -> SharedState {
    let settings = ClusterSettings {
        urls: brokers.urls(),
        namespace: namespace.to_owned(),
        node: node.to_owned(),
        replicas: brokers.count().min(3),
        ..ClusterSettings::default()
    };
    SharedState::open(settings).unwrap()
}

/// Asks until a server answers: a connection may take seconds on a busy machine.
async fn answer<T, F>(ask: impl Fn() -> F) -> Result<T, StateError>
where
    F: Future<Output = Result<T, StateError>>,
{
    let begin = Instant::now();
    loop {
        match ask().await {
            Err(StateError::Unavailable(_)) if begin.elapsed() < PATIENCE => {}
            answer => return answer,
        }
    }
}

/// Writes until a server answers, and takes a conflict with this value for the answer that was lost.
async fn written(state: &SharedState, key: &StateKey, text: &'static str, expected: Expected) -> u64 {
    let value = Bytes::from_static(text.as_bytes());
    let written = answer(|| state.write(key, value.clone(), expected, None)).await;
    if written != Err(StateError::Conflict) {
        return written.unwrap();
    }
    let entry = answer(|| state.load(key)).await.unwrap().unwrap();
    assert_eq!(entry.value, value, "{key}");
    entry.revision
}

/// Asserts that a write of another value is refused under this condition.
async fn assert_conflict(state: &SharedState, key: &StateKey, expected: Expected) {
    let refused = answer(|| state.write(key, Bytes::from_static(b"x"), expected, None)).await;
    assert_eq!(refused, Err(StateError::Conflict));
}

/// Waits until `holds`, looking whenever an entry is heard.
async fn until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let begin = Instant::now();
    while !holds().await {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn entry_is_written_under_its_condition() {
    let Some(brokers) = brokers::shared() else { return };
    let one = open(brokers, "conditions", "one");
    let other = open(brokers, "conditions", "other");
    let key = StateKey::new(StateKind::Lease, "a b/ü.*>");
    let first = written(&one, &key, "first", Expected::Absent).await;
    assert_conflict(&other, &key, Expected::Absent).await;
    let second = written(&other, &key, "second", Expected::Revision(first)).await;
    assert_conflict(&one, &key, Expected::Revision(first)).await;
    let entry = answer(|| one.load(&key)).await.unwrap().unwrap();
    assert_eq!((&entry.value[..], entry.revision), (&b"second"[..], second));
    until("it is heard", async || {
        one.heard(&key).map(|heard| heard.entry) == Some(entry.clone())
    })
    .await;
    let stale = answer(|| one.delete(&key, Expected::Revision(first))).await;
    assert_eq!(stale, Err(StateError::Conflict));
    answer(|| one.delete(&key, Expected::Revision(second)))
        .await
        .unwrap();
    assert_eq!(answer(|| one.load(&key)).await, Ok(None));
    until("the end is heard", async || other.heard(&key).is_none()).await;
    // The mark of the deleted entry stands for none.
    assert!(written(&one, &key, "third", Expected::Absent).await > second);
}

#[tokio::test]
async fn fifty_nodes_race_for_one_entry() {
    let Some(brokers) = brokers::shared() else { return };
    let state = open(brokers, "race", "one");
    written(
        &state,
        &StateKey::new(StateKind::Cursor, "ready"),
        "x",
        Expected::Any,
    )
    .await;
    let key = StateKey::new(StateKind::Cursor, "raced");
    let mut writes = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let state = state.clone();
        let key = key.clone();
        writes.spawn(async move {
            state
                .write(&key, Bytes::from_static(b"x"), Expected::Absent, None)
                .await
        });
    }
    let outcomes = writes.join_all().await;
    let won = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(won, 1, "{outcomes:?}");
}

#[tokio::test]
async fn lease_of_a_dead_node_goes_to_another() {
    let Some(brokers) = brokers::shared() else { return };
    let dead = open(brokers, "dead", "dead");
    let key = StateKey::new(StateKind::Lease, "task");
    let begin = Instant::now();
    let entry = Bytes::from_static(br#"{"node":"dead","boot":1}"#);
    let before = answer(|| dead.write(&key, entry.clone(), Expected::Any, Some(LEASE_TTL))).await;
    let before = before.unwrap();
    let state = open(brokers, "dead", "next");
    let lease = Lease::seek(&state, "task");
    let mut turns = lease.turns();
    let turn = tokio::time::timeout(PATIENCE, turns.wait_for(Option::is_some));
    turn.await.unwrap().unwrap();
    let entry = answer(|| state.load(&key)).await.unwrap();
    assert!(entry.unwrap().revision > before);
    assert!(begin.elapsed() >= LEASE_TTL, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn released_lease_goes_to_the_next_at_once() {
    let Some(brokers) = brokers::shared() else { return };
    let one = open(brokers, "released", "one");
    let other = open(brokers, "released", "other");
    let first = Lease::seek(&one, "source.workspace");
    first.turns().wait_for(Option::is_some).await.unwrap();
    let second = Lease::seek(&other, "source.workspace");
    let key = StateKey::new(StateKind::Lease, "source.workspace");
    until("the holder is heard", async || other.heard(&key).is_some()).await;
    assert!(second.turns().borrow().is_none());
    let begin = Instant::now();
    first.release().await;
    second.turns().wait_for(Option::is_some).await.unwrap();
    assert!(begin.elapsed() < LEASE_TTL / 2, "{:?}", begin.elapsed());
}

fn report(state: &SharedState, applied: u64) -> NodeReport {
    NodeReport {
        node: state.node().to_owned(),
        boot: state.boot(),
        address: "127.0.0.1:8808".to_owned(),
        version: "1".to_owned(),
        applied,
        lists: NodeLists::default(),
        usage: Vec::new(),
    }
}

#[tokio::test]
async fn nodes_hear_each_other_and_their_end() {
    let Some(brokers) = brokers::shared() else { return };
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        let state = open(brokers, "presence", name);
        let own = state.clone();
        let presence = NodePresence::start(&state, move || report(&own, 7));
        nodes.push((state, presence));
    }
    for (state, _) in &nodes {
        until("all are heard", async || present_nodes(state).len() == 3).await;
    }
    let (_, last) = nodes.pop().unwrap();
    last.stop().await;
    for (state, _) in &nodes {
        until("the end is heard", async || present_nodes(state).len() == 2).await;
    }
    assert_eq!(present_nodes(&nodes[0].0)[0].report.applied, 7);
}

#[tokio::test]
async fn state_survives_the_death_of_its_server() {
    let Some(mut brokers) = Brokers::start(3) else {
        return;
    };
    let state = open(&brokers, "failover", "one");
    let key = StateKey::new(StateKind::Cursor, "place");
    let first = written(&state, &key, "first", Expected::Absent).await;
    brokers.kill(0);
    let second = written(&state, &key, "second", Expected::Revision(first)).await;
    brokers.up(0);
    brokers.kill(1);
    let entry = answer(|| state.load(&key)).await.unwrap().unwrap();
    assert_eq!((&entry.value[..], entry.revision), (&b"second"[..], second));
}
