//! Subscribers that resume: after a restart, a kill and a replacement they go on where they were.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidings::{Record, UriPattern};
use tidings_actors::Filter;
use tidings_actors::attach::{AttachOptions, Attachment, Delivery, Subscriber, SubscriberError};

use crate::memory_store::MemoryStore;
use crate::support::{Bench, DEADLINE, until, within};

/// The offsets that a subscriber took, and the number of deliveries that it was told are lost.
#[derive(Debug, Clone, Default)]
struct Taken(Arc<Mutex<Account>>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Account {
    offsets: Vec<u64>,
    /// The gaps: their ends, and their sizes.
    gaps: Vec<(u64, u64)>,
    /// The URI whose notices are refused.
    refused: Option<&'static str>,
    /// True while every call fails.
    fails: bool,
}

impl Subscriber for Taken {
    fn take(&mut self, delivery: &Delivery) -> Result<(), SubscriberError> {
        let mut account = self.0.lock().unwrap();
        if account.fails {
            return Err(SubscriberError::Again("it fails".to_owned()));
        }
        let position = delivery
            .position()
            .expect("it has a place in the order of the bus");
        match delivery {
            Delivery::Gap(gap) => account.gaps.push((position.offset, gap.lost)),
            Delivery::Notice(notice) if account.refused == Some(notice.uri.as_str()) => {
                return Err(SubscriberError::Refused("refused".to_owned()));
            }
            _ => account.offsets.push(position.offset),
        }
        Ok(())
    }
}

impl Taken {
    fn account(&self) -> Account {
        self.0.lock().unwrap().clone()
    }

    fn set_failing(&self, fails: bool) {
        self.0.lock().unwrap().fails = fails;
    }

    async fn until(&self, offset: u64) {
        until(&format!("offset {offset}"), async || {
            self.account().offsets.last() == Some(&offset)
        })
        .await;
    }
}

fn resuming(name: &str) -> AttachOptions {
    let mut options = AttachOptions::new(name).resume(true);
    options.idle_every = Duration::from_millis(20);
    options.backoff_max = Duration::from_millis(100);
    options
}

async fn attach(bench: &Bench, options: AttachOptions, taken: &Taken) -> Attachment {
    let taken = taken.clone();
    within(bench.bus.attach(options, move || Ok(taken.clone())))
        .await
        .unwrap()
}

fn stored(store: &MemoryStore) -> Bench {
    Bench::stored(|_| (), store.clone())
}

/// Publishes changes of three URIs, 2 offsets for each new one, and returns the offset of the last change.
async fn publish(bench: &Bench, rounds: std::ops::Range<u64>) {
    for round in rounds {
        bench
            .put(&format!("demo://{}", round % 3), &round.to_string())
            .await;
    }
}

#[tokio::test]
async fn kill_at_any_point_loses_and_doubles_nothing() {
    let store = MemoryStore::new();
    for life in 0..3 {
        let bench = stored(&store);
        let taken = Taken::default();
        let attachment = attach(&bench, resuming("sink"), &taken).await;
        within(bench.bus.finish_start()).await.unwrap();
        publish(&bench, life * 10..life * 10 + 10).await;
        if life == 1 {
            // A life in which the subscriber is behind.
            taken.set_failing(true);
            publish(&bench, 90..100).await;
        }
        within(bench.bus.shutdown(Duration::ZERO)).await;
        drop(attachment);
    }
    let batches = store.batches().len();
    for count in 0..=batches {
        let killed = store.killed_after(count);
        let kept = killed.checkpoint();
        let bench = stored(&killed);
        let taken = Taken::default();
        let attachment = attach(&bench, resuming("sink"), &taken).await;
        // Detaching delivers what waits.
        assert!(attachment.detach(DEADLINE).await);
        let Account { offsets, gaps, .. } = taken.account();
        let after = match kept.cursors.first() {
            Some((_, offset)) => *offset,
            None => kept.offset,
        };
        let expected: Vec<u64> = (after + 1..=kept.offset).collect();
        assert_eq!(
            (offsets, gaps),
            (expected, vec![]),
            "killed after {count} batches"
        );
    }
}

#[tokio::test]
async fn shutdown_leaves_nothing_to_repeat() {
    let store = MemoryStore::new();
    let bench = stored(&store);
    let taken = Taken::default();
    let _attached = attach(&bench, resuming("sink"), &taken).await;
    publish(&bench, 0..10).await;
    within(bench.bus.shutdown(DEADLINE)).await;
    let kept = store.checkpoint();
    assert_eq!(taken.account().offsets.last(), Some(&kept.offset));
    assert_eq!(kept.cursors, [(Arc::from("sink"), kept.offset)]);
    assert_eq!(kept.changes, []);
}

#[tokio::test]
async fn replaced_subscriber_goes_on_without_a_store() {
    let bench = Bench::start();
    let taken = Taken::default();
    bench.put("demo://a", "before").await;
    let first = attach(&bench, resuming("sink"), &taken).await;
    publish(&bench, 0..5).await;
    taken.until(10).await;
    taken.set_failing(true);
    publish(&bench, 5..9).await;
    // It is detached with a delivery in its hands and others in its queue.
    first.detach(Duration::ZERO).await;
    publish(&bench, 9..12).await;
    taken.set_failing(false);
    let second = attach(&bench, resuming("sink"), &taken).await;
    publish(&bench, 12..15).await;
    taken.until(20).await;
    assert_eq!(second.info().lost, 0);
    // The first one may have taken one more delivery after its end.
    let mut offsets = taken.account().offsets;
    offsets.dedup();
    assert!(offsets.into_iter().eq(3..=20));
}

#[tokio::test]
async fn overwritten_changes_are_told_exactly() {
    for max in [1, 3, 7] {
        let store = MemoryStore::new();
        let limited = || Bench::stored(|limits| limits.change_log_max = max, store.clone());
        let bench = limited();
        let taken = Taken::default();
        let attached = attach(&bench, resuming("sink"), &taken).await;
        publish(&bench, 0..4).await;
        taken.until(7).await;
        taken.set_failing(true);
        publish(&bench, 4..30).await;
        let head = 33;
        within(bench.bus.shutdown(Duration::ZERO)).await;
        drop(attached);
        let before = taken.account();

        let bench = limited();
        let again = Taken::default();
        let attached = attach(&bench, resuming("sink"), &again).await;
        again.until(head).await;
        let after = again.account();
        let delivered = (before.offsets.len() + after.offsets.len()) as u64;
        let told: u64 = after.gaps.iter().map(|(_, lost)| lost).sum();
        assert_eq!(delivered + told, head, "{before:?} {after:?}");
        assert!(told > 0 && after.offsets.len() >= max);
        assert_eq!(attached.info().lost, told);
        // Each gap ends right before a delivery.
        for (end, _) in &after.gaps {
            assert!(after.offsets.contains(&(end + 1)), "{after:?}");
        }
    }
}

#[tokio::test]
async fn filtered_out_changes_do_not_hold_the_log() {
    let store = MemoryStore::new();
    let bench = stored(&store);
    let taken = Taken::default();
    let pattern: UriPattern = "demo://wanted".parse().unwrap();
    let options = resuming("sink").filter(Filter::of(vec![pattern]).unwrap().kinds([]));
    let _attached = attach(&bench, options, &taken).await;
    publish(&bench, 0..10).await;
    until("the cursor", async || {
        let kept = store.checkpoint();
        kept.cursors.iter().all(|(_, offset)| *offset == kept.offset)
    })
    .await;
    assert_eq!(taken.account(), Account::default());
}

#[tokio::test]
async fn refused_delivery_is_passed_once_it_is_told() {
    let store = MemoryStore::new();
    let bench = stored(&store);
    let taken = Taken::default();
    taken.0.lock().unwrap().refused = Some("demo://1");
    let _attached = attach(&bench, resuming("sink"), &taken).await;
    publish(&bench, 0..2).await;
    until("the gap", async || !taken.account().gaps.is_empty()).await;
    within(bench.bus.shutdown(DEADLINE)).await;
    let Account { offsets, gaps, .. } = taken.account();
    assert_eq!(offsets, [1, 2, 4]);
    assert_eq!(gaps.iter().map(|(_, lost)| lost).sum::<u64>(), 1);
    assert_eq!(store.checkpoint().cursors, [(Arc::from("sink"), 4)]);
}

#[tokio::test]
async fn unattached_cursor_is_forgotten_after_the_start() {
    let store = MemoryStore::new();
    let bench = stored(&store);
    let taken = Taken::default();
    let attached = attach(&bench, resuming("gone"), &taken).await;
    publish(&bench, 0..3).await;
    within(bench.bus.shutdown(DEADLINE)).await;
    drop(attached);

    let bench = stored(&store);
    let attached = attach(&bench, resuming("new"), &taken).await;
    within(bench.bus.finish_start()).await.unwrap();
    let names: Vec<_> = store
        .checkpoint()
        .cursors
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["new".into()]);
    attached.detach(DEADLINE).await;
    within(bench.bus.forget_cursor("new")).await.unwrap();
    assert_eq!(store.checkpoint().cursors, []);
    bench.put("demo://a", "unlogged").await;
    assert_eq!(store.checkpoint().changes, []);
    let last = store.records().pop();
    assert!(!matches!(last, Some(Record::Change(_))), "{last:?}");
}
