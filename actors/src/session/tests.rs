//! The Session actor and its handle alone, with a recorder in place of the Registry.

use actix::{Message, System};
use tokio::sync::Semaphore;

use super::*;
use crate::model::{ListKind, SubscriberKind};
use crate::runtime::{Inbox, InboxReady};

/// Keeps the requests that sessions send to the Registry, and answers none.
struct RegistryRecorder(Inbox<RegistryRequest>);

impl Actor for RegistryRecorder {
    type Context = Context<Self>;
}

impl Handler<InboxReady> for RegistryRecorder {
    type Result = ();

    fn handle(&mut self, InboxReady: InboxReady, _: &mut Context<Self>) {}
}

/// Asks for the requests since the last time.
struct TakeRecorded;

impl Message for TakeRecorded {
    type Result = Vec<RegistryRequest>;
}

impl Handler<TakeRecorded> for RegistryRecorder {
    type Result = Vec<RegistryRequest>;

    fn handle(&mut self, TakeRecorded: TakeRecorded, _: &mut Context<Self>) -> Self::Result {
        self.0.take()
    }
}

struct Fixture {
    recorder: Addr<RegistryRecorder>,
    registry: Arc<InboxSender<RegistryRequest>>,
    metrics: Arc<Metrics>,
    admission: Admission,
    places: Arc<Semaphore>,
    life: watch::Sender<BusState>,
    ended: Arc<EndedSubscribers>,
}

impl Fixture {
    fn start() -> Fixture {
        let metrics = Metrics::register(1);
        let (inbox, sender) = Inbox::new(100, metrics.clone());
        let recorder = RegistryRecorder(inbox).start();
        Fixture {
            registry: Arc::new(sender(recorder.clone().recipient())),
            recorder,
            metrics,
            admission: Admission::new(100),
            places: Arc::new(Semaphore::new(1)),
            life: watch::channel(BusState::Running).0,
            ended: Arc::default(),
        }
    }

    fn actor(&self, options: SessionOptions, attach: Reply<()>) -> SessionActor {
        let metrics = self.metrics.clone();
        SessionActor {
            outbox: Arc::new(Outbox::new(SubscriberId(1), 0, &options, metrics, Arc::default())),
            registry: self.registry.clone(),
            attach: Some(attach),
            terms: options.into(),
            metrics: self.metrics.clone(),
            place: Some(self.places.clone().try_acquire_owned().unwrap()),
            life: self.life.subscribe(),
            ended_subscribers: self.ended.clone(),
            unready: Arc::default(),
        }
    }

    /// Opens a session like the bus does, and answers its attachment.
    async fn open(&self, options: SessionOptions) -> Session {
        let (attach, attached) = self.admission.enter().await.unwrap().reply();
        let actor = self.actor(options, attach);
        let outbox = actor.outbox.clone();
        let actor = actor.start();
        let evicted = actor.downgrade();
        outbox.set_on_evict(Box::new(move |reason| {
            evicted.upgrade().unwrap().try_send(EndSession(reason)).unwrap();
        }));
        let SubscriberRequest::Attach(reply) = self.next().await else {
            panic!("the first request is not the attachment");
        };
        reply.answer(());
        attached.await.unwrap();
        Session {
            outbox,
            actor,
            admission: self.admission.clone(),
            drain_max: 10,
            ending: AtomicBool::new(false),
            metrics: self.metrics.clone(),
        }
    }

    /// Lets the actors run until they have recorded a request, and returns it.
    async fn next(&self) -> SubscriberRequest {
        // Only a few turns, so that a missing request fails the test instead of hanging it.
        for _ in 0..100 {
            let mut recorded = self.recorder.send(TakeRecorded).await.unwrap();
            if let Some(RegistryRequest::Route(Route { request, .. })) = recorded.pop() {
                assert!(recorded.is_empty(), "more than one request");
                return request;
            }
        }
        panic!("no request was sent to the Registry");
    }
}

fn options() -> SessionOptions {
    SessionOptions::new(SubscriberKind::Session, "test")
}

fn uri() -> ResourceUri {
    ResourceUri::new("demo://a").unwrap()
}

#[test]
fn subscription_carries_the_limits_of_the_session() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let limits = SessionOptions {
            subscriptions_max: 3,
            pending_subscriptions: 2,
            trusted: true,
            ..options()
        };
        let session = fixture.open(limits).await;
        let answer = async {
            let SubscriberRequest::Subscribe {
                requests,
                rules,
                reply,
            } = fixture.next().await
            else {
                panic!("another request");
            };
            assert_eq!(requests, [SubscriptionRequest::from(uri())]);
            assert_eq!((rules.max, rules.pending_max, rules.trusted), (3, 2, true));
            reply.answer(vec![Err(SubscribeError::TooMany(3))]);
        };
        let (subscribed, ()) = tokio::join!(session.subscribe(vec![uri()]), answer);
        assert_eq!(subscribed, Ok(vec![Err(SubscribeError::TooMany(3))]));
        assert_eq!(fixture.admission.inside(), 0);
    });
}

#[test]
fn ready_session_watches_the_lists_of_its_options() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let lists = SessionOptions {
            lists: vec![ListKind::Tools],
            announce: true,
            ..options()
        };
        let session = fixture.open(lists).await;
        let answer = async {
            let SubscriberRequest::WatchLists { kinds, start, reply } = fixture.next().await else {
                panic!("another request");
            };
            assert_eq!((kinds, start), (vec![ListKind::Tools], ListStart::Announced));
            reply.answer(());
        };
        assert_eq!(tokio::join!(session.ready(), answer).0, Ok(()));
    });
}

#[test]
fn request_after_the_end_is_answered_closed() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let session = fixture.open(options()).await;
        session.end();
        // A second call is no second end.
        session.end();
        assert!(matches!(fixture.next().await, SubscriberRequest::Detach(_)));
        assert_eq!(session.ended(), Some(EndReason::Closed));
        assert_eq!(session.subscribe(vec![uri()]).await, Err(Closed));
        assert_eq!(session.unsubscribe(uri()).await, Err(Closed));
        assert_eq!(fixture.admission.inside(), 0);
    });
}

#[test]
fn dropped_handle_detaches_with_the_place() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let session = fixture.open(options()).await;
        let id = session.id();
        assert_eq!(fixture.ended.find(id), None);
        drop(session);
        let SubscriberRequest::Detach(Some(place)) = fixture.next().await else {
            panic!("another request, or without the place");
        };
        // The shard frees the place once it has removed the subscriber.
        assert_eq!(fixture.places.available_permits(), 0);
        drop(place);
        assert_eq!(fixture.places.available_permits(), 1);
        assert_eq!(fixture.ended.find(id).unwrap().reason, EndReason::Closed);
    });
}

#[test]
fn idle_session_ends_with_that_reason() {
    System::new().block_on(async {
        let fixture = Fixture::start();
        let session = fixture.open(options()).await;
        // As the sweep of the shard does.
        assert!(session.outbox.evict(EndReason::Idle));
        assert!(matches!(fixture.next().await, SubscriberRequest::Detach(Some(_))));
        assert_eq!(session.ended(), Some(EndReason::Idle));
        assert_eq!(fixture.ended.find(session.id()).unwrap().reason, EndReason::Idle);
        assert_eq!(session.ready().await, Err(Closed));
    });
}

#[test]
fn lost_actor_ends_by_the_state_of_the_bus() {
    System::new().block_on(async {
        for (life, reason) in [
            (BusState::Running, EndReason::Failed),
            (BusState::Stopping, EndReason::Shutdown),
        ] {
            let fixture = Fixture::start();
            let (attach, _attached) = fixture.admission.enter().await.unwrap().reply();
            let actor = fixture.actor(options(), attach);
            let outbox = actor.outbox.clone();
            fixture.life.send_replace(life);
            drop(actor);
            assert_eq!(outbox.ended(), Some(reason));
            assert!(matches!(fixture.next().await, SubscriberRequest::Detach(Some(_))));
        }
    });
}
