//! Limits: every limit of the bus holds, and the behaviour at it is the documented one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidings::{
    Change, Condition, Drained, EndReason, OpenError, Prompt, PublishError, ResourceTemplate, ResourceUri,
    SessionOptions, SubscribeError, Variables,
};

use crate::support::{Bench, options, text, tool, until, uri, within};

fn too_many(what: &'static str, max: usize) -> PublishError {
    PublishError::TooMany { what, max }
}

fn prompt(name: &str) -> Prompt {
    Prompt::new(name, |_| async { Ok(Vec::new()) })
}

fn template(text: &str) -> ResourceTemplate {
    ResourceTemplate::new(text, |_: ResourceUri, _: Variables| async { Ok(None) }).unwrap()
}

#[tokio::test]
async fn batch_max_refuses_the_whole_batch() {
    let bench = Bench::with(|limits| limits.batch_max = 2);
    let upserts = ["demo://a", "demo://b", "demo://c"].map(|uri| Change::Upsert(text(uri, "one")));
    let mut changes: Vec<_> = upserts.map(|change| (change, Condition::Always)).into();
    let refused = bench.bus.update_many(changes.clone()).await;
    assert_eq!(refused, Err(PublishError::BatchTooLarge { len: 3, max: 2 }));
    assert!(bench.bus.resources(None, 10).await.unwrap().items.is_empty());
    changes.pop();
    let results = within(bench.bus.update_many(changes)).await.unwrap();
    assert_eq!(results.len(), 2);
}

#[tokio::test]
async fn resources_max_refuses_only_new_resources() {
    let bench = Bench::with(|limits| limits.resources_max = 2);
    bench.put("demo://a", "one").await;
    bench.put("demo://b", "one").await;
    let refused = too_many("resources", 2);
    assert_eq!(
        bench.bus.register(text("demo://c", "x")).await,
        Err(refused.clone())
    );
    assert_eq!(bench.bus.upsert(text("demo://c", "x")).await, Err(refused));
    assert_eq!(bench.put("demo://a", "two").await, 2);
    bench.bus.remove("demo://b").await.unwrap();
    assert_eq!(bench.put("demo://c", "x").await, 1);
}

#[tokio::test]
async fn list_items_max_holds_for_each_list() {
    let bench = Bench::with(|limits| limits.list_items_max = 2);
    for name in ["a", "b"] {
        bench.bus.add_tool(tool(name)).await.unwrap();
        bench.bus.add_prompt(prompt(name)).await.unwrap();
        bench
            .bus
            .add_template(template(&format!("{name}://{{x}}")))
            .await
            .unwrap();
    }
    assert_eq!(bench.bus.add_tool(tool("c")).await, Err(too_many("tools", 2)));
    assert_eq!(
        bench.bus.add_prompt(prompt("c")).await,
        Err(too_many("prompts", 2))
    );
    let third = bench.bus.add_template(template("c://{x}")).await;
    assert_eq!(third, Err(too_many("resource templates", 2)));
    let all = ["c", "d", "e"].map(tool).to_vec();
    assert_eq!(bench.bus.replace_tools(all).await, Err(too_many("tools", 2)));
    assert!(
        bench.bus.add_tool(tool("a").title("A")).await.unwrap().changed,
        "a replacement is allowed"
    );
    assert!(
        bench.bus.tool("b").await.unwrap().is_some(),
        "a refused replacement changes nothing"
    );
}

#[tokio::test]
async fn body_bytes_max_keeps_the_old_body() {
    let bench = Bench::with(|limits| limits.body_bytes_max = 4);
    bench.put("demo://a", "four").await;
    let refused = PublishError::BodyTooLarge {
        uri: uri("demo://a"),
        len: 5,
        max: 4,
    };
    assert_eq!(bench.bus.update(text("demo://a", "fives")).await, Err(refused));
    assert_eq!(
        bench.bus.read("demo://a").await.unwrap().body.as_text(),
        Some("four")
    );
}

#[tokio::test]
async fn sessions_max_refuses_until_one_ends() {
    let bench = Bench::with(|limits| limits.sessions_max = 2);
    let first = bench.client().await;
    let _second = bench.client().await;
    let third = bench.bus.open(options()).await;
    assert_eq!(third.unwrap_err(), OpenError::TooMany(2));
    drop(first);
    bench.until_sessions(1).await;
    let third = within(bench.bus.open(options())).await;
    assert!(third.is_ok());
}

#[tokio::test]
async fn subscriptions_max_refuses_only_new_ones() {
    let bench = Bench::with(|limits| limits.subscriptions_max = 2);
    let names = ["demo://a", "demo://b", "demo://c"];
    for name in names {
        bench.put(name, "one").await;
    }
    let client = bench.client().await;
    let answers = client.session.subscribe(names.map(uri).to_vec()).await.unwrap();
    assert_eq!(answers[2], Err(SubscribeError::TooMany(2)));
    assert!(client.session.subscribe(vec![uri("demo://a")]).await.unwrap()[0].is_ok());
    client.unsubscribe("demo://a").await;
    client.subscribe("demo://c").await;

    let modest = SessionOptions {
        subscriptions_max: 1,
        ..options()
    };
    let modest = bench.client_with(modest).await;
    let answers = modest.session.subscribe(names.map(uri).to_vec()).await.unwrap();
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert_eq!(answers[1], Err(SubscribeError::TooMany(1)));
}

#[tokio::test]
async fn held_value_is_dropped_when_its_session_ends() {
    let bench = Bench::start();
    let held = Arc::new(());
    let evicted = bench.client().await.session;
    let ended = bench.client().await.session;
    evicted.hold(held.clone());
    evicted.hold(());
    assert_eq!(Arc::strong_count(&held), 1, "a further value replaces it");
    evicted.hold(held.clone());
    ended.hold(held.clone());
    assert_eq!(Arc::strong_count(&held), 3);
    assert!(within(bench.bus.evict(evicted.id())).await.unwrap());
    assert_eq!(Arc::strong_count(&held), 2);
    ended.end();
    assert_eq!(Arc::strong_count(&held), 1);
    evicted.hold(held.clone());
    assert_eq!(Arc::strong_count(&held), 1, "it has ended");
}

#[tokio::test]
async fn watched_uris_do_not_count_as_subscriptions() {
    let bench = Bench::with(|limits| limits.subscriptions_max = 2);
    bench.put("demo://d", "one").await;
    let client = bench.client().await;
    within(client.session.watch_all()).await.unwrap();
    for name in ["demo://a", "demo://b", "demo://c"] {
        bench.put(name, "one").await;
    }
    assert_eq!(client.subscribe("demo://c").await, 1);
    assert_eq!(client.subscribe("demo://d").await, 1);
    let third = client.session.subscribe(vec![uri("demo://a")]).await.unwrap();
    assert_eq!(third, [Err(SubscribeError::TooMany(2))]);
}

#[tokio::test]
async fn limits_of_zero_are_raised_to_the_minimum() {
    let bench = Bench::with(|limits| {
        limits.in_flight_max = 0;
        limits.drain_max = 0;
        limits.keep_alive = Duration::ZERO;
    });
    let mut client = within(bench.client()).await;
    within(bench.bus.upsert(text("demo://a", "one"))).await.unwrap();
    client.subscribe("demo://a").await;
    bench.put("demo://a", "two").await;
    assert_eq!(client.received(), ["demo://a v2"]);
}

#[tokio::test]
async fn silent_stream_gets_keep_alives() {
    let bench = Bench::with(|limits| limits.keep_alive = Duration::from_millis(40));
    let mut client = bench.client().await;
    let mut entries = Vec::new();
    for _ in 0..3 {
        assert_eq!(
            within(client.reader.drain(&mut entries)).await,
            Drained::KeepAlive
        );
    }
    assert!(entries.is_empty());
}

#[tokio::test]
async fn idle_session_is_ended_after_its_timeout() {
    let bench = Bench::with(|limits| limits.keep_alive = Duration::from_millis(20));
    let timeout = Duration::from_millis(200);
    let idle = SessionOptions {
        idle_timeout: Some(timeout),
        ..options()
    };
    let opened = Instant::now();
    let mut client = bench.client_with(idle).await;

    // A session with a reader is never idle.
    let mut entries = Vec::new();
    while opened.elapsed() < 2 * timeout {
        assert_eq!(
            within(client.reader.drain(&mut entries)).await,
            Drained::KeepAlive
        );
    }
    let closed = Instant::now();
    drop(client.reader);
    let session = client.session;
    until("the end of an idle session", async || session.ended().is_some()).await;
    assert_eq!(session.ended(), Some(EndReason::Idle));
    let waited = closed.elapsed();
    assert!(
        waited >= timeout,
        "ended {waited:?} after its last reader was closed"
    );
}

#[tokio::test]
async fn session_that_never_was_ready_makes_room() {
    let bench = Bench::with(|limits| limits.sessions_max = 3);
    let open = async || {
        let awaiting = SessionOptions {
            awaits_ready: true,
            ..options()
        };
        within(bench.bus.open(awaiting)).await
    };
    let ready = open().await.unwrap();
    within(ready.ready()).await.unwrap();
    let first = open().await.unwrap();
    let second = open().await.unwrap();
    // Each new session ends the oldest one that is not ready.
    let third = open().await.unwrap();
    assert_eq!(first.ended(), Some(EndReason::NotReady));
    assert_eq!((second.ended(), ready.ended()), (None, None));
    within(third.ready()).await.unwrap();
    within(second.ready()).await.unwrap();
    assert_eq!(open().await.unwrap_err(), OpenError::TooMany(3));
    // One whose readiness is not awaited is as safe as one that is ready.
    drop(third);
    bench.until_sessions(2).await;
    let _local = within(bench.bus.open(options())).await.unwrap();
    assert_eq!(open().await.unwrap_err(), OpenError::TooMany(3));
}
