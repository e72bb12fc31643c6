//! A wrapped rmcp server keeps its behaviour, and its clients receive changes, once, on every revision.

#![expect(
    clippy::unwrap_used,
    reason = "clippy excuses test functions but not the harness they share"
)]

mod notes;
mod client;
mod transports;
mod batches;
mod own_messages;
mod rights;

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceError;
use rmcp::model::*;
use serde_json::{Value, json};
use tidings::mcp::{McpOptions, Wrap};
use tidings::{Bus, Limits, ListKind, Resource as Held, Tool as HeldTool, ToolOutput};

use self::client::{Client, Over, Received, eventually};
use self::notes::Notes;

/// A wrapper over a bus of its own, and the state of the server that it wraps.
async fn wrap() -> (Wrap, Arc<Notes>) {
    let bus = Bus::builder().start().unwrap();
    let wrap = Wrap::new(bus, McpOptions::default()).await.unwrap();
    (wrap, Notes::new())
}

fn etag_of(meta: Option<&MetaObject>) -> Option<String> {
    Some(meta?.0.get(tidings::mcp::ETAG_META_KEY)?.as_str()?.to_owned())
}

fn version(etag: &str) -> u64 {
    etag[1..].split_once('-').unwrap().0.parse().unwrap()
}

async fn new_session_gets_each_list_once(over: Over) {
    let (wrap, notes) = wrap().await;
    let client = Client::connect(over, &wrap, &notes).await;
    client.until(|log| log.len() == 3).await;
    for kind in ListKind::ALL {
        assert_eq!(client.count(&Received::List(kind)), 1, "{kind:?}");
    }
    for _ in 0..3 {
        client.list_everything().await;
        wrap.refresh_lists().await.unwrap();
    }
    client.settle(&wrap).await;
    assert_eq!(client.lists(), 3);

    notes.add_tool("brew");
    client.peer().list_tools(None).await.unwrap();
    client.until(|log| log.contains_times(ListKind::Tools, 2)).await;
    client.list_everything().await;
    client.settle(&wrap).await;
    assert_eq!(client.lists(), 4);

    notes.add_tool("pour");
    wrap.refresh_lists().await.unwrap();
    client.until(|log| log.contains_times(ListKind::Tools, 3)).await;
    // A server that cannot list just now has not changed its lists.
    notes.fail(true);
    wrap.refresh_lists().await.unwrap();
    notes.fail(false);
    wrap.refresh_lists().await.unwrap();
    client.settle(&wrap).await;
    assert_eq!(client.lists(), 5);
}

#[tokio::test]
async fn new_session_gets_each_list_once_over_pipe() {
    new_session_gets_each_list_once(Over::Pipe).await;
}

#[tokio::test]
async fn new_session_gets_each_list_once_over_http() {
    new_session_gets_each_list_once(Over::Http).await;
}

async fn change_is_sent_with_next_etag(over: Over) {
    let (wrap, notes) = wrap().await;
    let client = Client::connect(over, &wrap, &notes).await;
    client.subscribe("note://a").await.unwrap();
    let read = client.read("note://a").await.unwrap();
    let first = etag_of(read.meta.as_ref()).unwrap();
    assert_eq!(version(&first), 1);

    notes.write("note://a", "two");
    wrap.notify_resource_changed("note://a").await.unwrap();
    let second = client.update("note://a", 1).await;
    assert_eq!(version(&second), 2);
    let read = client.read("note://a").await.unwrap();
    assert_eq!(etag_of(read.meta.as_ref()), Some(second.clone()));
    let ResourceContents::TextResourceContents { text, meta, .. } = &read.contents[0] else {
        panic!("{read:?}");
    };
    assert_eq!(
        (text.as_str(), etag_of(meta.as_ref())),
        ("two", Some(second.clone()))
    );
    let listed = client.peer().list_resources(None).await.unwrap();
    let item = listed
        .resources
        .iter()
        .find(|item| item.uri == "note://a")
        .unwrap();
    assert_eq!(etag_of(item.meta.as_ref()), Some(second.clone()));
    for (held, stale) in [(&first, true), (&second, false)] {
        let verdict = client.etag("note://a", Some(held)).await;
        assert_eq!(verdict["etag_encoded"], json!(second));
        assert_eq!(verdict["stale_for_client"], json!(stale), "{held}");
    }

    client.unsubscribe("note://a").await.unwrap();
    wrap.notify_resource_changed("note://a").await.unwrap();
    client.settle(&wrap).await;
    assert_eq!(client.updates("note://a"), 1);
}

#[tokio::test]
async fn change_is_sent_with_next_etag_over_pipe() {
    change_is_sent_with_next_etag(Over::Pipe).await;
}

#[tokio::test]
async fn change_is_sent_with_next_etag_over_http() {
    change_is_sent_with_next_etag(Over::Http).await;
}

async fn panicking_tool_is_answered(over: Over) {
    let (wrap, notes) = wrap().await;
    let client = Client::connect(over, &wrap, &notes).await;
    let call = client.peer().call_tool(CallToolRequestParams::new("panics"));
    let refusal = tokio::time::timeout(Duration::from_secs(10), call).await.unwrap();
    assert!(refusal.unwrap_err().to_string().contains("panicked"));
    client.end().await;
}

#[tokio::test]
async fn panicking_tool_is_answered_over_pipe() {
    panicking_tool_is_answered(Over::Pipe).await;
}

#[tokio::test]
async fn panicking_tool_is_answered_over_http() {
    panicking_tool_is_answered(Over::Http).await;
}

#[tokio::test]
async fn refresh_sends_only_changes() {
    let (wrap, notes) = wrap().await;
    let client = Client::connect(Over::Pipe, &wrap, &notes).await;
    client.subscribe("note://a").await.unwrap();
    client.subscribe("note://b").await.unwrap();
    wrap.refresh_subscribed().await.unwrap();
    client.settle(&wrap).await;
    assert_eq!((client.updates("note://a"), client.updates("note://b")), (0, 0));

    notes.write("note://b", "other");
    wrap.refresh_subscribed().await.unwrap();
    client.update("note://b", 1).await;
    // A server that cannot read just now has neither changed nor lost anything.
    notes.fail(true);
    wrap.refresh_subscribed().await.unwrap();
    notes.fail(false);
    wrap.refresh_subscribed().await.unwrap();
    client.settle(&wrap).await;
    assert_eq!((client.updates("note://a"), client.updates("note://b")), (0, 1));

    // A removed resource gets one update, and another one with a higher version when it is back.
    let text = notes.remove("note://a");
    wrap.refresh_subscribed().await.unwrap();
    wrap.refresh_subscribed().await.unwrap();
    let gone = client.update("note://a", 1).await;
    client.settle(&wrap).await;
    assert_eq!(client.updates("note://a"), 1);
    notes.write("note://a", &text);
    wrap.refresh_subscribed().await.unwrap();
    let back = client.update("note://a", 2).await;
    assert!(version(&back) > version(&gone), "{gone} {back}");
}

#[tokio::test]
async fn polling_client_sees_unannounced_change() {
    let (wrap, notes) = wrap().await;
    let client = Client::connect(Over::Pipe, &wrap, &notes).await;
    let first = client.etag("note://a", None).await;
    let held = first["etag_encoded"].as_str().unwrap().to_owned();
    assert_eq!(
        client.etag("note://a", Some(&held)).await["stale_for_client"],
        json!(false)
    );
    let again = client
        .tool("read_resource", json!({ "uri": "note://a", "client_etag": held }))
        .await;
    assert_eq!(again["not_modified"], json!(true));

    notes.write("note://a", "silently");
    let verdict = client.etag("note://a", Some(&held)).await;
    assert_eq!(
        (&verdict["version"], &verdict["stale_for_client"]),
        (&json!(2), &json!(true))
    );
    let body = client
        .tool("read_resource", json!({ "uri": "note://a", "client_etag": held }))
        .await;
    assert_eq!((&body["text"], &body["version"]), (&json!("silently"), &json!(2)));
}

#[tokio::test]
async fn unknown_uri_is_refused_by_name() {
    let (wrap, notes) = wrap().await;
    let client = Client::connect(Over::Pipe, &wrap, &notes).await;
    let refused = client.subscribe("note://nowhere").await.unwrap_err();
    let ServiceError::McpError(refused) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(refused.code, ErrorCode::INVALID_PARAMS);
    assert_eq!(refused.message, "Resource not found: note://nowhere");
    let ServiceError::McpError(unread) = client.read("note://nowhere").await.unwrap_err() else {
        panic!("a read of nothing is answered by an error");
    };
    assert_eq!(
        unread.message, "no such note",
        "the wrapped server words its own refusals"
    );
    // The announced change of a resource that was never read has no effect.
    wrap.notify_resource_changed("note://nowhere").await.unwrap();
    assert_eq!(wrap.bus().stats().await.unwrap().resources, 0);
}

async fn other_requests_reach_wrapped_server(over: Over) {
    let (wrap, notes) = wrap().await;
    let client = Client::connect(over, &wrap, &notes).await;
    let info = client.peer().peer_info().unwrap();
    assert_eq!(info.server_info.as_ref().unwrap().name, "notes");
    let completed = client
        .peer()
        .complete_prompt_simple("greet", "name", "Ad")
        .await
        .unwrap();
    assert_eq!(completed, ["Ada"]);
    let prompt = GetPromptRequestParams::new("greet");
    assert_eq!(client.peer().get_prompt(prompt).await.unwrap().messages.len(), 1);
    let custom = CustomRequest::new("notes/count", Some(json!({})));
    let answer = client
        .peer()
        .send_request(ClientRequest::CustomRequest(custom))
        .await
        .unwrap();
    assert!(
        matches!(answer, ServerResult::CustomResult(CustomResult(Value::Number(count))) if count == 2.into())
    );
    // The tool asks the client's model while it runs.
    let sampled = CallToolRequestParams::new("summarize");
    let sampled = client.peer().call_tool(sampled).await.unwrap();
    assert_eq!(
        sampled.content[0].as_text().unwrap().text,
        "the model says: in short"
    );
}

#[tokio::test]
async fn other_requests_reach_wrapped_server_over_http() {
    other_requests_reach_wrapped_server(Over::Http).await;
}

#[tokio::test]
async fn wrapped_items_win_and_bus_items_are_added() {
    let (wrap, notes) = wrap().await;
    notes.add_tool("get_resource_etag");
    let tool = HeldTool::new("only_here", |_: serde_json::Map<String, Value>| async {
        Ok(ToolOutput::text("the bus's"))
    });
    wrap.bus().add_tool(tool).await.unwrap();
    for uri in ["note://a", "held://x"] {
        wrap.bus()
            .register(Held::text(uri, "the bus's").unwrap())
            .await
            .unwrap();
    }
    // Tools: the server's own of a shared name, and those that only the bus has.
    let client = Client::connect(Over::Pipe, &wrap, &notes).await;
    let theirs = CallToolRequestParams::new("get_resource_etag");
    let theirs = client.peer().call_tool(theirs).await.unwrap();
    assert_eq!(theirs.content[0].as_text().unwrap().text, "the server's own tool");
    let ours = CallToolRequestParams::new("only_here");
    let ours = client.peer().call_tool(ours).await.unwrap();
    assert_eq!(ours.content[0].as_text().unwrap().text, "the bus's");
    let tools = client.peer().list_tools(None).await.unwrap().tools;
    let mut names: Vec<_> = tools.iter().map(|tool| tool.name.clone()).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "no name is listed twice");

    // Resources: likewise, and each is listed once.
    let theirs = client.read("note://a").await.unwrap();
    assert_eq!(
        etag_of(theirs.meta.as_ref()),
        None,
        "the bus's etag is not that of their text"
    );
    let ours = client.read("held://x").await.unwrap();
    assert_eq!(version(&etag_of(ours.meta.as_ref()).unwrap()), 1);
    let listed = client.peer().list_resources(None).await.unwrap().resources;
    assert_eq!(listed.iter().filter(|item| item.uri == "note://a").count(), 1);
    assert_eq!(listed.iter().filter(|item| item.uri == "held://x").count(), 1);
}

#[tokio::test]
async fn resource_beyond_limit_has_no_etag() {
    let mut limits = Limits::default();
    limits.resources_max = 1;
    let bus = Bus::builder().limits(limits).start().unwrap();
    let wrap = Wrap::new(bus, McpOptions::default()).await.unwrap();
    let client = Client::connect(Over::Pipe, &wrap, &Notes::new()).await;
    assert!(etag_of(client.read("note://a").await.unwrap().meta.as_ref()).is_some());
    assert_eq!(
        etag_of(client.read("note://b").await.unwrap().meta.as_ref()),
        None
    );
    client.subscribe("note://a").await.unwrap();
    client.subscribe("note://b").await.unwrap_err();
}

#[tokio::test]
async fn differing_lists_do_not_loop_between_clients() {
    let (wrap, one) = wrap().await;
    let other = Notes::new();
    other.add_tool("admin");
    let first = Client::connect(Over::Pipe, &wrap, &one).await;
    let second = Client::connect(Over::Pipe, &wrap, &other).await;
    first.list_everything().await;
    second.list_everything().await;
    first.settle(&wrap).await;
    second.settle(&wrap).await;
    let before = (first.lists(), second.lists());
    for _ in 0..3 {
        first.list_everything().await;
        second.list_everything().await;
    }
    first.settle(&wrap).await;
    second.settle(&wrap).await;
    assert_eq!((first.lists(), second.lists()), before);
}

async fn listen_gets_requested_changes(over: Over) {
    let (wrap, notes) = wrap().await;
    let client = Client::discover(over, &wrap, &notes).await;
    let read = client.read("note://a").await.unwrap();
    assert_eq!(version(&etag_of(read.meta.as_ref()).unwrap()), 1);
    let filter = SubscriptionFilter::builder()
        .tools_list_changed()
        .resource_subscription("note://a")
        .build();
    let mut stream = client.listen(filter).await;
    // A subscribed resource sends nothing before the stream has its session.
    let uri = "note://a".parse().unwrap();
    eventually(async || wrap.bus().subscribers(&uri).await.unwrap().len() == 1).await;
    wrap.notify_resource_changed("note://b").await.unwrap();
    notes.write("note://a", "two");
    wrap.notify_resource_changed("note://a").await.unwrap();
    let received = client::next(&mut stream).await;
    let ServerNotification::ResourceUpdatedNotification(update) = &received else {
        panic!("{received:?}");
    };
    assert_eq!(update.params.uri, "note://a");
    assert_eq!(version(&client::etag_in(&received).unwrap()), 2);

    wrap.refresh_lists().await.unwrap();
    notes.add_tool("brew");
    notes.add_prompt("part");
    wrap.refresh_lists().await.unwrap();
    let received = client::next(&mut stream).await;
    assert!(
        matches!(received, ServerNotification::ToolListChangedNotification(_)),
        "{received:?}"
    );
    wrap.refresh_lists().await.unwrap();
    wrap.notify_resource_changed("note://a").await.unwrap();
    let received = client::next(&mut stream).await;
    assert!(
        matches!(received, ServerNotification::ResourceUpdatedNotification(_)),
        "{received:?}"
    );
    stream.cancel().await.unwrap();
    eventually(async || wrap.bus().sessions().await.unwrap().is_empty()).await;
}

#[tokio::test]
async fn listen_gets_requested_changes_over_pipe() {
    listen_gets_requested_changes(Over::Pipe).await;
}

#[tokio::test]
async fn listen_gets_requested_changes_over_http() {
    listen_gets_requested_changes(Over::Http).await;
}

#[tokio::test]
async fn change_while_listen_opens_is_sent() {
    let (wrap, notes) = wrap().await;
    let client = Client::discover(Over::Http, &wrap, &notes).await;
    client.read("note://a").await.unwrap();
    client.read("note://b").await.unwrap();
    let filter = SubscriptionFilter::builder()
        .resource_subscription("note://a")
        .resource_subscription("note://b")
        .prompts_list_changed()
        .build();
    client.list_everything().await;
    // Acknowledged, and not yet subscribed: the server is still being asked for its lists.
    notes.asked().await;
    let closed = notes.close().await;
    let mut stream = client.listen(filter).await;
    notes.asked().await;
    wrap.notify_resource_changed("note://b").await.unwrap();
    notes.add_prompt("part");
    notes.add_tool("brew");
    client.peer().list_prompts(None).await.unwrap();
    drop(closed);
    let received = client::next(&mut stream).await;
    assert!(
        matches!(received, ServerNotification::PromptListChangedNotification(_)),
        "{received:?}"
    );
    let received = client::next(&mut stream).await;
    let ServerNotification::ResourceUpdatedNotification(update) = &received else {
        panic!("{received:?}");
    };
    assert_eq!(update.params.uri, "note://b");
    assert_eq!(version(&client::etag_in(&received).unwrap()), 2);
}

async fn ended_session_leaves_nothing(over: Over) {
    let (wrap, notes) = wrap().await;
    // A handler that holds the wrapper, like one that announces its own changes.
    notes.hold(&wrap);
    let client = Client::connect(over, &wrap, &notes).await;
    client.subscribe("note://a").await.unwrap();
    client.until(|log| log.len() == 3).await;
    assert_eq!(wrap.bus().sessions().await.unwrap().len(), 1);
    client.end().await;
    eventually(async || wrap.bus().sessions().await.unwrap().is_empty()).await;
    eventually(async || notes.servers() == 0).await;
    // No client is left, and nothing waits for one.
    wrap.refresh_lists().await.unwrap();
    wrap.refresh_subscribed().await.unwrap();
    wrap.notify_resource_changed("note://a").await.unwrap();
    assert_eq!(wrap.bus().stats().await.unwrap().sessions, 0);
}

#[tokio::test]
async fn ended_session_leaves_nothing_on_pipe() {
    ended_session_leaves_nothing(Over::Pipe).await;
}

#[tokio::test]
async fn ended_session_leaves_nothing_on_http() {
    ended_session_leaves_nothing(Over::Http).await;
}

#[tokio::test]
async fn busy_server_blocks_no_client() {
    let (wrap, notes) = wrap().await;
    let busy = notes.keep_busy().await;
    let client = Client::connect(Over::Pipe, &wrap, &notes).await;
    client.until(|log| log.len() == 3).await;
    client.end().await;
    eventually(async || wrap.bus().sessions().await.unwrap().is_empty()).await;
    // The session has ended although the server is still busy with it.
    assert_eq!(notes.servers(), 1);
    drop(busy);
    eventually(async || notes.servers() == 0).await;
}

#[tokio::test]
async fn silent_server_is_refreshed_periodically() {
    let (wrap, notes) = wrap().await;
    wrap.refresh_every(std::time::Duration::ZERO);
    let client = Client::connect(Over::Pipe, &wrap, &notes).await;
    client.subscribe("note://a").await.unwrap();
    client.until(|log| log.len() == 3).await;
    notes.write("note://a", "silently");
    assert_eq!(version(&client.update("note://a", 1).await), 2);
    notes.add_prompt("part");
    client.until(|log| log.contains_times(ListKind::Prompts, 2)).await;
    client.settle(&wrap).await;
    assert_eq!((client.lists(), client.updates("note://a")), (4, 1));
}

#[tokio::test]
async fn stateless_requests_leave_nothing_behind() {
    let (wrap, notes) = wrap().await;
    notes.hold(&wrap);
    let client = Client::discover(Over::Http, &wrap, &notes).await;
    for _ in 0..5 {
        client.list_everything().await;
        client.read("note://a").await.unwrap();
    }
    eventually(async || notes.servers() == 0).await;
    assert!(wrap.bus().sessions().await.unwrap().is_empty());
}
