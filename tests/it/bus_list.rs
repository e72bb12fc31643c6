//! Promise: a list_changed is due exactly when the list is another one than the session was last told of.

use serde_json::json;
use tidings::{ListHash, ListKind, Prompt};

use crate::support::{Bench, Client, list_options, text, tool, within};

fn prompt(name: &str) -> Prompt {
    Prompt::new(name, |_| async { Ok(Vec::new()) })
}

/// One resource, one tool, one prompt.
async fn fill(bench: &Bench) {
    bench.put("demo://a", "one").await;
    bench.bus.add_tool(tool("t")).await.unwrap();
    bench.bus.add_prompt(prompt("p")).await.unwrap();
}

async fn lists_told(bench: &Bench, client: &Client) -> [Option<ListHash>; 3] {
    let sessions = bench.bus.sessions().await.unwrap();
    let info = sessions
        .iter()
        .find(|info| info.id == client.session.id())
        .unwrap();
    info.pending.lists_notified
}

#[tokio::test]
async fn a_fresh_session_is_told_of_each_filled_list_once() {
    let bench = Bench::start();
    fill(&bench).await;
    for _ in 0..3 {
        let mut client = bench.list_client().await;
        assert_eq!(
            client.told(),
            ["resources changed", "tools changed", "prompts changed"]
        );
        within(client.session.ready()).await.unwrap();
        assert_eq!(client.told(), [""; 0], "saying ready again brings nothing");
    }
}

#[tokio::test]
async fn an_empty_list_is_not_announced() {
    let bench = Bench::start();
    let mut nothing = bench.list_client().await;
    assert_eq!(nothing.told(), [""; 0]);
    bench.bus.add_tool(tool("t")).await.unwrap();
    let mut tools = bench.list_client().await;
    assert_eq!(tools.told(), ["tools changed"]);
    assert_eq!(nothing.told(), ["tools changed"]);
}

#[tokio::test]
async fn nobody_is_told_before_the_client_is_ready() {
    let bench = Bench::start();
    let mut client = bench.client_with(list_options(&ListKind::ALL, true)).await;
    fill(&bench).await;
    assert_eq!(client.told(), [""; 0]);
    within(client.session.ready()).await.unwrap();
    assert_eq!(client.told().len(), 3);
}

#[tokio::test]
async fn without_announcement_only_later_changes_are_told() {
    let bench = Bench::start();
    fill(&bench).await;
    let mut client = bench.client_with(list_options(&ListKind::ALL, false)).await;
    within(client.session.ready()).await.unwrap();
    assert_eq!(client.told(), [""; 0]);
    bench.bus.remove_prompt("p").await.unwrap();
    assert_eq!(client.told(), ["prompts changed"]);
}

#[tokio::test]
async fn only_the_lists_asked_for_are_told() {
    let bench = Bench::start();
    fill(&bench).await;
    let mut client = bench.client_with(list_options(&[ListKind::Tools], true)).await;
    within(client.session.ready()).await.unwrap();
    bench.put("demo://b", "x").await;
    bench.bus.add_prompt(prompt("q")).await.unwrap();
    assert_eq!(client.told(), ["tools changed"]);
    assert!(matches!(lists_told(&bench, &client).await, [None, Some(_), None]));
}

#[tokio::test]
async fn a_list_changed_is_never_spurious() {
    let bench = Bench::start();
    fill(&bench).await;
    let mut client = bench.list_client().await;
    client.told();
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
        assert_eq!(client.told(), [""; 0], "round {round}");
    }
    bench
        .bus
        .add_tool(tool("t").description("another"))
        .await
        .unwrap();
    assert_eq!(client.told(), ["tools changed"]);
}

#[tokio::test]
async fn every_part_of_an_item_is_part_of_its_list() {
    let bench = Bench::start();
    fill(&bench).await;
    let mut client = bench.list_client().await;
    client.told();
    let schema = json!({ "type": "object", "properties": { "x": { "type": "string" } } });
    let tools = [
        tool("t").title("T"),
        tool("t").title("T").description("what it does"),
        tool("t").input_schema(schema.clone()),
        tool("t")
            .input_schema(schema.clone())
            .output_schema(json!({ "type": "object" })),
        tool("t").annotations(json!({ "readOnlyHint": true })),
    ];
    for tool in tools {
        let name = format!("{}", tool.item());
        assert!(bench.bus.add_tool(tool).await.unwrap().changed, "{name}");
        assert_eq!(client.told(), ["tools changed"], "{name}");
    }
    let prompts = [
        prompt("p").title("P"),
        prompt("p").description("what it asks"),
        prompt("p").argument("x", "which", true),
        prompt("p").argument("x", "which", false),
    ];
    for prompt in prompts {
        assert!(bench.bus.add_prompt(prompt).await.unwrap().changed);
        assert_eq!(client.told(), ["prompts changed"]);
    }
}

#[tokio::test]
async fn the_order_of_items_is_nothing_and_replacing_all_is_one_change() {
    let bench = Bench::start();
    let mut client = bench.list_client().await;
    bench
        .bus
        .replace_tools(vec![tool("a"), tool("b"), tool("c")])
        .await
        .unwrap();
    assert_eq!(client.told(), ["tools changed"]);
    let other_order = bench
        .bus
        .replace_tools(vec![tool("c"), tool("a"), tool("b")])
        .await
        .unwrap();
    assert!(!other_order.changed);
    bench.bus.replace_tools(vec![tool("d"), tool("e")]).await.unwrap();
    assert_eq!(client.told(), ["tools changed"]);
    assert!(bench.bus.tool("a").await.unwrap().is_none());
    assert!(bench.bus.tool("e").await.unwrap().is_some());
}

#[tokio::test]
async fn many_changes_behind_a_slow_reader_are_one_list_changed() {
    let bench = Bench::start();
    let mut client = bench.list_client().await;
    for i in 0..50 {
        assert_eq!(
            bench.bus.add_tool(tool(&format!("t{i}"))).await.unwrap().notified,
            1
        );
    }
    assert_eq!(client.told(), ["tools changed"]);
}

#[tokio::test]
async fn a_list_that_is_back_at_what_was_told_is_not_told() {
    let bench = Bench::start();
    fill(&bench).await;
    let mut client = bench.list_client().await;
    client.told();
    bench.bus.add_tool(tool("u")).await.unwrap();
    bench.bus.remove_tool("u").await.unwrap();
    assert_eq!(client.told(), [""; 0]);
    bench.bus.add_tool(tool("u")).await.unwrap();
    assert_eq!(client.told(), ["tools changed"]);
    bench.bus.remove_tool("u").await.unwrap();
    assert_eq!(client.told(), ["tools changed"], "what it was told is u");
}

#[tokio::test]
async fn a_session_that_is_not_told_keeps_its_memory() {
    let bench = Bench::start();
    bench.bus.add_tool(tool("t")).await.unwrap();
    let mut client = bench.list_client().await;
    let unread = lists_told(&bench, &client).await;
    assert_eq!(unread, [Some(ListHash::EMPTY); 3], "due but not told");
    client.told();
    let told = lists_told(&bench, &client).await;
    assert_ne!(told[1], Some(ListHash::EMPTY));

    bench.bus.add_tool(tool("u")).await.unwrap();
    assert_eq!(lists_told(&bench, &client).await, told);
    client.told();
    assert_ne!(lists_told(&bench, &client).await[1], told[1]);
}

#[tokio::test]
async fn register_and_remove_change_the_list_and_no_other_resource() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let mut client = bench.list_client().await;
    client.subscribe("demo://a").await;
    client.told();
    bench.bus.register(text("demo://b", "x")).await.unwrap();
    assert_eq!(client.told(), ["resources changed"]);
    bench.bus.remove("demo://b").await.unwrap();
    assert_eq!(client.told(), ["resources changed"]);
    assert_eq!(bench.bus.etag("demo://a").await.unwrap().version, 1);
}

#[tokio::test]
async fn pages_of_tools_and_prompts_hold_every_item_once() {
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
