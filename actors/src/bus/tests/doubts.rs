//! Changes that are judged on what the log has, and not on the little less that their node has applied.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::{MemoryLog, Node, Questions, TIMEOUT, until};
use crate::model::{Change, Condition, Owner, PublishError, Resource};

/// Two nodes, of which the second asks.
async fn nodes() -> (MemoryLog, Node, Node, Questions) {
    let log = MemoryLog::new();
    let questions = Questions::default();
    let asking = Node::with(&log, TIMEOUT, |builder| builder.ask_newest(questions.of(&log)));
    // Before it has read the log it judges nothing.
    until(|| asking.bus.log_state().unwrap().is_caught_up).await;
    (log.clone(), Node::start(&log), asking, questions)
}

/// Lets the tasks of the test send what they have.
async fn let_others_run() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Makes a change at a node that hears what came before it only when the node has asked for it.
async fn while_deaf<T: Send + 'static>(
    node: &Node,
    questions: &Questions,
    change: impl Future<Output = T> + Send + 'static,
) -> T {
    let change: JoinHandle<T> = tokio::spawn(change);
    until(|| questions.asked() == 1).await;
    assert!(!change.is_finished(), "it was judged on what the node had");
    node.line.is_deaf.send_replace(false);
    change.await.unwrap()
}

#[tokio::test]
async fn removal_finds_what_another_node_made() {
    let (_, other, node, questions) = nodes().await;
    node.line.is_deaf.send_replace(true);
    other.put("demo://x", "1").await.unwrap();
    let bus = node.bus.owned_by(Owner::Api);
    let removed = while_deaf(&node, &questions, async move { bus.remove("demo://x").await }).await;
    assert_eq!(removed.unwrap().etag.version, 2);
}

#[tokio::test]
async fn etag_that_another_node_gave_is_current() {
    let (_, other, node, questions) = nodes().await;
    let first = other.put("demo://x", "1").await.unwrap();
    node.until_etag("demo://x", first).await;
    node.line.is_deaf.send_replace(true);
    let second = other.put("demo://x", "2").await.unwrap();
    let put = {
        let node = node.clone();
        async move { node.put_at("demo://x", "3", second).await }
    };
    assert_eq!(while_deaf(&node, &questions, put).await.unwrap().version, 3);
}

#[tokio::test]
async fn content_replaced_elsewhere_is_put_again() {
    let (_, other, node, questions) = nodes().await;
    let first = node.put("demo://x", "1").await.unwrap();
    other.until_etag("demo://x", first).await;
    node.line.is_deaf.send_replace(true);
    other.put("demo://x", "2").await.unwrap();
    let put = {
        let node = node.clone();
        async move { node.put("demo://x", "1").await }
    };
    // Taken for no change it would be lost, though it came last.
    assert_eq!(while_deaf(&node, &questions, put).await.unwrap().version, 3);
    assert_eq!(node.text("demo://x").as_deref(), Some("1"));
}

#[tokio::test]
async fn changes_of_a_batch_keep_their_order() {
    let (_, other, node, questions) = nodes().await;
    node.line.is_deaf.send_replace(true);
    other.put("demo://x", "1").await.unwrap();
    let bus = node.bus.owned_by(Owner::Api);
    let text = |text| Resource::text("demo://x", text).unwrap();
    let changes = vec![
        Change::Remove(text("").uri().clone()),
        Change::Register(text("2")),
        Change::Update(text("2")),
    ];
    let changes = changes.into_iter().map(|change| (change, Condition::Always));
    let changes = changes.collect();
    let made = while_deaf(&node, &questions, async move { bus.update_many(changes).await }).await;
    let made: Vec<_> = made.unwrap().into_iter().map(Result::unwrap).collect();
    let versions: Vec<_> = made
        .iter()
        .map(|made| (made.etag.version, made.changed))
        .collect();
    assert_eq!(versions, [(2, true), (3, true), (3, false)]);
}

#[tokio::test]
async fn changes_in_doubt_share_their_questions() {
    let (_, _, node, questions) = nodes().await;
    let may_answer = Arc::new(Semaphore::new(0));
    questions.wait_for(&may_answer);
    let refused = Arc::new(AtomicUsize::new(0));
    let remove = || {
        let bus = node.bus.owned_by(Owner::Api);
        let refused = refused.clone();
        tokio::spawn(async move {
            let error = bus.remove("demo://none").await.unwrap_err();
            assert!(matches!(error, PublishError::NotFound(_)), "{error}");
            refused.fetch_add(1, Ordering::Relaxed);
        })
    };
    let mut removals = vec![remove()];
    until(|| questions.asked() == 1).await;
    removals.extend((0..50).map(|_| remove()));
    // These came after the first question was sent, so its answer says nothing of them.
    let_others_run().await;
    may_answer.add_permits(1);
    until(|| questions.asked() == 2).await;
    until(|| refused.load(Ordering::Relaxed) == 1).await;
    may_answer.add_permits(1);
    for removal in removals {
        removal.await.unwrap();
    }
    assert_eq!(questions.asked(), 2);
}

#[tokio::test]
async fn change_in_doubt_is_refused_without_an_answer() {
    let (log, _, node, questions) = nodes().await;
    questions.fail(true);
    let bus = node.bus.owned_by(Owner::Api);
    let error = bus.remove("demo://none").await.unwrap_err();
    assert!(error.to_string().contains("nobody leads"), "{error}");
    assert!(matches!(
        error,
        PublishError::LogUnavailable { unknown: false, .. }
    ));
    // What makes a record is taken or not by the log.
    node.put("demo://x", "1").await.unwrap();
    questions.fail(false);
    node.put("demo://x", "1").await.unwrap();
    assert_eq!(log.len(), 1);
}

#[tokio::test]
async fn change_in_doubt_is_refused_at_its_time_out() {
    let log = MemoryLog::new();
    let questions = Questions::default();
    let timeout = Duration::from_millis(300);
    let node = Node::with(&log, timeout, |builder| builder.ask_newest(questions.of(&log)));
    let other = Node::start(&log);
    let first = other.put("demo://x", "1").await.unwrap();
    node.until_etag("demo://x", first).await;
    node.line.is_deaf.send_replace(true);
    other.put("demo://x", "2").await.unwrap();
    let bus = node.bus.owned_by(Owner::Api);
    let put = || bus.upsert(Resource::text("demo://x", "1").unwrap());
    let error = put().await.unwrap_err();
    assert!(
        matches!(error, PublishError::LogUnavailable { unknown: false, .. }),
        "{error}"
    );
    let batch = vec![(
        Change::Upsert(Resource::text("demo://x", "1").unwrap()),
        Condition::Always,
    )];
    let made = bus.update_many(batch).await.unwrap();
    assert!(made[0].is_err(), "{made:?}");
    node.line.is_deaf.send_replace(false);
    assert_eq!(put().await.unwrap().etag.version, 3);
}

#[tokio::test]
async fn sources_and_losers_need_no_question() {
    let (log, other, node, questions) = nodes().await;
    let source = node.bus.owned_by(Owner::Workspace);
    for changed in [true, false] {
        let made = source.upsert(Resource::text("demo://file", "1").unwrap()).await;
        assert_eq!(made.unwrap().changed, changed);
    }
    node.line.is_deaf.send_replace(true);
    other.put("demo://x", "1").await.unwrap();
    let bus = node.bus.owned_by(Owner::Api);
    let register = async move { bus.register(Resource::text("demo://x", "2").unwrap()).await };
    let register = tokio::spawn(register);
    // The log takes the record of the other node, and this one hears of it after that.
    until(|| log.refused() == 1).await;
    node.line.is_deaf.send_replace(false);
    let error = register.await.unwrap().unwrap_err();
    assert!(matches!(error, PublishError::AlreadyExists(_)), "{error}");
    assert_eq!(questions.asked(), 0);
}
