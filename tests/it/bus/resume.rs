//! Resuming: a client that lost its stream gets the entries that it missed, and no others again.

use tidings::{ListKind, Position};

use crate::support::{Bench, list_options, tool, within};

#[tokio::test]
async fn resume_repeats_only_later_entries() {
    let bench = Bench::with_resources(["demo://a", "demo://b", "demo://c"]).await;
    let mut client = bench.client().await;
    for name in ["demo://a", "demo://b", "demo://c"] {
        client.subscribe(name).await;
    }
    bench.put("demo://a", "two").await;
    assert_eq!(client.received(), ["demo://a v2"]);
    let before = client.position.unwrap();
    assert_eq!(client.reader.position(), before);
    bench.put("demo://c", "two").await;
    bench.put("demo://b", "two").await;
    assert_eq!(client.received().len(), 2);
    let after = client.position.unwrap();

    client.reader.resume_after(after);
    assert_eq!(client.received(), [""; 0]);
    client.forget();
    client.reader.resume_after(before);
    assert_eq!(
        client.received(),
        ["demo://c v2", "demo://b v2"],
        "in their first order"
    );
    assert_eq!(client.position, Some(after));
}

#[tokio::test]
async fn resume_repeats_the_newest_of_each_uri() {
    let bench = Bench::start();
    bench.put("demo://a", "0").await;
    let mut client = bench.subscriber("demo://a").await;
    bench.put("demo://a", "1").await;
    client.received();
    let before = client.position.unwrap();
    for body in ["2", "3", "4"] {
        bench.put("demo://a", body).await;
        client.received();
    }
    bench.put("demo://a", "5").await;
    client.forget();
    client.reader.resume_after(before);
    assert_eq!(client.received(), ["demo://a v6"]);
}

#[tokio::test]
async fn position_of_another_epoch_repeats_everything() {
    let bench = Bench::with_resources(["demo://a", "demo://quiet"]).await;
    let mut client = bench.list_client().await;
    client.subscribe("demo://a").await;
    client.subscribe("demo://quiet").await;
    bench.put("demo://a", "two").await;
    assert_eq!(client.received(), ["resources changed", "demo://a v2"]);
    let Position { epoch, offset } = client.position.unwrap();
    client.forget();
    client.reader.resume_after(Position {
        epoch: epoch + 1,
        offset,
    });
    assert_eq!(client.received(), ["resources changed", "demo://a v2"]);
}

#[tokio::test]
async fn new_reader_continues_after_a_lost_stream() {
    let bench = Bench::with_resources(["demo://a", "demo://b"]).await;
    let mut client = bench.subscriber("demo://a").await;
    client.subscribe("demo://b").await;
    bench.put("demo://a", "two").await;
    client.received();
    let reached = client.position.unwrap();
    bench.put("demo://b", "two").await;
    client.received();
    bench.put("demo://a", "three").await;

    // The last write never reached the client.
    client.forget();
    client.reader = client.session.reader();
    client.reader.resume_after(reached);
    assert_eq!(client.received(), ["demo://b v2", "demo://a v3"]);
}

/// After A at 5, B at 6 and A at 7, the position behind A alone must be before B.
#[tokio::test]
async fn position_never_passes_pending_entries() {
    let bench = Bench::with(|limits| limits.drain_max = 1);
    bench.put("demo://a", "one").await;
    bench.put("demo://b", "one").await;
    let mut client = bench.subscriber("demo://a").await;
    client.subscribe("demo://b").await;
    bench.put("demo://a", "two").await;
    bench.put("demo://b", "two").await;
    bench.put("demo://a", "three").await;
    assert_eq!(client.next().await.unwrap(), ["demo://a v3"]);
    let reached = client.position.unwrap();
    assert_eq!(client.next().await.unwrap(), ["demo://b v2"]);
    client.forget();
    client.reader.resume_after(reached);
    let again = client.received();
    assert!(again.contains(&"demo://b v2".to_owned()), "{again:?}");
}

#[tokio::test]
async fn unannounced_list_is_not_repeated() {
    let bench = Bench::with_resources(["demo://a"]).await;
    bench.bus.add_tool(tool("t")).await.unwrap();
    let mut client = bench.client_with(list_options(&ListKind::ALL, false)).await;
    client.subscribe("demo://a").await;
    bench.put("demo://a", "two").await;
    client.received();
    let reached = client.position.unwrap();
    bench.put("demo://b", "one").await;
    within(client.session.ready()).await.unwrap();
    client.reader.resume_after(reached);
    assert_eq!(client.received(), [""; 0], "the list is the one that it knows");
}

#[tokio::test]
async fn resume_repeats_later_list_changes() {
    let bench = Bench::start();
    let mut client = bench.list_client().await;
    bench.bus.add_tool(tool("t")).await.unwrap();
    client.received();
    let before = client.position.unwrap();
    bench.bus.add_tool(tool("u")).await.unwrap();
    assert_eq!(client.received(), ["tools changed"]);
    client.reader.resume_after(before);
    assert_eq!(client.received(), ["tools changed"]);
    client.reader.resume_after(client.position.unwrap());
    assert_eq!(client.received(), [""; 0]);
}
