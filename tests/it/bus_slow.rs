//! Promise: who is slow is seen, and who is slow, old or unwanted for too long is ended with a reason, while the others
//! notice nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidings::status::{DelayReason, DeliveryStatus, SubscriberInfo, SubscriberState};
use tidings::{EndReason, OutboxReader, SessionOptions, SubscriberId, SubscriberKind, WriteProgress};

use crate::support::{Bench, Client, options, until, uri, within};

const SHORT: Duration = Duration::from_millis(100);

fn stalling() -> SessionOptions {
    SessionOptions {
        stall_timeout: Some(SHORT),
        ..options()
    }
}

async fn info(bench: &Bench, client: &Client) -> SubscriberInfo {
    match within(bench.bus.subscriber_state(client.session.id()))
        .await
        .unwrap()
    {
        Some(SubscriberState::Live(info)) => *info,
        other => panic!("not there: {other:?}"),
    }
}

async fn until_ended(bench: &Bench, id: SubscriberId) -> (EndReason, usize) {
    let mut ended = None;
    until("its end is remembered", async || {
        if let Some(SubscriberState::Ended(gone)) = bench.bus.subscriber_state(id).await.unwrap() {
            ended = Some((gone.reason, gone.pending));
        }
        ended.is_some()
    })
    .await;
    ended.unwrap()
}

#[tokio::test]
async fn a_reader_that_takes_nothing_of_what_waits_is_ended_as_stalled() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    bench.put("demo://b", "one").await;
    let patient = SessionOptions {
        stall_timeout: Some(crate::support::DEADLINE),
        ..options()
    };
    let mut steady = bench.client_with(patient).await;
    let stalled = bench.client_with(stalling()).await;
    for client in [&steady, &stalled] {
        client.subscribe("demo://a").await;
        client.subscribe("demo://b").await;
    }
    let started = Instant::now();
    bench.put("demo://a", "two").await;
    bench.put("demo://b", "two").await;
    while stalled.session.ended().is_none() {
        assert!(started.elapsed() < crate::support::DEADLINE);
        steady.told();
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
    assert_eq!(steady.told(), ["demo://a v3"]);
}

#[tokio::test]
async fn without_a_stream_or_anything_waiting_nothing_stalls() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let silent = bench.client_with(stalling()).await;
    let away = within(bench.bus.open(stalling())).await.unwrap();
    within(away.subscribe(vec![uri("demo://a")])).await.unwrap();
    bench.put("demo://a", "two").await;
    // The sentinel has waited for as long as they could have.
    let sentinel = bench.client_with(stalling()).await;
    sentinel.subscribe("demo://a").await;
    bench.put("demo://a", "three").await;
    until("the sentinel's end", async || sentinel.session.ended().is_some()).await;
    assert_eq!((silent.session.ended(), away.ended()), (None, None));
    let found = info(&bench, &silent).await;
    assert_eq!((found.progress.untaken, found.pending.oldest), (None, None));
}

#[tokio::test]
async fn a_session_that_is_old_enough_is_told_what_is_pending_and_ended() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let old = SessionOptions {
        age_max: Some(15 * SHORT),
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
    assert!(opened.elapsed() >= 15 * SHORT * 9 / 10);
    let (told, reason) = client.until_the_end().await;
    assert_eq!((told.len(), reason), (1, EndReason::Expired));
    assert_eq!(
        until_ended(&bench, client.session.id()).await.0,
        EndReason::Expired
    );
}

#[tokio::test]
async fn an_operator_ends_one_and_the_others_stay() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let mut one = bench.client().await;
    let mut other = bench.client().await;
    for client in [&one, &other] {
        client.subscribe("demo://a").await;
    }
    bench.put("demo://a", "two").await;
    assert!(within(bench.bus.evict(one.session.id())).await.unwrap());
    let (told, reason) = one.until_the_end().await;
    assert_eq!(
        (told, reason),
        (vec!["demo://a v2".to_owned()], EndReason::Evicted)
    );
    bench.sessions_are(1).await;
    assert!(!within(bench.bus.evict(one.session.id())).await.unwrap());
    assert!(!within(bench.bus.evict(SubscriberId(99))).await.unwrap());
    assert!(
        within(one.session.subscribe(vec![uri("demo://a")]))
            .await
            .is_err()
    );
    other.until_told("demo://a", 2).await;
}

#[tokio::test]
async fn a_blocked_connection_keeps_its_entries_in_the_outbox_until_it_takes_them() {
    let bench = Bench::with(|limits| limits.stalled_after = SHORT);
    bench.put("demo://a", "one").await;
    let mut client = bench.client().await;
    client.subscribe("demo://a").await;
    let flow = Arc::new(WriteProgress::default());
    client.reader.pause_while_blocked(flow.clone());
    flow.refused();
    bench.put("demo://a", "two").await;
    bench.put("demo://a", "three").await;
    assert_eq!(client.told(), [""; 0], "it would only grow old in a buffer");
    until("it counts as stalled", async || {
        info(&bench, &client).await.progress.stalled
    })
    .await;
    let name = uri("demo://a");
    let held = within(bench.bus.explain(client.session.id(), &name))
        .await
        .unwrap();
    let stalled = |explanation: &DeliveryStatus| {
        matches!(explanation, DeliveryStatus::Pending { reason, etag, .. }
            if *reason == DelayReason::Stalled && etag.version == 3)
    };
    assert!(held.as_ref().is_some_and(stalled), "{held:?}");
    assert!(flow.took(300), "whoever waits has to look again");
    assert_eq!(client.told(), ["demo://a v3"]);
    let progress = info(&bench, &client).await.progress;
    assert_eq!(
        (progress.notified, progress.conflated, progress.bytes),
        (1, 1, 300)
    );
    assert!(!progress.stalled && progress.last.is_some());
    drop(client.reader);
    let kept = within(bench.bus.sessions()).await.unwrap();
    assert_eq!(
        kept[0].progress.bytes, 300,
        "what a stream that is gone took still counts"
    );
}

#[tokio::test]
async fn ending_a_session_cuts_a_connection_that_takes_nothing_and_no_other() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    for blocked in [true, false] {
        let mut client = bench.client().await;
        client.subscribe("demo://a").await;
        let flow = Arc::new(WriteProgress::default());
        client.reader.pause_while_blocked(flow.clone());
        if blocked {
            flow.refused();
        }
        within(bench.bus.evict(client.session.id())).await.unwrap();
        assert_eq!(flow.is_cut(), blocked);
        assert_eq!(client.until_the_end().await.1, EndReason::Evicted);
    }
}

#[tokio::test]
async fn a_stream_whose_connection_timed_out_ends_for_that_reason_and_a_session_outlives_it() {
    let bench = Bench::start();
    for kind in [SubscriberKind::Stream, SubscriberKind::Session] {
        let session = within(bench.bus.open(SessionOptions::new(kind, "test")))
            .await
            .unwrap();
        let reader: OutboxReader = session.reader();
        let flow = Arc::new(WriteProgress::default());
        reader.pause_while_blocked(flow.clone());
        flow.time_out();
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
async fn a_survey_of_many_names_the_slowest_and_counts_the_rest() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
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
