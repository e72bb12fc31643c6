//! A JSON file that is served as a collection.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use tidings::config::{CollectionConfig, Config, FilterConfig, Overrides, ViewConfig, WorkspaceConfig};
use tidings::source::collection::{Collection, CollectionError, CollectionStats};
use tidings::{Bus, CallContext, CallbackError, Etag};

use crate::support::{Client, options, until};

const ALL: &str = "annotations://all";
const OPEN: &str = "annotations://open";
const PAGES: [&str; 5] = ["/pricing", "/a b", "/", "é", "5"];

/// The file, its configuration, and the source that serves it.
struct ServedFile {
    dir: tempfile::TempDir,
    bus: Bus,
    workspace: WorkspaceConfig,
    source: Option<Collection>,
}

impl ServedFile {
    fn new() -> ServedFile {
        let workspace = WorkspaceConfig {
            debounce: Duration::from_millis(30),
            debounce_max: Duration::from_millis(300),
            // Every change must be found by its event.
            rescan: Duration::from_secs(3600),
            ..WorkspaceConfig::default()
        };
        ServedFile {
            dir: tempfile::tempdir().unwrap(),
            bus: Bus::builder().start().unwrap(),
            workspace,
            source: None,
        }
    }

    async fn started(items: &Value) -> ServedFile {
        let mut file = ServedFile::new();
        file.replace(items);
        file.start().await;
        file
    }

    async fn start(&mut self) {
        let config = config(&self.path());
        let source = Collection::start(self.bus.clone(), &config, &self.workspace).await;
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
        until(&format!("{uri} {ids:?}"), async || self.ids(uri).await == ids).await;
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<Value, CallbackError> {
        let arguments: Map<String, Value> = arguments.as_object().unwrap().clone();
        let tool = self.bus.tool(tool).await.unwrap().unwrap();
        Ok(tool
            .call(arguments, CallContext::default())
            .await?
            .structured
            .unwrap())
    }

    async fn refusal(&self, tool: &str, arguments: Value) -> String {
        self.call(tool, arguments).await.unwrap_err().to_string()
    }
}

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
    format!(
        "annotations://page/{}",
        utf8_percent_encode(value, NON_ALPHANUMERIC)
    )
}

#[tokio::test]
async fn views_are_listed_with_titles() {
    let file = ServedFile::started(&json!([
        annotation("a", "open", "/pricing"),
        annotation("b", "resolved", "/pricing"),
        annotation("c", "open", "/a b"),
    ]))
    .await;
    let listed = file.bus.resources(None, 10).await.unwrap().items;
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
            (ALL, "All annotations"),
            ("annotations://open", "Open annotations"),
            ("annotations://page/%2Fa%20b", "Annotations for /a b"),
            ("annotations://page/%2Fpricing", "Annotations for /pricing"),
        ]
    );
    for (resource, _) in &listed {
        let descriptor = resource.descriptor();
        assert!(descriptor.subscribable);
        assert_eq!(descriptor.media_type.as_deref(), Some("application/json"));
    }
    assert_eq!(file.ids(OPEN).await, ["a", "c"]);
    assert_eq!(file.ids(&page("/pricing")).await, ["a", "b"]);
    let templates = file.bus.templates().await.unwrap();
    assert_eq!(templates[0].uri_template().as_str(), "annotations://page/{value}");
    assert_eq!(templates[0].human_title(), Some("Annotations by page"));
    assert_eq!(file.items(&page("/none")).await, json!([]));
    assert!(
        file.bus.read("annotations://page/%2fpricing").await.is_err(),
        "another spelling"
    );
}

#[tokio::test]
async fn only_changed_views_are_notified() {
    let items = json!([annotation("a", "open", "/x"), annotation("b", "open", "/y")]);
    let file = ServedFile::started(&items).await;
    let mut client = Client::of(file.bus.open(options()).await.unwrap());
    for uri in [ALL, OPEN, &page("/x"), &page("/y")] {
        client.subscribe(uri).await;
    }
    // An edit of the second item, which leaves the numbers of items as they are.
    let mut edited = items.clone();
    edited[1]["text"] = json!("another");
    file.replace(&edited);
    for uri in [ALL, OPEN, &page("/y")] {
        client.until_received(uri, 2).await;
    }
    // Another order changes the views with both items only.
    file.replace(&json!([edited[1], edited[0]]));
    for uri in [ALL, OPEN] {
        client.until_received(uri, 3).await;
    }
    // The same items with other white space are no change.
    let documents = file.stats().documents;
    file.write(&serde_json::to_string_pretty(&json!([edited[1], edited[0]])).unwrap());
    until("a document", async || file.stats().documents > documents).await;
    assert!(client.received().is_empty());
    assert_eq!(client.newest(&page("/y")), 2);
    assert_eq!(client.newest(&page("/x")), 0);
    assert_eq!(file.etag(&page("/x")).await.version, 1);
}

#[tokio::test]
async fn value_without_items_can_be_subscribed_to() {
    let file = ServedFile::started(&json!([])).await;
    let uri = page("/new");
    let mut client = Client::of(file.bus.open(options()).await.unwrap());
    client.subscribe(&uri).await;
    let before = file.etag(&uri).await;
    assert_eq!(file.items(&uri).await, json!([]));
    // The first item of the value.
    file.replace(&json!([annotation("a", "open", "/new")]));
    client.next().await.unwrap();
    let first = file.etag(&uri).await;
    assert!(first.version > before.version, "{first} is not after {before}");
    assert_eq!(client.newest(&uri), first.version);
    assert_eq!(file.ids(&uri).await, ["a"]);
    // The removal of the last one.
    file.replace(&json!([]));
    client.next().await.unwrap();
    let last = file.etag(&uri).await;
    assert!(last.version > first.version, "{last} is not after {first}");
    assert_eq!(client.newest(&uri), last.version);
    assert_eq!(file.items(&uri).await, json!([]));
    let listed = file.bus.resources(None, 10).await.unwrap().items;
    assert_eq!(listed.len(), 2, "all and open");
}

#[tokio::test]
async fn every_way_of_writing_is_seen() {
    let mut file = ServedFile::new();
    file.start().await;
    assert_eq!(file.items(ALL).await, json!([]), "neither file nor folder");
    file.write(&json!([annotation("created", "open", "/")]).to_string());
    file.wait_ids(ALL, &["created"]).await;
    file.replace(&json!([annotation("replaced", "open", "/")]));
    file.wait_ids(ALL, &["replaced"]).await;
    file.write(&json!([annotation("in-place", "open", "/")]).to_string());
    file.wait_ids(ALL, &["in-place"]).await;
    file.write("");
    file.wait_ids(ALL, &[]).await;
    file.replace(&json!([annotation("back", "open", "/")]));
    file.wait_ids(ALL, &["back"]).await;
    fs::remove_file(file.path()).unwrap();
    file.wait_ids(ALL, &[]).await;
    file.replace(&json!([annotation("again", "open", "/")]));
    file.wait_ids(ALL, &["again"]).await;
    fs::remove_dir_all(file.path().parent().unwrap()).unwrap();
    file.wait_ids(ALL, &[]).await;
    file.replace(&json!([annotation("with its folder", "open", "/")]));
    file.wait_ids(ALL, &["with its folder"]).await;
    assert_eq!(file.stats().faults, 0);
}

#[cfg(unix)]
#[tokio::test]
async fn link_to_another_file_is_followed() {
    let mut file = ServedFile::new();
    let dir = file.path().parent().unwrap().to_owned();
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
    std::os::unix::fs::symlink("now/a.json", file.path()).unwrap();
    file.start().await;
    assert_eq!(file.ids(ALL).await, ["one"]);
    std::os::unix::fs::symlink("v2", dir.join("next")).unwrap();
    fs::rename(dir.join("next"), dir.join("now")).unwrap();
    file.wait_ids(ALL, &["two"]).await;
}

/// Captures the log of this thread while the guard lives.
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
async fn invalid_file_keeps_the_last_items() {
    let (text, _guard) = log();
    let file = ServedFile::started(&json!([annotation("good", "open", "/")])).await;
    let etag = file.etag(ALL).await;
    for garbage in [
        "[{\"id\":",
        "{}",
        "[1]",
        "[{}]",
        "[{\"id\":1},{\"id\":1}]",
        "\u{0}",
    ] {
        let looks = file.stats().scans;
        file.write(garbage);
        // An invalid file is read a second time before it is reported.
        until(garbage, async || {
            file.stats().scans >= looks + 2 && file.stats().failing
        })
        .await;
        assert_eq!(file.etag(ALL).await, etag, "{garbage}");
    }
    assert_eq!(file.stats().faults, 1);
    file.replace(&json!([annotation("good", "open", "/")]));
    until("recovery", async || !file.stats().failing).await;
    assert_eq!(file.etag(ALL).await, etag, "the same content as before");
    file.replace(&json!([annotation("better", "open", "/")]));
    file.wait_ids(ALL, &["better"]).await;
    let text = String::from_utf8(text.lock().unwrap().clone()).unwrap();
    assert_eq!(text.matches("is not valid").count(), 1, "{text}");
    assert_eq!(text.matches("is valid again").count(), 1, "{text}");
    assert!(text.contains("not JSON: EOF"), "{text}");
}

#[tokio::test]
async fn file_beyond_a_limit_keeps_the_last_items() {
    let mut file = ServedFile::new();
    file.workspace.collection_items_max = 2;
    file.workspace.collection_bytes_max = 4096;
    file.replace(&json!([annotation("a", "open", "/")]));
    file.start().await;
    let many: Vec<_> = ["a", "b", "c"].map(|id| annotation(id, "open", "/")).into();
    file.replace(&json!(many));
    until("a fault", async || file.stats().failing).await;
    assert_eq!(file.ids(ALL).await, ["a"]);
    file.replace(&json!(many[..2]));
    until("recovery", async || !file.stats().failing).await;
    assert_eq!(file.ids(ALL).await, ["a", "b"]);
    file.write(&" ".repeat(5000));
    until("a fault", async || file.stats().failing).await;
    assert_eq!((file.stats().faults, file.stats().items), (2, 2));
}

#[tokio::test]
async fn flood_of_writes_costs_few_scans() {
    let file = ServedFile::started(&json!([])).await;
    let path = file.path();
    let new = file.dir.path().join("flood");
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
    file.wait_ids(ALL, &["999"]).await;
    let looks = file.stats().scans;
    let most = took.as_millis() as u64 / 30 + 5;
    assert!(looks <= most, "{looks} looks in {took:?}");
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
    let file = ServedFile::started(&json!(items)).await;
    let first = file.call("list_annotations", json!({})).await.unwrap();
    assert_eq!(
        (first["total"].as_u64(), first["items"].as_array().unwrap().len()),
        (Some(120), 50)
    );
    assert_eq!(first["etag_encoded"], json!(file.etag(ALL).await.to_string()));
    let mut seen = first["items"].as_array().unwrap().clone();
    let mut cursor = first["next_cursor"].clone();
    while !cursor.is_null() {
        let arguments = json!({ "cursor": cursor, "limit": 30, "view": null });
        let next = file.call("list_annotations", arguments).await.unwrap();
        seen.extend(next["items"].as_array().unwrap().iter().cloned());
        cursor = next["next_cursor"].clone();
    }
    assert_eq!(seen, items);
    let open = file
        .call("list_annotations", json!({ "view": "open", "limit": 200 }))
        .await
        .unwrap();
    assert_eq!(open["total"], 60);
    let of_page = json!({ "view": "page", "value": 5 });
    let of_page = file.call("list_annotations", of_page).await.unwrap();
    assert_eq!(
        (&of_page["total"], &of_page["uri"]),
        (&json!(24), &json!(page("5")))
    );
    let none = file
        .call("list_annotations", json!({ "view": "page", "value": "none" }))
        .await
        .unwrap();
    assert_eq!((&none["total"], &none["items"]), (&json!(0), &json!([])));

    // Items before that of the cursor are removed, and the next page still begins after it.
    let cursor = first["next_cursor"].clone();
    file.replace(&json!(items[40..]));
    until("fewer", async || file.stats().items == 80).await;
    let next = file
        .call("list_annotations", json!({ "cursor": cursor, "limit": 1 }))
        .await
        .unwrap();
    assert_eq!(next["items"][0]["id"], "n50");

    let item = file.call("get_annotation", json!({ "id": "n77" })).await.unwrap();
    assert_eq!(item["item"], items[77]);
    assert_eq!(item["etag_encoded"], json!(file.etag(ALL).await.to_string()));
    assert_eq!(
        file.refusal("get_annotation", json!({ "id": "n3" })).await,
        "Annotation not found: n3"
    );
}

#[tokio::test]
async fn invalid_arguments_are_tool_errors() {
    let file = ServedFile::started(&json!([annotation("a", "open", "/")])).await;
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
        let refusal = file.refusal("list_annotations", arguments).await;
        assert!(refusal.starts_with(says), "{refusal}");
    }
    assert!(
        file.refusal("get_annotation", json!({}))
            .await
            .contains("missing field `id`")
    );
    assert_eq!(
        file.refusal("get_annotation", json!({ "id": 1.5 })).await,
        "id is no text or whole number"
    );
    let tools = file.bus.tools(None, 10).await.unwrap().items;
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
async fn tool_of_others_is_not_replaced() {
    let file = ServedFile::started(&json!([])).await;
    let again = Collection::start(file.bus.clone(), &config(&file.path()), &file.workspace).await;
    let error = again.unwrap_err();
    assert!(
        matches!(&error, CollectionError::ToolTaken { tool } if tool == "list_annotations"),
        "{error}"
    );
}

#[tokio::test]
async fn stopped_source_leaves_its_views() {
    let mut file = ServedFile::started(&json!([annotation("a", "open", "/")])).await;
    file.source.take().unwrap().stop().await;
    assert_eq!(file.ids(ALL).await, ["a"]);
}

/// The page of the documentation has the configuration and the views of the example.
#[tokio::test]
async fn example_is_served_as_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let example = root.join("examples/annotations/tidings.toml");
    let text = fs::read_to_string(&example).unwrap();
    let (_, tables) = text.split_once("\n\n").unwrap();
    let page = fs::read_to_string(root.join("collections.md")).unwrap();
    assert!(page.contains(&format!("```toml\n{tables}```")), "{tables}");
    let config = Config::load(Some(&example), std::iter::empty(), &Overrides::default()).unwrap();
    let bus = Bus::builder().start().unwrap();
    let source = Collection::start(bus.clone(), &config.collection[0], &config.workspace).await;
    assert_eq!(source.unwrap().stats().items, 3);
    for (resource, etag) in bus.resources(None, 10).await.unwrap().items {
        let title = resource.descriptor().title.as_deref().unwrap();
        assert!(
            page.contains(&format!("| `{}` | {title} |", resource.uri())),
            "{title}"
        );
        assert_eq!(etag.version, 1);
    }
}

#[tokio::test]
async fn replaced_file_changes_the_list_once() {
    let of_pages = |prefix: &str, status: &str| -> Value {
        let items = (0..200).map(|n| annotation(&n.to_string(), status, &format!("{prefix}{n}")));
        items.collect()
    };
    let file = ServedFile::started(&of_pages("old", "open")).await;
    let list_changes = async || file.bus.stats().await.unwrap().list_changes;
    let before = list_changes().await;
    file.replace(&of_pages("new", "open"));
    // Its item, since the template answers for a page without items, too.
    file.wait_ids(&page("new199"), &["199"]).await;
    // A later change shows that the first one is complete.
    file.replace(&of_pages("new", "done"));
    file.wait_ids(OPEN, &[]).await;
    assert!(file.bus.read(page("old0")).await.unwrap().body.as_text() == Some("[]"));
    assert_eq!(list_changes().await, before + 1);
}
