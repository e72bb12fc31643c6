//! Buses that share a log, with a log in memory in place of a real one.

mod memory_log;
mod deadlines;
mod doubts;
mod floors;
mod latest;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::{Builder, Bus};
use crate::model::{
    Change, Condition, Etag, EtagCondition, Owner, PublishError, Resource, ResourceUri, SessionOptions,
    SubscriberKind,
};
use crate::outbox::{Drained, OutboxEntry, OutboxReader};
use crate::session::Session;
use crate::shared_log::AskNewest;
use memory_log::{Line, MemoryLog};

const TIMEOUT: Duration = Duration::from_secs(20);

/// A node of a cluster.
#[derive(Clone)]
struct Node {
    bus: Bus,
    line: Line,
}

impl Node {
    fn start(log: &MemoryLog) -> Node {
        Node::with_timeout(log, TIMEOUT)
    }

    fn with_timeout(log: &MemoryLog, timeout: Duration) -> Node {
        Node::with(log, timeout, |builder| builder)
    }

    fn with(log: &MemoryLog, timeout: Duration, set: impl FnOnce(Builder) -> Builder) -> Node {
        let line = log.line(timeout);
        let bus = set(Bus::builder().shared_log(line.clone())).start().unwrap();
        Node { bus, line }
    }

    async fn put(&self, uri: &str, text: &str) -> Result<Etag, PublishError> {
        let resource = Resource::text(uri, text).unwrap();
        let outcome = self.bus.owned_by(Owner::Api).upsert(resource).await?;
        Ok(outcome.etag)
    }

    async fn put_at(&self, uri: &str, text: &str, etag: Etag) -> Result<Etag, PublishError> {
        let change = Change::Upsert(Resource::text(uri, text).unwrap());
        let condition = Condition::from(EtagCondition::is_at(etag));
        let bus = self.bus.owned_by(Owner::Api);
        Ok(bus.publish(change, condition).await?.etag)
    }

    fn etag(&self, uri: &str) -> Option<Etag> {
        self.bus.cached_etag(uri).unwrap()
    }

    fn text(&self, uri: &str) -> Option<String> {
        let (resource, _) = self.bus.cached_resource(uri).unwrap()?;
        match resource.content() {
            crate::model::Content::Held(body) => body.as_text().map(str::to_owned),
            crate::model::Content::Lazy(_) => None,
        }
    }

    async fn until_etag(&self, uri: &str, etag: Etag) {
        until(|| self.etag(uri) == Some(etag)).await;
    }

    async fn subscribe(&self, uris: &[&str]) -> (Session, OutboxReader) {
        let options = SessionOptions::new(SubscriberKind::Attached, "test");
        let session = self.bus.open(options).await.unwrap();
        let uris = uris.iter().map(|uri| ResourceUri::new(uri).unwrap());
        for result in session.subscribe(uris.collect()).await.unwrap() {
            result.unwrap();
        }
        let reader = session.reader();
        (session, reader)
    }
}

/// The questions of a node for the newest record of its log.
#[derive(Clone, Default)]
struct Questions(Arc<Mutex<QuestionsState>>);

#[derive(Default)]
struct QuestionsState {
    asked: usize,
    fails: bool,
    /// Each answer waits for a permit, if there is one.
    may_answer: Option<Arc<Semaphore>>,
}

impl Questions {
    fn of(&self, log: &MemoryLog) -> AskNewest {
        let state = self.0.clone();
        let log = log.clone();
        Arc::new(move || {
            let mut state = state.lock().unwrap();
            state.asked += 1;
            let answer = match state.fails {
                true => Err("nobody leads".to_owned()),
                false => Ok(log.len()),
            };
            let may_answer = state.may_answer.clone();
            Box::pin(async move {
                if let Some(may_answer) = may_answer {
                    may_answer.acquire().await.unwrap().forget();
                }
                answer
            })
        })
    }

    fn asked(&self) -> usize {
        self.0.lock().unwrap().asked
    }

    fn fail(&self, fails: bool) {
        self.0.lock().unwrap().fails = fails;
    }

    fn wait_for(&self, may_answer: &Arc<Semaphore>) {
        self.0.lock().unwrap().may_answer = Some(may_answer.clone());
    }
}

/// Opens a session that is told of the resource list.
async fn list_reader(node: &Node) -> (Session, OutboxReader) {
    let mut options = SessionOptions::new(SubscriberKind::Attached, "test");
    options.lists = vec![crate::model::ListKind::Resources];
    let session = node.bus.open(options).await.unwrap();
    session.ready().await.unwrap();
    let reader = session.reader();
    (session, reader)
}

async fn until(mut condition: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the condition did not hold within 10 seconds");
}

/// The next entries as URI and version, in order; never none, since a keep-alive brings no entry.
async fn next(reader: &mut OutboxReader) -> Vec<(String, u64)> {
    let mut entries = Vec::new();
    let drained = async {
        while entries.is_empty() {
            if let Drained::Ended(reason) = reader.drain(&mut entries).await {
                panic!("the session ended: {reason:?}");
            }
        }
    };
    tokio::time::timeout(TIMEOUT, drained).await.expect("an entry");
    let told = entries.iter().map(|entry| match entry {
        OutboxEntry::Updated(notice) => (notice.uri.to_string(), notice.etag.version),
        other => (format!("{other:?}"), 0),
    });
    told.collect()
}

#[tokio::test]
async fn nodes_have_equal_etags_and_positions() {
    let log = MemoryLog::new();
    let [a, b] = [Node::start(&log), Node::start(&log)];
    let mut tasks = Vec::new();
    for (number, node) in [&a, &b].into_iter().enumerate() {
        for round in 0..50 {
            let text = format!("{number} {round}");
            let uri = format!("demo://{}", round % 5);
            tasks.push(async move { node.put(&uri, &text).await.unwrap() });
        }
    }
    let etags = futures_join(tasks).await;
    // No version was given twice: every change is one record.
    assert_eq!(log.len(), 100);
    let mut versions = [0; 5];
    for (index, etag) in etags.iter().enumerate() {
        let uri = index % 50 % 5;
        versions[uri] = versions[uri].max(etag.version);
    }
    assert_eq!(versions, [20; 5]);
    for uri in (0..5).map(|uri| format!("demo://{uri}")) {
        until(|| a.etag(&uri).map(|etag| etag.version) == Some(20)).await;
        b.until_etag(&uri, a.etag(&uri).unwrap()).await;
        assert_eq!(a.text(&uri), b.text(&uri));
    }
    until(|| a.bus.log_state() == b.bus.log_state()).await;
    let (_, one) = a.subscribe(&["demo://1"]).await;
    let (_, two) = b.subscribe(&["demo://1"]).await;
    assert_eq!(one.position(), two.position());
}

async fn futures_join<T>(tasks: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut pending: Vec<_> = tasks.into_iter().map(|task| (Box::pin(task), None)).collect();
    std::future::poll_fn(move |cx| {
        let mut is_done = true;
        for (task, result) in &mut pending {
            if result.is_none() {
                match task.as_mut().poll(cx) {
                    std::task::Poll::Ready(value) => *result = Some(value),
                    std::task::Poll::Pending => is_done = false,
                }
            }
        }
        match is_done {
            true => {
                std::task::Poll::Ready(pending.iter_mut().filter_map(|(_, value)| value.take()).collect())
            }
            false => std::task::Poll::Pending,
        }
    })
    .await
}

#[tokio::test]
async fn change_of_another_node_is_told_once() {
    let log = MemoryLog::new();
    let [a, b] = [Node::start(&log), Node::start(&log)];
    let first = a.put("demo://x", "1").await.unwrap();
    b.until_etag("demo://x", first).await;
    let (_session, mut reader) = b.subscribe(&["demo://x"]).await;
    a.put("demo://x", "2").await.unwrap();
    assert_eq!(next(&mut reader).await, [("demo://x".into(), 2)]);
    // The same content again is no record, from either node.
    for node in [&a, &b] {
        assert_eq!(node.put("demo://x", "2").await.unwrap().version, 2);
    }
    assert_eq!(log.len(), 2);
    a.bus.owned_by(Owner::Api).remove("demo://x").await.unwrap();
    assert_eq!(next(&mut reader).await, [("demo://x".into(), 3)]);
    until(|| b.etag("demo://x").is_none()).await;
    assert_eq!(a.put("demo://x", "2").await.unwrap().version, 4);
}

#[tokio::test]
async fn notice_counts_the_changes_that_it_replaced() {
    let log = MemoryLog::new();
    let [a, b] = [Node::start(&log), Node::start(&log)];
    let first = a.put("demo://x", "1").await.unwrap();
    b.until_etag("demo://x", first).await;
    let (_session, mut reader) = b.subscribe(&["demo://x"]).await;
    b.line.is_deaf.send_replace(true);
    for text in ["2", "3", "4"] {
        a.put("demo://x", text).await.unwrap();
    }
    b.line.is_deaf.send_replace(false);
    let mut entries = Vec::new();
    while entries.is_empty() {
        reader.drain(&mut entries).await;
    }
    let told = entries.iter().map(|entry| match entry {
        OutboxEntry::Updated(notice) => (notice.etag.version, notice.replaced),
        other => panic!("{other:?}"),
    });
    assert_eq!(told.collect::<Vec<_>>(), [(4, 2)]);
}

#[tokio::test]
async fn conditions_hold_over_nodes() {
    let log = MemoryLog::new();
    let [a, b] = [Node::start(&log), Node::start(&log)];
    for round in 0..30 {
        let uri = format!("demo://{round}");
        let register = |node: &Node, text: &str| {
            let bus = node.bus.owned_by(Owner::Api);
            let resource = Resource::text(uri.as_str(), text).unwrap();
            async move { bus.register(resource).await }
        };
        let created = futures_join(vec![register(&a, "a"), register(&b, "b")]).await;
        let mut winner = None;
        for result in created {
            match result {
                Ok(outcome) => assert!(winner.replace(outcome.etag).is_none()),
                Err(error) => assert!(matches!(error, PublishError::AlreadyExists(_)), "{error}"),
            }
        }
        let etag = winner.unwrap();
        for node in [&a, &b] {
            node.until_etag(&uri, etag).await;
        }
        let put = futures_join(vec![a.put_at(&uri, "c", etag), b.put_at(&uri, "d", etag)]).await;
        let refused = put.iter().filter_map(|result| result.as_ref().err());
        let refused: Vec<_> = refused.collect();
        assert!(
            matches!(refused[..], [PublishError::Conflict { current: Some(now), .. }] if now.version == 2),
            "{put:?}"
        );
    }
}

#[tokio::test]
async fn owner_holds_over_nodes() {
    let log = MemoryLog::new();
    let [a, b] = [Node::start(&log), Node::start(&log)];
    let workspace = a.bus.owned_by(Owner::Workspace);
    let resource = Resource::text("file:///x", "1").unwrap();
    let etag = workspace.register(resource.clone()).await.unwrap().etag;
    b.until_etag("file:///x", etag).await;
    let error = b.put("file:///x", "2").await.unwrap_err();
    assert!(matches!(error, PublishError::NotOwner { .. }), "{error}");
    // The same folder at another node makes no version; what is gone from it is removed.
    let other = Resource::text("file:///y", "1").unwrap();
    workspace.register(other).await.unwrap();
    let workspace = b.bus.owned_by(Owner::Workspace);
    until(|| b.etag("file:///y").is_some()).await;
    assert!(!workspace.upsert(resource).await.unwrap().changed);
    assert_eq!(workspace.remove_unclaimed().await, Ok(1));
    until(|| a.etag("file:///y").is_none()).await;
    assert_eq!(a.etag("file:///x"), Some(etag));
}

#[tokio::test]
async fn batch_tells_the_list_once() {
    let log = MemoryLog::new();
    let [a, b] = [Node::start(&log), Node::start(&log)];
    a.put("demo://0", "0").await.unwrap();
    until(|| b.etag("demo://0").is_some()).await;
    let (session, mut reader) = list_reader(&b).await;
    session.watch_all().await.unwrap();
    let changes = (0..20).map(|number| {
        let resource =
            Resource::text(format!("demo://{}", number % 10).as_str(), number.to_string()).unwrap();
        (Change::Upsert(resource), Condition::Always)
    });
    let results = a
        .bus
        .owned_by(Owner::Api)
        .update_many(changes.collect())
        .await
        .unwrap();
    let versions: Vec<u64> = results
        .iter()
        .map(|result| result.as_ref().unwrap().etag.version)
        .collect();
    assert_eq!(versions, [[1; 10], [2; 10]].concat());
    let mut lists = 0;
    let mut seen = std::collections::BTreeMap::new();
    while lists == 0 || seen.values().filter(|version| **version >= 2).count() < 10 {
        for (what, version) in next(&mut reader).await {
            match version {
                0 => lists += 1,
                _ => drop(seen.insert(what, version)),
            }
        }
    }
    assert_eq!(lists, 1);
}

#[tokio::test]
async fn list_of_a_batch_is_told_when_its_node_dies() {
    let log = MemoryLog::new();
    let [a, b] = [Node::start(&log), Node::start(&log)];
    a.put("demo://0", "0").await.unwrap();
    until(|| b.etag("demo://0").is_some()).await;
    let (_session, mut reader) = list_reader(&b).await;
    // The changes reach the log, and their node hears nothing of them, so it does not tell the list.
    a.line.is_deaf.send_replace(true);
    let changes = (1..5).map(|number| {
        let resource = Resource::text(format!("demo://{number}").as_str(), "text").unwrap();
        (Change::Upsert(resource), Condition::Always)
    });
    let api = a.bus.owned_by(Owner::Api);
    let batch = api.update_many(changes.collect());
    assert!(
        tokio::time::timeout(Duration::from_millis(500), batch)
            .await
            .is_err()
    );
    until(|| b.etag("demo://4").is_some()).await;
    a.line.dies.send_replace(true);
    assert_eq!(
        next(&mut reader).await,
        [("ListChanged(Resources)".to_owned(), 0)]
    );
    // Nothing changed since, so nothing more is told.
    let more = tokio::time::timeout(Duration::from_secs(5), next(&mut reader));
    assert!(more.await.is_err());
}

#[tokio::test]
async fn replaced_record_is_answered_by_its_successor() {
    let log = MemoryLog::new();
    let [a, b] = [Node::start(&log), Node::start(&log)];
    let first = a.put("demo://x", "1").await.unwrap();
    b.until_etag("demo://x", first).await;
    a.line.is_deaf.send_replace(true);
    let answer = {
        let bus = a.bus.owned_by(Owner::Api);
        let resource = Resource::text("demo://x", "2").unwrap();
        tokio::spawn(async move { bus.upsert(resource).await })
    };
    until(|| b.text("demo://x").as_deref() == Some("2")).await;
    b.put("demo://x", "3").await.unwrap();
    a.line.is_deaf.send_replace(false);
    assert_eq!(answer.await.unwrap().unwrap().etag.version, 2);
    until(|| a.etag("demo://x") == b.etag("demo://x")).await;
    assert_eq!((a.text("demo://x").as_deref(), log.len()), (Some("3"), 3));
}

#[tokio::test]
async fn silent_log_leaves_the_outcome_unknown() {
    let log = MemoryLog::new();
    let a = Node::with_timeout(&log, Duration::from_millis(100));
    a.put("demo://x", "1").await.unwrap();
    a.line.is_cut.send_replace(true);
    let error = a.put("demo://x", "2").await.unwrap_err();
    assert!(
        matches!(error, PublishError::LogUnavailable { unknown: true, .. }),
        "{error}"
    );
    assert_eq!(a.text("demo://x").as_deref(), Some("1"));
    a.line.is_cut.send_replace(false);
    assert_eq!(a.put("demo://x", "2").await.unwrap().version, 2);
    // A node that never reads the log refuses in time, and reads go on.
    let line = log.line(Duration::from_millis(100));
    line.is_deaf.send_replace(true);
    let bus = Bus::builder().shared_log(line.clone()).start().unwrap();
    let late = Node { bus, line };
    let error = late.put("demo://y", "1").await.unwrap_err();
    assert!(
        matches!(error, PublishError::LogUnavailable { unknown: false, .. }),
        "{error}"
    );
    assert!(!late.bus.log_state().unwrap().is_caught_up);
}

#[tokio::test]
async fn new_history_gets_back_what_nodes_have() {
    let log = MemoryLog::new();
    let [a, b] = [Node::start(&log), Node::start(&log)];
    for text in ["1", "2", "3"] {
        a.put("demo://x", text).await.unwrap();
    }
    let kept = a.put("demo://y", "1").await.unwrap();
    a.put("demo://z", "1").await.unwrap();
    a.bus.owned_by(Owner::Api).remove("demo://z").await.unwrap();
    b.until_etag("demo://y", kept).await;
    until(|| b.etag("demo://z").is_none()).await;
    let (_session, mut reader) = b.subscribe(&["demo://x", "demo://y"]).await;
    let before = reader.position();
    // At first a copy without the newest changes, then nothing at all.
    for end in [1, 0] {
        log.restore_to(end);
        let mut told = Vec::new();
        while told.len() < 2 {
            told.extend(next(&mut reader).await);
        }
        told.sort();
        assert_eq!(told, [("demo://x".into(), 3), ("demo://y".into(), 1)]);
        for node in [&a, &b] {
            until(|| node.bus.log_state().unwrap().is_caught_up && log.len() >= 3).await;
            assert_eq!(node.etag("demo://x").unwrap().version, 3);
            assert_eq!(node.etag("demo://y"), Some(kept));
        }
        // A node that starts now finds everything, the version of the removed resource, too.
        let c = Node::start(&log);
        c.until_etag("demo://y", kept).await;
        until(|| c.etag("demo://x") == a.etag("demo://x")).await;
    }
    assert!(reader.position().offset > before.offset);
    let c = Node::start(&log);
    until(|| c.etag("demo://x") == a.etag("demo://x")).await;
    until(|| c.bus.log_state().unwrap().applied == a.bus.log_state().unwrap().applied).await;
    assert_eq!(c.put("demo://z", "2").await.unwrap().version, 3);
}

#[tokio::test]
async fn store_and_log_exclude_each_other() {
    let builder = Bus::builder().shared_log(MemoryLog::new().line(TIMEOUT));
    let error = builder.store(NoStore).start().unwrap_err();
    assert_eq!(
        error.to_string(),
        "a bus keeps its changes in a store or in a shared log, not in both; leave one out"
    );
}

#[tokio::test]
async fn death_of_the_log_stops_the_bus() {
    let log = MemoryLog::new();
    let a = Node::start(&log);
    a.put("demo://x", "1").await.unwrap();
    a.line.dies.send_replace(true);
    until(|| !a.bus.is_running()).await;
    let error = a.put("demo://x", "2").await.unwrap_err();
    assert!(matches!(error, PublishError::Closed(_)), "{error}");
}

#[tokio::test]
async fn death_of_the_log_ends_what_waits_for_it() {
    let log = MemoryLog::new();
    let a = Node::start(&log);
    a.put("demo://x", "1").await.unwrap();
    a.line.is_deaf.send_replace(true);
    let waiting = {
        let bus = a.bus.owned_by(Owner::Api);
        let resource = Resource::text("demo://y", "1").unwrap();
        tokio::spawn(async move { bus.upsert(resource).await })
    };
    until(|| log.len() == 2).await;
    a.line.dies.send_replace(true);
    let ended = tokio::time::timeout(TIMEOUT, waiting).await;
    let error = ended.expect("an answer").unwrap().unwrap_err();
    assert!(matches!(error, PublishError::Closed(_)), "{error}");
}

struct NoStore;

impl crate::versions::Store for NoStore {
    fn load(&mut self) -> Result<crate::versions::Checkpoint, crate::model::StoreError> {
        Ok(crate::versions::Checkpoint::default())
    }

    fn append(&mut self, _: &crate::versions::Batch) -> Result<(), crate::model::StoreError> {
        Ok(())
    }
}
