//! Promise: who subscribed is told of exactly what it subscribed to, and anybody may ask who that is.

use tidings::{SessionOptions, SubscribeError, SubscriberKind};

use crate::support::{Bench, Client, Gate, let_tasks_run, options, text, uri, within};

#[tokio::test]
async fn a_subscriber_is_told_of_its_resources_and_of_no_others() {
    let bench = Bench::start();
    for name in ["demo://a", "demo://a/b", "demo://b"] {
        bench.put(name, "one").await;
    }
    let mut client = bench.client().await;
    assert_eq!(client.subscribe("demo://a").await, 1);
    for name in ["demo://a", "demo://a/b", "demo://b"] {
        bench.put(name, "two").await;
    }
    assert_eq!(client.told(), ["demo://a v2"]);
}

#[tokio::test]
async fn subscribing_twice_is_one_subscription() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let mut client = bench.client().await;
    for _ in 0..3 {
        let answers = client
            .session
            .subscribe(vec![uri("demo://a"), uri("demo://a")])
            .await
            .unwrap();
        assert!(answers.iter().all(Result::is_ok));
    }
    assert_eq!(
        bench.bus.update(text("demo://a", "two")).await.unwrap().notified,
        1
    );
    assert_eq!(client.told(), ["demo://a v2"]);
    assert_eq!(bench.bus.subscribers(&uri("demo://a")).await.unwrap().len(), 1);
    assert!(client.unsubscribe("demo://a").await);
    assert!(!client.unsubscribe("demo://a").await, "once is enough to end it");
    assert_eq!(
        bench
            .bus
            .update(text("demo://a", "three"))
            .await
            .unwrap()
            .notified,
        0
    );
}

#[tokio::test]
async fn a_refused_subscription_names_its_uri_and_leaves_the_others() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let silent = text("demo://silent", "x").subscribable(false);
    bench.bus.register(silent).await.unwrap();
    let client = bench.client().await;
    let asked = vec![uri("demo://x"), uri("demo://a"), uri("demo://silent")];
    let answers = client.session.subscribe(asked).await.unwrap();
    assert_eq!(answers[0], Err(SubscribeError::NotFound(uri("demo://x"))));
    assert_eq!(answers[1].as_ref().unwrap().version, 1);
    let texts: Vec<_> = answers
        .iter()
        .filter_map(|a| Some(a.as_ref().err()?.to_string()))
        .collect();
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
async fn unsubscribing_takes_back_what_is_pending() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    bench.put("demo://b", "one").await;
    let mut client = bench.client().await;
    client.subscribe("demo://a").await;
    client.subscribe("demo://b").await;
    bench.put("demo://a", "two").await;
    bench.put("demo://b", "two").await;
    assert!(client.unsubscribe("demo://a").await);
    assert_eq!(client.told(), ["demo://b v2"]);
    assert_eq!(client.subscribe("demo://a").await, 2, "what stands now is known");
    assert_eq!(client.told(), [""; 0]);
}

#[tokio::test]
async fn a_removed_resources_subscribers_get_one_last_notice() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let mut client = bench.client().await;
    client.subscribe("demo://a").await;
    assert_eq!(bench.bus.remove("demo://a").await.unwrap().notified, 1);
    assert_eq!(client.told(), ["demo://a v2 removed"]);
    assert!(bench.bus.remove("demo://a").await.is_err());
    assert_eq!(client.told(), [""; 0]);
    // The subscription outlives the resource, so its return is told.
    assert_eq!(bench.put("demo://a", "one").await, 3);
    assert_eq!(client.told(), ["demo://a v3"]);
}

#[tokio::test]
async fn the_end_of_a_session_ends_its_subscriptions() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let stays = bench.client().await;
    stays.subscribe("demo://a").await;
    for _ in 0..2 {
        let goes = bench.client().await;
        goes.subscribe("demo://a").await;
        drop(goes);
    }
    bench.sessions_are(1).await;
    assert_eq!(
        bench.bus.update(text("demo://a", "two")).await.unwrap().notified,
        1
    );
    assert_eq!(bench.bus.subscribers(&uri("demo://a")).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_ended_session_answers_closed_and_its_reader_gets_what_was_pending() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let mut client = bench.client().await;
    client.subscribe("demo://a").await;
    bench.put("demo://a", "two").await;
    client.session.end();
    client.session.end();
    let (told, reason) = client.until_the_end().await;
    assert_eq!((told, reason.name()), (vec!["demo://a v2".to_owned()], "closed"));
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
async fn anyone_can_ask_who_is_subscribed_and_what_waits() {
    let bench = Bench::start();
    for name in ["demo://a", "demo://b"] {
        bench.put(name, "one").await;
    }
    let named = SessionOptions::new(SubscriberKind::Stream, "2026-07-28 over http");
    let first = bench.client_with(named).await;
    let mut second = bench.client().await;
    first.subscribe("demo://a").await;
    first.subscribe("demo://b").await;
    second.subscribe("demo://b").await;
    bench.put("demo://b", "two").await;
    bench.put("demo://a", "two").await;
    bench.put("demo://b", "three").await;
    second.told();

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
    assert_eq!(all[0].id, first.session.id(), "who waits longest comes first");
    assert_eq!((all[1].pending.entries, all[1].pending.oldest), (0, None));
    assert_eq!(bench.bus.stats().await.unwrap().sessions_opened, 2);
}

#[tokio::test]
async fn who_watches_all_is_told_of_every_resource_there_is_or_will_be() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let mut client = bench
        .client_with(SessionOptions::new(SubscriberKind::Local, "all"))
        .await;
    within(client.session.watch_all()).await.unwrap();
    assert_eq!(client.told(), [""; 0]);
    bench.put("demo://a", "two").await;
    bench.put("demo://b", "one").await;
    bench.put("demo://b", "two").await;
    assert_eq!(client.told(), ["demo://a v2", "demo://b v2"]);
    assert_eq!(bench.bus.remove("demo://b").await.unwrap().notified, 1);
    assert_eq!(client.told(), ["demo://b v2 removed".replace("v2", "v3")]);
    bench.put("demo://b", "one").await;
    assert_eq!(client.told(), ["demo://b v4"]);
}

/// A slot that its removal frees is not marked by what its former URI does later.
#[tokio::test]
async fn who_watches_all_and_also_subscribes_is_told_of_each_change_once() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let mut client = bench.client().await;
    client.subscribe("demo://a").await;
    within(client.session.watch_all()).await.unwrap();
    assert_eq!(bench.bus.remove("demo://a").await.unwrap().notified, 1);
    assert_eq!(client.told(), ["demo://a v2 removed"]);
    bench.put("demo://b", "one").await;
    assert_eq!(client.told(), ["demo://b v1"]);
    assert_eq!(bench.put("demo://a", "two").await, 3);
    assert_eq!(client.told(), ["demo://a v3"]);
    assert_eq!(bench.put("demo://b", "two").await, 2);
    assert_eq!(client.told(), ["demo://b v2"]);
    assert_eq!(bench.put("demo://a", "three").await, 4);
    assert_eq!(client.told(), ["demo://a v4"]);
}

#[tokio::test]
async fn an_opened_session_is_listed_and_shut_down_like_any_other() {
    for _ in 0..50 {
        let bench = Bench::start();
        let session = within(bench.bus.open(options())).await.unwrap();
        assert_eq!(bench.bus.sessions().await.unwrap()[0].id, session.id());
    }
}

#[tokio::test]
async fn of_several_readers_the_newest_is_told_and_an_older_one_takes_over() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let mut client = bench.client().await;
    client.subscribe("demo://a").await;
    let newer = client.session.reader();
    assert_eq!(client.session.readers(), 2);
    bench.put("demo://a", "two").await;
    assert_eq!(client.told(), [""; 0]);
    drop(newer);
    assert_eq!(client.told(), ["demo://a v2"]);
}

/// More requests at once than a mailbox that was not yet given its size would take.
#[tokio::test]
async fn a_session_takes_as_many_requests_at_once_as_the_door_lets_in() {
    let bench = Bench::with(|limits| limits.shards = 1);
    bench.put("demo://a", "one").await;
    // The shard's thread is busy while the session is opened and asked.
    let gate = Gate::close(&bench.bus, 0).await;
    let bus = bench.bus.clone();
    let asked = tokio::spawn(async move {
        let client = Client::of(bus.open(options()).await.unwrap());
        let asks = (0..200).map(|_| client.session.subscribe(vec![uri("demo://a")]));
        let mut pending: Vec<_> = asks.map(Box::pin).collect();
        let mut answers = Vec::new();
        // Every request is sent before the first answer is awaited.
        std::future::poll_fn(|cx| {
            pending.retain_mut(|ask| match ask.as_mut().poll(cx) {
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
    let_tasks_run().await;
    gate.open();
    assert_eq!(within(asked).await.unwrap(), 200);
}
