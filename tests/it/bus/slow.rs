//! Slow sessions: they are listed, and ended with a reason after their time-outs, without effect on the
//! others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidings::status::{DelayReason, DeliveryStatus, SubscriberState};
use tidings::{EndReason, OutboxReader, SessionOptions, SubscriberId, SubscriberKind, WriteProgress};

use crate::support::{Bench, DEADLINE, options, until, uri, within};

/// A time-out that a test waits for. Sessions are swept by the clock of the process, which no test can
/// advance.
const SHORT: Duration = Duration::from_millis(40);

fn stalling() -> SessionOptions {
    SessionOptions {
        stall_timeout: Some(SHORT),
        ..options()
    }
}

async fn until_ended(bench: &Bench, id: SubscriberId) -> (EndReason, usize) {
    let mut ended = None;
    until("the end of a session", async || {
        if let Some(SubscriberState::Ended(gone)) = bench.bus.subscriber_state(id).await.unwrap() {
            ended = Some((gone.reason, gone.pending));
        }
        ended.is_some()
    })
    .await;
    ended.unwrap()
}

#[tokio::test]
async fn stalled_session_is_ended_after_its_timeout() {
    let bench = Bench::with_resources(["demo://a", "demo://b"]).await;
    let steady = SessionOptions {
        stall_timeout: Some(DEADLINE),
        ..options()
    };
    let mut steady = bench.client_with(steady).await;
    let stalled = bench.client_with(stalling()).await;
    for client in [&steady, &stalled] {
        client.subscribe("demo://a").await;
        client.subscribe("demo://b").await;
    }
    let started = Instant::now();
    bench.put("demo://a", "two").await;
    bench.put("demo://b", "two").await;
    while stalled.session.ended().is_none() {
        assert!(started.elapsed() < DEADLINE);
        steady.received();
        tokio::task::yield_now().await;
    }
    assert!(started.elapsed() >= SHORT);
    let id = stalled.session.id();
    assert_eq!(until_ended(&bench, id).await, (EndReason::Stalled, 2));
    let explained = bench.bus.explain(id, &uri("demo://a")).await.unwrap();
    assert!(
        matches!(explained, Some(DeliveryStatus::Ended(_))),
        "{explained:?}"
    );
    assert_eq!(bench.put("demo://a", "three").await, 3);
    assert_eq!(steady.session.ended(), None);
    assert_eq!(steady.received(), ["demo://a v3"]);
}

#[tokio::test]
async fn session_without_stream_or_entries_never_stalls() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let silent = bench.client_with(stalling()).await;
    let away = within(bench.bus.open(stalling())).await.unwrap();
    within(away.subscribe(vec![uri("demo://a")])).await.unwrap();
    bench.put("demo://a", "two").await;
    // The time-out of the others is over when this session, which does stall, is ended.
    let stalled = bench.client_with(stalling()).await;
    stalled.subscribe("demo://a").await;
    bench.put("demo://a", "three").await;
    until("the end of the stalled session", async || {
        stalled.session.ended().is_some()
    })
    .await;
    assert_eq!((silent.session.ended(), away.ended()), (None, None));
    let found = bench.info(&silent).await;
    assert_eq!((found.progress.untaken, found.pending.oldest), (None, None));
}

#[tokio::test]
async fn expired_session_gets_its_pending_entries() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let old = SessionOptions {
        age_max: Some(30 * SHORT),
        ..options()
    };
    let opened = Instant::now();
    let mut client = bench.client_with(old).await;
    client.subscribe("demo://a").await;
    bench.put("demo://a", "two").await;
    until("the end of an old session", async || {
        client.session.ended().is_some()
    })
    .await;
    assert!(opened.elapsed() >= 30 * SHORT * 9 / 10);
    let (received, reason) = client.until_end().await;
    assert_eq!((received.len(), reason), (1, EndReason::Expired));
    assert_eq!(
        until_ended(&bench, client.session.id()).await.0,
        EndReason::Expired
    );
}

#[tokio::test]
async fn evict_ends_one_session_only() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let mut one = bench.client().await;
    let mut other = bench.client().await;
    for client in [&one, &other] {
        client.subscribe("demo://a").await;
    }
    bench.put("demo://a", "two").await;
    assert!(within(bench.bus.evict(one.session.id())).await.unwrap());
    let (received, reason) = one.until_end().await;
    assert_eq!(
        (received, reason),
        (vec!["demo://a v2".to_owned()], EndReason::Evicted)
    );
    bench.until_sessions(1).await;
    assert!(!within(bench.bus.evict(one.session.id())).await.unwrap());
    assert!(!within(bench.bus.evict(SubscriberId(99))).await.unwrap());
    assert!(
        within(one.session.subscribe(vec![uri("demo://a")]))
            .await
            .is_err()
    );
    other.until_received("demo://a", 2).await;
}

#[tokio::test]
async fn blocked_connection_keeps_entries_pending() {
    let bench = Bench::with(|limits| limits.stalled_after = SHORT);
    bench.put("demo://a", "one").await;
    let mut client = bench.subscriber("demo://a").await;
    let progress = Arc::new(WriteProgress::default());
    client.reader.pause_while_blocked(progress.clone());
    progress.refused();
    bench.put("demo://a", "two").await;
    bench.put("demo://a", "three").await;
    assert_eq!(client.received(), [""; 0], "the connection is blocked");
    until("the mark as stalled", async || {
        bench.info(&client).await.progress.stalled
    })
    .await;
    let name = uri("demo://a");
    let held = within(bench.bus.explain(client.session.id(), &name))
        .await
        .unwrap();
    match held {
        Some(DeliveryStatus::Pending { reason, etag, .. }) => {
            assert_eq!((reason, etag.version), (DelayReason::Stalled, 3));
        }
        other => panic!("{other:?}"),
    }
    assert!(progress.took(300), "the reader has to be polled again");
    assert_eq!(client.received(), ["demo://a v3"]);
    let progress = bench.info(&client).await.progress;
    assert_eq!(
        (progress.notified, progress.conflated, progress.bytes),
        (1, 1, 300)
    );
    assert!(!progress.stalled && progress.last.is_some());
    drop(client.reader);
    let kept = within(bench.bus.sessions()).await.unwrap();
    assert_eq!(
        kept[0].progress.bytes, 300,
        "the bytes of a closed stream still count"
    );
}

#[tokio::test]
async fn evict_cuts_only_a_blocked_connection() {
    let bench = Bench::with_resources(["demo://a"]).await;
    for blocked in [true, false] {
        let mut client = bench.subscriber("demo://a").await;
        let progress = Arc::new(WriteProgress::default());
        client.reader.pause_while_blocked(progress.clone());
        if blocked {
            progress.refused();
        }
        within(bench.bus.evict(client.session.id())).await.unwrap();
        assert_eq!(progress.is_cut(), blocked);
        assert_eq!(client.until_end().await.1, EndReason::Evicted);
    }
}

#[tokio::test]
async fn write_timeout_ends_a_stream_not_a_session() {
    let bench = Bench::start();
    for kind in [SubscriberKind::Stream, SubscriberKind::Session] {
        let session = within(bench.bus.open(SessionOptions::new(kind, "test")))
            .await
            .unwrap();
        let reader: OutboxReader = session.reader();
        let progress = Arc::new(WriteProgress::default());
        reader.pause_while_blocked(progress.clone());
        progress.time_out();
        drop(reader);
        let expected = (kind == SubscriberKind::Stream).then_some(EndReason::WriteTimeout);
        assert_eq!(session.ended(), expected);
        let id = session.id();
        drop(session);
        let reason = expected.unwrap_or(EndReason::Closed);
        assert_eq!(until_ended(&bench, id).await, (reason, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listing_names_the_slowest_and_counts_all() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let mut sessions = Vec::new();
    for _ in 0..2_000 {
        sessions.push(within(bench.bus.open(options())).await.unwrap());
    }
    for slow in [17, 1_234, 1_999] {
        within(sessions[slow].subscribe(vec![uri("demo://a")]))
            .await
            .unwrap();
    }
    bench.put("demo://a", "two").await;
    let found = within(bench.bus.list_subscribers(None, 3)).await.unwrap();
    assert_eq!((found.total, found.subscribers.len()), (2_000, 3));
    let mut ids: Vec<_> = found.subscribers.iter().map(|info| info.id).collect();
    ids.sort();
    assert_eq!(ids, [17, 1_234, 1_999].map(|slow| sessions[slow].id()));
    let name = uri("demo://a");
    let of_a = within(bench.bus.list_subscribers(Some(&name), 2)).await.unwrap();
    assert_eq!((of_a.total, of_a.subscribers.len()), (3, 2));
}
