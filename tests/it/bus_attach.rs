//! Subscribers that are no sessions: whatever one does, the others do not notice and the operator does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidings_actors::attach::{
    AttachError, AttachOptions, AttachedInfo, Delivery, DeliveryClass, Gap, Health, Overflow, Subscriber,
    SubscriberError,
};
use tidings_actors::trace::{TraceStep, TraceSubject};
use tidings_actors::{Filter, NoticeKind};

use crate::support::{Bench, until, within};

/// Long enough for a crowded machine; nothing waits this long unless it fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// What subscribers took, in order.
#[derive(Debug, Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
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
            Delivery::Gap(Gap { lost }) => format!("gap {lost}"),
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

/// Notes what it is handed, after asking `manner` how to behave.
struct Actor<F> {
    seen: Seen,
    manner: F,
}

impl<F> Subscriber for Actor<F>
where
    F: FnMut(&Delivery) -> Result<(), SubscriberError> + 'static,
{
    fn take(&mut self, delivery: &Delivery) -> Result<(), SubscriberError> {
        (self.manner)(delivery)?;
        self.seen.push(delivery);
        Ok(())
    }
}

fn content(_: &Delivery) -> Result<(), SubscriberError> {
    Ok(())
}

fn every(name: &str, capacity: usize, overflow: Overflow) -> AttachOptions {
    AttachOptions::new(name).class(DeliveryClass::Every { capacity, overflow })
}

type Content = Actor<fn(&Delivery) -> Result<(), SubscriberError>>;

fn actor(seen: &Seen) -> impl FnMut() -> Result<Content, SubscriberError> + use<> {
    let seen = seen.clone();
    move || {
        Ok(Actor {
            seen: seen.clone(),
            manner: content,
        })
    }
}

fn info(bench: &Bench, name: &str) -> AttachedInfo {
    let found = bench.bus.attached().into_iter().find(|info| &*info.name == name);
    found.expect("it is attached")
}

#[tokio::test]
async fn a_subscriber_of_every_notice_gets_each_in_order_as_its_filter_wants() {
    let bench = Bench::start();
    let (all, some) = (Seen::default(), Seen::default());
    let every = within(bench.bus.attach(AttachOptions::new("all"), actor(&all)))
        .await
        .unwrap();
    let filter = Filter::of(vec!["demo://{name}/x".parse().unwrap()])
        .unwrap()
        .kinds([NoticeKind::Removed]);
    let removed = AttachOptions::new("some").filter(filter);
    let removed = within(bench.bus.attach(removed, actor(&some))).await.unwrap();
    bench.put("demo://a/x", "one").await;
    bench.put("demo://b", "one").await;
    bench.put("demo://a/x", "one").await;
    bench.put("demo://a/x", "two").await;
    bench.bus.remove("demo://a/x").await.unwrap();
    bench.bus.remove("demo://b").await.unwrap();
    assert!(every.detach(PATIENCE).await);
    assert!(removed.detach(PATIENCE).await);
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
async fn what_is_published_after_a_detachment_is_not_handed_over() {
    let bench = Bench::start();
    let seen = Seen::default();
    for overflow in [Overflow::DropNewest, Overflow::DropOldest] {
        let attached = within(bench.bus.attach(every("same name", 4, overflow), actor(&seen)))
            .await
            .unwrap();
        let taken = bench
            .bus
            .attach(every("same name", 4, overflow), actor(&seen))
            .await;
        assert_eq!(taken.err(), Some(AttachError::NameTaken("same name".into())));
        assert!(attached.detach(PATIENCE).await);
        bench.put("demo://a", overflow.name()).await;
    }
    assert_eq!(seen.lines(), [""; 0]);
}

#[tokio::test]
async fn no_more_are_attached_than_the_limit_allows() {
    let bench = Bench::with(|limits| limits.attached_max = 1);
    let seen = Seen::default();
    let first = within(bench.bus.attach(AttachOptions::new("a"), actor(&seen)))
        .await
        .unwrap();
    let refused = bench.bus.attach(AttachOptions::new("b"), actor(&seen)).await;
    assert_eq!(refused.err(), Some(AttachError::TooMany(1)));
    drop(first);
    within(bench.bus.attach(AttachOptions::new("b"), actor(&seen)))
        .await
        .unwrap();
}

/// A stalled one, one that panics, one that fails, one that cannot be made: each is seen, and each recovers.
#[tokio::test]
async fn the_others_do_not_notice_what_one_subscriber_does() {
    let bench = Bench::start();
    let (release, held) = crossbeam_channel::bounded::<()>(0);
    let well = Arc::new(AtomicUsize::new(0));
    let names = ["stalls", "panics", "fails", "refuses", "cannot be made"];
    let mut attached = Vec::new();
    let mut seen = Vec::new();
    for name in names {
        let (lines, held, well) = (Seen::default(), held.clone(), well.clone());
        seen.push(lines.clone());
        let mut options = every(name, 100, Overflow::DropOldest);
        options.stall_timeout = Duration::from_millis(1);
        options.backoff_max = Duration::from_millis(100);
        let make = move || {
            if name == "cannot be made" && well.load(Ordering::Relaxed) == 0 {
                return Err(SubscriberError::Again("no such place".into()));
            }
            let (held, well) = (held.clone(), well.clone());
            let manner = move |_: &Delivery| match name {
                "stalls" => {
                    // Disconnected when the test lets go.
                    held.recv().unwrap_or_default();
                    Ok(())
                }
                _ if well.load(Ordering::Relaxed) > 0 => Ok(()),
                "panics" => panic!("on purpose"),
                "fails" => Err(SubscriberError::Again("disk full".into())),
                _ => Err(SubscriberError::Refused("not for me".into())),
            };
            Ok(Actor {
                seen: lines.clone(),
                manner,
            })
        };
        attached.push(within(bench.bus.attach(options, make)).await.unwrap());
    }
    let fine = Seen::default();
    let control = within(bench.bus.attach(AttachOptions::new("fine"), actor(&fine)))
        .await
        .unwrap();
    let mut client = bench.client().await;
    bench.put("demo://a", "1").await;
    client.subscribe("demo://a").await;
    bench.put("demo://a", "2").await;
    assert_eq!(client.told(), ["demo://a v2"], "a session is told at once");
    fine.until(&["demo://a v1 updated", "resources list", "demo://a v2 updated"])
        .await;

    until("each to be seen in its state", async || {
        info(&bench, "stalls").health == Health::Stalled
            && info(&bench, "panics").restarts > 0
            && info(&bench, "fails").error.as_deref() == Some("disk full")
            && info(&bench, "refuses").lost >= 3
            && info(&bench, "cannot be made").error.as_deref() == Some("no such place")
    })
    .await;
    assert_eq!(info(&bench, "fails").health, Health::Failing);
    assert_eq!(info(&bench, "fails").lost, 0, "what it wants again is kept");
    assert_eq!(info(&bench, "fine").health, Health::Running);

    well.store(1, Ordering::Relaxed);
    drop(release);
    bench.put("demo://a", "3").await;
    let last = "demo://a v3 updated".to_owned();
    until("all to recover", async || {
        seen.iter().all(|seen| seen.lines().contains(&last))
    })
    .await;
    for name in ["stalls", "fails", "cannot be made"] {
        let place = names.iter().position(|other| *other == name).unwrap();
        let all = [
            "demo://a v1 updated",
            "resources list",
            "demo://a v2 updated",
            "demo://a v3 updated",
        ];
        assert_eq!(seen[place].lines(), all, "{name}");
    }
    // What panicked or was refused was told as missing.
    assert!(seen[1].lines().iter().any(|line| line.starts_with("gap ")));
    assert!(seen[3].lines().iter().any(|line| line.starts_with("gap ")));
    for attached in attached {
        assert!(attached.detach(PATIENCE).await);
    }
    assert!(control.detach(PATIENCE).await);
}

/// Makes a subscriber that says when it is handed something and takes nothing until the sender is dropped.
fn held_up(
    seen: &Seen,
) -> (
    impl FnMut() -> Result<Actor<HeldUp>, SubscriberError> + use<>,
    crossbeam_channel::Sender<()>,
    crossbeam_channel::Receiver<()>,
) {
    let (release, held) = crossbeam_channel::bounded::<()>(0);
    let (entered, enters) = crossbeam_channel::bounded::<()>(1);
    let seen = seen.clone();
    let make = move || {
        let (held, entered) = (held.clone(), entered.clone());
        let manner: HeldUp = Box::new(move |_| {
            entered.try_send(()).unwrap_or_default();
            held.recv().unwrap_or_default();
            Ok(())
        });
        Ok(Actor {
            seen: seen.clone(),
            manner,
        })
    };
    (make, release, enters)
}

type HeldUp = Box<dyn FnMut(&Delivery) -> Result<(), SubscriberError>>;

#[tokio::test]
async fn a_full_queue_loses_what_its_policy_says_and_tells_the_gap_where_it_is() {
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
        let seen = Seen::default();
        let (make, release, enters) = held_up(&seen);
        let filter = Filter::default().kinds([NoticeKind::Updated]);
        let options = every("slow", 2, overflow).filter(filter);
        let attached = within(bench.bus.attach(options, make)).await.unwrap();
        bench.put("demo://a", "1").await;
        enters.recv_timeout(PATIENCE).unwrap();
        for version in 2..=6 {
            bench.put("demo://a", &version.to_string()).await;
        }
        let behind = info(&bench, "slow");
        assert_eq!((behind.pending, behind.lost), (2, 3));
        drop(release);
        seen.until(&expected).await;
        assert!(attached.detach(PATIENCE).await);
    }
}

#[tokio::test]
async fn a_subscriber_of_the_latest_gets_the_newest_of_each_and_lists_once() {
    let bench = Bench::start();
    let seen = Seen::default();
    let (make, release, enters) = held_up(&seen);
    let filter = Filter::of(vec!["demo://*".parse().unwrap()]).unwrap();
    let options = AttachOptions::new("latest").filter(filter);
    let options = options.class(DeliveryClass::Latest { pending_max: 2 });
    let attached = within(bench.bus.attach(options, make)).await.unwrap();
    bench.put("demo://a", "1").await;
    enters.recv_timeout(PATIENCE).unwrap();
    bench.put("other://a", "1").await;
    for version in 2..=5 {
        bench.put("demo://a", &version.to_string()).await;
        bench.put("demo://b", &version.to_string()).await;
    }
    // A third resource finds both places taken.
    bench.put("demo://c", "1").await;
    assert_eq!(info(&bench, "latest").pending, 3);
    drop(release);
    let expected = [
        "demo://a v1 updated",
        "gap 1",
        "resources list",
        "demo://a v5 updated",
        "demo://b v4 updated",
    ];
    until("the newest of each", async || {
        seen.lines().len() == expected.len()
    })
    .await;
    let mut lines = seen.lines();
    assert_eq!(lines[0], expected[0]);
    let mut expected = expected;
    lines.sort();
    expected.sort_unstable();
    assert_eq!(lines, expected);
    // One that has been told makes room for the next.
    bench.put("demo://c", "2").await;
    until("the third resource", async || {
        seen.lines().contains(&"demo://c v2 updated".to_owned())
    })
    .await;
    assert!(attached.detach(PATIENCE).await);
    bench.sessions_are(0).await;
}

#[tokio::test]
async fn a_shutdown_hands_over_what_waits_and_leaves_a_hanging_subscriber_behind() {
    let bench = Bench::start();
    let (release, held) = crossbeam_channel::bounded::<()>(0);
    let seen = Seen::default();
    let _fine = within(bench.bus.attach(AttachOptions::new("fine"), actor(&seen)))
        .await
        .unwrap();
    let make = move || {
        let held = held.clone();
        let manner = move |_: &Delivery| {
            held.recv().unwrap_or_default();
            Ok(())
        };
        Ok(Actor {
            seen: Seen::default(),
            manner,
        })
    };
    let _hangs = within(bench.bus.attach(AttachOptions::new("hangs"), make))
        .await
        .unwrap();
    bench.put("demo://a", "1").await;
    within(bench.bus.shutdown(Duration::from_millis(300))).await;
    assert_eq!(seen.lines(), ["demo://a v1 updated", "resources list"]);
    drop(release);
}

#[tokio::test]
async fn a_trace_says_what_became_of_a_notice_for_whom_and_why_not() {
    let bench = Bench::start();
    let steps = Arc::new(Mutex::new(Vec::new()));
    let noted = steps.clone();
    let mut options =
        AttachOptions::new("debug").filter(Filter::of(vec!["demo://a".parse().unwrap()]).unwrap());
    options.trace = Some(1);
    let make = move || {
        let noted = noted.clone();
        Ok(Actor {
            seen: Seen::default(),
            manner: move |delivery: &Delivery| {
                if let Delivery::Trace(trace) = delivery {
                    noted.lock().unwrap().push(trace.clone());
                }
                Ok(())
            },
        })
    };
    bench.put("demo://a", "1").await;
    bench.put("demo://b", "1").await;
    let attached = within(bench.bus.attach(options, make)).await.unwrap();
    let mut client = bench.client().await;
    client.subscribe("demo://a").await;
    let id = client.session.id();
    bench.put("demo://a", "1").await;
    bench.put("demo://b", "2").await;
    bench.put("demo://a", "2").await;
    bench.put("demo://a", "3").await;
    client.told();
    bench.put("demo://a", "4").await;
    drop(client);
    bench.sessions_are(0).await;
    assert!(attached.detach(PATIENCE).await);
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
            .filter_map(|trace| trace.step.subscriber())
            .all(|who| who.id == id && &*who.label == "test")
    );
    assert!(matches!(
        traces[7].step,
        TraceStep::HandedOut { after: Some(_), .. }
    ));
}

#[tokio::test]
async fn deliveries_begin_right_after_the_position_of_the_attachment() {
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
            let noted = offsets.clone();
            let make = move || {
                let noted = noted.clone();
                let manner = move |delivery: &Delivery| {
                    if let Delivery::Notice(notice) = delivery {
                        noted.lock().unwrap().push(notice.position.offset);
                    }
                    Ok(())
                };
                Ok(Actor {
                    seen: Seen::default(),
                    manner,
                })
            };
            let options = AttachOptions::new(format!("number {number}"));
            let attachment = within(bench.bus.attach(options, make)).await.unwrap();
            attached.push((attachment, offsets));
        }
        attached
    };
    let ((), attached) = tokio::join!(publishing, attaching);
    bench.put("demo://a", "end").await;
    for (attachment, offsets) in attached {
        let begin = attachment.position().unwrap().offset;
        assert!(attachment.detach(PATIENCE).await);
        let offsets = offsets.lock().unwrap();
        let expected: Vec<u64> = (begin + 1..).take(offsets.len()).collect();
        assert!(
            !offsets.is_empty() && *offsets == expected,
            "after {begin}: {offsets:?}"
        );
    }
    let latest = AttachOptions::new("latest").class(DeliveryClass::Latest { pending_max: 1 });
    let latest = within(bench.bus.attach(latest, actor(&Seen::default())))
        .await
        .unwrap();
    assert_eq!(latest.position(), None);
    assert!(latest.detach(PATIENCE).await);
}
