//! Clients that return name their etags, and are notified of every difference and of nothing else.

use tidings::{Etag, SubscribeError, SubscriptionRequest};

use crate::memory_store::MemoryStore;
use crate::support::{Bench, Client, options, text, uri, within};

/// Subscribes to one resource as a client that holds this etag.
async fn subscribe_from(client: &Client, name: &str, known: Option<Etag>) -> Result<Etag, SubscribeError> {
    let request = SubscriptionRequest {
        uri: uri(name),
        known: Some(known.map(|etag| etag.to_string())),
    };
    let answers = within(client.session.subscribe_from(vec![request])).await;
    answers.unwrap().remove(0)
}

#[tokio::test]
async fn missed_change_is_pending_at_once() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let old = within(bench.bus.etag(&uri("demo://a"))).await.unwrap();
    let new = bench.update("demo://a", "two").await.etag;
    let missed = ["demo://a v2".to_owned()];
    let mut clients = Vec::new();
    for (known, told) in [(Some(old), &missed[..]), (None, &missed), (Some(new), &[])] {
        let mut client = bench.client().await;
        assert_eq!(subscribe_from(&client, "demo://a", known).await, Ok(new));
        assert_eq!(client.received(), told);
        clients.push(client);
    }
    // Each is told of the next change once.
    bench.update("demo://a", "three").await;
    for client in &mut clients {
        assert_eq!(client.received(), ["demo://a v3"]);
    }
}

#[tokio::test]
async fn lost_stream_repeats_the_missed_change() {
    let bench = Bench::with_resources(["demo://a", "demo://b"]).await;
    let mut client = bench.subscriber("demo://b").await;
    bench.put("demo://b", "two").await;
    assert_eq!(client.received(), ["demo://b v2"]);
    let before = client.position.unwrap();
    subscribe_from(&client, "demo://a", None).await.unwrap();
    assert_eq!(client.received(), ["demo://a v1"]);
    let after = client.position.unwrap();
    client.forget();
    client.reader.resume_after(before);
    assert_eq!(client.received(), ["demo://a v1"]);
    client.reader.resume_after(after);
    assert_eq!(client.received(), [""; 0]);
}

#[tokio::test]
async fn absent_resource_is_waited_for() {
    let bench = Bench::start();
    let mut client = bench.client().await;
    let answer = subscribe_from(&client, "demo://a", None).await;
    assert_eq!(answer, Ok(Etag::UNKNOWN));
    assert_eq!(client.received(), [""; 0]);
    bench.put("demo://a", "one").await;
    bench.put("demo://b", "one").await;
    assert_eq!(client.received(), ["demo://a v1"]);
    bench.put("demo://a", "two").await;
    assert_eq!(client.received(), ["demo://a v2"]);
    assert!(client.unsubscribe("demo://a").await);
}

#[tokio::test]
async fn resource_that_appears_closed_is_not_told() {
    let bench = Bench::start();
    let mut client = bench.client().await;
    subscribe_from(&client, "demo://a", None).await.unwrap();
    let closed = text("demo://a", "one").subscribable(false);
    bench.bus.register(closed).await.unwrap();
    bench.bus.touch("demo://a").await.unwrap();
    bench.bus.remove("demo://a").await.unwrap();
    assert_eq!(client.received(), [""; 0]);
    // Open, it is told.
    bench.put("demo://a", "one").await;
    assert_eq!(client.received(), ["demo://a v4"]);
}

#[tokio::test]
async fn removal_while_away_is_told_once() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let held = within(bench.bus.etag(&uri("demo://a"))).await.unwrap();
    bench.bus.remove("demo://a").await.unwrap();
    let mut client = bench.client().await;
    let gone = subscribe_from(&client, "demo://a", Some(held)).await.unwrap();
    assert_eq!(gone.version, 2);
    assert_eq!(client.received(), ["demo://a v2 removed"]);
    let mut informed = bench.client().await;
    for known in [Some(gone), None] {
        assert_eq!(subscribe_from(&informed, "demo://a", known).await, Ok(gone));
        assert_eq!(informed.received(), [""; 0]);
    }
    bench.put("demo://a", "one").await;
    assert_eq!(client.received(), ["demo://a v3"]);
    assert_eq!(informed.received(), ["demo://a v3"]);
}

#[tokio::test]
async fn pending_subscriptions_are_bounded() {
    for max in [0, 2] {
        let bench = Bench::with(|limits| limits.pending_subscriptions = max);
        let client = bench.client().await;
        for n in 0..3 {
            let name = format!("demo://{n}");
            let expected = match n < max {
                true => Ok(Etag::UNKNOWN),
                false => Err(SubscribeError::NotFound(uri(&name))),
            };
            assert_eq!(subscribe_from(&client, &name, None).await, expected);
        }
        // A session may ask for fewer.
        let mut few = options();
        few.pending_subscriptions = 1;
        let few = bench.client_with(few).await;
        assert_eq!(subscribe_from(&few, "demo://0", None).await.is_ok(), max > 0);
        assert!(subscribe_from(&few, "demo://1", None).await.is_err());
    }
}

#[tokio::test]
async fn client_returns_before_its_publisher() {
    let store = MemoryStore::new();
    let names = ["demo://same", "demo://other", "demo://gone"];
    let mut held = Vec::new();
    {
        let bench = Bench::stored(|_| (), store.clone());
        for name in names {
            bench.put(name, "one").await;
            held.push(within(bench.bus.etag(&uri(name))).await.unwrap());
        }
        bench.bus.remove("demo://gone").await.unwrap();
        bench.bus.shutdown(std::time::Duration::ZERO).await;
    }
    let bench = Bench::stored(|_| (), store);
    let mut client = bench.client().await;
    for (index, name) in names.into_iter().enumerate() {
        subscribe_from(&client, name, Some(held[index])).await.unwrap();
    }
    assert_eq!(client.received(), ["demo://gone v2 removed"]);
    bench.put("demo://same", "one").await;
    bench.put("demo://other", "two").await;
    assert_eq!(client.received(), ["demo://other v2"]);
}

#[tokio::test]
async fn life_without_a_store_is_another_history() {
    let mut bench = Bench::start();
    bench.put("demo://a", "one").await;
    let held = within(bench.bus.etag(&uri("demo://a"))).await.unwrap();
    bench = Bench::start();
    bench.pass_seconds(1);
    let mut client = bench.client().await;
    assert_eq!(
        subscribe_from(&client, "demo://a", Some(held)).await,
        Ok(Etag::UNKNOWN)
    );
    // The bus knows nothing of the resource, whose publisher may come later.
    assert_eq!(client.received(), [""; 0]);
    bench.put("demo://a", "one").await;
    assert_eq!(client.received(), ["demo://a v1"]);
}
