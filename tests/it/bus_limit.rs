//! Promise: every bound of the bus holds, and what happens at it is what its documentation says.

use std::time::{Duration, Instant};

use tidings::{
    Drained, EndReason, OpenError, PublishError, ResourceTemplate, ResourceUri, SessionOptions,
    SubscribeError, Variables,
};

use crate::support::{Bench, options, text, tool, uri, within};

fn too_many(what: &'static str, max: usize) -> PublishError {
    PublishError::TooMany { what, max }
}

fn template(text: &str) -> ResourceTemplate {
    ResourceTemplate::new(text, |_: ResourceUri, _: Variables| async { Ok(None) }).unwrap()
}

#[tokio::test]
async fn at_resources_max_a_new_one_is_refused_and_an_old_one_still_changes() {
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
async fn at_list_items_max_tools_prompts_and_templates_are_refused_each() {
    let bench = Bench::with(|limits| limits.list_items_max = 2);
    let prompt = |name: &str| tidings::Prompt::new(name, |_| async { Ok(Vec::new()) });
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
        "in place of the old one"
    );
    assert!(
        bench.bus.tool("b").await.unwrap().is_some(),
        "a refused replacement changes nothing"
    );
}

#[tokio::test]
async fn a_body_larger_than_body_bytes_max_is_refused_and_the_old_one_stays() {
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
async fn at_sessions_max_opening_is_refused_until_one_has_ended() {
    let bench = Bench::with(|limits| limits.sessions_max = 2);
    let first = bench.client().await;
    let _second = bench.client().await;
    let third = bench.bus.open(options()).await;
    assert_eq!(third.unwrap_err(), OpenError::TooMany(2));
    drop(first);
    bench.sessions_are(1).await;
    let third = within(bench.bus.open(options())).await;
    assert!(third.is_ok());
}

#[tokio::test]
async fn at_subscriptions_max_subscribing_is_refused_but_not_to_what_is_subscribed() {
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
async fn what_is_watched_by_watching_all_is_not_counted_as_subscribed_to() {
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
async fn limits_of_zero_mean_one_where_nothing_could_happen_otherwise() {
    let bench = Bench::with(|limits| {
        limits.in_flight_max = 0;
        limits.drain_max = 0;
        limits.keep_alive = Duration::ZERO;
    });
    let mut client = within(bench.client()).await;
    within(bench.bus.upsert(text("demo://a", "one"))).await.unwrap();
    client.subscribe("demo://a").await;
    bench.put("demo://a", "two").await;
    assert_eq!(client.told(), ["demo://a v2"]);
}

#[tokio::test]
async fn a_silent_stream_is_asked_for_a_sign_of_life() {
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
async fn a_session_with_neither_reader_nor_activity_is_ended_as_idle() {
    let bench = Bench::with(|limits| limits.keep_alive = Duration::from_millis(40));
    let timeout = Duration::from_millis(400);
    let idle = SessionOptions {
        idle_timeout: Some(timeout),
        ..options()
    };
    let opened = Instant::now();
    let mut client = bench.client_with(idle).await;

    // As long as it is read it lives, however long that is.
    let mut entries = Vec::new();
    while opened.elapsed() < 2 * timeout {
        assert_eq!(
            within(client.reader.drain(&mut entries)).await,
            Drained::KeepAlive
        );
    }
    let left = Instant::now();
    drop(client.reader);
    let session = client.session;
    crate::support::until("the end of an idle session", async || session.ended().is_some()).await;
    assert_eq!(session.ended(), Some(EndReason::Idle));
    let waited = left.elapsed();
    assert!(waited >= timeout, "ended {waited:?} after it was last read");
}
