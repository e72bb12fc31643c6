//! Promise: resources are created, replaced, touched, removed and read, and each answer says what came of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tidings::{Body, Change, Condition, PublishError, ReadError, Resource};

use crate::support::{Bench, text, uri, within};

#[tokio::test]
async fn register_fails_on_an_existing_uri_and_update_on_an_unknown_one() {
    let bench = Bench::start();
    let unknown = bench.bus.update(text("demo://a", "one")).await;
    assert_eq!(unknown, Err(PublishError::NotFound(uri("demo://a"))));
    assert!(bench.bus.register(text("demo://a", "one")).await.unwrap().created);
    let again = bench.bus.register(text("demo://a", "two")).await;
    assert_eq!(again, Err(PublishError::AlreadyExists(uri("demo://a"))));
    assert_eq!(bench.bus.read("demo://a").await.unwrap().body, Body::text("one"));
    for refused in [
        bench.bus.touch("demo://b").await,
        bench.bus.remove("demo://b").await,
        bench.bus.notify_resource_changed("demo://b").await,
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error, PublishError::NotFound(uri("demo://b")));
        assert_eq!(error.to_string(), "Resource not found: demo://b");
    }
    assert_eq!(bench.bus.stats().await.unwrap().refused, 5);
}

#[tokio::test]
async fn upsert_is_register_and_update_composed() {
    let bench = Bench::start();
    let first = bench.bus.upsert(text("demo://a", "one")).await.unwrap();
    assert!(first.created && first.changed);
    let second = bench.bus.upsert(text("demo://a", "two")).await.unwrap();
    assert!(!second.created && second.changed);
    assert_eq!(second.etag.version, 2);
}

#[tokio::test]
async fn every_answer_says_how_many_were_told() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let clients = [bench.client().await, bench.client().await, bench.client().await];
    for client in &clients {
        client.subscribe("demo://a").await;
    }
    assert_eq!(
        bench.bus.update(text("demo://a", "two")).await.unwrap().notified,
        3
    );
    assert_eq!(
        bench.bus.touch("demo://a").await.unwrap().notified,
        3,
        "conflated ones count"
    );
    assert!(clients[0].unsubscribe("demo://a").await);
    assert_eq!(
        bench
            .bus
            .notify_resource_changed("demo://a")
            .await
            .unwrap()
            .notified,
        2
    );
    assert_eq!(bench.bus.remove("demo://a").await.unwrap().notified, 2);
    let stats = bench.bus.stats().await.unwrap();
    assert_eq!((stats.notified, stats.conflated), (3, 7));
}

#[tokio::test]
async fn touch_is_believed_and_the_same_bytes_afterwards_are_still_no_change() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    assert_eq!(bench.bus.touch("demo://a").await.unwrap().etag.version, 2);
    let same = bench.bus.update(text("demo://a", "one")).await.unwrap();
    assert_eq!((same.etag.version, same.changed), (2, false));
}

/// The body says which write it was; the version counts the writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_read_is_body_and_etag_of_one_version() {
    let bench = Bench::start();
    bench.put("demo://a", "1").await;
    let bus = bench.bus.clone();
    let writer = tokio::spawn(async move {
        for version in 2..=400 {
            let outcome = bus.update(text("demo://a", &version.to_string())).await.unwrap();
            assert_eq!(outcome.etag.version, version);
        }
    });
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let bus = bench.bus.clone();
            tokio::spawn(async move {
                let mut before = 0;
                while before < 400 {
                    let read = bus.read("demo://a").await.unwrap();
                    assert_eq!(read.body.as_text(), Some(&*read.etag.version.to_string()));
                    assert!(read.etag.version >= before);
                    before = read.etag.version;
                }
            })
        })
        .collect();
    within(writer).await.unwrap();
    for reader in readers {
        within(reader).await.unwrap();
    }
}

#[tokio::test]
async fn a_lazy_body_that_is_touched_while_being_read_is_read_again() {
    let bench = Bench::start();
    let (bus, reads) = (bench.bus.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = reads.clone();
    let reader = move || {
        let (bus, nth) = (bus.clone(), counted.fetch_add(1, Ordering::Relaxed));
        async move {
            if nth == 0 {
                bus.touch("demo://lazy").await?;
            }
            Ok(Body::text(format!("read {nth}")))
        }
    };
    bench
        .bus
        .register(Resource::lazy("demo://lazy", reader).unwrap())
        .await
        .unwrap();
    let read = within(bench.bus.read("demo://lazy")).await.unwrap();
    assert_eq!((read.body.as_text(), read.etag.version), (Some("read 1"), 2));
    assert_eq!(reads.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_lazy_body_that_never_stands_still_is_answered_with_an_etag_no_newer_than_it() {
    let bench = Bench::start();
    let (bus, state) = (bench.bus.clone(), Arc::new(AtomicU64::new(1)));
    let reader = move || {
        let (bus, state) = (bus.clone(), state.clone());
        async move {
            // The body as it stands when it is read; it changes right after.
            let body = state.fetch_add(1, Ordering::Relaxed);
            bus.touch("demo://lazy").await?;
            Ok(Body::text(body.to_string()))
        }
    };
    bench
        .bus
        .register(Resource::lazy("demo://lazy", reader).unwrap())
        .await
        .unwrap();
    let read = within(bench.bus.read("demo://lazy")).await.unwrap();
    let body: u64 = read.body.as_text().unwrap().parse().unwrap();
    assert!(
        read.etag.version <= body,
        "{} is newer than body {body}",
        read.etag
    );
    assert!(
        bench
            .bus
            .is_stale("demo://lazy", Some(&read.etag.to_string()))
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn a_reader_that_fails_is_named_with_its_resource() {
    let bench = Bench::start();
    let failing = Resource::lazy("demo://lazy", || async { Err("the disk is gone".into()) }).unwrap();
    bench.bus.register(failing).await.unwrap();
    let error = bench.bus.read("demo://lazy").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "Resource could not be read: demo://lazy: the disk is gone"
    );
    assert!(
        matches!(bench.bus.read("demo://x").await, Err(ReadError::NotFound(name)) if name == uri("demo://x"))
    );
}

#[tokio::test]
async fn another_reader_is_a_change_and_the_same_one_is_none() {
    let bench = Bench::start();
    let lazy = || Resource::lazy("demo://lazy", || async { Ok(Body::text("x")) }).unwrap();
    let first = lazy();
    bench.bus.register(first.clone()).await.unwrap();
    assert!(!bench.bus.update(first).await.unwrap().changed);
    assert_eq!(bench.bus.update(lazy()).await.unwrap().etag.version, 2);
}

#[tokio::test]
async fn a_removed_resource_is_gone_for_readers_and_lists() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    bench.put("demo://b", "one").await;
    assert_eq!(bench.bus.remove("demo://a").await.unwrap().etag.version, 2);
    assert!(matches!(
        bench.bus.read("demo://a").await,
        Err(ReadError::NotFound(_))
    ));
    let page = bench.bus.resources(None, 10).await.unwrap();
    assert_eq!(page.items.len(), 1);
    assert_eq!(bench.bus.stats().await.unwrap().resources, 1);
    assert_eq!(bench.put("demo://a", "one").await, 3);
}

#[tokio::test]
async fn a_change_on_condition_is_made_only_at_the_revision_that_was_read() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let revision = bench.bus.read("demo://a").await.unwrap().generation.unwrap();
    let update = |body| Change::Update(text("demo://a", body));
    let condition = Condition::Generation(revision);
    assert_eq!(
        bench
            .bus
            .publish(update("two"), condition)
            .await
            .unwrap()
            .etag
            .version,
        2
    );
    let late = bench.bus.publish(update("three"), condition).await;
    assert_eq!(late, Err(PublishError::Conflict(uri("demo://a"))));
    let late = bench
        .bus
        .publish(Change::Remove(uri("demo://a")), condition)
        .await;
    assert_eq!(late, Err(PublishError::Conflict(uri("demo://a"))));
    assert_eq!(bench.bus.read("demo://a").await.unwrap().body, Body::text("two"));
}

#[tokio::test]
async fn pages_hold_every_resource_once_in_order() {
    let bench = Bench::start();
    for i in (0..25).rev() {
        bench.put(&format!("demo://{i:02}"), "x").await;
    }
    let (mut after, mut seen, mut sizes) = (None, Vec::new(), Vec::new());
    loop {
        let page = bench.bus.resources(after, 10).await.unwrap();
        sizes.push(page.items.len());
        seen.extend(
            page.items
                .iter()
                .map(|(resource, _)| resource.uri().as_str().to_owned()),
        );
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let all: Vec<_> = (0..25).map(|i| format!("demo://{i:02}")).collect();
    assert_eq!((seen, sizes), (all, vec![10, 10, 5]));
    assert_eq!(bench.bus.resources(None, 25).await.unwrap().next, None);
}
