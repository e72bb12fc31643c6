//! The Registry alone, with a recorder in place of the Etag actor.

use actix::{Actor, Addr, Handler, Message, System};
use tokio::sync::{oneshot, watch};

use super::commit::RETRY_MIN as RETRY;
use super::*;
use crate::messages::{AnnounceList, BatchStored, DecidedChanges, Decision, IndexedResource, PublishMany};
use crate::model::{
    Etag, EtagCondition, EtagSet, Limits, ListChange, Outcome, Owner, Resource, ResourceUri, SessionOptions,
    StoreError, SubscriberId, SubscriberKind, Tool,
};
use crate::runtime::{Admission, BusState, InboxSender};
use crate::versions::StoreHealth;
use std::time::Duration;

/// Keeps the batches that the Registry sends to the Etag actor.
#[derive(Default)]
struct EtagRecorder(Vec<Vec<EtagRequest>>);

impl Actor for EtagRecorder {
    type Context = Context<Self>;
}

impl Handler<EtagBatch> for EtagRecorder {
    type Result = ();

    fn handle(&mut self, EtagBatch(requests): EtagBatch, _: &mut Context<Self>) {
        self.0.push(requests);
    }
}

/// Asks for the batches since the last time.
struct TakeRecorded;

impl Message for TakeRecorded {
    type Result = Vec<Vec<EtagRequest>>;
}

impl Handler<TakeRecorded> for EtagRecorder {
    type Result = Vec<Vec<EtagRequest>>;

    fn handle(&mut self, TakeRecorded: TakeRecorded, _: &mut Context<Self>) -> Self::Result {
        std::mem::take(&mut self.0)
    }
}

struct Fixture {
    registry: Addr<Registry>,
    inbox: InboxSender<RegistryRequest>,
    recorder: Addr<EtagRecorder>,
    etag_index: Arc<EtagIndex>,
    metrics: Arc<Metrics>,
    admission: Admission,
}

type Answer<T> = oneshot::Receiver<T>;

impl Fixture {
    fn start() -> Fixture {
        Fixture::start_with(None)
    }

    /// Starts as with a store.
    fn start_with_store() -> Fixture {
        Fixture::start_with(Some(Restart {
            starting: None,
            unclaimed_after: Duration::from_secs(3_600),
            clock: Arc::new(|| 7),
            health: StoreHealth::new(true),
        }))
    }

    fn start_with(restart: Option<Restart>) -> Fixture {
        let metrics = Metrics::register(1);
        let admission = Admission::new(100);
        let (life, _) = watch::channel(BusState::Running);
        let guard = CoreGuard {
            actor: "registry",
            life,
            admission: admission.clone(),
        };
        let recorder = EtagRecorder::default().start();
        let etag_index = Arc::new(EtagIndex::default());
        let (inbox, sender) = Inbox::new(100, metrics.clone());
        let registry = Registry::new(
            inbox,
            Catalog::new(Arc::new(Limits::default())),
            etag_index.clone(),
            recorder.clone().recipient(),
            (metrics.clone(), guard, restart),
        )
        .start();
        Fixture {
            inbox: sender(registry.clone().recipient()),
            registry,
            recorder,
            etag_index,
            metrics,
            admission,
        }
    }

    fn reply<T>(&self) -> (Reply<T>, Answer<T>) {
        self.admission.try_enter_change().unwrap().unwrap().reply()
    }

    fn publish(&self, change: Change, condition: Condition) -> Answer<Result<Outcome, PublishError>> {
        let (reply, answer) = self.reply();
        let now = 7;
        self.inbox.push(RegistryRequest::Publish(Publish {
            change,
            condition,
            owner: Owner::Embedder,
            now,
            reply,
        }));
        answer
    }

    fn publish_many(&self, changes: Vec<(Change, Condition)>) -> Answer<Vec<Result<Outcome, PublishError>>> {
        self.publish_batch(changes, false)
    }

    fn publish_batch(
        &self,
        changes: Vec<(Change, Condition)>,
        in_burst: bool,
    ) -> Answer<Vec<Result<Outcome, PublishError>>> {
        let (reply, answer) = self.reply();
        let publish = PublishMany {
            changes,
            owner: Owner::Embedder,
            in_burst,
            deadline: None,
            now: 7,
            reply,
        };
        self.inbox.push(RegistryRequest::PublishMany(publish));
        answer
    }

    /// Asks for these resources. Returns the names of those that are found.
    async fn find(&self, uris: &[&str]) -> Vec<String> {
        let (reply, _found) = self.reply();
        let wanted = uris.iter().map(|name| uri(name)).collect();
        self.inbox
            .push(RegistryRequest::Lookup(Lookup::Resources(wanted, reply)));
        let mut requests = self.recorded().await.pop().unwrap();
        let Some(EtagRequest::Resources { found, .. }) = requests.pop() else {
            panic!("the lookup was not forwarded");
        };
        let found = found.into_iter().filter(|(_, found)| found.is_some());
        found.map(|(uri, _)| uri.as_str().to_owned()).collect()
    }

    /// Waits until the Registry has decided everything, then returns the batches it sent on.
    async fn recorded(&self) -> Vec<Vec<EtagRequest>> {
        self.registry.send(InboxReady).await.unwrap();
        self.recorder.send(TakeRecorded).await.unwrap()
    }

    /// Registers a resource and makes it visible at version 1, as the Etag actor does. Returns its etag.
    async fn register_visibly(&self, name: &str) -> Etag {
        let _created = self.publish(Change::Register(text(name, "1")), Condition::Always);
        let mut decisions = self.decisions().await;
        let (resource, generation) = decisions.remove(0).entry.unwrap();
        let etag = Etag {
            version: 1,
            updated_at: 7,
            life: 0,
        };
        let entry = IndexedResource {
            resource,
            etag,
            generation,
        };
        self.etag_index.set(uri(name), Some(entry));
        etag
    }

    /// The decisions among the recorded requests.
    async fn decisions(&self) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for request in self.recorded().await.into_iter().flatten() {
            if let EtagRequest::Change { decision, .. } = request {
                decisions.push(decision);
            }
        }
        decisions
    }
}

fn uri(text: &str) -> ResourceUri {
    ResourceUri::new(text).unwrap()
}

fn text(uri: &str, text: &str) -> Resource {
    Resource::text(uri, text).unwrap()
}

fn stored(uri: &str, body: &str) -> Effect {
    Effect::Stored(text(uri, body).digest())
}

#[test]
fn changed_content_is_forwarded_with_its_digest() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let _first = fixture.publish(Change::Register(text("demo://a", "1")), Condition::Always);
        let _second = fixture.publish(Change::Update(text("demo://a", "2")), Condition::Always);
        let decisions = fixture.decisions().await;
        let forwarded: Vec<_> = decisions
            .iter()
            .map(|decision| (decision.uri.as_str(), decision.created, decision.effect))
            .collect();
        assert_eq!(
            forwarded,
            [
                ("demo://a", true, stored("demo://a", "1")),
                ("demo://a", false, stored("demo://a", "2"))
            ]
        );
    });
}

#[test]
fn same_content_is_forwarded_as_unchanged() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let _first = fixture.publish(Change::Upsert(text("demo://a", "1")), Condition::Always);
        let _second = fixture.publish(Change::Upsert(text("demo://a", "1")), Condition::Always);
        // The Etag actor still has to answer it with the etag of the content.
        let decisions = fixture.decisions().await;
        assert_eq!(decisions.len(), 2);
        assert_eq!(decisions[1].effect, Effect::Unchanged);
        assert_eq!(decisions[1].list, None);
    });
}

#[test]
fn refusal_names_the_uri_and_is_not_forwarded() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let answer = fixture.publish(Change::Update(text("demo://a", "1")), Condition::Always);
        assert_eq!(
            answer.await.unwrap(),
            Err(PublishError::NotFound(uri("demo://a")))
        );
        assert!(fixture.recorded().await.is_empty());
        assert_eq!(fixture.metrics.refused(), 1);
        assert_eq!(fixture.admission.inside(), 0);
    });
}

#[test]
fn unchanged_list_is_answered_without_a_forward() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let change = ListChange::RemoveTool("unknown".into());
        let now = 7;
        let (reply, answer) = fixture.reply();
        let reply = Some(reply);
        fixture
            .inbox
            .push(RegistryRequest::PublishList(PublishList { change, now, reply }));
        let unchanged = ListOutcome {
            changed: false,
            notified: 0,
        };
        assert!(fixture.recorded().await.is_empty());
        assert_eq!(answer.await.unwrap(), Ok(unchanged));
    });
}

#[test]
fn requests_of_one_turn_are_one_batch_in_order() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let _change = fixture.publish(Change::Register(text("demo://a", "1")), Condition::Always);
        let (reply, _found) = fixture.reply();
        let wanted = vec![uri("demo://a"), uri("demo://b")];
        fixture
            .inbox
            .push(RegistryRequest::Lookup(Lookup::Resources(wanted, reply)));
        let _removal = fixture.publish(Change::Remove(uri("demo://a")), Condition::Always);
        let batches = fixture.recorded().await;
        assert_eq!(batches.len(), 1);
        let [
            EtagRequest::Change { .. },
            EtagRequest::Resources { found, .. },
            EtagRequest::Change { decision, .. },
        ] = &batches[0][..]
        else {
            panic!("{} requests, or in another order", batches[0].len());
        };
        // The lookup sees the registration before it, not the removal after it.
        let found: Vec<bool> = found.iter().map(|(_, found)| found.is_some()).collect();
        assert_eq!(found, [true, false]);
        assert_eq!(decision.effect, Effect::Removed);
    });
}

#[test]
fn second_guarded_write_of_a_turn_conflicts() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let etag = fixture.register_visibly("demo://a").await;
        // Both writers have read version 1.
        let is_at_1 = Condition::from(EtagCondition::is_at(etag));
        let _first = fixture.publish(Change::Update(text("demo://a", "2")), is_at_1.clone());
        let second = fixture.publish(Change::Update(text("demo://a", "3")), is_at_1);
        assert_eq!(fixture.decisions().await.len(), 1);
        assert_eq!(
            second.await.unwrap(),
            Err(PublishError::Conflict {
                uri: uri("demo://a"),
                current: None
            })
        );
    });
}

#[test]
fn guarded_write_sees_a_new_description() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let etag = fixture.register_visibly("demo://a").await;
        let is_at_1 = Condition::from(EtagCondition::is_at(etag));
        // Both writers have read version 1, and the first one replaces the title alone.
        let titled = text("demo://a", "1").title("A");
        let _first = fixture.publish(Change::Update(titled), is_at_1.clone());
        let second = fixture.publish(Change::Update(text("demo://a", "2")), is_at_1);
        assert_eq!(fixture.decisions().await.len(), 1);
        assert_eq!(
            second.await.unwrap(),
            Err(PublishError::Conflict {
                uri: uri("demo://a"),
                current: None
            })
        );
    });
}

#[test]
fn subscription_is_checked_uri_by_uri() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let hidden = text("demo://hidden", "1").subscribable(false);
        let _open = fixture.publish(Change::Register(text("demo://open", "1")), Condition::Always);
        let _hidden = fixture.publish(Change::Register(hidden), Condition::Always);
        let options = SessionOptions::new(SubscriberKind::Local, "test");
        let metrics = fixture.metrics.clone();
        let outbox = Outbox::new(SubscriberId(1), 0, &options, metrics, Arc::default());
        let (reply, _answer) = fixture.reply();
        let mut requests = Vec::new();
        for (text, known) in [
            ("demo://open", None),
            ("demo://hidden", Some(None)),
            ("demo://unknown", None),
            ("demo://later", Some(None)),
        ] {
            requests.push(SubscriptionRequest {
                uri: uri(text),
                known,
            });
        }
        let rules = options.subscription_rules();
        let request = SubscriberRequest::Subscribe {
            requests,
            rules,
            reply,
        };
        let outbox = Arc::new(outbox);
        fixture
            .inbox
            .push(RegistryRequest::Route(Route { outbox, request }));
        let mut batches = fixture.recorded().await;
        let Some(EtagRequest::Subscribe { accepted, .. }) = batches[0].pop() else {
            panic!("the subscription was not forwarded");
        };
        let accepted: Vec<_> = accepted
            .into_iter()
            .map(|accepted| accepted.map(|accepted| accepted.uri))
            .collect();
        assert_eq!(
            accepted,
            [
                Ok(uri("demo://open")),
                Err(SubscribeError::NotSubscribable(uri("demo://hidden"))),
                Err(SubscribeError::NotFound(uri("demo://unknown"))),
                Ok(uri("demo://later")),
            ]
        );
    });
}

/// The batch among the requests of one turn, which has nothing else.
fn only_batch(mut batches: Vec<Vec<EtagRequest>>) -> DecidedChanges {
    assert_eq!(batches.len(), 1);
    match (batches[0].pop(), batches[0].pop()) {
        (Some(EtagRequest::Changes(changes)), None) => changes,
        _ => panic!("no batch, or more than one request"),
    }
}

#[test]
fn batch_changes_list_once_and_keeps_refusals() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let changes = [
            Change::Upsert(text("demo://a", "1")),
            Change::Update(text("demo://unknown", "1")),
            Change::Upsert(text("demo://b", "1")),
            Change::Upsert(text("demo://a", "1")),
        ];
        let changes = changes.map(|change| (change, Condition::Always));
        let _answer = fixture.publish_many(changes.into());
        let batch = only_batch(fixture.recorded().await);
        let decided: Vec<_> = batch
            .decisions
            .iter()
            .map(|decision| match decision {
                Ok(decision) => Ok(decision.effect),
                Err(error) => Err(error.clone()),
            })
            .collect();
        let unknown = PublishError::NotFound(uri("demo://unknown"));
        assert_eq!(
            decided,
            [
                Ok(stored("demo://a", "1")),
                Err(unknown),
                Ok(stored("demo://b", "1")),
                Ok(Effect::Unchanged)
            ]
        );
        assert!(batch.list.is_some());
        assert_eq!(fixture.metrics.refused(), 1);
    });
}

#[test]
fn batch_that_restores_list_does_not_change_it() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let changes = vec![
            (Change::Register(text("demo://a", "1")), Condition::Always),
            (Change::Remove(uri("demo://a")), Condition::Always),
        ];
        let _answer = fixture.publish_many(changes);
        let batch = only_batch(fixture.recorded().await);
        assert!(batch.decisions.iter().all(Result::is_ok));
        assert_eq!(batch.list, None);
    });
}

#[test]
fn condition_sees_earlier_changes_of_its_batch() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let _created = fixture.publish(Change::Register(text("demo://a", "1")), Condition::Always);
        let (resource, generation) = fixture.decisions().await.remove(0).entry.unwrap();
        let etag = Etag {
            version: 1,
            updated_at: 7,
            life: 0,
        };
        let entry = IndexedResource {
            resource,
            etag,
            generation,
        };
        fixture.etag_index.set(uri("demo://a"), Some(entry));
        let is_at_1 = Condition::from(EtagCondition::is_at(etag));
        let is_new = Condition::from(EtagCondition {
            if_none_match: Some(EtagSet::Any),
            ..EtagCondition::default()
        });
        let _answer = fixture.publish_many(vec![
            // The same content again leaves the version as it is.
            (Change::Update(text("demo://a", "1")), is_at_1.clone()),
            (Change::Update(text("demo://a", "2")), is_at_1.clone()),
            (Change::Update(text("demo://a", "3")), is_at_1),
            (Change::Upsert(text("demo://b", "1")), is_new.clone()),
            (Change::Upsert(text("demo://b", "2")), is_new.clone()),
            (Change::Remove(uri("demo://b")), Condition::Always),
            (Change::Upsert(text("demo://b", "3")), is_new),
        ]);
        let batch = only_batch(fixture.recorded().await);
        let made: Vec<bool> = batch.decisions.iter().map(Result::is_ok).collect();
        assert_eq!(made, [true, true, false, true, false, true, true]);
    });
}

#[test]
fn burst_announces_the_list_at_its_end() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let create = |name: &str| vec![(Change::Upsert(text(name, "1")), Condition::Always)];
        let lists = async || {
            let mut lists = 0;
            for request in fixture.recorded().await.into_iter().flatten() {
                lists += match request {
                    EtagRequest::Changes(changes) => usize::from(changes.list.is_some()),
                    EtagRequest::Change { decision, .. } => usize::from(decision.list.is_some()),
                    EtagRequest::List { .. } | EtagRequest::StartedList(_) => 1,
                    _ => 0,
                };
            }
            lists
        };
        let end = |reply| fixture.inbox.push(AnnounceList(reply).into());
        let _first = fixture.publish_batch(create("demo://a"), true);
        let _second = fixture.publish_batch(create("demo://b"), true);
        assert_eq!(lists().await, 0);
        end(None);
        assert_eq!(lists().await, 1);
        // Nothing differs in the end.
        let _created = fixture.publish_batch(create("demo://c"), true);
        let _removed =
            fixture.publish_batch(vec![(Change::Remove(uri("demo://c")), Condition::Always)], true);
        let (reply, answer) = fixture.reply();
        end(Some(reply));
        assert_eq!(lists().await, 0);
        assert!(!answer.await.unwrap().unwrap().changed);
        // The change of another publisher announces the list as a whole.
        let _held = fixture.publish_batch(create("demo://c"), true);
        let _other = fixture.publish(Change::Register(text("demo://d", "1")), Condition::Always);
        end(None);
        assert_eq!(lists().await, 1);
    });
}

/// The kinds of requests, in order.
fn kinds(requests: &[EtagRequest]) -> Vec<&'static str> {
    let kinds = requests.iter().map(|request| match request {
        EtagRequest::Change { .. } => "change",
        EtagRequest::Commit => "commit",
        EtagRequest::Stored(Ok(())) => "stored",
        EtagRequest::Stored(Err(_)) => "failed",
        EtagRequest::TryStore => "try",
        EtagRequest::List { .. } => "list",
        EtagRequest::StartedList(_) => "announce",
        EtagRequest::SameList(_) => "same",
        EtagRequest::Resources { .. } => "look",
        _ => "other",
    });
    kinds.collect()
}

fn put(name: &str, body: &str) -> Change {
    Change::Upsert(text(name, body))
}

#[test]
fn changes_wait_for_the_batch_in_flight() {
    System::new().block_on(async {
        let fixture = Fixture::start_with_store();
        let _first = fixture.publish(put("demo://a", "1"), Condition::Always);
        assert_eq!(kinds(&fixture.recorded().await[0]), ["change", "commit"]);
        let _second = fixture.publish(put("demo://a", "2"), Condition::Always);
        let _third = fixture.publish(put("demo://b", "1"), Condition::Always);
        assert!(fixture.recorded().await.is_empty());
        // Not visible before it is durable.
        assert_eq!(fixture.find(&["demo://a", "demo://b"]).await, [""; 0]);
        fixture.registry.send(BatchStored(Ok(()))).await.unwrap();
        let batches = fixture.recorded().await;
        assert_eq!(batches.len(), 1);
        assert_eq!(kinds(&batches[0]), ["stored", "change", "change", "commit"]);
        assert_eq!(fixture.find(&["demo://a", "demo://b"]).await, ["demo://a"]);
    });
}

#[test]
fn failed_batch_is_undone_and_waiting_changes_refused() {
    System::new().block_on(async {
        let fixture = Fixture::start_with_store();
        let _kept = fixture.publish(put("demo://a", "1"), Condition::Always);
        fixture.recorded().await;
        fixture.registry.send(BatchStored(Ok(()))).await.unwrap();
        let _removal = fixture.publish(Change::Remove(uri("demo://a")), Condition::Always);
        let _created = fixture.publish(put("demo://b", "1"), Condition::Always);
        fixture.recorded().await;
        // Both are visible as they are durable.
        assert_eq!(fixture.find(&["demo://a", "demo://b"]).await, ["demo://a"]);
        let held = fixture.publish(put("demo://c", "1"), Condition::Always);
        let error = StoreError::new("disk gone");
        fixture
            .registry
            .send(BatchStored(Err(error.clone())))
            .await
            .unwrap();
        let refused = Err(PublishError::from(&error));
        assert_eq!(held.await.unwrap(), refused);
        let later = fixture.publish(put("demo://c", "1"), Condition::Always);
        assert_eq!(
            kinds(&fixture.recorded().await[0]),
            ["failed", "same", "same", "same"]
        );
        assert_eq!(later.await.unwrap(), refused);
        assert_eq!(fixture.find(&["demo://a", "demo://b"]).await, ["demo://a"]);
        // It tries again by itself, and takes changes when that succeeds.
        tokio::time::sleep(2 * RETRY).await;
        assert_eq!(kinds(&fixture.recorded().await[0]), ["try"]);
        fixture.registry.send(BatchStored(Ok(()))).await.unwrap();
        let _again = fixture.publish(put("demo://b", "1"), Condition::Always);
        let batches = fixture.recorded().await;
        assert_eq!(
            kinds(&batches.into_iter().flatten().collect::<Vec<_>>()),
            ["stored", "change", "commit"]
        );
    });
}

#[test]
fn tools_need_no_store() {
    System::new().block_on(async {
        let fixture = Fixture::start_with_store();
        let _first = fixture.publish(put("demo://a", "1"), Condition::Always);
        fixture.recorded().await;
        let tool = Tool::new("t", |_: serde_json::Map<String, serde_json::Value>| async {
            Ok(crate::model::ToolOutput::text(""))
        });
        let (reply, _answer) = fixture.reply();
        let publish = PublishList {
            change: ListChange::PutTool(Arc::new(tool)),
            now: 7,
            reply: Some(reply),
        };
        fixture.inbox.push(RegistryRequest::PublishList(publish));
        let failed = BatchStored(Err(StoreError::new("disk gone")));
        fixture.registry.send(failed).await.unwrap();
        let batches = fixture.recorded().await;
        assert_eq!(kinds(&batches[0]), ["failed", "same", "same", "same", "list"]);
    });
}
