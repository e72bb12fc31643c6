//! Sequences of edits against a model, and rescans without the file watcher. `tests/it/source` has the other
//! tests.

use super::document::annotations_config;
use super::*;
use futures_util::FutureExt;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tidings_actors::{
    Drained, OutboxEntry, OutboxReader, Owner, Resource, Session, SessionOptions, SubscriberKind,
};

const DEADLINE: Duration = Duration::from_secs(10);
const PAGES: [&str; 5] = ["/pricing", "/a b", "/", "é", "5"];
/// Edits by another process. Each takes the quiet time of the watcher.
const PROCESS_EDITS: usize = 40;

/// Replaces a file by a new one.
fn replace(path: &Path, items: &Value) {
    let new = path.with_extension("new");
    fs::write(&new, items.to_string()).unwrap();
    fs::rename(new, path).unwrap();
}

async fn items(bus: &Bus, uri: &str) -> Value {
    let read = bus.read(uri).await.unwrap();
    serde_json::from_str(read.body.as_text().unwrap()).unwrap()
}

async fn wait(expected: &str, holds: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds().await {
        assert!(Instant::now() < deadline, "waited in vain for {expected}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn annotation(id: &str, status: &str, page: &str) -> Value {
    json!({ "id": id, "status": status, "pageUrl": page, "text": "" })
}

fn page(value: &str) -> String {
    format!("annotations://page/{}", naming::encode(value))
}

async fn subscribe(bus: &Bus, uris: &[String]) -> (Session, OutboxReader) {
    let session = bus
        .open(SessionOptions::new(SubscriberKind::Session, "test"))
        .await
        .unwrap();
    let reader = session.reader();
    let uris = uris.iter().map(|uri| ResourceUri::new(uri).unwrap()).collect();
    for answer in session.subscribe(uris).await.unwrap() {
        answer.unwrap();
    }
    (session, reader)
}

/// Waits for notifications, and returns their URIs.
async fn notified(reader: &mut OutboxReader) -> BTreeSet<String> {
    let mut entries = Vec::new();
    loop {
        let drained = tokio::time::timeout(DEADLINE, reader.drain(&mut entries)).await;
        assert!(!matches!(
            drained.expect("nothing was notified"),
            Drained::Ended(_)
        ));
        if !entries.is_empty() {
            return uris_of(&entries);
        }
    }
}

fn uris_of(entries: &[OutboxEntry]) -> BTreeSet<String> {
    let mut uris = BTreeSet::new();
    for entry in entries {
        if let OutboxEntry::Updated(notice) = entry {
            uris.insert(notice.uri.to_string());
        }
    }
    uris
}

/// Small numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % sides
    }
}

/// The views by URI.
type ModelViews = BTreeMap<String, Vec<Value>>;

/// The items as their editor sees them.
#[derive(Default)]
struct Model {
    items: Vec<Value>,
    next: u64,
}

impl Model {
    /// Edits the items, and returns the text of the file, which is invalid now and then.
    fn edit(&mut self, dice: &mut Dice) -> String {
        if self.items.is_empty() {
            self.add(dice);
            return json!(self.items).to_string();
        }
        let position = dice.roll(self.items.len());
        match dice.roll(8) {
            0 | 1 => self.add(dice),
            2 => self.items[position]["status"] = json!("resolved"),
            3 => self.items[position]["text"] = json!(format!("text {}", dice.roll(3))),
            4 => {
                self.items.remove(position);
            }
            5 => {
                let other = dice.roll(self.items.len());
                self.items.swap(position, other);
            }
            6 => self.items[position]["pageUrl"] = json!(PAGES[dice.roll(PAGES.len())]),
            _ => {
                // As if the writer had been interrupted.
                let text = json!(self.items).to_string();
                let mut end = dice.roll(text.len() - 1) + 1;
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                return text[..end].to_owned();
            }
        }
        json!(self.items).to_string()
    }

    fn add(&mut self, dice: &mut Dice) {
        self.next += 1;
        let page = PAGES[dice.roll(PAGES.len())];
        let item = annotation(&format!("n{}", self.next), "open", page);
        self.items.push(item);
    }

    /// Returns the content that each URI should have.
    fn views(&self) -> ModelViews {
        let mut views = BTreeMap::from([
            ("annotations://all".to_owned(), self.items.clone()),
            ("annotations://open".to_owned(), self.having("status", "open")),
        ]);
        for value in PAGES {
            views.insert(page(value), self.having("pageUrl", value));
        }
        views
    }

    fn having(&self, field: &str, value: &str) -> Vec<Value> {
        let mut items = self.items.clone();
        items.retain(|item| item[field] == value);
        items
    }
}

/// Returns the URIs whose views differ.
fn difference(before: &ModelViews, after: &ModelViews) -> BTreeSet<String> {
    let mut uris: BTreeSet<_> = after.keys().cloned().collect();
    uris.retain(|uri| before[uri] != after[uri]);
    uris
}

/// A thousand edits, each handed over as a document: exactly the views that differ get a new etag, and
/// exactly their subscribers are notified.
#[tokio::test]
async fn only_changed_views_get_a_new_etag() {
    let bus = Bus::builder().start().unwrap();
    let config = annotations_config("none".into());
    let spec = Arc::new(CollectionSpec::new(&config, 10_000, 1 << 20));
    let mut publisher = ViewPublisher::new(
        bus.clone(),
        spec.clone(),
        ItemPositions::default(),
        SourceTurn::default(),
    );
    add_templates(&bus, &spec).await.unwrap();
    publisher.publish(spec.build(b"").unwrap()).await.unwrap();
    let mut model = Model::default();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut shown = model.views();
    let uris: Vec<String> = shown.keys().cloned().collect();
    let (_session, mut reader) = subscribe(&bus, &uris).await;
    let mut invalid = 0;
    let mut changes = 0;
    for step in 0..1_000 {
        let text = model.edit(&mut dice);
        let Ok(views) = spec.build(text.as_bytes()) else {
            invalid += 1;
            continue;
        };
        let mut before = BTreeMap::new();
        for uri in &uris {
            before.insert(uri, bus.etag(uri.as_str()).await.unwrap());
        }
        let changed = publisher.publish(views).await.unwrap();
        let expected = model.views();
        let differ = difference(&shown, &expected);
        assert_eq!(changed, differ.len(), "step {step}");
        for uri in &uris {
            let is_new = bus.etag(uri.as_str()).await.unwrap() != before[uri];
            assert_eq!(is_new, differ.contains(uri), "step {step}: {uri}");
        }
        let mut entries = Vec::new();
        let drained = reader.drain(&mut entries).now_or_never();
        assert_eq!(uris_of(&entries), differ, "step {step}: {drained:?}");
        for uri in &differ {
            assert_eq!(items(&bus, uri).await, json!(expected[uri]));
        }
        changes += differ.len();
        shown = expected;
    }
    assert!(invalid > 50 && changes > 1_000, "{invalid} {changes}");
}

/// Replaces a file by each line of its input, and prints the time of each replacement.
const WRITER: &str = "
import os, sys, time
path = sys.argv[1]
for line in sys.stdin:
    with open(path + '.new', 'w') as new:
        new.write(line)
    os.rename(path + '.new', path)
    print(time.time_ns(), flush=True)
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_are_notified_within_half_a_second() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("annotations.json");
    replace(&path, &json!([]));
    let bus = Bus::builder().start().unwrap();
    // With the default debounce.
    let config = annotations_config(path.clone());
    let source = Collection::start(bus.clone(), &config, &WorkspaceConfig::default()).await;
    let source = source.unwrap();
    let mut model = Model::default();
    let mut dice = Dice(42);
    let uris: Vec<String> = model.views().into_keys().collect();
    let (_session, mut reader) = subscribe(&bus, &uris).await;
    let mut writer = Command::new("python3")
        .args(["-c", WRITER])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is there");
    let mut input = writer.stdin.take().unwrap();
    let mut output = BufReader::new(writer.stdout.take().unwrap());
    let mut waits = Vec::new();
    while waits.len() < PROCESS_EDITS {
        let before = model.views();
        let text = model.edit(&mut dice);
        let after = model.views();
        let differ = difference(&before, &after);
        // An invalid text, or an edit without effect.
        if differ.is_empty() {
            continue;
        }
        writeln!(input, "{text}").unwrap();
        let mut printed = String::new();
        output.read_line(&mut printed).unwrap();
        let written = UNIX_EPOCH + Duration::from_nanos(printed.trim().parse().unwrap());
        let mut heard = BTreeSet::new();
        while heard.len() < differ.len() {
            heard.append(&mut notified(&mut reader).await);
        }
        waits.push(SystemTime::now().duration_since(written).unwrap());
        assert_eq!(heard, differ);
        for uri in &differ {
            assert_eq!(items(&bus, uri).await, json!(after[uri]));
        }
    }
    drop(input);
    writer.wait().unwrap();
    source.stop().await;
    waits.sort();
    // Not the slowest tenth, since other programs may hold up any edit on a busy machine.
    let slow = waits[PROCESS_EDITS * 9 / 10];
    assert!(slow < Duration::from_millis(500), "{waits:?}");
}

#[tokio::test]
async fn rescan_without_a_watcher_finds_and_repairs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("annotations.json");
    replace(&path, &json!([annotation("a", "open", "/")]));
    let bus = Bus::builder().start().unwrap();
    let workspace = WorkspaceConfig {
        debounce: Duration::from_millis(30),
        rescan: Duration::from_millis(20),
        ..WorkspaceConfig::default()
    };
    let config = annotations_config(path.clone());
    let source = Collection::start_with(bus.clone(), &config, &workspace, SourceTurn::default(), false).await;
    let source = source.unwrap();
    // A change of the file is found.
    replace(&path, &json!([annotation("b", "open", "/")]));
    wait("the edit", async || {
        items(&bus, "annotations://all").await[0]["id"] == "b"
    })
    .await;
    // Changes by others who write as this owner are repaired.
    let other = Resource::text("annotations://open", "[]").unwrap();
    let owned = bus.owned_by(Owner::Collection("annotations".into()));
    owned.upsert(other).await.unwrap();
    owned.remove("annotations://all").await.unwrap();
    wait("the repair", async || bus.read("annotations://all").await.is_ok()).await;
    wait("the items", async || {
        items(&bus, "annotations://open").await[0]["id"] == "b"
    })
    .await;
    // Rescans of an unchanged file change nothing.
    let before = bus.stats().await.unwrap().changes;
    let rescans = source.stats().rescans;
    wait("more rescans", async || source.stats().rescans > rescans + 20).await;
    assert_eq!(bus.stats().await.unwrap().changes, before);
}

#[tokio::test]
async fn one_of_two_nodes_publishes_the_collection() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("annotations.json");
    replace(
        &path,
        &json!([annotation("a", "open", "/"), annotation("b", "open", "/gone")]),
    );
    let bus = Bus::builder().start().unwrap();
    let owned = bus.owned_by(Owner::Collection("annotations".into()));
    // What the other node published.
    for uri in ["annotations://all", "annotations://page/%2Fgone"] {
        owned.upsert(Resource::text(uri, "[]").unwrap()).await.unwrap();
    }
    let workspace = WorkspaceConfig {
        debounce: Duration::from_millis(30),
        rescan: Duration::from_millis(20),
        ..WorkspaceConfig::default()
    };
    let config = annotations_config(path.clone());
    let (told, turns) = tokio::sync::watch::channel(None);
    let turn = SourceTurn::until(turns);
    let source = Collection::start_with(bus.clone(), &config, &workspace, turn, false)
        .await
        .unwrap();
    replace(&path, &json!([annotation("c", "open", "/")]));
    let scans = source.stats().scans;
    wait("more scans", async || source.stats().scans > scans + 2).await;
    assert_eq!(items(&bus, "annotations://all").await, json!([]));
    told.send_replace(Some(std::time::Instant::now() + Duration::from_secs(3_600)));
    wait("the items", async || {
        items(&bus, "annotations://all").await[0]["id"] == "c"
    })
    .await;
    wait("the end of a view", async || {
        bus.resources_by_change()
            .unwrap()
            .iter()
            .all(|(resource, _)| resource.uri().as_str() != "annotations://page/%2Fgone")
    })
    .await;
}
