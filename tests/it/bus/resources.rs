//! Resources: they are created, replaced, touched, removed and read, and each outcome is reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tidings::{Body, Change, Condition, EtagCondition, PublishError, ReadError, Resource};

use crate::support::{Bench, text, uri, within};

#[tokio::test]
async fn register_and_update_check_existence() {
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
async fn upsert_registers_then_updates() {
    let bench = Bench::start();
    let first = bench.bus.upsert(text("demo://a", "one")).await.unwrap();
    assert!(first.created && first.changed);
    let second = bench.bus.upsert(text("demo://a", "two")).await.unwrap();
    assert!(!second.created && second.changed);
    assert_eq!(second.etag.version, 2);
}

#[tokio::test]
async fn outcome_counts_notified_subscribers() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let clients = [bench.client().await, bench.client().await, bench.client().await];
    for client in &clients {
        client.subscribe("demo://a").await;
    }
    assert_eq!(bench.update("demo://a", "two").await.notified, 3);
    assert_eq!(
        bench.bus.touch("demo://a").await.unwrap().notified,
        3,
        "conflated notices count"
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
async fn touch_moves_the_version_but_not_the_content() {
    let bench = Bench::with_resources(["demo://a"]).await;
    assert_eq!(bench.bus.touch("demo://a").await.unwrap().etag.version, 2);
    let same = bench.update("demo://a", "one").await;
    assert_eq!((same.etag.version, same.changed), (2, false));
}

/// The body is the number of the write, which has to equal the version.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn read_returns_body_and_etag_of_one_version() {
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
async fn lazy_body_touched_during_read_is_read_again() {
    let bench = Bench::start();
    let bus = bench.bus.clone();
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = reads.clone();
    let lazy = Resource::lazy("demo://lazy", move || {
        let bus = bus.clone();
        let nth = counted.fetch_add(1, Ordering::Relaxed);
        async move {
            if nth == 0 {
                bus.touch("demo://lazy").await?;
            }
            Ok(Body::text(format!("read {nth}")))
        }
    });
    bench.bus.register(lazy.unwrap()).await.unwrap();
    let read = within(bench.bus.read("demo://lazy")).await.unwrap();
    assert_eq!((read.body.as_text(), read.etag.version), (Some("read 1"), 2));
    assert_eq!(reads.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn changing_lazy_body_never_gets_a_newer_etag() {
    let bench = Bench::start();
    let bus = bench.bus.clone();
    let state = Arc::new(AtomicU64::new(1));
    let lazy = Resource::lazy("demo://lazy", move || {
        let bus = bus.clone();
        let state = state.clone();
        async move {
            // The resource changes right after its body is taken.
            let body = state.fetch_add(1, Ordering::Relaxed);
            bus.touch("demo://lazy").await?;
            Ok(Body::text(body.to_string()))
        }
    });
    bench.bus.register(lazy.unwrap()).await.unwrap();
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
async fn failing_reader_error_names_the_resource() {
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
async fn only_another_reader_is_a_change() {
    let bench = Bench::start();
    let [first, second] =
        [(), ()].map(|()| Resource::lazy("demo://lazy", || async { Ok(Body::text("x")) }).unwrap());
    bench.bus.register(first.clone()).await.unwrap();
    assert!(!bench.bus.update(first).await.unwrap().changed);
    assert_eq!(bench.bus.update(second).await.unwrap().etag.version, 2);
}

#[tokio::test]
async fn removed_resource_leaves_reads_and_lists() {
    let bench = Bench::with_resources(["demo://a", "demo://b"]).await;
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
async fn condition_holds_only_at_the_read_etag() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let read = bench.bus.read("demo://a").await.unwrap().etag;
    let condition = Condition::from(EtagCondition::is_at(read));
    let publish = async |change| bench.bus.publish(change, condition.clone()).await;
    let second = publish(Change::Update(text("demo://a", "two"))).await;
    assert_eq!(second.unwrap().etag.version, 2);
    for late in [
        Change::Update(text("demo://a", "three")),
        Change::Touch(uri("demo://a")),
        Change::Remove(uri("demo://a")),
    ] {
        let refused = PublishError::Conflict {
            uri: uri("demo://a"),
            current: Some(bench.bus.etag("demo://a").await.unwrap()),
        };
        assert_eq!(publish(late).await, Err(refused));
    }
    assert_eq!(bench.bus.read("demo://a").await.unwrap().body, Body::text("two"));
}

#[tokio::test]
async fn guarded_writers_at_once_let_one_through() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let read = bench.bus.read("demo://a").await.unwrap().etag;
    let condition = &Condition::from(EtagCondition::is_at(read));
    let write = async |body: &str| {
        let change = Change::Update(text("demo://a", body));
        bench.bus.publish(change, condition.clone()).await.is_ok()
    };
    // All of them are decided in one batch, before any of them has an etag.
    let written = tokio::join!(write("two"), write("three"), write("four"), write("five"));
    assert_eq!(written, (true, false, false, false));
    let read = bench.bus.read("demo://a").await.unwrap();
    assert_eq!((read.etag.version, read.body), (2, Body::text("two")));
}

#[tokio::test]
async fn unmet_condition_yields_to_the_reason_before_it() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let never = || Condition::from(EtagCondition::is_at(tidings::Etag::UNKNOWN));
    let exists = Change::Register(text("demo://a", "two"));
    let exists = bench.bus.publish(exists, never()).await;
    assert_eq!(exists, Err(PublishError::AlreadyExists(uri("demo://a"))));
    let unknown = bench.bus.publish(Change::Remove(uri("demo://b")), never()).await;
    assert_eq!(unknown, Err(PublishError::NotFound(uri("demo://b"))));
}

#[tokio::test]
async fn pages_contain_every_resource_in_order() {
    let bench = Bench::start();
    for i in (0..25).rev() {
        bench.put(&format!("demo://{i:02}"), "x").await;
    }
    let mut after = None;
    let mut listed = Vec::new();
    let mut sizes = Vec::new();
    loop {
        let page = bench.bus.resources(after, 10).await.unwrap();
        sizes.push(page.items.len());
        listed.extend(
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
    assert_eq!((listed, sizes), (all, vec![10, 10, 5]));
    assert_eq!(bench.bus.resources(None, 25).await.unwrap().next, None);
}
