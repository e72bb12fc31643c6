//! The Etag actor alone, with a recorder in place of each Publisher shard.

use actix::{Actor, Addr, Handler, Message, System};
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::sync::watch;

use super::*;
use crate::messages::{
    AcceptedSubscription, DecidedChanges, Effect, Known, ShardBatch, ShardRequest, StampedSubscription,
};
use crate::metrics::Metrics;
use crate::model::{
    Digest, ListHash, ListKind, Owner, Resource, SessionOptions, StoreError, SubscriberId, SubscriberKind,
    SubscriptionRules,
};
use crate::outbox::Outbox;
use crate::publisher::Interest;
use crate::runtime::{Admission, BusState};

/// Keeps the requests that the Etag actor sends to one shard.
#[derive(Default)]
struct ShardRecorder(Vec<ShardRequest>);

impl Actor for ShardRecorder {
    type Context = Context<Self>;
}

impl Handler<ShardBatch> for ShardRecorder {
    type Result = ();

    fn handle(&mut self, ShardBatch(requests): ShardBatch, _: &mut Context<Self>) {
        self.0.extend(requests);
    }
}

/// Asks for the requests since the last time.
struct TakeRecorded;

impl Message for TakeRecorded {
    type Result = Vec<ShardRequest>;
}

impl Handler<TakeRecorded> for ShardRecorder {
    type Result = Vec<ShardRequest>;

    fn handle(&mut self, TakeRecorded: TakeRecorded, _: &mut Context<Self>) -> Self::Result {
        std::mem::take(&mut self.0)
    }
}

/// Sends each batch to the test.
struct RecordingStore(crossbeam_channel::Sender<Batch>);

impl Store for RecordingStore {
    fn load(&mut self) -> Result<Checkpoint, StoreError> {
        Ok(Checkpoint::default())
    }

    fn append(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.0.send(batch.clone()).unwrap();
        Ok(())
    }
}

/// The batches that reached the store.
struct Written(crossbeam_channel::Receiver<Batch>);

impl Written {
    /// Returns the next batch, which comes within 20 s.
    fn next(&self) -> Batch {
        self.0.recv_timeout(Duration::from_secs(20)).unwrap()
    }
}

struct Fixture {
    etag: Addr<EtagActor>,
    shards: [Addr<ShardRecorder>; 2],
    interest: Arc<Interest>,
    metrics: Arc<Metrics>,
    admission: Admission,
    life: watch::Receiver<BusState>,
}

type Answer = oneshot::Receiver<Result<Outcome, PublishError>>;

impl Fixture {
    fn start(store: Option<StoreThread>) -> Fixture {
        let metrics = Metrics::register(2);
        let admission = Admission::new(100);
        let (life, watched) = watch::channel(BusState::Running);
        let guard = CoreGuard {
            actor: "etag",
            life,
            admission: admission.clone(),
        };
        let shards = [ShardRecorder::default().start(), ShardRecorder::default().start()];
        let interest = Arc::new(Interest::new(2));
        let fan_out = Shards::new(
            shards.iter().map(|shard| shard.clone().recipient()).collect(),
            interest.clone(),
            Arc::default(),
            metrics.clone(),
        );
        let ledger = Ledger::new(Checkpoint::default(), 1, TimeStamp::default(), 10);
        let commit = store.map(|store| Commit::new(store, &ledger, [None; 3]));
        Fixture {
            etag: EtagActor::new(ledger, Arc::default(), fan_out, commit, guard).start(),
            shards,
            interest,
            metrics,
            admission,
            life: watched,
        }
    }

    /// Starts with a store whose batches come from the receiver. The test reports them as durable itself.
    fn start_with_store() -> (Fixture, Written) {
        let (batches, written) = crossbeam_channel::bounded(10);
        let store = Box::new(RecordingStore(batches));
        let observers = (Metrics::register(1), StoreHealth::new(true));
        let (store, _thread) = StoreThread::start(store, observers, |_| {}).unwrap();
        (Fixture::start(Some(store)), Written(written))
    }

    fn reply<T>(&self) -> (Reply<T>, oneshot::Receiver<T>) {
        self.admission.try_enter_change().unwrap().unwrap().reply()
    }

    /// A decided change of this URI.
    fn change(&self, uri: &ResourceUri, effect: Effect) -> (EtagRequest, Answer) {
        let (reply, answer) = self.reply();
        let decision = Decision {
            uri: uri.clone(),
            effect,
            created: false,
            owner: Owner::Embedder,
            list: None,
            subscribable: true,
            entry: None,
        };
        let now = 7;
        (EtagRequest::Change { decision, now, reply }, answer)
    }

    /// Returns when the Etag actor has handled the batch.
    async fn send(&self, requests: Vec<EtagRequest>) {
        self.etag.send(EtagBatch(requests)).await.unwrap();
    }

    async fn recorded(&self, shard: usize) -> Vec<ShardRequest> {
        self.shards[shard].send(TakeRecorded).await.unwrap()
    }
}

fn uri() -> ResourceUri {
    ResourceUri::new("demo://a").unwrap()
}

const RULES: SubscriptionRules = SubscriptionRules {
    max: 1,
    pending_max: 1,
    trusted: false,
};

fn accepted(registration: Known, known: Option<Option<&str>>) -> AcceptedSubscription {
    AcceptedSubscription {
        uri: uri(),
        registration,
        known: known.map(|held| held.map(str::to_owned)),
        resumed: None,
    }
}

fn stamped(etag: Etag) -> StampedSubscription {
    StampedSubscription {
        uri: uri(),
        etag,
        awaited: false,
        missed: None,
        resumed: None,
    }
}

fn resource() -> Arc<Resource> {
    Arc::new(Resource::text(uri(), "1").unwrap())
}

fn stored(content: u8) -> Effect {
    Effect::Stored(Some(Digest(u128::from(content))))
}

fn version(version: u64) -> Etag {
    Etag {
        version,
        updated_at: 7,
        life: 0,
    }
}

#[test]
fn version_grows_by_one_per_change() {
    System::new().block_on(async {
        let fixture = Fixture::start(None);
        let mut answers = Vec::new();
        for effect in [
            stored(1),
            stored(2),
            stored(2),
            Effect::Unchanged,
            Effect::Removed,
        ] {
            let (request, answer) = fixture.change(&uri(), effect);
            fixture.send(vec![request]).await;
            answers.push(answer.await.unwrap().unwrap());
        }
        let versions: Vec<_> = answers
            .iter()
            .map(|answer| (answer.etag, answer.changed))
            .collect();
        assert_eq!(
            versions,
            [
                (version(1), true),
                (version(2), true),
                (version(2), false),
                (version(2), false),
                (version(3), true)
            ]
        );
    });
}

#[test]
fn unwanted_change_is_answered_without_a_shard() {
    System::new().block_on(async {
        let fixture = Fixture::start(None);
        let (request, answer) = fixture.change(&uri(), stored(1));
        fixture.send(vec![request]).await;
        assert_eq!(answer.await.unwrap().unwrap().notified, 0);
        assert!(fixture.recorded(0).await.is_empty());
        assert!(fixture.recorded(1).await.is_empty());
        assert_eq!(fixture.metrics.notices(), 1);
    });
}

#[test]
fn change_goes_once_to_the_shard_that_wants_it() {
    System::new().block_on(async {
        let fixture = Fixture::start(None);
        fixture.interest.raise(1, &uri());
        let (request, mut answer) = fixture.change(&uri(), stored(1));
        fixture.send(vec![request]).await;
        assert!(fixture.recorded(0).await.is_empty());
        let mut recorded = fixture.recorded(1).await;
        let Some(ShardRequest::FanOut(fan_out)) = recorded.pop() else {
            panic!("no fan-out was sent");
        };
        assert!(recorded.is_empty());
        let notice = fan_out.notice.clone().unwrap();
        assert_eq!(
            (&notice.uri, notice.etag, notice.cause),
            (&uri(), version(1), Cause::Updated)
        );
        assert_eq!(notice.position.offset, 1);
        // The shard answers the publisher when it is done.
        assert_eq!(answer.try_recv(), Err(TryRecvError::Empty));
        fan_out.completion.add(3, 0);
        drop(fan_out);
        assert_eq!(answer.await.unwrap().unwrap().notified, 3);
    });
}

#[test]
fn subscription_begins_at_the_changes_before_it() {
    System::new().block_on(async {
        let fixture = Fixture::start(None);
        let options = SessionOptions::new(SubscriberKind::Local, "test");
        let metrics = fixture.metrics.clone();
        let outbox = Arc::new(Outbox::new(SubscriberId(1), 1, &options, metrics, Arc::default()));
        let (before, _before) = fixture.change(&uri(), stored(1));
        let (after, _after) = fixture.change(&uri(), stored(2));
        let (reply, _answer) = fixture.reply();
        let subscribe = EtagRequest::Subscribe {
            outbox: outbox.clone(),
            accepted: vec![Ok(accepted(Known::Registered, None))],
            rules: RULES,
            reply,
        };
        fixture.send(vec![before, subscribe, after]).await;
        let recorded = fixture.recorded(1).await;
        let [
            ShardRequest::AddSubscriptions(added),
            ShardRequest::FanOut(fan_out),
        ] = &recorded[..]
        else {
            panic!("{} requests, or in another order", recorded.len());
        };
        assert_eq!(added.accepted, [Ok(stamped(version(1)))]);
        assert_eq!(added.at.offset, 1);
        // The change after it is sent to the shard although the shard has not added the subscription yet.
        assert_eq!(fan_out.notice.as_ref().unwrap().etag, version(2));
        assert!(outbox.has_open_requests());
    });
}

/// The version and the offset of each line in a batch.
fn lines(batch: &Batch) -> Vec<(u64, u64)> {
    let mut lines = Vec::new();
    for record in &batch.records {
        if let Record::Line { line, .. } = record {
            lines.push((line.etag.version, line.offset));
        }
    }
    lines
}

#[test]
fn subscription_has_missed_what_it_does_not_hold() {
    System::new().block_on(async {
        let fixture = Fixture::start(None);
        let options = SessionOptions::new(SubscriberKind::Local, "test");
        let metrics = fixture.metrics.clone();
        let outbox = Arc::new(Outbox::new(SubscriberId(1), 1, &options, metrics, Arc::default()));
        let v1 = version(1).to_string();
        let v2 = version(2).to_string();
        let updated = Some(Cause::Updated);
        let removed = Some(Cause::Removed);
        // Per state of the resource, the etags that subscribers hold and the changes that they have missed.
        let before = [(None, None), (Some(None), None), (Some(Some(&*v1)), None)];
        let there = [(None, None), (Some(None), updated), (Some(Some(&*v1)), None)];
        let gone = [
            (Some(None), None),
            (Some(Some(&*v1)), removed),
            (Some(Some(&*v2)), None),
        ];
        for (effect, registration, etag, cases) in [
            (Effect::Unchanged, Known::Absent, Etag::UNKNOWN, before),
            (stored(1), Known::Registered, version(1), there),
            (Effect::Removed, Known::Absent, version(2), gone),
        ] {
            let (change, _answer) = fixture.change(&uri(), effect);
            fixture.send(vec![change]).await;
            for (known, missed) in cases {
                let (reply, _answer) = fixture.reply();
                let subscribe = EtagRequest::Subscribe {
                    outbox: outbox.clone(),
                    accepted: vec![Ok(accepted(registration, known))],
                    rules: RULES,
                    reply,
                };
                fixture.send(vec![subscribe]).await;
                let Some(ShardRequest::AddSubscriptions(added)) = fixture.recorded(1).await.pop() else {
                    panic!("the subscription was not passed on");
                };
                let awaited = matches!(registration, Known::Absent);
                let expected = StampedSubscription {
                    awaited,
                    missed,
                    ..stamped(etag)
                };
                assert_eq!(added.accepted, [Ok(expected)], "{known:?}");
            }
        }
    });
}

#[test]
fn change_waits_until_its_record_is_durable() {
    System::new().block_on(async {
        let (fixture, written) = Fixture::start_with_store();
        fixture.interest.raise(0, &uri());
        let (request, mut answer) = fixture.change(&uri(), stored(1));
        fixture.send(vec![request, EtagRequest::Commit]).await;
        let batch = written.next();
        assert_eq!((batch.offset, lines(&batch)), (1, vec![(1, 1)]));
        // No subscriber and no publisher learns of it before.
        assert!(fixture.recorded(0).await.is_empty());
        assert_eq!(answer.try_recv(), Err(TryRecvError::Empty));
        fixture.send(vec![EtagRequest::Stored(Ok(()))]).await;
        assert_eq!(fixture.recorded(0).await.len(), 1);
        assert_eq!(answer.await.unwrap().unwrap().etag, version(1));
    });
}

#[test]
fn subscription_in_flight_begins_before_the_change() {
    System::new().block_on(async {
        let (fixture, written) = Fixture::start_with_store();
        let (first, _first) = fixture.change(&uri(), stored(1));
        fixture.send(vec![first, EtagRequest::Commit]).await;
        written.next();
        let (second, _second) = fixture.change(&uri(), stored(2));
        let stored = EtagRequest::Stored(Ok(()));
        let options = SessionOptions::new(SubscriberKind::Local, "test");
        let metrics = fixture.metrics.clone();
        let outbox = Arc::new(Outbox::new(SubscriberId(1), 1, &options, metrics, Arc::default()));
        let (reply, _answer) = fixture.reply();
        let subscribe = EtagRequest::Subscribe {
            outbox,
            accepted: vec![Ok(accepted(Known::Registered, None))],
            rules: RULES,
            reply,
        };
        let (reply, etags) = fixture.reply();
        let found = vec![(uri(), Some(Found::Resource(resource())))];
        let look = EtagRequest::Resources { found, reply };
        fixture
            .send(vec![stored, second, subscribe, look, EtagRequest::Commit])
            .await;
        let recorded = fixture.recorded(1).await;
        let [ShardRequest::AddSubscriptions(added)] = &recorded[..] else {
            panic!("{} requests", recorded.len());
        };
        assert_eq!(added.accepted, [Ok(stamped(version(1)))]);
        assert_eq!(added.at.offset, 1);
        assert_eq!(etags.await.unwrap()[0].as_ref().unwrap().1, version(1));
        fixture.send(vec![EtagRequest::Stored(Ok(()))]).await;
        // The subscriber counts as interested from its subscription on.
        let recorded = fixture.recorded(1).await;
        let [ShardRequest::FanOut(fan_out)] = &recorded[..] else {
            panic!("{} requests", recorded.len());
        };
        assert_eq!(fan_out.notice.as_ref().unwrap().etag, version(2));
    });
}

#[test]
fn store_failure_takes_versions_and_offsets_back() {
    System::new().block_on(async {
        let (fixture, written) = Fixture::start_with_store();
        let (kept, _kept) = fixture.change(&uri(), stored(1));
        fixture.send(vec![kept, EtagRequest::Commit]).await;
        written.next();
        let other = ResourceUri::new("demo://b").unwrap();
        let (one, first) = fixture.change(&uri(), stored(2));
        let (two, second) = fixture.change(&uri(), Effect::Removed);
        let (three, third) = fixture.change(&other, stored(1));
        let requests = vec![EtagRequest::Stored(Ok(())), one, two, three, EtagRequest::Commit];
        fixture.send(requests).await;
        written.next();
        let error = StoreError {
            reason: "disk full".into(),
            full: true,
        };
        fixture.send(vec![EtagRequest::Stored(Err(error.clone()))]).await;
        let refused = PublishError::from(&error);
        for answer in [first, second, third] {
            assert_eq!(answer.await.unwrap(), Err(refused.clone()));
        }
        assert_eq!((fixture.metrics.refused(), fixture.metrics.changes.get()), (3, 1));
        assert_eq!(*fixture.life.borrow(), BusState::Running);
        // The store is told what is true before it takes a change again.
        fixture.send(vec![EtagRequest::TryStore]).await;
        let tried = written.next();
        assert_eq!((tried.offset, lines(&tried)), (1, vec![(1, 1)]));
        assert!(tried.records.contains(&Record::Forget(other)), "{tried:?}");
        let (again, answer) = fixture.change(&uri(), stored(3));
        fixture
            .send(vec![EtagRequest::Stored(Ok(())), again, EtagRequest::Commit])
            .await;
        assert_eq!(lines(&written.next()), [(2, 2)]);
        fixture.send(vec![EtagRequest::Stored(Ok(()))]).await;
        assert_eq!(answer.await.unwrap().unwrap().etag, version(2));
    });
}

#[test]
fn list_change_needs_no_store() {
    System::new().block_on(async {
        let (fixture, written) = Fixture::start_with_store();
        let (change, _refused) = fixture.change(&uri(), stored(1));
        fixture.send(vec![change, EtagRequest::Commit]).await;
        written.next();
        let list = (ListKind::Tools, ListHash::EMPTY.with(Digest(1)));
        let failed = EtagRequest::Stored(Err(StoreError::new("gone")));
        fixture.send(vec![failed, EtagRequest::StartedList(list)]).await;
        for shard in [0, 1] {
            let recorded = fixture.recorded(shard).await;
            let [ShardRequest::FanOut(fan_out)] = &recorded[..] else {
                panic!("{} requests", recorded.len());
            };
            let (kind, hash, position) = fan_out.list.unwrap();
            assert_eq!((kind, hash, position.offset), (list.0, list.1, 1));
        }
        fixture.send(vec![EtagRequest::TryStore]).await;
        let tried = written.next();
        assert!(
            tried.records.contains(&Record::List(list.0, list.1, 1)),
            "{tried:?}"
        );
    });
}

#[test]
fn batch_is_one_step_of_store_and_one_answer() {
    System::new().block_on(async {
        let (fixture, written) = Fixture::start_with_store();
        fixture.interest.raise(0, &uri());
        let (reply, mut answer) = fixture.reply();
        let other = ResourceUri::new("demo://b").unwrap();
        let refusal = PublishError::NotFound(other.clone());
        let decide = |uri: &ResourceUri, effect| Decision {
            uri: uri.clone(),
            effect,
            created: false,
            owner: Owner::Embedder,
            subscribable: true,
            list: None,
            entry: None,
        };
        let changes = DecidedChanges {
            decisions: vec![
                Ok(decide(&uri(), stored(1))),
                Err(refusal.clone()),
                Ok(decide(&other, stored(1))),
                Ok(decide(&uri(), stored(2))),
            ],
            list: Some((ListKind::Resources, ListHash::EMPTY)),
            now: 7,
            reply,
        };
        let requests = vec![EtagRequest::Changes(changes), EtagRequest::Commit];
        fixture.send(requests).await;
        let batch = written.next();
        assert_eq!((batch.records.len(), batch.offset), (4, 4));
        assert!(matches!(
            batch.records[3],
            Record::List(ListKind::Resources, _, 4)
        ));
        assert_eq!(answer.try_recv().unwrap_err(), TryRecvError::Empty);
        fixture.send(vec![EtagRequest::Stored(Ok(()))]).await;
        // The subscribed resource twice, then the list; the shard without subscribers gets the list alone.
        let recorded = fixture.recorded(0).await;
        assert_eq!(recorded.len(), 3);
        assert_eq!(fixture.recorded(1).await.len(), 1);
        let Some(ShardRequest::FanOut(first)) = recorded.first() else {
            panic!("no fan-out was sent");
        };
        first.completion.add(3, 0);
        // Answered when the shards are done with all of them.
        assert_eq!(answer.try_recv().unwrap_err(), TryRecvError::Empty);
        drop(recorded);
        let results = answer.await.unwrap();
        let told: Vec<_> = results
            .into_iter()
            .map(|result| result.map(|outcome| (outcome.etag.version, outcome.notified)))
            .collect();
        assert_eq!(told, [Ok((1, 3)), Err(refusal), Ok((1, 0)), Ok((2, 0))]);
        assert_eq!(fixture.metrics.lists(), 1);
    });
}

#[test]
fn store_failure_refuses_each_change_of_batch() {
    System::new().block_on(async {
        let (fixture, _written) = Fixture::start_with_store();
        let (reply, answer) = fixture.reply();
        let decision = Decision {
            uri: uri(),
            effect: stored(1),
            created: true,
            owner: Owner::Embedder,
            subscribable: true,
            list: None,
            entry: None,
        };
        let changes = DecidedChanges {
            decisions: vec![Ok(decision), Err(PublishError::NotFound(uri()))],
            list: None,
            now: 7,
            reply,
        };
        let requests = vec![EtagRequest::Changes(changes), EtagRequest::Commit];
        fixture.send(requests).await;
        let error = StoreError::new("disk full");
        fixture.send(vec![EtagRequest::Stored(Err(error.clone()))]).await;
        let refused = Err(PublishError::from(&error));
        assert_eq!(
            answer.await.unwrap(),
            [refused, Err(PublishError::NotFound(uri()))]
        );
        // The Registry counted the other refusal.
        assert_eq!((fixture.metrics.refused(), fixture.metrics.changes.get()), (1, 0));
    });
}
