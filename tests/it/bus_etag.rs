//! Promise: an etag is a version that a client can keep; it moves when the content does, and only forward.

use tidings::{Bus, Etag, PublishError, ReadError, Resource};

use crate::support::{Bench, START, text, tool, uri, within};

#[tokio::test]
async fn an_unknown_uri_is_version_0_and_the_first_registration_version_1() {
    let bench = Bench::start();
    assert_eq!(bench.bus.etag("demo://a").await.unwrap(), Etag::UNKNOWN);
    let outcome = bench.bus.register(text("demo://a", "one")).await.unwrap();
    let first = Etag {
        version: 1,
        updated_at: START,
    };
    assert_eq!(outcome.etag, first);
    assert_eq!(outcome.etag.to_string(), "v1-1000");
    assert_eq!(bench.bus.etag("demo://a").await.unwrap(), first);
}

#[tokio::test]
async fn a_no_op_never_bumps_and_tells_nobody() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    bench.bus.add_tool(tool("t")).await.unwrap();
    let mut client = bench.list_client().await;
    client.subscribe("demo://a").await;
    client.told();
    let before = bench.bus.etag("demo://a").await.unwrap();
    let notices = bench.bus.stats().await.unwrap().notices;

    bench.pass_seconds(500);
    for _ in 0..20 {
        let update = bench.bus.update(text("demo://a", "one")).await.unwrap();
        let upsert = bench.bus.upsert(text("demo://a", "one")).await.unwrap();
        for outcome in [update, upsert] {
            assert_eq!((outcome.etag, outcome.notified), (before, 0));
            assert!(!outcome.changed && !outcome.created);
        }
        assert!(!bench.bus.add_tool(tool("t")).await.unwrap().changed);
        bench.bus.read("demo://a").await.unwrap();
    }

    assert_eq!(bench.bus.etag("demo://a").await.unwrap(), before);
    assert_eq!(client.told(), [""; 0]);
    let stats = bench.bus.stats().await.unwrap();
    assert_eq!((stats.notices, stats.unchanged), (notices, 60));
}

#[tokio::test]
async fn content_is_bytes_kind_and_media_type() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let writes = [
        (text("demo://a", "two"), true),
        (text("demo://a", "two"), false),
        (text("demo://a", "two").media_type("text/html"), true),
        (text("demo://a", "two").media_type("text/html"), false),
        (
            Resource::blob("demo://a", "two").unwrap().media_type("text/html"),
            true,
        ),
        (text("demo://a", "").media_type("text/html"), true),
    ];
    let mut version = 1;
    for (i, (resource, bumps)) in writes.into_iter().enumerate() {
        version += u64::from(bumps);
        let outcome = bench.bus.update(resource).await.unwrap();
        assert_eq!(
            (outcome.etag.version, outcome.changed),
            (version, bumps),
            "write {i}"
        );
    }
}

#[tokio::test]
async fn a_new_description_changes_the_list_but_not_the_etag() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    let mut client = bench.list_client().await;
    client.subscribe("demo://a").await;
    assert_eq!(client.told(), ["resources changed"]);
    let described = bench
        .bus
        .update(text("demo://a", "one").title("One"))
        .await
        .unwrap();
    assert!(described.changed);
    assert_eq!((described.etag.version, described.notified), (1, 0));
    assert_eq!(client.told(), ["resources changed"]);
}

#[tokio::test]
async fn the_time_in_an_etag_is_that_of_its_change() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    bench.pass_seconds(7);
    bench.put("demo://a", "one").await;
    assert_eq!(bench.bus.etag("demo://a").await.unwrap().updated_at, START);
    bench.put("demo://a", "two").await;
    assert_eq!(bench.bus.etag("demo://a").await.unwrap().updated_at, START + 7);
}

#[tokio::test]
async fn versions_never_go_backward_through_removal_and_reregistration() {
    for removed_max in [0, 1, 100] {
        let bench = Bench::with(|limits| limits.removed_max = removed_max);
        let mut newest = 0;
        for round in 0..5 {
            for name in ["demo://a", "demo://b", "demo://c"] {
                let version = bench.put(name, &format!("{round}")).await;
                if name == "demo://a" {
                    assert!(
                        version > newest,
                        "{version} after {newest}, keeping {removed_max}"
                    );
                    newest = version;
                }
            }
            for name in ["demo://a", "demo://b", "demo://c"] {
                let gone = bench.bus.remove(name).await.unwrap();
                assert!(gone.changed);
                if name == "demo://a" {
                    assert!(gone.etag.version > newest, "the removal is a version too");
                    newest = gone.etag.version;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_client_etag_is_stale_when_missing_or_different() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    for (held, stale) in [
        (None, true),
        (Some("v1-1000"), false),
        (Some("v1-1001"), true),
        (Some("v01-1000"), true),
        (Some("V1-1000"), true),
        (Some(""), true),
    ] {
        assert_eq!(
            bench.bus.is_stale("demo://a", held).await.unwrap(),
            stale,
            "{held:?}"
        );
    }
    assert!(!bench.bus.is_stale("demo://nothing", Some("v0-0")).await.unwrap());
    bench.put("demo://a", "two").await;
    assert!(bench.bus.is_stale("demo://a", Some("v1-1000")).await.unwrap());
}

#[tokio::test]
async fn the_same_etag_is_seen_by_every_way_of_asking() {
    let bench = Bench::start();
    for body in ["one", "two", "three"] {
        bench.put("demo://a", body).await;
    }
    let etag = bench.bus.etag("demo://a").await.unwrap();
    assert_eq!(etag.version, 3);
    assert_eq!(bench.bus.read("demo://a").await.unwrap().etag, etag);
    let several = bench
        .bus
        .etags(vec![uri("demo://x"), uri("demo://a")])
        .await
        .unwrap();
    assert_eq!(several, [None, Some(etag)]);
    let page = bench.bus.resources(None, 10).await.unwrap();
    assert_eq!(page.items[0].1, etag);
    let client = bench.client().await;
    let subscribed = client.session.subscribe(vec![uri("demo://a")]).await.unwrap();
    assert_eq!(subscribed, [Ok(etag)]);
}

#[tokio::test]
async fn text_that_is_no_uri_is_refused_by_name_everywhere() {
    let bench = Bench::start();
    let bus: &Bus = &bench.bus;
    let bad = "no scheme";
    assert!(matches!(bus.touch(bad).await, Err(PublishError::InvalidUri(error)) if error.uri == bad));
    assert!(matches!(bus.remove(bad).await, Err(PublishError::InvalidUri(_))));
    assert!(matches!(
        within(bus.read(bad)).await,
        Err(ReadError::InvalidUri(_))
    ));
    assert!(matches!(bus.etag(bad).await, Err(ReadError::InvalidUri(_))));
    assert!(matches!(
        bus.is_stale(bad, None).await,
        Err(ReadError::InvalidUri(_))
    ));
}
