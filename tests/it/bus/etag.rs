//! Etags: a version moves when the content changes, and only forward.

use tidings::{Bus, Etag, PublishError, ReadError, Resource};

use crate::support::{Bench, START, text, tool, uri, within};

#[tokio::test]
async fn first_registration_is_version_1() {
    let bench = Bench::start();
    assert_eq!(bench.bus.etag("demo://a").await.unwrap(), Etag::UNKNOWN);
    let outcome = bench.bus.register(text("demo://a", "one")).await.unwrap();
    let first = Etag {
        version: 1,
        updated_at: START,
        life: 0,
    };
    assert_eq!(outcome.etag, first);
    assert_eq!(outcome.etag.to_string(), "v1-1000");
    assert_eq!(bench.bus.etag("demo://a").await.unwrap(), first);
}

#[tokio::test]
async fn unchanged_content_keeps_etag_and_is_silent() {
    let bench = Bench::with_resources(["demo://a"]).await;
    bench.bus.add_tool(tool("t")).await.unwrap();
    let mut client = bench.list_client().await;
    client.subscribe("demo://a").await;
    client.received();
    let before = bench.bus.etag("demo://a").await.unwrap();
    let notices = bench.bus.stats().await.unwrap().notices;

    bench.pass_seconds(500);
    for _ in 0..20 {
        let update = bench.update("demo://a", "one").await;
        let upsert = bench.bus.upsert(text("demo://a", "one")).await.unwrap();
        for outcome in [update, upsert] {
            assert_eq!((outcome.etag, outcome.notified), (before, 0));
            assert!(!outcome.changed && !outcome.created);
        }
        assert!(!bench.bus.add_tool(tool("t")).await.unwrap().changed);
        bench.bus.read("demo://a").await.unwrap();
    }

    assert_eq!(bench.bus.etag("demo://a").await.unwrap(), before);
    assert_eq!(client.received(), [""; 0]);
    let stats = bench.bus.stats().await.unwrap();
    assert_eq!((stats.notices, stats.unchanged), (notices, 60));
}

#[tokio::test]
async fn version_follows_bytes_kind_and_media_type() {
    let bench = Bench::with_resources(["demo://a"]).await;
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
async fn new_description_is_a_new_version() {
    let bench = Bench::with_resources(["demo://a"]).await;
    let mut client = bench.list_client().await;
    client.subscribe("demo://a").await;
    assert_eq!(client.received(), ["resources changed"]);
    let described = bench
        .bus
        .update(text("demo://a", "one").title("One"))
        .await
        .unwrap();
    assert!(described.changed);
    assert_eq!((described.etag.version, described.notified), (2, 1));
    assert_eq!(client.received(), ["demo://a v2", "resources changed"]);
    let again = bench
        .bus
        .update(text("demo://a", "one").title("One"))
        .await
        .unwrap();
    assert_eq!((again.etag, again.changed), (described.etag, false));
    assert_eq!(client.received(), [""; 0]);
}

#[tokio::test]
async fn etag_has_the_time_of_its_change() {
    let bench = Bench::with_resources(["demo://a"]).await;
    bench.pass_seconds(7);
    bench.put("demo://a", "one").await;
    assert_eq!(bench.bus.etag("demo://a").await.unwrap().updated_at, START);
    bench.put("demo://a", "two").await;
    assert_eq!(bench.bus.etag("demo://a").await.unwrap().updated_at, START + 7);
}

#[tokio::test]
async fn versions_grow_through_removal_and_return() {
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
                    assert!(gone.etag.version > newest, "a removal is a version");
                    newest = gone.etag.version;
                }
            }
        }
    }
}

#[tokio::test]
async fn client_etag_is_stale_unless_equal() {
    let bench = Bench::with_resources(["demo://a"]).await;
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
async fn every_query_returns_the_same_etag() {
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
async fn invalid_uri_is_refused_by_every_call() {
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
