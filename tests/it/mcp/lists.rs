//! `list_changed` is never spurious: one per real change, none for anything else.

use serde_json::{Value, json};
use tidings::ListKind;
use tidings::mcp::McpOptions;

use super::client::{Client, LEGACY, listen};
use super::events::Events;
use super::local::{Local, prompt, tool};

/// The revisions whose sessions receive list changes.
const NOTIFIED: [&str; 3] = ["2024-11-05", "2025-06-18", "2025-11-25"];

const SENTINEL: &str = "demo://sentinel";

/// A session that is ready, with one subscription whose update comes after all messages that were due.
async fn session(local: &Local, revision: &'static str) -> (Client, Events) {
    let client = Client::open(local.server, revision).await;
    let stream = client.stream().await;
    client.subscribe(SENTINEL).await;
    (client, stream)
}

/// The methods of all messages before a change of the sentinel.
async fn methods_sent(local: &Local, stream: &mut Events) -> Vec<String> {
    local.bus.touch(SENTINEL).await.expect("the sentinel is there");
    let mut methods = Vec::new();
    loop {
        let message = stream.message().await;
        if message["params"]["uri"] == SENTINEL {
            methods.sort();
            return methods;
        }
        methods.push(message["method"].as_str().expect("a notification").to_owned());
    }
}

fn changed(kinds: &[&str]) -> Vec<String> {
    kinds
        .iter()
        .map(|kind| format!("notifications/{kind}/list_changed"))
        .collect()
}

async fn filled(change: impl FnOnce(&mut McpOptions)) -> Local {
    let local = Local::with(change).await;
    local.fill_all_lists().await;
    local.put(SENTINEL, "").await;
    local
}

#[tokio::test]
async fn new_session_gets_each_filled_list_once() {
    let local = filled(|_| ()).await;
    for revision in NOTIFIED {
        let (client, mut stream) = session(&local, revision).await;
        assert_eq!(
            methods_sent(&local, &mut stream).await,
            changed(&["prompts", "resources", "tools"]),
            "{revision}"
        );
        for _ in 0..10 {
            for method in [
                "resources/list",
                "resources/templates/list",
                "tools/list",
                "prompts/list",
                "ping",
            ] {
                client.call(method, json!({})).await;
            }
            client.call("resources/read", json!({ "uri": "demo://a" })).await;
        }
        local.put("demo://a", "1").await;
        assert_eq!(
            methods_sent(&local, &mut stream).await,
            changed(&[]),
            "{revision}: nothing changed"
        );
    }
}

#[tokio::test]
async fn real_list_change_is_sent_once_to_its_kind() {
    let local = filled(|_| ()).await;
    let (_client, mut stream) = session(&local, "2025-11-25").await;
    methods_sent(&local, &mut stream).await;
    local.put("demo://new", "1").await;
    assert_eq!(methods_sent(&local, &mut stream).await, changed(&["resources"]));
    local.bus.remove("demo://new").await.unwrap();
    assert_eq!(methods_sent(&local, &mut stream).await, changed(&["resources"]));
    local.bus.add_tool(tool("second")).await.unwrap();
    assert_eq!(methods_sent(&local, &mut stream).await, changed(&["tools"]));
    local
        .bus
        .add_tool(tool("second").description("now it says so"))
        .await
        .unwrap();
    assert_eq!(methods_sent(&local, &mut stream).await, changed(&["tools"]));
    local
        .bus
        .add_tool(tool("second").description("now it says so"))
        .await
        .unwrap();
    assert_eq!(
        methods_sent(&local, &mut stream).await,
        changed(&[]),
        "the same tool again"
    );
    local.bus.add_prompt(prompt("second")).await.unwrap();
    assert_eq!(methods_sent(&local, &mut stream).await, changed(&["prompts"]));
    let (_next, mut next) = session(&local, "2025-11-25").await;
    assert_eq!(
        methods_sent(&local, &mut next).await,
        changed(&["prompts", "resources", "tools"]),
        "a new session"
    );
}

#[tokio::test]
async fn empty_list_is_not_announced() {
    let local = Local::start().await;
    local.put(SENTINEL, "").await;
    let (_client, mut stream) = session(&local, "2025-06-18").await;
    assert_eq!(methods_sent(&local, &mut stream).await, changed(&["resources"]));
    local.bus.add_prompt(prompt("tell")).await.unwrap();
    assert_eq!(
        methods_sent(&local, &mut stream).await,
        changed(&["prompts"]),
        "it is no longer empty"
    );
    local.bus.remove_prompt("tell").await.unwrap();
    assert_eq!(
        methods_sent(&local, &mut stream).await,
        changed(&["prompts"]),
        "it is empty again"
    );
}

#[tokio::test]
async fn announcements_off_sends_only_changes() {
    let local = filled(|options| options.session.announce_on_connect = false).await;
    let (_client, mut stream) = session(&local, "2025-11-25").await;
    assert_eq!(methods_sent(&local, &mut stream).await, changed(&[]));
    local.bus.remove_tool("echo").await.unwrap();
    assert_eq!(methods_sent(&local, &mut stream).await, changed(&["tools"]));
}

#[tokio::test]
async fn session_of_2025_03_26_gets_no_list_changes() {
    let local = filled(|_| ()).await;
    let (client, mut stream) = session(&local, "2025-03-26").await;
    for kind in ["resources", "tools", "prompts"] {
        let capability = &client.initialized["result"]["capabilities"][kind];
        assert!(
            capability.is_object() && capability.get("listChanged").is_none(),
            "{kind}: {capability}"
        );
    }
    local.put("demo://new", "1").await;
    local.bus.add_tool(tool("second")).await.unwrap();
    local.bus.add_prompt(prompt("second")).await.unwrap();
    assert_eq!(methods_sent(&local, &mut stream).await, changed(&[]));
    let sessions = local.sessions().await;
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].pending.lists_notified, [None; 3]);
}

#[tokio::test]
async fn no_message_before_initialized() {
    let local = filled(|_| ()).await;
    for revision in LEGACY {
        let client = Client::initialize(local.server, revision).await;
        let mut stream = client.stream().await;
        local.bus.add_tool(tool(revision)).await.unwrap();
        client.subscribe(SENTINEL).await;
        let before = local.sessions().await;
        let own = before
            .iter()
            .find(|info| info.label.starts_with(revision))
            .unwrap();
        assert_eq!(own.pending.entries, 0, "{revision}: nothing is due");
        client.ready().await;
        let due = if revision == "2025-03-26" {
            changed(&[])
        } else {
            changed(&["prompts", "resources", "tools"])
        };
        assert_eq!(methods_sent(&local, &mut stream).await, due, "{revision}");
        assert_eq!(client.delete().await.status, 204);
    }
}

#[tokio::test]
async fn reverted_list_change_is_not_sent() {
    let local = filled(|_| ()).await;
    let (client, mut stream) = session(&local, "2025-11-25").await;
    methods_sent(&local, &mut stream).await;
    drop(stream);
    local
        .until("the stream is gone", |all| {
            all.iter().all(|info| info.pending.streams == 0)
        })
        .await;
    local.bus.add_tool(tool("brief")).await.unwrap();
    local.put("demo://brief", "1").await;
    local.bus.remove_tool("brief").await.unwrap();
    local.bus.remove("demo://brief").await.unwrap();
    let mut stream = client.stream().await;
    assert_eq!(methods_sent(&local, &mut stream).await, changed(&[]));
}

#[tokio::test]
async fn listen_gets_requested_lists_none_at_start() {
    let local = filled(|_| ()).await;
    let cases: [(Value, &[&str]); 4] = [
        (json!({ "toolsListChanged": true }), &["tools"]),
        (
            json!({ "promptsListChanged": true, "toolsListChanged": false }),
            &["prompts"],
        ),
        (
            json!({ "resourcesListChanged": true, "toolsListChanged": true }),
            &["resources", "tools"],
        ),
        (json!({}), &[]),
    ];
    for (number, (mut filter, kinds)) in cases.into_iter().enumerate() {
        filter["resourceSubscriptions"] = json!([SENTINEL]);
        let (_, mut stream) = listen(local.server, &json!(number), filter).await;
        assert_eq!(
            methods_sent(&local, &mut stream).await,
            changed(&[]),
            "nothing at the start"
        );
        let name = format!("n{number}");
        local.bus.add_tool(tool(&name)).await.unwrap();
        local.bus.add_prompt(prompt(&name)).await.unwrap();
        local.put(&format!("demo://{name}"), "1").await;
        assert_eq!(
            methods_sent(&local, &mut stream).await,
            changed(kinds),
            "{number}"
        );
    }
}

#[tokio::test]
async fn list_hash_advances_only_when_sent() {
    let local = filled(|_| ()).await;
    let (client, mut stream) = session(&local, "2025-11-25").await;
    methods_sent(&local, &mut stream).await;
    let memory = local.sessions().await[0].pending.lists_notified;
    assert!(memory.iter().all(Option::is_some));
    drop(stream);
    local
        .until("the stream is gone", |all| all[0].pending.streams == 0)
        .await;
    local.bus.add_tool(tool("second")).await.unwrap();
    assert_eq!(
        local.sessions().await[0].pending.lists_notified,
        memory,
        "changed, but not sent"
    );
    let mut stream = client.stream().await;
    assert_eq!(methods_sent(&local, &mut stream).await, changed(&["tools"]));
    let now = local.sessions().await[0].pending.lists_notified;
    assert_eq!(ListKind::ALL.len(), now.len());
    let differs: Vec<usize> = (0..3).filter(|at| now[*at] != memory[*at]).collect();
    assert_eq!(differs, [1], "tools stand second");
}
