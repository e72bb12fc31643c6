//! The Publisher alone. Its neighbours are the outboxes, which the tests read, and the publishers' replies.

mod slices;

use std::task::{Poll, Waker};
use std::time::Instant;

use actix::{Actor, Addr, System};
use tokio::sync::{Semaphore, oneshot, watch};

use super::*;
use crate::messages::{Completion, FanOut, Finish, ListSubscribers};
use crate::model::{
    Cause, Notice, Outcome, Position, PublishError, SessionOptions, SubscriberFilter, SubscriberKind,
};
use crate::outbox::{OutboxEntry, OutboxReader};
use crate::runtime::{Admission, BusState, Reply};

struct Fixture {
    shards: Vec<Addr<Publisher>>,
    interest: Arc<Interest>,
    metrics: Arc<Metrics>,
    admission: Admission,
}

type Answer<T> = oneshot::Receiver<T>;

impl Fixture {
    fn start() -> Fixture {
        let mut fixture = Fixture::without_shards();
        for shard in 0..2 {
            fixture.shards.push(fixture.publisher(shard).start());
        }
        fixture
    }

    fn without_shards() -> Fixture {
        Fixture {
            shards: Vec::new(),
            interest: Arc::new(Interest::new(2)),
            metrics: Metrics::register(2),
            admission: Admission::new(100),
        }
    }

    fn publisher(&self, shard: usize) -> Publisher {
        let parts = PublisherParts {
            limits: Arc::new(Limits::default()),
            metrics: self.metrics.clone(),
            tracer: Arc::default(),
            attachments: Arc::new(Attachments::new(1)),
        };
        let guard = CoreGuard {
            actor: "publisher",
            life: watch::channel(BusState::Running).0,
            admission: self.admission.clone(),
        };
        Publisher::new(shard, self.interest.clone(), &parts, guard)
    }

    fn reply<T>(&self) -> (Reply<T>, Answer<T>) {
        self.admission.try_enter_change().unwrap().unwrap().reply()
    }

    /// Returns when the shard has handled the request.
    async fn send(&self, shard: usize, request: ShardRequest) {
        self.shards[shard].send(ShardBatch(vec![request])).await.unwrap();
    }

    async fn route(&self, shard: usize, outbox: &Arc<Outbox>, request: SubscriberRequest) {
        let outbox = outbox.clone();
        self.send(shard, ShardRequest::Route(Route { outbox, request }))
            .await;
    }

    /// Makes the outbox of a new subscriber of shard 0.
    fn outbox(&self, id: u64) -> Arc<Outbox> {
        let options = SessionOptions::new(SubscriberKind::Local, "test");
        let metrics = self.metrics.clone();
        Arc::new(Outbox::new(
            SubscriberId(id),
            0,
            &options,
            metrics,
            Arc::default(),
        ))
    }

    /// Attaches a new subscriber to shard 0.
    async fn attach(&self, id: u64) -> Arc<Outbox> {
        let outbox = self.outbox(id);
        let (reply, attached) = self.reply();
        self.route(0, &outbox, SubscriberRequest::Attach(reply)).await;
        attached.await.unwrap();
        outbox
    }

    /// Subscribes at version 0, like the Etag actor.
    async fn subscribe(
        &self,
        outbox: &Arc<Outbox>,
        uris: &[&str],
        max: usize,
    ) -> Vec<Result<Etag, SubscribeError>> {
        let mut accepted = Vec::new();
        for text in uris {
            accepted.push(at_version(text, 0));
        }
        self.subscribe_from(outbox, accepted, max).await
    }

    /// Subscribes from these etags, like the Etag actor.
    async fn subscribe_from(
        &self,
        outbox: &Arc<Outbox>,
        accepted: Vec<StampedSubscription>,
        max: usize,
    ) -> Vec<Result<Etag, SubscribeError>> {
        let (reply, answer) = self.reply();
        for subscription in &accepted {
            self.interest.raise(0, &subscription.uri);
        }
        outbox.begin_request();
        let subscriptions = AddSubscriptions {
            outbox: outbox.clone(),
            accepted: accepted.into_iter().map(Ok).collect(),
            at: Position { epoch: 1, offset: 0 },
            rules: SubscriptionRules {
                max,
                pending_max: 1,
                trusted: false,
            },
            reply,
        };
        self.send(0, ShardRequest::AddSubscriptions(subscriptions)).await;
        answer.await.unwrap()
    }

    /// Makes the fan-out of this version of a resource, at the offset of the same number.
    fn fan_out_of(&self, text: &str, version: u64) -> (FanOut, Answer<Result<Outcome, PublishError>>) {
        let updated_at = 7;
        let etag = Etag {
            version,
            updated_at,
            life: 0,
        };
        let (reply, answer) = self.reply::<Result<Outcome, PublishError>>();
        let outcome = Outcome {
            etag,
            changed: true,
            created: false,
            notified: 0,
        };
        let position = Position {
            epoch: 1,
            offset: version,
        };
        let notice = Notice::new(uri(text), etag, Cause::Updated, position, Instant::now());
        let completion = Completion::new(Finish::Change(reply, outcome), self.metrics.clone());
        let fan_out = FanOut {
            notice: Some(Arc::new(notice)),
            list: None,
            completion: Arc::new(completion),
        };
        (fan_out, answer)
    }

    /// Fans this version of a resource out. Returns the number of notified subscribers.
    async fn fan_out(&self, shard: usize, text: &str, version: u64) -> usize {
        let (fan_out, answer) = self.fan_out_of(text, version);
        self.send(shard, ShardRequest::FanOut(fan_out)).await;
        answer.await.unwrap().unwrap().notified
    }

    fn wants(&self, shard: usize, text: &str) -> bool {
        self.interest.wants(shard, self.interest.group(&uri(text)))
    }
}

fn uri(text: &str) -> ResourceUri {
    ResourceUri::new(text).unwrap()
}

/// A subscription that begins at this version, whose subscriber has missed nothing.
fn at_version(text: &str, version: u64) -> StampedSubscription {
    StampedSubscription {
        uri: uri(text),
        etag: Etag {
            version,
            ..Etag::UNKNOWN
        },
        awaited: false,
        missed: None,
        resumed: None,
    }
}

/// Takes the pending notices, each with its version.
fn drain(outbox: &Arc<Outbox>) -> Vec<(String, u64)> {
    let mut taken = Vec::new();
    let mut context = std::task::Context::from_waker(Waker::noop());
    let mut reader = OutboxReader::open(outbox.clone(), 100);
    let drained = reader.poll_drain(&mut context, |entry| {
        if let OutboxEntry::Updated(notice) = entry {
            taken.push((notice.uri.as_str().to_owned(), notice.etag.version));
        }
    });
    assert_eq!(drained == Poll::Pending, taken.is_empty());
    taken
}

#[test]
fn notice_marks_its_subscribers_only() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let [one, other] = [fixture.attach(1).await, fixture.attach(2).await];
        let subscribed = fixture.subscribe(&one, &["demo://a"], 10).await;
        assert_eq!(subscribed, [Ok(Etag::UNKNOWN)]);
        fixture.subscribe(&other, &["demo://b"], 10).await;
        assert_eq!(fixture.fan_out(0, "demo://a", 1).await, 1);
        assert_eq!(drain(&one), [("demo://a".to_owned(), 1)]);
        assert_eq!(drain(&other), []);
        assert_eq!(fixture.metrics.notified.get(), 1);
    });
}

#[test]
fn newer_notice_replaces_the_pending_one() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let outbox = fixture.attach(1).await;
        fixture.subscribe(&outbox, &["demo://a"], 10).await;
        assert_eq!(fixture.fan_out(0, "demo://a", 1).await, 1);
        assert_eq!(fixture.fan_out(0, "demo://a", 2).await, 1);
        assert_eq!(drain(&outbox), [("demo://a".to_owned(), 2)]);
        assert_eq!(fixture.metrics.conflated.get(), 1);
    });
}

#[test]
fn unsubscribed_uri_is_wanted_no_more() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let outbox = fixture.attach(1).await;
        fixture.subscribe(&outbox, &["demo://a"], 10).await;
        assert!(fixture.wants(0, "demo://a"));
        for expected in [true, false] {
            let (reply, answer) = fixture.reply();
            let request = SubscriberRequest::Unsubscribe(uri("demo://a"), reply);
            outbox.begin_request();
            fixture.route(0, &outbox, request).await;
            assert_eq!(answer.await, Ok(expected));
        }
        assert!(!fixture.wants(0, "demo://a"));
        assert_eq!(fixture.fan_out(0, "demo://a", 1).await, 0);
        assert_eq!(drain(&outbox), []);
    });
}

#[test]
fn subscription_over_the_limit_is_refused() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let outbox = fixture.attach(1).await;
        let uris = ["demo://a", "demo://a", "demo://b"];
        let subscribed = fixture.subscribe(&outbox, &uris, 1).await;
        assert_eq!(
            subscribed,
            [
                Ok(Etag::UNKNOWN),
                Ok(Etag::UNKNOWN),
                Err(SubscribeError::TooMany(1))
            ]
        );
        assert_eq!(fixture.metrics.subscriptions.get(), 1);
        assert!(!outbox.has_open_requests());
        // The repeated subscription is counted once: a single removal leaves no interest.
        let (reply, answer) = fixture.reply();
        outbox.begin_request();
        let request = SubscriberRequest::Unsubscribe(uri("demo://a"), reply);
        fixture.route(0, &outbox, request).await;
        assert_eq!(answer.await, Ok(true));
        assert!(!fixture.wants(0, "demo://a") && !fixture.wants(0, "demo://b"));
    });
}

#[test]
fn ended_subscriber_leaves_nothing_behind() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let outbox = fixture.attach(1).await;
        fixture.subscribe(&outbox, &["demo://a", "demo://b"], 10).await;
        let places = Arc::new(Semaphore::new(1));
        let place = places.clone().try_acquire_owned().unwrap();
        outbox.end(EndReason::Closed);
        fixture
            .route(0, &outbox, SubscriberRequest::Detach(Some(place)))
            .await;
        assert_eq!(places.available_permits(), 1);
        assert_eq!(fixture.metrics.subscriptions.get(), 0);
        assert!(!fixture.wants(0, "demo://a") && !fixture.wants(0, "demo://b"));
        let (reply, listed) = fixture.reply();
        let question = ListSubscribers {
            filter: SubscriberFilter::default(),
            limit: 10,
            reply,
        };
        fixture.shards[0].send(question).await.unwrap();
        assert_eq!(listed.await.unwrap().total, 0);
        assert_eq!(Arc::strong_count(&outbox), 1);
    });
}

#[test]
fn moved_subscriber_keeps_its_subscriptions() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let outbox = fixture.attach(1).await;
        fixture.subscribe(&outbox, &["demo://a"], 10).await;
        fixture.route(0, &outbox, SubscriberRequest::HandOver).await;
        // Until the new shard has counted the subscriptions, everything is sent to it.
        fixture.interest.raise_everything(1);
        fixture.route(1, &outbox, SubscriberRequest::TakeOver).await;
        assert!(!fixture.wants(0, "demo://a") && fixture.wants(1, "demo://a"));
        assert!(!fixture.wants(1, "demo://b"));
        assert_eq!(fixture.fan_out(0, "demo://a", 1).await, 0);
        assert_eq!(fixture.fan_out(1, "demo://a", 1).await, 1);
        assert_eq!(drain(&outbox), [("demo://a".to_owned(), 1)]);
    });
}

#[test]
fn left_shard_says_when_it_marks_no_more() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let outbox = fixture.attach(1).await;
        outbox.with(|set| set.set_filter(Arc::default(), 1));
        // As the Etag actor does before it sends the two requests.
        outbox.with(OutboxSet::begin_handover);
        let (reply, watching) = fixture.reply();
        outbox.begin_request();
        let watch = SubscriberRequest::Watch(Arc::default(), 1, reply);
        fixture.interest.raise_everything(0);
        fixture.route(0, &outbox, watch).await;
        watching.await.unwrap();
        assert_eq!(fixture.fan_out(0, "demo://a", 1).await, 1);
        assert_eq!(drain(&outbox), [("demo://a".to_owned(), 1)]);
        // The slot of the first resource is freed for the second one, and its version remembered.
        assert_eq!(fixture.fan_out(0, "demo://b", 2).await, 1);
        assert_eq!(drain(&outbox), [("demo://b".to_owned(), 2)]);
        assert_eq!(
            fixture.fan_out(0, "demo://c", 3).await,
            0,
            "no version more is remembered"
        );
        fixture.route(0, &outbox, SubscriberRequest::HandOver).await;
        fixture.interest.raise_everything(1);
        fixture.route(1, &outbox, SubscriberRequest::TakeOver).await;
        assert_eq!(fixture.fan_out(1, "demo://c", 4).await, 1);
    });
}

#[test]
fn end_of_the_bus_ends_later_subscribers_too() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let outbox = fixture.attach(1).await;
        fixture.subscribe(&outbox, &["demo://a"], 10).await;
        fixture.fan_out(0, "demo://a", 1).await;
        fixture.shards[0].send(EndAll(EndReason::Shutdown)).await.unwrap();
        assert_eq!(outbox.ended(), Some(EndReason::Shutdown));
        // The pending notice is still handed out, and no further one is marked.
        assert_eq!(fixture.fan_out(0, "demo://a", 2).await, 0);
        assert_eq!(drain(&outbox), [("demo://a".to_owned(), 1)]);
        let late = fixture.attach(2).await;
        assert_eq!(late.ended(), Some(EndReason::Shutdown));
    });
}

#[test]
fn missed_change_is_pending_with_its_subscription() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let outbox = fixture.attach(1).await;
        let mut stale = at_version("demo://a", 3);
        stale.missed = Some(Cause::Updated);
        let accepted = vec![stale.clone(), at_version("demo://b", 3)];
        let answers = fixture.subscribe_from(&outbox, accepted, 10).await;
        assert_eq!(answers[0].as_ref().unwrap().version, 3);
        assert_eq!(drain(&outbox), [("demo://a".to_owned(), 3)]);
        // A change that the subscriber was told of already is not told with the next one.
        assert_eq!(fixture.fan_out(0, "demo://a", 3).await, 0);
        assert_eq!(fixture.fan_out(0, "demo://a", 4).await, 1);
        assert_eq!(drain(&outbox), [("demo://a".to_owned(), 4)]);
    });
}

#[test]
fn awaited_subscriptions_are_bounded() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let outbox = fixture.attach(1).await;
        let mut awaited = Vec::new();
        for text in ["demo://a", "demo://b"] {
            awaited.push(StampedSubscription {
                awaited: true,
                ..at_version(text, 0)
            });
        }
        let answers = fixture.subscribe_from(&outbox, awaited.clone(), 10).await;
        assert_eq!(
            answers,
            [Ok(Etag::UNKNOWN), Err(SubscribeError::NotFound(uri("demo://b")))]
        );
        // The refused one is counted no more.
        assert!(fixture.wants(0, "demo://a") && !fixture.wants(0, "demo://b"));
        assert_eq!(drain(&outbox), []);
        assert_eq!(fixture.fan_out(0, "demo://a", 1).await, 1);
        assert_eq!(drain(&outbox), [("demo://a".to_owned(), 1)]);
        // The first one is a subscription like any other by now, so there is room for another.
        let answers = fixture.subscribe_from(&outbox, awaited, 10).await;
        assert!(answers.iter().all(Result::is_ok));
    });
}
