//! List notifications: one is pending exactly when a list differs from the last one that the session was
//! notified of.

use serde_json::json;
use tidings::{Change, Condition, ListHash, ListKind, Prompt};

use crate::support::{Bench, Client, list_options, text, tool, within};

fn prompt(name: &str) -> Prompt {
    Prompt::new(name, |_| async { Ok(Vec::new()) })
}

/// Adds one resource, one tool and one prompt.
async fn fill(bench: &Bench) {
    bench.put("demo://a", "one").await;
    bench.bus.add_tool(tool("t")).await.unwrap();
    bench.bus.add_prompt(prompt("p")).await.unwrap();
}

async fn notified_hashes(bench: &Bench, client: &Client) -> [Option<ListHash>; 3] {
    bench.info(client).await.pending.lists_notified
}

#[tokio::test]
async fn new_session_gets_each_filled_list_once() {
    let bench = Bench::start();
    fill(&bench).await;
    for _ in 0..3 {
        let mut client = bench.list_client().await;
        assert_eq!(
            client.received(),
            ["resources changed", "tools changed", "prompts changed"]
        );
        within(client.session.ready()).await.unwrap();
        assert_eq!(client.received(), [""; 0], "a second ready notifies of nothing");
    }
}

#[tokio::test]
async fn empty_list_is_not_announced() {
    let bench = Bench::start();
    let mut nothing = bench.list_client().await;
    assert_eq!(nothing.received(), [""; 0]);
    bench.bus.add_tool(tool("t")).await.unwrap();
    let mut tools = bench.list_client().await;
    assert_eq!(tools.received(), ["tools changed"]);
    assert_eq!(nothing.received(), ["tools changed"]);
}

#[tokio::test]
async fn lists_wait_until_the_client_is_ready() {
    let bench = Bench::start();
    let mut client = bench.client_with(list_options(&ListKind::ALL, true)).await;
    fill(&bench).await;
    assert_eq!(client.received(), [""; 0]);
    within(client.session.ready()).await.unwrap();
    assert_eq!(client.received().len(), 3);
}

#[tokio::test]
async fn unannounced_lists_notify_later_changes_only() {
    let bench = Bench::start();
    fill(&bench).await;
    let mut client = bench.client_with(list_options(&ListKind::ALL, false)).await;
    within(client.session.ready()).await.unwrap();
    assert_eq!(client.received(), [""; 0]);
    bench.bus.remove_prompt("p").await.unwrap();
    assert_eq!(client.received(), ["prompts changed"]);
}

#[tokio::test]
async fn only_requested_lists_are_notified() {
    let bench = Bench::start();
    fill(&bench).await;
    let mut client = bench.client_with(list_options(&[ListKind::Tools], true)).await;
    within(client.session.ready()).await.unwrap();
    bench.put("demo://b", "x").await;
    bench.bus.add_prompt(prompt("q")).await.unwrap();
    assert_eq!(client.received(), ["tools changed"]);
    assert!(matches!(
        notified_hashes(&bench, &client).await,
        [None, Some(_), None]
    ));
}

#[tokio::test]
async fn unchanged_lists_are_never_notified() {
    let bench = Bench::start();
    fill(&bench).await;
    let mut client = bench.list_client().await;
    client.received();
    for round in 0..10 {
        bench.put("demo://a", &format!("body {round}")).await;
        bench.bus.touch("demo://a").await.unwrap();
        bench.bus.add_tool(tool("t")).await.unwrap();
        bench.bus.replace_tools(vec![tool("t")]).await.unwrap();
        bench.bus.replace_prompts(vec![prompt("p")]).await.unwrap();
        bench.bus.remove_tool("nothing").await.unwrap();
        bench.bus.remove_prompt("nothing").await.unwrap();
        bench.bus.remove_template("x://{nothing}").await.unwrap();
        bench
            .bus
            .update(text("demo://a", "x").subscribable(round % 2 == 0))
            .await
            .unwrap();
        bench.bus.resources(None, 10).await.unwrap();
        bench.bus.tools(None, 10).await.unwrap();
        assert_eq!(client.received(), [""; 0], "round {round}");
    }
    bench
        .bus
        .add_tool(tool("t").description("another"))
        .await
        .unwrap();
    assert_eq!(client.received(), ["tools changed"]);
}

#[tokio::test]
async fn batch_changes_the_resource_list_once() {
    let bench = Bench::start();
    let mut client = bench.list_client().await;
    bench.put("demo://0", "one").await;
    assert_eq!(client.received(), ["resources changed"]);
    client.subscribe("demo://0").await;
    let upserts = (0..500).map(|n| Change::Upsert(text(&format!("demo://{n}"), "two")));
    let changes = upserts.map(|change| (change, Condition::Always)).collect();
    let results = within(bench.bus.update_many(changes)).await.unwrap();
    // The answers are in the order of the changes and say how many subscribers each reached.
    let first = results[0].clone().unwrap();
    assert_eq!((first.etag.version, first.created, first.notified), (2, false, 1));
    assert!(results[1..].iter().all(|result| result.as_ref().unwrap().created));
    assert_eq!(client.received(), ["demo://0 v2", "resources changed"]);
    assert_eq!(bench.bus.stats().await.unwrap().list_changes, 2);

    // The same contents again change nothing.
    let upserts = (0..500).map(|n| Change::Upsert(text(&format!("demo://{n}"), "two")));
    let changes = upserts.map(|change| (change, Condition::Always)).collect();
    let results = within(bench.bus.update_many(changes)).await.unwrap();
    assert!(results.iter().all(|result| !result.as_ref().unwrap().changed));
    assert_eq!(client.received(), [""; 0]);
}

#[tokio::test]
async fn every_field_of_an_item_changes_its_list() {
    let bench = Bench::start();
    fill(&bench).await;
    let mut client = bench.list_client().await;
    client.received();
    let schema = json!({ "type": "object", "properties": { "x": { "type": "string" } } });
    let tools = [
        tool("t").title("T"),
        tool("t").title("T").description("its purpose"),
        tool("t").input_schema(schema.clone()),
        tool("t")
            .input_schema(schema.clone())
            .output_schema(json!({ "type": "object" })),
        tool("t").annotations(json!({ "readOnlyHint": true })),
    ];
    for tool in tools {
        let name = format!("{}", tool.item());
        assert!(bench.bus.add_tool(tool).await.unwrap().changed, "{name}");
        assert_eq!(client.received(), ["tools changed"], "{name}");
    }
    let prompts = [
        prompt("p").title("P"),
        prompt("p").description("its question"),
        prompt("p").argument("x", "which", true),
        prompt("p").argument("x", "which", false),
    ];
    for prompt in prompts {
        assert!(bench.bus.add_prompt(prompt).await.unwrap().changed);
        assert_eq!(client.received(), ["prompts changed"]);
    }
}

#[tokio::test]
async fn replacing_a_list_is_one_change_in_any_order() {
    let bench = Bench::start();
    let mut client = bench.list_client().await;
    bench
        .bus
        .replace_tools(vec![tool("a"), tool("b"), tool("c")])
        .await
        .unwrap();
    assert_eq!(client.received(), ["tools changed"]);
    let other_order = bench
        .bus
        .replace_tools(vec![tool("c"), tool("a"), tool("b")])
        .await
        .unwrap();
    assert!(!other_order.changed);
    bench.bus.replace_tools(vec![tool("d"), tool("e")]).await.unwrap();
    assert_eq!(client.received(), ["tools changed"]);
    assert!(bench.bus.tool("a").await.unwrap().is_none());
    assert!(bench.bus.tool("e").await.unwrap().is_some());
}

#[tokio::test]
async fn many_list_changes_are_one_notification() {
    let bench = Bench::start();
    let mut client = bench.list_client().await;
    for i in 0..50 {
        assert_eq!(
            bench.bus.add_tool(tool(&format!("t{i}"))).await.unwrap().notified,
            1
        );
    }
    assert_eq!(client.received(), ["tools changed"]);
}

#[tokio::test]
async fn list_changed_back_is_not_notified() {
    let bench = Bench::start();
    fill(&bench).await;
    let mut client = bench.list_client().await;
    client.received();
    bench.bus.add_tool(tool("u")).await.unwrap();
    bench.bus.remove_tool("u").await.unwrap();
    assert_eq!(client.received(), [""; 0]);
    bench.bus.add_tool(tool("u")).await.unwrap();
    assert_eq!(client.received(), ["tools changed"]);
    bench.bus.remove_tool("u").await.unwrap();
    assert_eq!(client.received(), ["tools changed"], "it was notified of u");
}

#[tokio::test]
async fn unread_list_keeps_the_last_known_hash() {
    let bench = Bench::start();
    bench.bus.add_tool(tool("t")).await.unwrap();
    let mut client = bench.list_client().await;
    let unread = notified_hashes(&bench, &client).await;
    assert_eq!(unread, [Some(ListHash::EMPTY); 3], "pending but not received");
    client.received();
    let notified = notified_hashes(&bench, &client).await;
    assert_ne!(notified[1], Some(ListHash::EMPTY));

    bench.bus.add_tool(tool("u")).await.unwrap();
    assert_eq!(notified_hashes(&bench, &client).await, notified);
    client.received();
    assert_ne!(notified_hashes(&bench, &client).await[1], notified[1]);
}

#[tokio::test]
async fn register_and_remove_change_only_the_list() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let mut client = bench.list_client().await;
    client.subscribe("demo://a").await;
    client.received();
    bench.bus.register(text("demo://b", "x")).await.unwrap();
    assert_eq!(client.received(), ["resources changed"]);
    bench.bus.remove("demo://b").await.unwrap();
    assert_eq!(client.received(), ["resources changed"]);
    assert_eq!(bench.bus.etag("demo://a").await.unwrap().version, 1);
}

#[tokio::test]
async fn pages_contain_every_item_once() {
    let bench = Bench::start();
    for i in 0..7 {
        bench.bus.add_tool(tool(&format!("t{i}"))).await.unwrap();
        bench.bus.add_prompt(prompt(&format!("p{i}"))).await.unwrap();
    }
    let first = bench.bus.tools(None, 4).await.unwrap();
    let second = bench.bus.tools(first.next.clone(), 4).await.unwrap();
    let names: Vec<_> = first
        .items
        .iter()
        .chain(&second.items)
        .map(|tool| tool.name())
        .collect();
    assert_eq!(names, ["t0", "t1", "t2", "t3", "t4", "t5", "t6"]);
    assert_eq!(second.next, None);
    let first = bench.bus.prompts(None, 6).await.unwrap();
    let second = bench.bus.prompts(first.next.clone(), 6).await.unwrap();
    let names: Vec<_> = second.items.iter().map(|prompt| prompt.name()).collect();
    assert_eq!((first.items.len(), names), (6, vec!["p6"]));
    assert!(bench.bus.prompt("p6").await.unwrap().is_some());
}
