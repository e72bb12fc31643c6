//! Attached subscribers: a failure of one is visible to the operator and does not affect the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidings_actors::attach::{
    AttachError, AttachOptions, AttachedInfo, Attachment, Delivery, DeliveryClass, Gap, Health, Overflow,
    Subscriber, SubscriberError,
};
use tidings_actors::trace::{TraceStep, TraceSubject};
use tidings_actors::{Filter, NoticeKind};

use crate::support::{Bench, DEADLINE, until, within};

/// The deliveries that subscribers took, in order.
#[derive(Debug, Clone, Default)]
struct Deliveries(Arc<Mutex<Vec<String>>>);

impl Deliveries {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn push(&self, delivery: &Delivery) {
        self.0.lock().unwrap().push(match delivery {
            Delivery::Notice(notice) => {
                let kind = NoticeKind::from(notice.cause).name();
                format!("{} v{} {kind}", notice.uri, notice.etag.version)
            }
            Delivery::List(kind, _) => format!("{} list", kind.name()),
            Delivery::Gap(Gap { lost, .. }) => format!("gap {lost}"),
            Delivery::Trace(trace) => match &trace.subject {
                TraceSubject::Resource(uri, etag) => format!("{uri} v{} {}", etag.version, trace.step.name()),
                TraceSubject::List(kind) => format!("{} list {}", kind.name(), trace.step.name()),
            },
        });
    }

    async fn until(&self, expected: &[&str]) {
        until(&format!("deliveries {expected:?}"), async || {
            self.lines() == expected
        })
        .await;
    }
}

/// A subscriber that records each delivery for which `behaviour` returns `Ok`.
struct Recording<F> {
    taken: Deliveries,
    behaviour: F,
}

impl<F> Subscriber for Recording<F>
where
    F: FnMut(&Delivery) -> Result<(), SubscriberError> + 'static,
{
    fn take(&mut self, delivery: &Delivery) -> Result<(), SubscriberError> {
        (self.behaviour)(delivery)?;
        self.taken.push(delivery);
        Ok(())
    }
}

fn accept(_: &Delivery) -> Result<(), SubscriberError> {
    Ok(())
}

fn every(name: &str, capacity: usize, overflow: Overflow) -> AttachOptions {
    AttachOptions::new(name).class(DeliveryClass::Every { capacity, overflow })
}

type Accepting = Recording<fn(&Delivery) -> Result<(), SubscriberError>>;

/// Creates subscribers that record every delivery in `taken`.
fn recording(taken: &Deliveries) -> impl FnMut() -> Result<Accepting, SubscriberError> + use<> {
    let taken = taken.clone();
    move || {
        Ok(Recording {
            taken: taken.clone(),
            behaviour: accept,
        })
    }
}

fn info(bench: &Bench, name: &str) -> AttachedInfo {
    let found = bench.bus.attached().into_iter().find(|info| &*info.name == name);
    found.expect("it is attached")
}

#[tokio::test]
async fn every_notice_is_delivered_in_order_by_filter() {
    let bench = Bench::start();
    let all = Deliveries::default();
    let some = Deliveries::default();
    let every = within(bench.bus.attach(AttachOptions::new("all"), recording(&all)))
        .await
        .unwrap();
    let filter = Filter::of(vec!["demo://{name}/x".parse().unwrap()])
        .unwrap()
        .kinds([NoticeKind::Removed]);
    let removed = AttachOptions::new("some").filter(filter);
    let removed = within(bench.bus.attach(removed, recording(&some))).await.unwrap();
    bench.put("demo://a/x", "one").await;
    bench.put("demo://b", "one").await;
    bench.put("demo://a/x", "one").await;
    bench.put("demo://a/x", "two").await;
    bench.bus.remove("demo://a/x").await.unwrap();
    bench.bus.remove("demo://b").await.unwrap();
    assert!(every.detach(DEADLINE).await);
    assert!(removed.detach(DEADLINE).await);
    assert_eq!(some.lines(), ["demo://a/x v3 removed"]);
    let lines = all.lines();
    let notices: Vec<_> = lines.iter().filter(|line| line.starts_with("demo:")).collect();
    assert_eq!(
        notices,
        [
            "demo://a/x v1 updated",
            "demo://b v1 updated",
            "demo://a/x v2 updated",
            "demo://a/x v3 removed",
            "demo://b v2 removed"
        ]
    );
    assert_eq!(lines.iter().filter(|line| *line == "resources list").count(), 4);
    assert_eq!(bench.bus.attached(), []);
}

#[tokio::test]
async fn changes_after_detach_are_not_delivered() {
    let bench = Bench::start();
    let taken = Deliveries::default();
    for overflow in [Overflow::DropNewest, Overflow::DropOldest] {
        let attached = within(
            bench
                .bus
                .attach(every("same name", 4, overflow), recording(&taken)),
        )
        .await
        .unwrap();
        let second = bench
            .bus
            .attach(every("same name", 4, overflow), recording(&taken))
            .await;
        assert_eq!(second.err(), Some(AttachError::NameTaken("same name".into())));
        assert!(attached.detach(DEADLINE).await);
        bench.put("demo://a", overflow.name()).await;
    }
    assert_eq!(taken.lines(), [""; 0]);
}

#[tokio::test]
async fn attach_beyond_the_limit_is_refused() {
    let bench = Bench::with(|limits| limits.attached_max = 1);
    let taken = Deliveries::default();
    let first = within(bench.bus.attach(AttachOptions::new("a"), recording(&taken)))
        .await
        .unwrap();
    let refused = bench.bus.attach(AttachOptions::new("b"), recording(&taken)).await;
    assert_eq!(refused.err(), Some(AttachError::TooMany(1)));
    drop(first);
    within(bench.bus.attach(AttachOptions::new("b"), recording(&taken)))
        .await
        .unwrap();
}

const FAILING: [&str; 5] = ["stalls", "panics", "fails", "refuses", "cannot be made"];

/// Attaches a subscriber that misbehaves as its name says until `well` is set and the sender of `held` is
/// dropped.
async fn attach_failing(
    bench: &Bench,
    name: &'static str,
    held: &crossbeam_channel::Receiver<()>,
    well: &Arc<AtomicBool>,
) -> (Attachment, Deliveries) {
    let taken = Deliveries::default();
    let recorded = taken.clone();
    let held = held.clone();
    let well = well.clone();
    let mut options = every(name, 100, Overflow::DropOldest);
    options.stall_timeout = Duration::from_millis(1);
    options.backoff_max = Duration::from_millis(100);
    let attaching = bench.bus.attach(options, move || {
        if name == "cannot be made" && !well.load(Ordering::Relaxed) {
            return Err(SubscriberError::Again("no such place".into()));
        }
        let held = held.clone();
        let well = well.clone();
        Ok(Recording {
            taken: recorded.clone(),
            behaviour: move |_: &Delivery| match name {
                "stalls" => {
                    assert!(held.recv().is_err(), "nothing is sent");
                    Ok(())
                }
                _ if well.load(Ordering::Relaxed) => Ok(()),
                "panics" => panic!("on purpose"),
                "fails" => Err(SubscriberError::Again("disk full".into())),
                _ => Err(SubscriberError::Refused("not for me".into())),
            },
        })
    });
    (within(attaching).await.unwrap(), taken)
}

/// Subscribers that stall, panic, fail, refuse or cannot be created are listed as such, and each of them
/// recovers.
#[tokio::test]
async fn failing_subscribers_do_not_affect_others() {
    let bench = Bench::start();
    let (release, held) = crossbeam_channel::bounded::<()>(0);
    let well = Arc::new(AtomicBool::new(false));
    let mut attached = Vec::new();
    let mut taken = Vec::new();
    for name in FAILING {
        let (attachment, deliveries) = attach_failing(&bench, name, &held, &well).await;
        attached.push(attachment);
        taken.push(deliveries);
    }
    let fine = Deliveries::default();
    let control = within(bench.bus.attach(AttachOptions::new("fine"), recording(&fine)))
        .await
        .unwrap();

    // A session and a healthy subscriber get everything at once.
    let mut client = bench.client().await;
    bench.put("demo://a", "1").await;
    client.subscribe("demo://a").await;
    bench.put("demo://a", "2").await;
    assert_eq!(client.received(), ["demo://a v2"]);
    fine.until(&["demo://a v1 updated", "resources list", "demo://a v2 updated"])
        .await;

    // The state of each failing subscriber is listed.
    until("the state of each subscriber", async || {
        info(&bench, "stalls").health == Health::Stalled
            && info(&bench, "panics").restarts > 0
            && info(&bench, "fails").error.as_deref() == Some("disk full")
            && info(&bench, "refuses").lost >= 3
            && info(&bench, "cannot be made").error.as_deref() == Some("no such place")
    })
    .await;
    assert_eq!(info(&bench, "fails").health, Health::Failing);
    assert_eq!(info(&bench, "fails").lost, 0, "deliveries to repeat are kept");
    assert_eq!(info(&bench, "fine").health, Health::Running);

    // All of them recover.
    well.store(true, Ordering::Relaxed);
    drop(release);
    bench.put("demo://a", "3").await;
    let last = "demo://a v3 updated".to_owned();
    until("the recovery of all", async || {
        taken.iter().all(|taken| taken.lines().contains(&last))
    })
    .await;
    let all = [
        "demo://a v1 updated",
        "resources list",
        "demo://a v2 updated",
        "demo://a v3 updated",
    ];
    for (name, taken) in std::iter::zip(FAILING, taken) {
        match name {
            "panics" | "refuses" => assert!(taken.lines().iter().any(|line| line.starts_with("gap "))),
            _ => assert_eq!(taken.lines(), all, "{name}"),
        }
    }
    for attachment in attached {
        assert!(attachment.detach(DEADLINE).await);
    }
    assert!(control.detach(DEADLINE).await);
}

/// The controls of a subscriber that is called and does not return.
struct Held {
    /// Dropped to let the calls return.
    release: crossbeam_channel::Sender<()>,
    /// Receives once a call has begun.
    entered: crossbeam_channel::Receiver<()>,
}

type HeldBehaviour = Box<dyn FnMut(&Delivery) -> Result<(), SubscriberError>>;

/// Creates a subscriber whose calls return when [`Held::release`] is dropped.
fn held_up(
    taken: &Deliveries,
) -> (
    impl FnMut() -> Result<Recording<HeldBehaviour>, SubscriberError> + use<>,
    Held,
) {
    let (release, held) = crossbeam_channel::bounded::<()>(0);
    let (enter, entered) = crossbeam_channel::bounded::<()>(1);
    let taken = taken.clone();
    (
        move || {
            let held = held.clone();
            let enter = enter.clone();
            Ok(Recording {
                taken: taken.clone(),
                behaviour: Box::new(move |_: &Delivery| {
                    // Full after the first call, which is the one that the test waits for.
                    let _first = enter.try_send(());
                    assert!(held.recv().is_err(), "nothing is sent");
                    Ok(())
                }) as HeldBehaviour,
            })
        },
        Held { release, entered },
    )
}

#[tokio::test]
async fn full_queue_reports_the_gap_in_its_place() {
    for (overflow, expected) in [
        (
            Overflow::DropOldest,
            [
                "demo://a v1 updated",
                "gap 3",
                "demo://a v5 updated",
                "demo://a v6 updated",
            ],
        ),
        (
            Overflow::DropNewest,
            [
                "demo://a v1 updated",
                "demo://a v2 updated",
                "demo://a v3 updated",
                "gap 3",
            ],
        ),
    ] {
        let bench = Bench::start();
        let taken = Deliveries::default();
        let (make, held) = held_up(&taken);
        let filter = Filter::default().kinds([NoticeKind::Updated]);
        let options = every("slow", 2, overflow).filter(filter);
        let attached = within(bench.bus.attach(options, make)).await.unwrap();
        bench.put("demo://a", "1").await;
        held.entered.recv_timeout(DEADLINE).unwrap();
        for version in 2..=6 {
            bench.put("demo://a", &version.to_string()).await;
        }
        let behind = info(&bench, "slow");
        assert_eq!((behind.pending, behind.lost), (2, 3));
        drop(held.release);
        taken.until(&expected).await;
        assert!(attached.detach(DEADLINE).await);
    }
}

#[tokio::test]
async fn latest_subscriber_gets_the_newest_of_each() {
    let bench = Bench::start();
    let taken = Deliveries::default();
    let (make, held) = held_up(&taken);
    let filter = Filter::of(vec!["demo://*".parse().unwrap()]).unwrap();
    let options = AttachOptions::new("latest").filter(filter);
    let options = options.class(DeliveryClass::Latest { pending_max: 2 });
    let attached = within(bench.bus.attach(options, make)).await.unwrap();
    bench.put("demo://a", "1").await;
    held.entered.recv_timeout(DEADLINE).unwrap();
    bench.put("other://a", "1").await;
    for version in 2..=5 {
        bench.put("demo://a", &version.to_string()).await;
        bench.put("demo://b", &version.to_string()).await;
    }
    // Both places are taken, so the change of a third resource is lost.
    bench.put("demo://c", "1").await;
    assert_eq!(info(&bench, "latest").pending, 3);
    drop(held.release);
    let expected = [
        "demo://a v1 updated",
        "gap 1",
        "resources list",
        "demo://a v5 updated",
        "demo://b v4 updated",
    ];
    until("the newest of each resource", async || {
        taken.lines().len() == expected.len()
    })
    .await;
    let mut lines = taken.lines();
    assert_eq!(lines[0], expected[0]);
    let mut expected = expected;
    lines.sort();
    expected.sort_unstable();
    assert_eq!(lines, expected);
    // A delivered resource makes room for the next.
    bench.put("demo://c", "2").await;
    until("the third resource", async || {
        taken.lines().contains(&"demo://c v2 updated".to_owned())
    })
    .await;
    assert!(attached.detach(DEADLINE).await);
    bench.until_sessions(0).await;
}

#[tokio::test]
async fn failing_subscriber_has_a_second_at_the_end() {
    let bench = Bench::start();
    let attaching = bench.bus.attach(AttachOptions::new("down"), || {
        Ok(Recording {
            taken: Deliveries::default(),
            behaviour: |_: &Delivery| Err(SubscriberError::Again("nothing answers".into())),
        })
    });
    let _down = within(attaching).await.unwrap();
    bench.put("demo://a", "1").await;
    until("a failed delivery", async || {
        info(&bench, "down").health == Health::Failing
    })
    .await;
    let started = Instant::now();
    bench.bus.shutdown(DEADLINE).await;
    assert!(started.elapsed() < DEADLINE / 3, "{:?}", started.elapsed());
}

#[tokio::test]
async fn shutdown_abandons_a_hanging_subscriber() {
    let bench = Bench::start();
    let taken = Deliveries::default();
    let _fine = within(bench.bus.attach(AttachOptions::new("fine"), recording(&taken)))
        .await
        .unwrap();
    let (make, held) = held_up(&Deliveries::default());
    let _hangs = within(bench.bus.attach(AttachOptions::new("hangs"), make))
        .await
        .unwrap();
    bench.put("demo://a", "1").await;
    within(bench.bus.shutdown(Duration::from_millis(300))).await;
    assert_eq!(taken.lines(), ["demo://a v1 updated", "resources list"]);
    drop(held.release);
}

#[tokio::test]
async fn trace_lists_every_step_of_a_notice() {
    let bench = Bench::start();
    let steps = Arc::new(Mutex::new(Vec::new()));
    let recorded = steps.clone();
    let mut options =
        AttachOptions::new("debug").filter(Filter::of(vec!["demo://a".parse().unwrap()]).unwrap());
    options.trace = Some(1);
    bench.put("demo://a", "1").await;
    bench.put("demo://b", "1").await;
    let attaching = bench.bus.attach(options, move || {
        let recorded = recorded.clone();
        Ok(Recording {
            taken: Deliveries::default(),
            behaviour: move |delivery: &Delivery| {
                if let Delivery::Trace(trace) = delivery {
                    recorded.lock().unwrap().push(trace.clone());
                }
                Ok(())
            },
        })
    });
    let attached = within(attaching).await.unwrap();
    let mut client = bench.subscriber("demo://a").await;
    let id = client.session.id();
    bench.put("demo://a", "1").await;
    bench.put("demo://b", "2").await;
    bench.put("demo://a", "2").await;
    bench.put("demo://a", "3").await;
    client.received();
    bench.put("demo://a", "4").await;
    drop(client);
    bench.until_sessions(0).await;
    assert!(attached.detach(DEADLINE).await);
    let traces = steps.lock().unwrap();
    let names: Vec<_> = traces
        .iter()
        .map(|trace| match &trace.subject {
            TraceSubject::Resource(_, etag) => format!("v{} {}", etag.version, trace.step.name()),
            TraceSubject::List(kind) => kind.name().to_owned(),
        })
        .collect();
    assert_eq!(
        names,
        [
            "v1 unchanged",
            "v2 changed",
            "v2 marked",
            "v2 fanned",
            "v3 changed",
            "v3 conflated",
            "v3 fanned",
            "v3 handed_out",
            "v4 changed",
            "v4 marked",
            "v4 fanned",
            "v4 dropped"
        ]
    );
    assert!(
        traces
            .iter()
            .flat_map(|trace| trace.step.subscriber())
            .all(|subscriber| subscriber.id == id && &*subscriber.label == "test")
    );
    assert!(matches!(
        traces[7].step,
        TraceStep::HandedOut { after: Some(_), .. }
    ));
}

#[tokio::test]
async fn deliveries_start_after_the_attached_position() {
    let bench = Bench::start();
    bench.put("demo://a", "begin").await;
    let publishing = async {
        for change in 0..200 {
            bench.put("demo://a", &change.to_string()).await;
        }
    };
    let attaching = async {
        let mut attached = Vec::new();
        for number in 0..20 {
            let offsets = Arc::new(Mutex::new(Vec::new()));
            let recorded = offsets.clone();
            let options = AttachOptions::new(format!("number {number}"));
            let attachment = bench.bus.attach(options, move || {
                let recorded = recorded.clone();
                Ok(Recording {
                    taken: Deliveries::default(),
                    behaviour: move |delivery: &Delivery| {
                        if let Delivery::Notice(notice) = delivery {
                            recorded.lock().unwrap().push(notice.position.offset);
                        }
                        Ok(())
                    },
                })
            });
            attached.push((within(attachment).await.unwrap(), offsets));
        }
        attached
    };
    let ((), attached) = tokio::join!(publishing, attaching);
    bench.put("demo://a", "end").await;
    for (attachment, offsets) in attached {
        let begin = attachment.position().unwrap().offset;
        assert!(attachment.detach(DEADLINE).await);
        let offsets = offsets.lock().unwrap();
        let expected: Vec<u64> = (begin + 1..).take(offsets.len()).collect();
        assert!(
            !offsets.is_empty() && *offsets == expected,
            "after {begin}: {offsets:?}"
        );
    }
    let latest = AttachOptions::new("latest").class(DeliveryClass::Latest { pending_max: 1 });
    let latest = within(bench.bus.attach(latest, recording(&Deliveries::default())))
        .await
        .unwrap();
    assert_eq!(latest.position(), None);
    assert!(latest.detach(DEADLINE).await);
}
