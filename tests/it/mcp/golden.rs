//! The wire of each revision, frame by frame, as recorded in `tests/it/golden/<revision>/`. A change of the
//! wire is a change of those files: `TIDINGS_UPDATE_GOLDEN=1 cargo test --test it golden` writes them anew.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use rust_mcp_schema::mcp_2024_11_05 as schema;
use serde_json::{Value, json};
use tidings::Resource;

use super::client::{Client, LEGACY, MODERN, listen, modern, updates};
use super::local::Local;

const A: &str = "demo://a";

/// Frames by name.
type Frames = BTreeMap<&'static str, Value>;

async fn server() -> Local {
    let local = Local::start().await;
    let resource = Resource::text(A, "first").expect("a URI");
    let described = resource
        .name("a")
        .title("The first")
        .description("What changes")
        .media_type("text/plain");
    local.bus.register(described).await.expect("it is new");
    let fixed = Resource::text("demo://fixed", "1")
        .expect("a URI")
        .name("fixed")
        .subscribable(false);
    local.bus.register(fixed).await.expect("it is new");
    local
}

async fn legacy(revision: &'static str) -> Frames {
    let local = server().await;
    let client = Client::open(local.server, revision).await;
    let mut frames = Frames::from([("initialize", client.initialized.clone())]);
    let mut stream = client.stream().await;
    if revision != "2025-03-26" {
        frames.insert("list_changed", stream.message().await);
    }
    let requests = [
        ("resources_list", "resources/list", json!({})),
        ("resources_read", "resources/read", json!({ "uri": A })),
        ("subscribe", "resources/subscribe", json!({ "uri": A })),
        (
            "tool_call",
            "tools/call",
            json!({ "name": "no such tool", "arguments": {} }),
        ),
        (
            "unknown_read",
            "resources/read",
            json!({ "uri": "demo://nowhere" }),
        ),
        (
            "unknown_subscribe",
            "resources/subscribe",
            json!({ "uri": "demo://nowhere" }),
        ),
        (
            "not_subscribable",
            "resources/subscribe",
            json!({ "uri": "demo://fixed" }),
        ),
    ];
    for (name, method, params) in requests {
        frames.insert(name, client.request(method, params).await.json());
    }
    local.bus.touch(A).await.expect("it is there");
    frames.insert("updated", stream.message().await);
    frames
}

async fn stateless() -> Frames {
    let local = server().await;
    let mut frames = Frames::new();
    let requests = [
        ("discover", "server/discover", json!({})),
        ("resources_list", "resources/list", json!({})),
        ("resources_read", "resources/read", json!({ "uri": A })),
        (
            "tool_call",
            "tools/call",
            json!({ "name": "no such tool", "arguments": {} }),
        ),
        (
            "unknown_read",
            "resources/read",
            json!({ "uri": "demo://nowhere" }),
        ),
        ("removed_method", "resources/subscribe", json!({ "uri": A })),
    ];
    for (name, method, params) in requests {
        frames.insert(name, modern(local.server, method, params).await.json());
    }
    let mut filter = updates(&[A, "demo://nowhere", "demo://fixed"]);
    filter["resourcesListChanged"] = json!(true);
    let (acknowledged, mut stream) = listen(local.server, &json!("listen-1"), filter).await;
    frames.insert("acknowledged", acknowledged);
    local.bus.touch(A).await.expect("it is there");
    frames.insert("updated", stream.message().await);
    local.put("demo://new", "1").await;
    frames.insert("list_changed", stream.message().await);
    local.shutdown().await;
    frames.insert("listen_result", stream.message().await);
    stream.assert_end().await;
    frames
}

/// Replaces the version of this crate by a constant.
fn normalise(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let version = fields
                .get_mut("version")
                .filter(|version| **version == env!("CARGO_PKG_VERSION"));
            if let Some(version) = version {
                *version = json!("0.0.0");
            }
            fields.values_mut().for_each(normalise);
        }
        Value::Array(items) => items.iter_mut().for_each(normalise),
        _ => {}
    }
}

fn assert_golden(revision: &str, frames: Frames) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/golden")
        .join(revision);
    let update = std::env::var_os("TIDINGS_UPDATE_GOLDEN").is_some();
    if update {
        fs::create_dir_all(&folder).expect("a folder");
    }
    let mut names = Vec::new();
    for (name, mut frame) in frames {
        normalise(&mut frame);
        let file = folder.join(format!("{name}.json"));
        if update {
            fs::write(&file, format!("{frame:#}\n")).expect("a file");
        }
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let golden: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            frame,
            golden,
            "{revision}/{name}: left is on the wire, right in {}",
            file.display()
        );
        names.push(format!("{name}.json"));
    }
    let kept = fs::read_dir(&folder)
        .expect("a folder")
        .map(|entry| entry.expect("a file").file_name());
    let mut kept: Vec<String> = kept.map(|name| name.to_string_lossy().into_owned()).collect();
    kept.sort();
    names.sort();
    assert_eq!(kept, names, "{revision}: files and frames");
}

#[tokio::test]
async fn session_wire_matches_golden_frames() {
    for revision in LEGACY {
        assert_golden(revision, legacy(revision).await);
    }
}

#[tokio::test]
async fn stateless_wire_matches_golden_frames() {
    assert_golden(MODERN, stateless().await);
}

fn valid<T: serde::de::DeserializeOwned>(name: &str, frame: &Value) {
    let parsed: Result<T, _> = serde_json::from_value(frame.clone());
    parsed.unwrap_or_else(|error| panic!("{name}: {error}: {frame}"));
}

#[tokio::test]
async fn frames_of_2024_11_05_are_valid_by_its_schema() {
    for (name, frame) in &legacy("2024-11-05").await {
        match *name {
            "updated" => {
                valid::<schema::JsonrpcNotification>(name, frame);
                valid::<schema::ResourceUpdatedNotification>(name, frame);
            }
            "list_changed" => {
                valid::<schema::JsonrpcNotification>(name, frame);
                valid::<schema::ResourceListChangedNotification>(name, frame);
            }
            "initialize" => valid::<schema::InitializeResult>(name, &frame["result"]),
            "resources_list" => valid::<schema::ListResourcesResult>(name, &frame["result"]),
            "resources_read" => valid::<schema::ReadResourceResult>(name, &frame["result"]),
            "subscribe" => valid::<schema::Result>(name, &frame["result"]),
            _ => valid::<schema::JsonrpcError>(name, frame),
        }
        if frame.get("result").is_some() {
            valid::<schema::JsonrpcResponse>(name, frame);
        }
    }
}
