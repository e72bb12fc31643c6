//! Listings for operators: subscribers by name and state, their number by resource, resources by change.

use tidings::status::SubscriberFilter;

use crate::support::{Bench, options, uri};

fn named(name: &str) -> tidings::SessionOptions {
    tidings::SessionOptions {
        client: Some(name.into()),
        ..options()
    }
}

/// The clients that a text finds, and the number of all of them.
async fn found(bench: &Bench, text: &str, limit: usize) -> (Vec<String>, usize) {
    let mut filter = SubscriberFilter::default();
    filter.text = text.to_owned();
    let page = bench.bus.find_subscribers(filter, limit).await.unwrap();
    let names = page
        .subscribers
        .iter()
        .map(|info| info.client.as_deref().unwrap_or("-").to_owned());
    (names.collect(), page.total)
}

#[tokio::test]
async fn subscribers_are_found_by_their_names() {
    let bench = Bench::start();
    let one = bench.client_with(named("Cursor")).await;
    let _two = bench.client_with(named("claude-code")).await;
    let _three = bench.client().await;
    assert_eq!(found(&bench, "cURS", 9).await, (vec!["Cursor".to_owned()], 1));
    assert_eq!(found(&bench, "test", 9).await.1, 3, "the label counts too");
    assert_eq!(
        found(&bench, "c", 1).await.1,
        2,
        "the limit bounds the page alone"
    );
    let id = one.session.id().to_string();
    assert!(found(&bench, &id, 9).await.0.contains(&"Cursor".to_owned()));
    assert_eq!(found(&bench, "nobody", 9).await, (Vec::new(), 0));
}

#[tokio::test]
async fn name_of_a_client_is_cut() {
    let bench = Bench::start();
    let _client = bench.client_with(named(&"é".repeat(300))).await;
    assert_eq!(found(&bench, "", 9).await.0, ["é".repeat(200)]);
}

#[tokio::test]
async fn stalled_filter_leaves_the_others_out() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let _client = bench.subscriber("demo://a").await;
    let mut filter = SubscriberFilter::of_uri(Some(uri("demo://a")));
    assert_eq!(
        bench.bus.find_subscribers(filter.clone(), 9).await.unwrap().total,
        1
    );
    filter.stalled = true;
    assert_eq!(bench.bus.find_subscribers(filter, 9).await.unwrap().total, 0);
}

#[tokio::test]
async fn subscribers_are_counted_by_resource() {
    let bench = Bench::with_resources(["demo://a", "demo://b", "demo://c"]).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        // Spread over both shards.
        clients.push(bench.subscriber("demo://a").await);
    }
    clients[0].subscribe("demo://b").await;
    let all = bench.bus.count_subscribers(None).await.unwrap();
    assert_eq!(
        (all.len(), all[&uri("demo://a")], all[&uri("demo://b")]),
        (2, 3, 1)
    );
    let some = [uri("demo://b"), uri("demo://c")];
    let some = bench.bus.count_subscribers(Some(some.into())).await.unwrap();
    assert_eq!(
        (some.len(), some[&uri("demo://b")], some[&uri("demo://c")]),
        (2, 1, 0)
    );
}

#[tokio::test]
async fn resources_stand_in_the_order_of_changes() {
    let bench = Bench::with_resources(["demo://a", "demo://b", "demo://c"]).await;
    bench.put("demo://a", "two").await;
    bench
        .bus
        .upsert(tidings::Resource::text("demo://d", "x").unwrap().listed(false))
        .await
        .unwrap();
    let order = || {
        let all = bench.bus.resources_by_change().unwrap();
        let uris = all.iter().map(|(resource, _)| resource.uri().as_str().to_owned());
        uris.collect::<Vec<_>>()
    };
    assert_eq!(order(), ["demo://a", "demo://c", "demo://b"]);
    bench.pass_seconds(5);
    bench.put("demo://b", "one").await;
    assert_eq!(order()[0], "demo://a", "the same content is no change");
    bench.put("demo://b", "two").await;
    assert_eq!(order()[0], "demo://b");
}
