//! The source on a real file with a real watcher, and its document path against a model. What should happen
//! is waited for; what should not is shown by something written afterwards that did.

use super::*;
use crate::config::{Config, FilterConfig, Overrides, ViewConfig};
use futures_util::FutureExt;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tidings_actors::{
    CallbackError, Drained, Etag, OutboxEntry, OutboxReader, Resource, Session, SessionOptions,
    SubscriberKind,
};

const DEADLINE: Duration = Duration::from_secs(10);
const PAGES: [&str; 5] = ["/pricing", "/a b", "/", "é", "5"];

fn config(file: &Path) -> CollectionConfig {
    let open = FilterConfig {
        field: "status".to_owned(),
        equals: Some(json!("open")),
        ..FilterConfig::default()
    };
    CollectionConfig {
        name: "annotations".to_owned(),
        item: "annotation".to_owned(),
        file: file.to_owned(),
        pointer: String::new(),
        id: "id".to_owned(),
        title: None,
        views: vec![
            ViewConfig {
                name: "open".to_owned(),
                filter: Some(open),
                group_by: None,
            },
            ViewConfig {
                name: "page".to_owned(),
                filter: None,
                group_by: Some("pageUrl".to_owned()),
            },
        ],
    }
}

fn annotation(id: &str, status: &str, page: &str) -> Value {
    json!({ "id": id, "status": status, "pageUrl": page, "text": "" })
}

fn page(value: &str) -> String {
    format!("annotations://page/{}", naming::encode(value))
}

struct Fixture {
    dir: tempfile::TempDir,
    bus: Bus,
    workspace: WorkspaceConfig,
    source: Option<Collection>,
}

impl Fixture {
    fn new() -> Fixture {
        let workspace = WorkspaceConfig {
            debounce: Duration::from_millis(30),
            debounce_max: Duration::from_millis(300),
            // Only the tests that ask for one see a rescan.
            rescan: Duration::from_secs(3600),
            ..WorkspaceConfig::default()
        };
        Fixture {
            dir: tempfile::tempdir().unwrap(),
            bus: Bus::builder().start().unwrap(),
            workspace,
            source: None,
        }
    }

    async fn started(items: &Value) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.replace(items);
        fixture.start(true).await;
        fixture
    }

    async fn start(&mut self, watch: bool) {
        let config = config(&self.path());
        let source = Collection::start_with(self.bus.clone(), &config, &self.workspace, watch).await;
        self.source = Some(source.unwrap());
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("data/annotations.json")
    }

    /// Writes the file in place.
    fn write(&self, text: &str) {
        fs::create_dir_all(self.path().parent().unwrap()).unwrap();
        fs::write(self.path(), text).unwrap();
    }

    /// Replaces the file atomically.
    fn replace(&self, items: &Value) {
        let new = self.dir.path().join("new");
        fs::write(&new, items.to_string()).unwrap();
        fs::create_dir_all(self.path().parent().unwrap()).unwrap();
        fs::rename(new, self.path()).unwrap();
    }

    fn stats(&self) -> CollectionStats {
        self.source.as_ref().unwrap().stats()
    }

    async fn etag(&self, uri: &str) -> Etag {
        self.bus.etag(uri).await.unwrap()
    }

    async fn items(&self, uri: &str) -> Value {
        let read = self.bus.read(uri).await.unwrap();
        serde_json::from_str(read.body.as_text().unwrap()).unwrap()
    }

    async fn ids(&self, uri: &str) -> Vec<String> {
        let items = self.items(uri).await;
        items
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["id"].as_str().unwrap().to_owned())
            .collect()
    }

    async fn wait_ids(&self, uri: &str, ids: &[&str]) {
        self.wait(&format!("{uri} {ids:?}"), async || self.ids(uri).await == ids)
            .await;
    }

    async fn wait(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !holds().await {
            assert!(
                Instant::now() < deadline,
                "waited in vain for {what}: {:?}",
                self.stats()
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<Value, CallbackError> {
        let arguments: Map<String, Value> = arguments.as_object().unwrap().clone();
        let tool = self.bus.tool(tool).await.unwrap().unwrap();
        Ok(tool
            .call(arguments, crate::CallContext::default())
            .await?
            .structured
            .unwrap())
    }

    async fn refusal(&self, tool: &str, arguments: Value) -> String {
        self.call(tool, arguments).await.unwrap_err().to_string()
    }
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

/// The URIs that a subscriber is told of; waits for the first.
async fn told(reader: &mut OutboxReader) -> BTreeSet<String> {
    let mut entries = Vec::new();
    loop {
        let drained = tokio::time::timeout(DEADLINE, reader.drain(&mut entries)).await;
        assert!(!matches!(drained.expect("nothing was told"), Drained::Ended(_)));
        if !entries.is_empty() {
            return uris(&entries);
        }
    }
}

fn uris(entries: &[OutboxEntry]) -> BTreeSet<String> {
    let uri = |entry: &OutboxEntry| match entry {
        OutboxEntry::Updated(notice) => Some(notice.uri.to_string()),
        OutboxEntry::ListChanged(_) => None,
    };
    entries.iter().filter_map(uri).collect()
}

#[tokio::test]
async fn views_are_listed_with_titles_and_can_be_read_and_subscribed_to() {
    let fixture = Fixture::started(&json!([
        annotation("a", "open", "/pricing"),
        annotation("b", "resolved", "/pricing"),
        annotation("c", "open", "/a b"),
    ]))
    .await;
    let listed = fixture.bus.resources(None, 10).await.unwrap().items;
    let titles: Vec<_> = listed
        .iter()
        .map(|(resource, _)| {
            (
                resource.uri().as_str(),
                resource.descriptor().title.as_deref().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        titles,
        [
            ("annotations://all", "All annotations"),
            ("annotations://open", "Open annotations"),
            ("annotations://page/%2Fa%20b", "Annotations for /a b"),
            ("annotations://page/%2Fpricing", "Annotations for /pricing"),
        ]
    );
    let subscribable = |resource: &Resource| {
        let descriptor = resource.descriptor();
        descriptor.subscribable && descriptor.media_type.as_deref() == Some("application/json")
    };
    assert!(listed.iter().all(|(resource, _)| subscribable(resource)));
    assert_eq!(fixture.ids("annotations://open").await, ["a", "c"]);
    assert_eq!(fixture.ids(&page("/pricing")).await, ["a", "b"]);
    let templates = fixture.bus.templates().await.unwrap();
    assert_eq!(templates[0].uri_template().as_str(), "annotations://page/{value}");
    assert_eq!(templates[0].human_title(), Some("Annotations by page"));
    assert_eq!(fixture.items(&page("/none")).await, json!([]));
    assert!(
        fixture.bus.read("annotations://page/%2fpricing").await.is_err(),
        "another spelling"
    );
}

#[tokio::test]
async fn only_views_whose_content_changed_are_told() {
    let items = json!([annotation("a", "open", "/x"), annotation("b", "open", "/y")]);
    let fixture = Fixture::started(&items).await;
    let all = [
        "annotations://all".to_owned(),
        "annotations://open".to_owned(),
        page("/x"),
        page("/y"),
    ];
    let (_session, mut reader) = subscribe(&fixture.bus, &all).await;
    // The count stays.
    let mut edited = items.clone();
    edited[1]["text"] = json!("another");
    fixture.replace(&edited);
    let expected = |uris: &[&String]| uris.iter().map(|uri| (*uri).clone()).collect::<BTreeSet<_>>();
    let mut heard = BTreeSet::new();
    while heard.len() < 3 {
        heard.append(&mut told(&mut reader).await);
    }
    assert_eq!(heard, expected(&[&all[0], &all[1], &all[3]]));
    // The order changes in all and open; each page has the same item.
    fixture.replace(&json!([edited[1], edited[0]]));
    let mut heard = BTreeSet::new();
    while heard.len() < 2 {
        heard.append(&mut told(&mut reader).await);
    }
    assert_eq!(heard, expected(&[&all[0], &all[1]]));
    // The same in other words changes nothing.
    let documents = fixture.stats().documents;
    fixture.write(&serde_json::to_string_pretty(&json!([edited[1], edited[0]])).unwrap());
    fixture
        .wait("a document", async || fixture.stats().documents > documents)
        .await;
    assert!(reader.drain(&mut Vec::new()).now_or_never().is_none());
    assert_eq!(fixture.etag(&page("/x")).await.version, 1);
}

#[tokio::test]
async fn a_subscriber_of_a_value_without_items_is_told_of_the_first_and_of_the_last() {
    let fixture = Fixture::started(&json!([])).await;
    let uri = page("/new");
    let (_session, mut reader) = subscribe(&fixture.bus, std::slice::from_ref(&uri)).await;
    let before = fixture.etag(&uri).await;
    assert_eq!(fixture.items(&uri).await, json!([]));
    fixture.replace(&json!([annotation("a", "open", "/new")]));
    assert_eq!(told(&mut reader).await, BTreeSet::from([uri.clone()]));
    let first = fixture.etag(&uri).await;
    assert!(first.version > before.version, "{first} is not after {before}");
    assert_eq!(fixture.ids(&uri).await, ["a"]);
    fixture.replace(&json!([]));
    assert_eq!(told(&mut reader).await, BTreeSet::from([uri.clone()]));
    assert!(fixture.etag(&uri).await.version > first.version);
    assert_eq!(fixture.items(&uri).await, json!([]));
    assert_eq!(
        fixture.bus.resources(None, 10).await.unwrap().items.len(),
        2,
        "all and open"
    );
}

#[tokio::test]
async fn every_way_of_writing_is_seen() {
    let mut fixture = Fixture::new();
    fixture.start(true).await;
    let all = "annotations://all";
    assert_eq!(fixture.items(all).await, json!([]), "neither file nor folder");
    fixture.write(&json!([annotation("created", "open", "/")]).to_string());
    fixture.wait_ids(all, &["created"]).await;
    fixture.replace(&json!([annotation("replaced", "open", "/")]));
    fixture.wait_ids(all, &["replaced"]).await;
    fixture.write(&json!([annotation("in-place", "open", "/")]).to_string());
    fixture.wait_ids(all, &["in-place"]).await;
    fixture.write("");
    fixture.wait_ids(all, &[]).await;
    fixture.replace(&json!([annotation("back", "open", "/")]));
    fixture.wait_ids(all, &["back"]).await;
    fs::remove_file(fixture.path()).unwrap();
    fixture.wait_ids(all, &[]).await;
    fixture.replace(&json!([annotation("again", "open", "/")]));
    fixture.wait_ids(all, &["again"]).await;
    fs::remove_dir_all(fixture.path().parent().unwrap()).unwrap();
    fixture.wait_ids(all, &[]).await;
    fixture.replace(&json!([annotation("with its folder", "open", "/")]));
    fixture.wait_ids(all, &["with its folder"]).await;
    assert_eq!(fixture.stats().faults, 0);
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_that_is_turned_elsewhere_is_followed() {
    let mut fixture = Fixture::new();
    let dir = fixture.path().parent().unwrap().to_owned();
    fs::create_dir_all(dir.join("v1")).unwrap();
    fs::create_dir_all(dir.join("v2")).unwrap();
    fs::write(
        dir.join("v1/a.json"),
        json!([annotation("one", "open", "/")]).to_string(),
    )
    .unwrap();
    fs::write(
        dir.join("v2/a.json"),
        json!([annotation("two", "open", "/")]).to_string(),
    )
    .unwrap();
    std::os::unix::fs::symlink("v1", dir.join("now")).unwrap();
    std::os::unix::fs::symlink("now/a.json", fixture.path()).unwrap();
    fixture.start(true).await;
    assert_eq!(fixture.ids("annotations://all").await, ["one"]);
    std::os::unix::fs::symlink("v2", dir.join("next")).unwrap();
    fs::rename(dir.join("next"), dir.join("now")).unwrap();
    fixture.wait_ids("annotations://all", &["two"]).await;
}

/// What is logged on this thread while the guard lives.
fn log() -> (Arc<Mutex<Vec<u8>>>, tracing::subscriber::DefaultGuard) {
    #[derive(Clone)]
    struct Sink(Arc<Mutex<Vec<u8>>>);
    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let text = Arc::new(Mutex::new(Vec::new()));
    let sink = Sink(text.clone());
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || sink.clone())
        .finish();
    (text, tracing::subscriber::set_default(subscriber))
}

#[tokio::test]
async fn a_file_that_cannot_be_taken_keeps_the_last_state_and_is_reported_once() {
    let (text, _guard) = log();
    let fixture = Fixture::started(&json!([annotation("good", "open", "/")])).await;
    let etag = fixture.etag("annotations://all").await;
    for garbage in [
        "[{\"id\":",
        "{}",
        "[1]",
        "[{}]",
        "[{\"id\":1},{\"id\":1}]",
        "\u{0}",
    ] {
        let looks = fixture.stats().looks;
        fixture.write(garbage);
        // Looked at, doubted, and looked at again.
        fixture
            .wait(garbage, async || {
                fixture.stats().looks >= looks + 2 && fixture.stats().failing
            })
            .await;
        assert_eq!(fixture.etag("annotations://all").await, etag, "{garbage}");
    }
    assert_eq!(fixture.stats().faults, 1);
    fixture.replace(&json!([annotation("good", "open", "/")]));
    fixture.wait("recovery", async || !fixture.stats().failing).await;
    assert_eq!(
        fixture.etag("annotations://all").await,
        etag,
        "the same content as before"
    );
    fixture.replace(&json!([annotation("better", "open", "/")]));
    fixture.wait_ids("annotations://all", &["better"]).await;
    let text = String::from_utf8(text.lock().unwrap().clone()).unwrap();
    assert_eq!(text.matches("cannot be taken").count(), 1, "{text}");
    assert_eq!(text.matches("can be read again").count(), 1, "{text}");
    assert!(text.contains("not JSON: EOF"), "{text}");
}

#[tokio::test]
async fn limits_are_faults() {
    let mut fixture = Fixture::new();
    (
        fixture.workspace.collection_items_max,
        fixture.workspace.collection_bytes_max,
    ) = (2, 4096);
    fixture.replace(&json!([annotation("a", "open", "/")]));
    fixture.start(true).await;
    let many: Vec<_> = ["a", "b", "c"].map(|id| annotation(id, "open", "/")).into();
    fixture.replace(&json!(many));
    fixture.wait("a fault", async || fixture.stats().failing).await;
    assert_eq!(fixture.ids("annotations://all").await, ["a"]);
    fixture.replace(&json!(many[..2]));
    fixture.wait("recovery", async || !fixture.stats().failing).await;
    assert_eq!(fixture.ids("annotations://all").await, ["a", "b"]);
    fixture.write(&" ".repeat(5000));
    fixture.wait("a fault", async || fixture.stats().failing).await;
    assert_eq!((fixture.stats().faults, fixture.stats().items), (2, 2));
}

#[tokio::test]
async fn a_flood_of_writes_costs_few_looks_and_its_end_is_seen() {
    let fixture = Fixture::started(&json!([])).await;
    let (path, new) = (fixture.path(), fixture.dir.path().join("flood"));
    let flood = tokio::task::spawn_blocking(move || {
        let begin = Instant::now();
        for n in 0..1_000_u64 {
            fs::write(&new, json!([annotation(&n.to_string(), "open", "/")]).to_string()).unwrap();
            fs::rename(&new, &path).unwrap();
            // A thousand a second, spread evenly.
            let due = begin + Duration::from_millis(n);
            std::thread::park_timeout(due.saturating_duration_since(Instant::now()));
        }
        begin.elapsed()
    });
    let took = flood.await.unwrap();
    fixture.wait_ids("annotations://all", &["999"]).await;
    let looks = fixture.stats().looks;
    let most = took.as_millis() as u64 / 30 + 5;
    assert!(looks <= most, "{looks} looks in {took:?}");
}

#[tokio::test]
async fn without_a_watcher_the_rescan_finds_changes_and_repairs() {
    let mut fixture = Fixture::new();
    fixture.workspace.rescan = Duration::from_millis(20);
    fixture.replace(&json!([annotation("a", "open", "/")]));
    fixture.start(false).await;
    fixture.replace(&json!([annotation("b", "open", "/")]));
    fixture.wait_ids("annotations://all", &["b"]).await;
    fixture
        .bus
        .upsert(Resource::text("annotations://open", "[]").unwrap())
        .await
        .unwrap();
    fixture.bus.remove("annotations://all").await.unwrap();
    fixture
        .wait("repair", async || {
            fixture.bus.read("annotations://all").await.is_ok()
        })
        .await;
    fixture.wait_ids("annotations://open", &["b"]).await;
    let before = fixture.bus.stats().await.unwrap().changes;
    let rescans = fixture.stats().rescans;
    fixture
        .wait("more rescans", async || fixture.stats().rescans > rescans + 20)
        .await;
    assert_eq!(
        fixture.bus.stats().await.unwrap().changes,
        before,
        "looking is no change"
    );
}

#[tokio::test]
async fn tools_list_pages_and_get_items() {
    let items: Vec<_> = (0..120)
        .map(|n| {
            annotation(
                &format!("n{n}"),
                if n % 2 == 0 { "open" } else { "resolved" },
                PAGES[n % 5],
            )
        })
        .collect();
    let fixture = Fixture::started(&json!(items)).await;
    let first = fixture.call("list_annotations", json!({})).await.unwrap();
    assert_eq!(
        (first["total"].as_u64(), first["items"].as_array().unwrap().len()),
        (Some(120), 50)
    );
    assert_eq!(
        first["etag_encoded"],
        json!(fixture.etag("annotations://all").await.to_string())
    );
    let mut seen = first["items"].as_array().unwrap().clone();
    let mut cursor = first["next_cursor"].clone();
    while !cursor.is_null() {
        let arguments = json!({ "cursor": cursor, "limit": 30, "view": null });
        let next = fixture.call("list_annotations", arguments).await.unwrap();
        seen.extend(next["items"].as_array().unwrap().iter().cloned());
        cursor = next["next_cursor"].clone();
    }
    assert_eq!(seen, items);
    let open = fixture
        .call("list_annotations", json!({ "view": "open", "limit": 200 }))
        .await
        .unwrap();
    assert_eq!(open["total"], 60);
    let of_page = json!({ "view": "page", "value": 5 });
    let of_page = fixture.call("list_annotations", of_page).await.unwrap();
    assert_eq!(
        (&of_page["total"], &of_page["uri"]),
        (&json!(24), &json!(page("5")))
    );
    let none = fixture
        .call("list_annotations", json!({ "view": "page", "value": "none" }))
        .await
        .unwrap();
    assert_eq!((&none["total"], &none["items"]), (&json!(0), &json!([])));

    // What comes before the cursor's item moves; the next page does not.
    let cursor = first["next_cursor"].clone();
    fixture.replace(&json!(items[40..]));
    fixture.wait("fewer", async || fixture.stats().items == 80).await;
    let next = fixture
        .call("list_annotations", json!({ "cursor": cursor, "limit": 1 }))
        .await
        .unwrap();
    assert_eq!(next["items"][0]["id"], "n50");

    let item = fixture
        .call("get_annotation", json!({ "id": "n77" }))
        .await
        .unwrap();
    assert_eq!(item["item"], items[77]);
    assert_eq!(
        item["etag_encoded"],
        json!(fixture.etag("annotations://all").await.to_string())
    );
    assert_eq!(
        fixture.refusal("get_annotation", json!({ "id": "n3" })).await,
        "Annotation not found: n3"
    );
}

#[tokio::test]
async fn wrong_arguments_are_tool_errors_that_say_what_is_right() {
    let fixture = Fixture::started(&json!([annotation("a", "open", "/")])).await;
    for (arguments, says) in [
        (
            json!({ "view": "closed" }),
            "there is no view \"closed\": the views are all, open, page",
        ),
        (
            json!({ "view": "page" }),
            "view page needs a value: which pageUrl?",
        ),
        (
            json!({ "view": "open", "value": "/" }),
            "view open takes no value",
        ),
        (json!({ "value": "/" }), "view all takes no value"),
        (
            json!({ "view": "page", "value": ["/"] }),
            "value is no text, number, true or false",
        ),
        (json!({ "limit": 0 }), "limit is 0: give 1 to 200"),
        (json!({ "limit": 201 }), "limit is 201: give 1 to 200"),
        (json!({ "limit": "x" }), "invalid arguments: "),
        (json!({ "pages": 1 }), "invalid arguments: unknown field `pages`"),
        (
            json!({ "cursor": "x" }),
            "cursor was not handed out for this view",
        ),
    ] {
        let refusal = fixture.refusal("list_annotations", arguments).await;
        assert!(refusal.starts_with(says), "{refusal}");
    }
    assert!(
        fixture
            .refusal("get_annotation", json!({}))
            .await
            .contains("missing field `id`")
    );
    assert_eq!(
        fixture.refusal("get_annotation", json!({ "id": 1.5 })).await,
        "id is no text or whole number"
    );
    let tools = fixture.bus.tools(None, 10).await.unwrap().items;
    let schema = tools
        .iter()
        .find(|tool| tool.name() == "list_annotations")
        .unwrap()
        .item();
    let properties = &schema["inputSchema"]["properties"];
    assert_eq!(properties["view"]["enum"], json!(["all", "open", "page"]));
    assert_eq!(
        properties["value"]["description"],
        "Which value of pageUrl (view page)"
    );
}

#[tokio::test]
async fn a_tool_of_somebody_else_is_not_replaced() {
    let fixture = Fixture::started(&json!([])).await;
    let again = Collection::start(fixture.bus.clone(), &config(&fixture.path()), &fixture.workspace).await;
    let error = again.unwrap_err();
    assert!(
        matches!(&error, CollectionError::ToolTaken { tool } if tool == "list_annotations"),
        "{error}"
    );
}

#[tokio::test]
async fn stopping_leaves_what_was_registered() {
    let mut fixture = Fixture::started(&json!([annotation("a", "open", "/")])).await;
    fixture.source.take().unwrap().stop().await;
    assert_eq!(fixture.ids("annotations://all").await, ["a"]);
}

/// The page of the documentation has the configuration of the example, and both work.
#[tokio::test]
async fn the_example_is_served_as_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let example = root.join("examples/annotations/tidings.toml");
    let text = fs::read_to_string(&example).unwrap();
    let (_, tables) = text.split_once("\n\n").unwrap();
    let story = fs::read_to_string(root.join("collections.md")).unwrap();
    assert!(story.contains(&format!("```toml\n{tables}```")), "{tables}");
    let config = Config::load(Some(&example), std::iter::empty(), &Overrides::default()).unwrap();
    let bus = Bus::builder().start().unwrap();
    let source = Collection::start_with(bus.clone(), &config.collection[0], &config.workspace, false).await;
    assert_eq!(source.unwrap().stats().items, 3);
    for (resource, etag) in bus.resources(None, 10).await.unwrap().items {
        let title = resource.descriptor().title.as_deref().unwrap();
        assert!(
            story.contains(&format!("| `{}` | {title} |", resource.uri())),
            "{title}"
        );
        assert_eq!(etag.version, 1);
    }
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

/// The items as somebody who edits them sees them.
#[derive(Default)]
struct Model {
    items: Vec<Value>,
    next: u64,
}

impl Model {
    /// Edits the items; answers the text of the file, which is garbage now and then.
    fn edit(&mut self, dice: &mut Dice) -> String {
        let place = if self.items.is_empty() {
            0
        } else {
            dice.roll(self.items.len())
        };
        match (dice.roll(8), self.items.is_empty()) {
            (0 | 1, _) | (_, true) => {
                self.next += 1;
                let page = PAGES[dice.roll(PAGES.len())];
                self.items
                    .push(annotation(&format!("n{}", self.next), "open", page));
            }
            (2, _) => self.items[place]["status"] = json!("resolved"),
            (3, _) => self.items[place]["text"] = json!(format!("text {}", dice.roll(3))),
            (4, _) => drop(self.items.remove(place)),
            (5, _) => {
                let other = dice.roll(self.items.len());
                self.items.swap(place, other);
            }
            (6, _) => self.items[place]["pageUrl"] = json!(PAGES[dice.roll(PAGES.len())]),
            _ => {
                let text = json!(self.items).to_string();
                let cut = dice.roll(text.len() - 1) + 1;
                let cut = (0..=cut).rev().find(|at| text.is_char_boundary(*at));
                return text[..cut.unwrap_or(0).max(1)].to_owned();
            }
        }
        json!(self.items).to_string()
    }

    /// What each URI should show.
    fn views(&self) -> BTreeMap<String, Vec<Value>> {
        let those =
            |holds: &dyn Fn(&Value) -> bool| self.items.iter().filter(|item| holds(item)).cloned().collect();
        let mut views = BTreeMap::from([
            ("annotations://all".to_owned(), those(&|_| true)),
            (
                "annotations://open".to_owned(),
                those(&|item| item["status"] == "open"),
            ),
        ]);
        for value in PAGES {
            views.insert(page(value), those(&|item| item["pageUrl"] == value));
        }
        views
    }
}

/// A thousand edits, each handed over as a document: exactly the views that differ move, and exactly their
/// subscribers are told.
#[tokio::test]
async fn exactly_the_views_that_changed_move_their_etag() {
    let bus = Bus::builder().start().unwrap();
    let spec = Arc::new(CollectionSpec::new(&config(Path::new("none")), 10_000, 1 << 20));
    let mut publisher = ViewPublisher::new(bus.clone(), spec.clone(), ItemPositions::default());
    add_templates(&bus, &spec).await.unwrap();
    publisher.publish(spec.build(b"").unwrap()).await.unwrap();
    let (mut model, mut dice) = (Model::default(), Dice(0x9e37_79b9_7f4a_7c15));
    let all: Vec<String> = model.views().into_keys().collect();
    let uris_of_all: Vec<_> = all.iter().map(|uri| ResourceUri::new(uri).unwrap()).collect();
    let (_session, mut reader) = subscribe(&bus, &all).await;
    let (mut shown, mut etags) = (model.views(), bus.etags(uris_of_all.clone()).await.unwrap());
    let (mut garbage, mut moves) = (0, 0);
    for step in 0..1_000 {
        let text = model.edit(&mut dice);
        let Ok(built) = spec.build(text.as_bytes()) else {
            garbage += 1;
            continue;
        };
        let views = model.views();
        let changed = publisher.publish(built).await.unwrap();
        let differ: BTreeSet<_> = all
            .iter()
            .filter(|uri| views[*uri] != shown[*uri])
            .cloned()
            .collect();
        let now = bus.etags(uris_of_all.clone()).await.unwrap();
        let moved: BTreeSet<_> = all
            .iter()
            .zip(now.iter().zip(&etags))
            .filter(|(_, (a, b))| a != b)
            .map(|(uri, _)| uri.clone())
            .collect();
        assert_eq!(moved, differ, "step {step}");
        assert_eq!(changed, differ.len(), "step {step}");
        let mut entries = Vec::new();
        let drained = reader.drain(&mut entries).now_or_never();
        assert_eq!(uris(&entries), differ, "step {step}: {drained:?}");
        for uri in &differ {
            let read = bus.read(uri.as_str()).await.unwrap();
            assert_eq!(
                serde_json::from_str::<Value>(read.body.as_text().unwrap()).unwrap(),
                json!(views[uri])
            );
        }
        moves += moved.len();
        (shown, etags) = (views, now);
    }
    assert!(garbage > 50 && moves > 1_000, "{garbage} {moves}");
}

/// Replaces the file by each line of its input, and says when.
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
async fn edits_of_another_process_are_told_within_half_a_second() {
    let mut fixture = Fixture::new();
    // As configured by default.
    (fixture.workspace.debounce, fixture.workspace.debounce_max) =
        (Duration::from_millis(100), Duration::from_secs(1));
    fixture.replace(&json!([]));
    fixture.start(true).await;
    let (mut model, mut dice) = (Model::default(), Dice(42));
    let all: Vec<String> = model.views().into_keys().collect();
    let (_session, mut reader) = subscribe(&fixture.bus, &all).await;
    let mut python = Command::new("python3");
    python
        .arg("-c")
        .arg(WRITER)
        .arg(fixture.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut writer = python.spawn().expect("python3 is there");
    let (mut input, mut output) = (
        writer.stdin.take().unwrap(),
        BufReader::new(writer.stdout.take().unwrap()),
    );
    let mut waits = Vec::new();
    while waits.len() < 100 {
        let shown = model.views();
        let text = model.edit(&mut dice);
        let views = model.views();
        let differ: BTreeSet<_> = all
            .iter()
            .filter(|uri| views[*uri] != shown[*uri])
            .cloned()
            .collect();
        if differ.is_empty() {
            continue;
        }
        writeln!(input, "{text}").unwrap();
        let mut at = String::new();
        output.read_line(&mut at).unwrap();
        let written = UNIX_EPOCH + Duration::from_nanos(at.trim().parse().unwrap());
        let mut heard = BTreeSet::new();
        while heard.len() < differ.len() {
            heard.append(&mut told(&mut reader).await);
        }
        waits.push(SystemTime::now().duration_since(written).unwrap());
        assert_eq!(heard, differ);
        for uri in &differ {
            assert_eq!(fixture.items(uri).await, json!(views[uri]));
        }
    }
    drop(input);
    writer.wait().unwrap();
    waits.sort();
    let (half, nearly, most) = (waits[50], waits[90], waits[99]);
    println!("from the write to the last notice: p50 {half:?}, max {most:?}");
    // Not all of them, since other programs may hold up any one on a busy machine.
    assert!(
        nearly < Duration::from_millis(500),
        "p50 {half:?}, p90 {nearly:?}, max {most:?}"
    );
}
