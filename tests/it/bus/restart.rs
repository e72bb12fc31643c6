//! Restarts with a store: content, owners and lists are back, and what ended meanwhile is told.

use std::time::Duration;

use tidings::{
    Bus, Change, Condition, Etag, EtagCondition, Limits, Owner, PublishError, ReadError, Record, Resource,
    SubscribeError,
};

use crate::memory_store::MemoryStore;
use crate::support::{Bench, DEADLINE, text, tool, until, uri, within};

fn start(store: &MemoryStore) -> Bench {
    Bench::stored(|_| (), store.clone())
}

async fn end(bench: Bench) {
    within(bench.bus.shutdown(DEADLINE)).await;
}

async fn put(bus: &Bus, name: &str, body: &str) -> Etag {
    within(bus.upsert(text(name, body))).await.unwrap().etag
}

#[tokio::test]
async fn api_content_is_back_after_restart() {
    let store = MemoryStore::new();
    let first = start(&store);
    let api = first.bus.owned_by(Owner::Api);
    let resource = text("demo://a", "one")
        .title("A")
        .description("The first")
        .media_type("text/markdown")
        .subscribable(false);
    let kept = api.register(resource.clone()).await.unwrap();
    put(&api, "demo://b", "gone").await;
    let removed = api.remove("demo://b").await.unwrap();
    let touched = api.touch("demo://a").await.unwrap();
    assert!(touched.etag.version > kept.etag.version);
    end(first).await;

    let second = start(&store);
    let api = second.bus.owned_by(Owner::Api);
    let read = second.bus.read("demo://a").await.unwrap();
    assert_eq!(
        (&read.descriptor, read.etag),
        (resource.descriptor(), touched.etag)
    );
    assert_eq!(read.body.as_text(), Some("one"));
    assert!(!api.upsert(resource.clone()).await.unwrap().changed);
    assert!(matches!(
        api.register(resource).await,
        Err(PublishError::AlreadyExists(_))
    ));
    assert!(matches!(
        second.bus.read("demo://b").await,
        Err(ReadError::NotFound(_))
    ));
    assert_eq!(
        put(&api, "demo://b", "back").await.version,
        removed.etag.version + 1
    );
}

#[tokio::test]
async fn description_alone_is_kept() {
    let store = MemoryStore::new();
    let first = start(&store);
    let api = first.bus.owned_by(Owner::Api);
    put(&api, "demo://a", "one").await;
    let renamed = api.update(text("demo://a", "one").title("New")).await.unwrap();
    end(first).await;
    let second = start(&store);
    let read = second.bus.read("demo://a").await.unwrap();
    assert_eq!(read.descriptor.title.as_deref(), Some("New"));
    assert_eq!(read.etag, renamed.etag);
}

#[tokio::test]
async fn other_owner_is_refused_by_name() {
    let store = MemoryStore::new();
    let bench = start(&store);
    let folder = bench.bus.owned_by(Owner::Workspace);
    let api = bench.bus.owned_by(Owner::Api);
    put(&folder, "workspace:///x", "file").await;
    let refused = Err(PublishError::NotOwner {
        uri: uri("workspace:///x"),
        owner: Owner::Workspace,
    });
    assert_eq!(api.upsert(text("workspace:///x", "mine")).await, refused);
    assert_eq!(api.register(text("workspace:///x", "mine")).await, refused);
    assert_eq!(api.remove("workspace:///x").await, refused);
    assert_eq!(api.touch("workspace:///x").await, refused);
    // A condition would not let it through either.
    let never = || Condition::from(EtagCondition::is_at(Etag::UNKNOWN));
    let register = Change::Register(text("workspace:///x", "mine"));
    assert_eq!(api.publish(register, never()).await, refused);
    let touch = Change::Touch(uri("workspace:///x"));
    assert_eq!(api.publish(touch, never()).await, refused);
    end(bench).await;

    // The folder is not read yet, and the file is taken all the same.
    let bench = start(&store);
    let api = bench.bus.owned_by(Owner::Api);
    assert_eq!(api.upsert(text("workspace:///x", "mine")).await, refused);
    assert_eq!(api.register(text("workspace:///x", "mine")).await, refused);
    let folder = bench.bus.owned_by(Owner::Workspace);
    assert!(
        !folder
            .upsert(text("workspace:///x", "file"))
            .await
            .unwrap()
            .changed
    );
    folder.remove("workspace:///x").await.unwrap();
    assert!(api.upsert(text("workspace:///x", "mine")).await.unwrap().created);
}

#[tokio::test]
async fn removal_during_downtime_is_told() {
    let store = MemoryStore::new();
    let first = start(&store);
    let folder = first.bus.owned_by(Owner::Workspace);
    let kept = put(&folder, "workspace:///kept", "one").await;
    let gone = put(&folder, "workspace:///gone", "one").await;
    put(&first.bus, "demo://other", "one").await;
    end(first).await;

    let second = start(&store);
    let folder = second.bus.owned_by(Owner::Workspace);
    // The client is faster than the folder.
    let mut client = second.client().await;
    assert_eq!(client.subscribe("workspace:///gone").await, gone.version);
    assert_eq!(client.subscribe("workspace:///kept").await, kept.version);
    assert_eq!(put(&folder, "workspace:///kept", "one").await, kept);
    assert_eq!(folder.remove_unclaimed().await.unwrap(), 1);
    let told = client.next().await.unwrap();
    assert_eq!(told, [format!("workspace:///gone v{} removed", gone.version + 1)]);
    assert_eq!(client.received(), [""; 0]);
    assert_eq!(folder.remove_unclaimed().await.unwrap(), 0);
    let refused = within(client.session.subscribe(vec![uri("workspace:///gone")])).await;
    assert!(matches!(refused.unwrap()[..], [Err(SubscribeError::NotFound(_))]));
    // Another owner has not told everything yet.
    assert!(client.subscribe("demo://other").await > 0);
    drop(client);
    end(second).await;
    let third = start(&store);
    assert_eq!(
        third
            .bus
            .owned_by(Owner::Workspace)
            .remove_unclaimed()
            .await
            .unwrap(),
        1
    );
}

#[tokio::test]
async fn unclaimed_uri_ends_after_its_time() {
    let store = MemoryStore::new();
    let first = start(&store);
    put(&first.bus, "demo://a", "one").await;
    end(first).await;
    let second = Bench::stored(|limits| limits.unclaimed_after = Duration::ZERO, store.clone());
    let mut client = second.client().await;
    client.subscribe("demo://a").await;
    client.until_received("demo://a", 2).await;
}

#[tokio::test]
async fn unclaimed_time_goes_on_over_lives() {
    let store = MemoryStore::new();
    let first = start(&store);
    put(&first.bus, "demo://a", "one").await;
    end(first).await;
    // Looked at every second.
    let wait = |limits: &mut Limits| limits.unclaimed_after = Duration::from_secs(4);
    let marked = |store: &MemoryStore| {
        let lines = store.checkpoint().lines;
        lines[0].line.unclaimed_since.is_some()
    };
    let second = Bench::stored(wait, store.clone());
    until("the mark of the unclaimed URI", async || marked(&store)).await;
    end(second).await;
    let third = Bench::stored(wait, store.clone());
    third.pass_seconds(4);
    until("the removal", async || {
        !store.checkpoint().lines[0].line.is_live()
    })
    .await;
    put(&third.bus, "demo://a", "two").await;
    assert!(!marked(&store));
}

#[tokio::test]
async fn oldest_unclaimed_uri_makes_room() {
    let store = MemoryStore::new();
    for life in 0..5 {
        let bench = Bench::stored(|limits| limits.resources_max = 3, store.clone());
        for name in 0..3 {
            put(&bench.bus, &format!("run://{life}/{name}"), "one").await;
        }
        let refused = bench.bus.upsert(text("run://more", "x")).await;
        assert!(matches!(refused, Err(PublishError::TooMany { .. })));
        end(bench).await;
        let live = store.checkpoint().lines.into_iter();
        assert_eq!(live.filter(|kept| kept.line.is_live()).count(), 3);
    }
}

/// Lists that did not change are not told again.
#[tokio::test]
async fn same_lists_after_restart_are_silent() {
    let store = MemoryStore::new();
    let register = async |bench: &Bench, tools: &[&str]| {
        for name in tools {
            bench.bus.add_tool(tool(name)).await.unwrap();
        }
        put(&bench.bus, "demo://a", "one").await;
        bench.bus.finish_start().await.unwrap();
    };
    let lists = |store: &MemoryStore| {
        let records = store.records().into_iter();
        records
            .filter(|record| matches!(record, Record::List(..)))
            .count()
    };
    let first = start(&store);
    register(&first, &["one", "two"]).await;
    end(first).await;
    let before = lists(&store);

    let second = start(&store);
    let mut early = second.list_client().await;
    register(&second, &["one", "two"]).await;
    assert_eq!(lists(&store), before);
    // A session that saw the lists half full is told of the full ones.
    let mut told = early.next().await.unwrap();
    if told.len() < 2 {
        told.extend(early.next().await.unwrap());
    }
    told.sort_unstable();
    assert_eq!(told, ["resources changed", "tools changed"]);
    drop(early);
    end(second).await;

    let third = start(&store);
    register(&third, &["two", "three"]).await;
    assert_eq!(lists(&store), before + 1);
    third.bus.add_tool(tool("four")).await.unwrap();
    assert_eq!(lists(&store), before + 2);
}

#[tokio::test]
async fn lives_without_store_share_no_etag() {
    let mut seen = std::collections::HashSet::new();
    for body in ["one", "two", "three"] {
        let bus = Bus::builder().start().unwrap();
        let etag = put(&bus, "demo://a", body).await;
        assert_eq!(etag.version, 1);
        let text = etag.to_string();
        assert_eq!(text.parse(), Ok(etag));
        assert!(
            text.trim_start_matches("v1-")
                .bytes()
                .all(|byte| byte.is_ascii_digit())
        );
        assert!(seen.insert(text));
        bus.shutdown(DEADLINE).await;
    }
}

/// Most of these lives fall into one second.
#[tokio::test]
async fn lives_from_one_copy_of_a_store_share_no_etag() {
    let live = async |store: &MemoryStore, body: &str| {
        let bus = Bus::builder().store(store.clone()).start().unwrap();
        let api = bus.owned_by(Owner::Api);
        let kept = put(&api, "demo://kept", "the same").await;
        let changed = put(&api, "demo://a", body).await;
        within(bus.shutdown(DEADLINE)).await;
        (kept, changed)
    };
    let store = MemoryStore::new();
    let (kept, first) = live(&store, "one").await;
    let batches = store.batches().len();
    let mut seen = std::collections::HashSet::from([first]);
    for body in ["two", "three", "four"] {
        // Put back as it was before the last life.
        let copy = store.killed_after(batches);
        let (still_kept, etag) = live(&copy, body).await;
        assert_eq!(still_kept, kept);
        assert_eq!(etag.version, first.version + 1);
        assert!(seen.insert(etag), "{etag} names two contents");
        // Emptied.
        let (_, etag) = live(&MemoryStore::new(), body).await;
        assert_eq!(etag.version, 1);
        assert!(seen.insert(etag), "{etag} names two contents");
    }
}

/// The bench begins each life at the same second, as a clock does that was set back.
#[tokio::test]
async fn time_of_an_etag_never_repeats_with_store() {
    let store = MemoryStore::new();
    let first = start(&store);
    let before = put(&first.bus, "demo://a", "one").await;
    end(first).await;
    let second = start(&store);
    let after = put(&second.bus, "demo://b", "one").await;
    assert!(after.updated_at > before.updated_at);
}

#[tokio::test]
async fn bodies_are_bounded_together() {
    let bench = Bench::with(|limits| limits.bytes_max = 10);
    bench.put("demo://a", "123456").await;
    let refused = bench.bus.upsert(text("demo://b", "12345")).await;
    assert_eq!(refused, Err(PublishError::BytesFull { len: 11, max: 10 }));
    bench.put("demo://a", "12345").await;
    bench.put("demo://b", "12345").await;
    let refused = bench.bus.update(text("demo://b", "123456")).await;
    assert!(matches!(refused, Err(PublishError::BytesFull { .. })));
    bench.bus.remove("demo://a").await.unwrap();
    bench.put("demo://b", "1234567890").await;
}

#[test]
fn owned_handle_keeps_its_owner() {
    let bus = Bus::builder().start().unwrap();
    let api = bus.owned_by(Owner::Api);
    assert_eq!(api.downgrade().upgrade().unwrap().owner(), &Owner::Api);
    assert_eq!(bus.owner(), &Owner::Embedder);
    let lazy = Resource::lazy("demo://a", || async { Ok(tidings::Body::text("x")) }).unwrap();
    assert_eq!(lazy, lazy.clone());
}
