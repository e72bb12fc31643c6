//! Subscriptions: a subscriber is notified of its resources and no others, and subscribers can be listed.

use tidings::{SessionOptions, SubscribeError, SubscriberKind};

use crate::support::{Bench, Client, Gate, options, run_ready_tasks, text, uri, within};

#[tokio::test]
async fn subscriber_gets_only_its_resources() {
    let bench = Bench::with_resources(["demo://a", "demo://a/b", "demo://b"]).await;
    let mut client = bench.client().await;
    assert_eq!(client.subscribe("demo://a").await, 1);
    for name in ["demo://a", "demo://a/b", "demo://b"] {
        bench.put(name, "two").await;
    }
    assert_eq!(client.received(), ["demo://a v2"]);
}

#[tokio::test]
async fn subscribing_twice_is_one_subscription() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let mut client = bench.client().await;
    for _ in 0..3 {
        let answers = client
            .session
            .subscribe(vec![uri("demo://a"), uri("demo://a")])
            .await
            .unwrap();
        assert!(answers.iter().all(Result::is_ok));
    }
    assert_eq!(bench.update("demo://a", "two").await.notified, 1);
    assert_eq!(client.received(), ["demo://a v2"]);
    assert_eq!(bench.bus.subscribers(&uri("demo://a")).await.unwrap().len(), 1);
    assert!(client.unsubscribe("demo://a").await);
    assert!(!client.unsubscribe("demo://a").await, "it has ended");
    assert_eq!(bench.update("demo://a", "three").await.notified, 0);
}

#[tokio::test]
async fn refused_subscription_does_not_affect_others() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let silent = text("demo://silent", "x").subscribable(false);
    bench.bus.register(silent).await.unwrap();
    let client = bench.client().await;
    let asked = vec![uri("demo://x"), uri("demo://a"), uri("demo://silent")];
    let answers = client.session.subscribe(asked).await.unwrap();
    assert_eq!(answers[0], Err(SubscribeError::NotFound(uri("demo://x"))));
    assert_eq!(answers[1].as_ref().unwrap().version, 1);
    let errors = answers.iter().flat_map(|answer| answer.as_ref().err());
    let texts: Vec<_> = errors.map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "Resource not found: demo://x",
            "Resource not subscribable: demo://silent"
        ]
    );
    assert_eq!(bench.bus.touch("demo://silent").await.unwrap().notified, 0);
}

#[tokio::test]
async fn unsubscribe_drops_the_pending_entry() {
    let bench = Bench::with_resources(["demo://a", "demo://b"]).await;
    let mut client = bench.subscriber("demo://a").await;
    client.subscribe("demo://b").await;
    bench.put("demo://a", "two").await;
    bench.put("demo://b", "two").await;
    assert!(client.unsubscribe("demo://a").await);
    assert_eq!(client.received(), ["demo://b v2"]);
    assert_eq!(
        client.subscribe("demo://a").await,
        2,
        "the present version is known"
    );
    assert_eq!(client.received(), [""; 0]);
}

#[tokio::test]
async fn removal_notifies_subscribers_once() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let mut client = bench.subscriber("demo://a").await;
    assert_eq!(bench.bus.remove("demo://a").await.unwrap().notified, 1);
    assert_eq!(client.received(), ["demo://a v2 removed"]);
    assert!(bench.bus.remove("demo://a").await.is_err());
    assert_eq!(client.received(), [""; 0]);
    // The subscription outlives the resource, so its return is notified.
    assert_eq!(bench.put("demo://a", "one").await, 3);
    assert_eq!(client.received(), ["demo://a v3"]);
}

#[tokio::test]
async fn ended_session_loses_its_subscriptions() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let _stays = bench.subscriber("demo://a").await;
    for _ in 0..2 {
        let goes = bench.subscriber("demo://a").await;
        drop(goes);
    }
    bench.until_sessions(1).await;
    assert_eq!(bench.update("demo://a", "two").await.notified, 1);
    assert_eq!(bench.bus.subscribers(&uri("demo://a")).await.unwrap().len(), 1);
}

#[tokio::test]
async fn ended_session_hands_out_pending_entries() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let mut client = bench.subscriber("demo://a").await;
    bench.put("demo://a", "two").await;
    client.session.end();
    client.session.end();
    let (received, reason) = client.until_end().await;
    assert_eq!(
        (received, reason.name()),
        (vec!["demo://a v2".to_owned()], "closed")
    );
    assert!(
        within(client.session.subscribe(vec![uri("demo://a")]))
            .await
            .is_err()
    );
    assert!(within(client.session.unsubscribe(uri("demo://a"))).await.is_err());
    assert!(within(client.session.ready()).await.is_err());
    assert_eq!(client.session.ended(), Some(reason));
}

#[tokio::test]
async fn listing_shows_subscribers_and_pending_uris() {
    let bench = Bench::with_resources(["demo://a", "demo://b"]).await;
    let named = SessionOptions::new(SubscriberKind::Stream, "2026-07-28 over http");
    let first = bench.client_with(named).await;
    let mut second = bench.client().await;
    first.subscribe("demo://a").await;
    first.subscribe("demo://b").await;
    second.subscribe("demo://b").await;
    bench.put("demo://b", "two").await;
    bench.put("demo://a", "two").await;
    bench.put("demo://b", "three").await;
    second.received();

    let of_a = bench.bus.subscribers(&uri("demo://a")).await.unwrap();
    assert_eq!(of_a.len(), 1);
    let info = &of_a[0];
    assert_eq!((info.id, info.kind), (first.session.id(), SubscriberKind::Stream));
    assert_eq!(&*info.label, "2026-07-28 over http");
    let pending = &info.pending;
    assert_eq!(
        (pending.subscriptions, pending.entries, pending.streams),
        (2, 2, 1)
    );
    assert_eq!(pending.uris, [uri("demo://b"), uri("demo://a")], "oldest first");
    assert!(pending.oldest.is_some());
    assert_eq!(bench.bus.subscribers(&uri("demo://b")).await.unwrap().len(), 2);

    let all = bench.bus.sessions().await.unwrap();
    assert_eq!(all[0].id, first.session.id(), "the slowest comes first");
    assert_eq!((all[1].pending.entries, all[1].pending.oldest), (0, None));
    assert_eq!(bench.bus.stats().await.unwrap().sessions_opened, 2);
}

#[tokio::test]
async fn watch_all_covers_present_and_later_resources() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let mut client = bench
        .client_with(SessionOptions::new(SubscriberKind::Local, "all"))
        .await;
    within(client.session.watch_all()).await.unwrap();
    assert_eq!(client.received(), [""; 0]);
    bench.put("demo://a", "two").await;
    bench.put("demo://b", "one").await;
    bench.put("demo://b", "two").await;
    assert_eq!(client.received(), ["demo://a v2", "demo://b v2"]);
    assert_eq!(bench.bus.remove("demo://b").await.unwrap().notified, 1);
    assert_eq!(client.received(), ["demo://b v3 removed"]);
    bench.put("demo://b", "one").await;
    assert_eq!(client.received(), ["demo://b v4"]);
}

/// A slot that a removal frees is not marked by later changes of its former URI.
#[tokio::test]
async fn watch_all_with_subscription_notifies_once() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let mut client = bench.subscriber("demo://a").await;
    within(client.session.watch_all()).await.unwrap();
    assert_eq!(bench.bus.remove("demo://a").await.unwrap().notified, 1);
    assert_eq!(client.received(), ["demo://a v2 removed"]);
    bench.put("demo://b", "one").await;
    assert_eq!(client.received(), ["demo://b v1"]);
    assert_eq!(bench.put("demo://a", "two").await, 3);
    assert_eq!(client.received(), ["demo://a v3"]);
    assert_eq!(bench.put("demo://b", "two").await, 2);
    assert_eq!(client.received(), ["demo://b v2"]);
    assert_eq!(bench.put("demo://a", "three").await, 4);
    assert_eq!(client.received(), ["demo://a v4"]);
}

#[tokio::test]
async fn opened_session_is_listed_at_once() {
    for _ in 0..50 {
        let bench = Bench::start();
        let session = within(bench.bus.open(options())).await.unwrap();
        assert_eq!(bench.bus.sessions().await.unwrap()[0].id, session.id());
    }
}

#[tokio::test]
async fn newest_reader_gets_entries_until_dropped() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let mut client = bench.subscriber("demo://a").await;
    let newer = client.session.reader();
    assert_eq!(client.session.readers(), 2);
    bench.put("demo://a", "two").await;
    assert_eq!(client.received(), [""; 0]);
    drop(newer);
    assert_eq!(client.received(), ["demo://a v2"]);
}

/// There are more requests at once than a mailbox takes before it is given its size.
#[tokio::test]
async fn session_takes_many_requests_at_once() {
    let bench = Bench::with(|limits| limits.shards = 1);
    bench.put("demo://a", "one").await;
    // The shard is blocked while the session is opened and its requests are sent.
    let gate = Gate::close(&bench.bus, 0).await;
    let bus = bench.bus.clone();
    let asked = tokio::spawn(async move {
        let client = Client::of(bus.open(options()).await.unwrap());
        let requests = (0..200).map(|_| client.session.subscribe(vec![uri("demo://a")]));
        let mut pending: Vec<_> = requests.map(Box::pin).collect();
        let mut answers = Vec::new();
        // Every request is sent before the first answer is awaited.
        std::future::poll_fn(|cx| {
            pending.retain_mut(|request| match request.as_mut().poll(cx) {
                std::task::Poll::Ready(answer) => {
                    answers.push(answer);
                    false
                }
                std::task::Poll::Pending => true,
            });
            if pending.is_empty() {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
        assert!(answers.iter().all(Result::is_ok), "a request was refused");
        answers.len()
    });
    run_ready_tasks().await;
    gate.open();
    assert_eq!(within(asked).await.unwrap(), 200);
}
