//! Changes that are told in slices. The publisher is called without an actor, so that a test says when the
//! next slice is told.

use proptest::prelude::*;

use super::*;
use crate::model::{Digest, ListHash, ListKind, ListStart};

/// A publisher whose slices are of two subscribers, and what came out of it.
struct Scene {
    fixture: Fixture,
    publisher: Publisher,
    outboxes: Vec<Arc<Outbox>>,
    /// The offset of the last change.
    offset: u64,
}

impl Scene {
    fn of(subscribers: u64) -> Scene {
        let fixture = Fixture::without_shards();
        let mut publisher = fixture.publisher(0);
        publisher.slices.len = 2;
        let mut outboxes = Vec::new();
        for id in 0..subscribers {
            let outbox = fixture.outbox(id);
            publisher.attach(&outbox);
            outboxes.push(outbox);
        }
        Scene {
            fixture,
            publisher,
            outboxes,
            offset: 0,
        }
    }

    fn subscribe(&mut self, subscriber: usize, text: &str) {
        let (reply, _answer) = self.fixture.reply();
        let outbox = self.outboxes[subscriber].clone();
        outbox.begin_request();
        // As the Etag actor does.
        self.fixture.interest.raise(0, &uri(text));
        self.publisher.add_subscriptions(AddSubscriptions {
            outbox,
            accepted: vec![Ok(at_version(text, self.offset))],
            at: self.at(),
            rules: SubscriptionRules {
                max: 10,
                pending_max: 0,
                trusted: false,
            },
            reply,
        });
    }

    fn watch_tools(&mut self, subscriber: usize) {
        let (reply, _answer) = self.fixture.reply();
        let outbox = self.outboxes[subscriber].clone();
        outbox.begin_request();
        self.publisher.add_list_watches(AddListWatches {
            outbox,
            lists: vec![(ListKind::Tools, ListHash::EMPTY)],
            joined: None,
            start: ListStart::Known,
            at: self.at(),
            reply,
        });
    }

    fn at(&self) -> Position {
        Position {
            epoch: 1,
            offset: self.offset,
        }
    }

    /// Begins to tell a change. The answer has the number of those who were told.
    fn change(&mut self, text: &str) -> Answer<Result<Outcome, PublishError>> {
        self.offset += 1;
        let (fan_out, answer) = self.fixture.fan_out_of(text, self.offset);
        self.publisher.fan_out(fan_out);
        answer
    }
}

/// Returns the number of those who were told; none while some are not.
fn told(answer: &mut Answer<Result<Outcome, PublishError>>) -> Option<usize> {
    Some(answer.try_recv().ok()?.unwrap().notified)
}

#[test]
fn change_for_few_overtakes_one_for_many() {
    let mut scene = Scene::of(6);
    for subscriber in 0..6 {
        scene.subscribe(subscriber, "demo://many");
    }
    scene.subscribe(0, "demo://few");
    let mut many = scene.change("demo://many");
    let mut few = scene.change("demo://few");
    assert_eq!((told(&mut few), told(&mut many)), (Some(1), None));
    // The order of each subscriber is kept all the same.
    let both = [("demo://many".to_owned(), 1), ("demo://few".to_owned(), 2)];
    assert_eq!(drain(&scene.outboxes[0]), both);
    for left in [4, 2, 0] {
        assert_eq!(told(&mut many), None);
        scene.publisher.tell_slice();
        let waiting = scene
            .outboxes
            .iter()
            .filter(|outbox| outbox.with(|set| set.pending()) == 0);
        assert_eq!(waiting.count(), left.max(1), "the first one has nothing to take");
    }
    assert_eq!(told(&mut many), Some(6));
    assert_eq!(drain(&scene.outboxes[0]), []);
}

#[test]
fn subscriber_that_moves_is_told_first() {
    let mut scene = Scene::of(3);
    for subscriber in 0..3 {
        scene.subscribe(subscriber, "demo://many");
    }
    let mut many = scene.change("demo://many");
    let outbox = scene.outboxes[0].clone();
    let request = SubscriberRequest::HandOver;
    scene.publisher.serve(Route { outbox, request });
    assert_eq!(drain(&scene.outboxes[0]), [("demo://many".to_owned(), 1)]);
    scene.publisher.finish_slices();
    assert_eq!(told(&mut many), Some(3));
}

#[test]
fn list_is_told_in_slices_to_those_that_watch_it() {
    let mut scene = Scene::of(5);
    for subscriber in 0..4 {
        scene.watch_tools(subscriber);
    }
    scene.offset += 1;
    let (mut fan_out, answer) = scene.fixture.fan_out_of("demo://any", scene.offset);
    fan_out.notice = None;
    fan_out.list = Some((ListKind::Tools, ListHash::EMPTY.with(Digest(1)), scene.at()));
    scene.publisher.fan_out(fan_out);
    scene.publisher.tell_slice();
    assert_eq!(scene.fixture.metrics.notified.get(), 2);
    // One that comes in between knows the list as it is.
    scene.watch_tools(4);
    scene.publisher.tell_slice();
    assert_eq!(scene.fixture.metrics.notified.get(), 4);
    drop(answer);
}

#[test]
fn changes_beyond_the_limit_are_told_at_once() {
    let mut scene = Scene::of(3);
    for subscriber in 0..3 {
        scene.subscribe(subscriber, "demo://many");
    }
    let mut answers: Vec<_> = (0..17).map(|_| scene.change("demo://many")).collect();
    assert_eq!(told(&mut answers[0]), Some(3));
    assert_eq!(told(&mut answers[1]), None);
    scene.publisher.finish_slices();
    assert!(answers[1..].iter_mut().all(|answer| told(answer) == Some(3)));
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Subscribe(usize, usize),
    Change(usize),
    Slice,
    Drain(usize),
}

const URIS: [&str; 3] = ["demo://a", "demo://b", "demo://c"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (0..6usize, 0..3usize).prop_map(|(subscriber, uri)| Step::Subscribe(subscriber, uri)),
        3 => (0..3usize).prop_map(Step::Change),
        2 => Just(Step::Slice),
        2 => (0..6usize).prop_map(Step::Drain),
    ];
    prop::collection::vec(step, 0..60)
}

/// What the subscribers should have been told, and what they were.
#[derive(Default)]
struct Ledger {
    /// The resources that each subscribed to.
    subscribed: BTreeSet<(usize, usize)>,
    /// The changes that each was to be told of.
    due: BTreeSet<(usize, usize, u64)>,
    /// The newest version of each resource that each was told.
    told: HashMap<(usize, usize), u64>,
}

impl Ledger {
    fn change(&mut self, name: usize, version: u64) -> usize {
        let wanting = self.subscribed.iter().filter(|(_, other)| *other == name);
        let due: Vec<_> = wanting
            .map(|(subscriber, _)| (*subscriber, name, version))
            .collect();
        let count = due.len();
        self.due.extend(due);
        count
    }

    /// Drains an outbox. A subscriber that returns with its position must have been told all up to it.
    fn drain(&mut self, subscriber: usize, outbox: &Arc<Outbox>) -> Result<(), TestCaseError> {
        for (text, version) in drain(outbox) {
            let name = URIS.iter().position(|uri| *uri == text).unwrap();
            let before = self.told.insert((subscriber, name), version);
            prop_assert!(before < Some(version), "told twice");
        }
        let position = outbox.with(|set| set.safe_offset());
        self.assert_told(subscriber, position)
    }

    fn assert_told(&self, subscriber: usize, position: u64) -> Result<(), TestCaseError> {
        for (other, name, version) in &self.due {
            if *other == subscriber && *version <= position {
                let told = self.told.get(&(subscriber, *name)).copied();
                prop_assert!(told >= Some(*version), "{} after {position}", URIS[*name]);
            }
        }
        Ok(())
    }
}

proptest! {
    /// Every subscriber is told the newest state of its resources, has at each position what came before it,
    /// and every publisher is answered the number of those who subscribed by then.
    #[test]
    fn slices_tell_what_whole_changes_tell(steps in steps()) {
        let mut scene = Scene::of(6);
        let mut ledger = Ledger::default();
        let mut answers = Vec::new();
        for step in steps {
            match step {
                Step::Subscribe(subscriber, name) => {
                    scene.subscribe(subscriber, URIS[name]);
                    ledger.subscribed.insert((subscriber, name));
                }
                Step::Change(name) => {
                    let answer = scene.change(URIS[name]);
                    answers.push((answer, ledger.change(name, scene.offset)));
                }
                Step::Slice => scene.publisher.tell_slice(),
                Step::Drain(subscriber) => ledger.drain(subscriber, &scene.outboxes[subscriber])?,
            }
        }
        scene.publisher.finish_slices();
        for (subscriber, outbox) in scene.outboxes.iter().enumerate() {
            ledger.drain(subscriber, outbox)?;
            ledger.assert_told(subscriber, u64::MAX)?;
        }
        for (mut answer, wanting) in answers {
            prop_assert_eq!(told(&mut answer), Some(wanting));
        }
    }
}
