//! Promise: a client that lost its stream gets what it missed, without duplicates of what it had.

use tidings::{ListKind, Position};

use crate::support::{Bench, list_options, tool, within};

#[tokio::test]
async fn what_was_told_after_the_position_comes_again_and_nothing_before_it() {
    let bench = Bench::start();
    for name in ["demo://a", "demo://b", "demo://c"] {
        bench.put(name, "one").await;
    }
    let mut client = bench.client().await;
    for name in ["demo://a", "demo://b", "demo://c"] {
        client.subscribe(name).await;
    }
    bench.put("demo://a", "two").await;
    assert_eq!(client.told(), ["demo://a v2"]);
    let before = client.position.unwrap();
    assert_eq!(client.reader.position(), before);
    bench.put("demo://c", "two").await;
    bench.put("demo://b", "two").await;
    assert_eq!(client.told().len(), 2);
    let after = client.position.unwrap();

    client.reader.resume_after(after);
    assert_eq!(client.told(), [""; 0]);
    client.forget();
    client.reader.resume_after(before);
    assert_eq!(client.told(), ["demo://c v2", "demo://b v2"], "in their order");
    assert_eq!(client.position, Some(after));
}

#[tokio::test]
async fn only_the_newest_of_each_uri_comes_again() {
    let bench = Bench::start();
    bench.put("demo://a", "0").await;
    let mut client = bench.client().await;
    client.subscribe("demo://a").await;
    bench.put("demo://a", "1").await;
    client.told();
    let before = client.position.unwrap();
    for body in ["2", "3", "4"] {
        bench.put("demo://a", body).await;
        client.told();
    }
    bench.put("demo://a", "5").await;
    client.forget();
    client.reader.resume_after(before);
    assert_eq!(client.told(), ["demo://a v6"]);
}

#[tokio::test]
async fn a_position_of_another_epoch_brings_everything_told_again() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    bench.put("demo://quiet", "one").await;
    let mut client = bench.list_client().await;
    client.subscribe("demo://a").await;
    client.subscribe("demo://quiet").await;
    bench.put("demo://a", "two").await;
    assert_eq!(client.told(), ["resources changed", "demo://a v2"]);
    let Position { epoch, offset } = client.position.unwrap();
    client.forget();
    client.reader.resume_after(Position {
        epoch: epoch + 1,
        offset,
    });
    assert_eq!(client.told(), ["resources changed", "demo://a v2"]);
}

#[tokio::test]
async fn a_new_reader_goes_on_where_the_lost_one_got_to() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    bench.put("demo://b", "one").await;
    let mut client = bench.client().await;
    client.subscribe("demo://a").await;
    client.subscribe("demo://b").await;
    bench.put("demo://a", "two").await;
    client.told();
    let reached = client.position.unwrap();
    bench.put("demo://b", "two").await;
    client.told();
    bench.put("demo://a", "three").await;

    // The last write never arrived.
    client.forget();
    client.reader = client.session.reader();
    client.reader.resume_after(reached);
    assert_eq!(client.told(), ["demo://b v2", "demo://a v3"]);
}

/// Told A@5, then B@6 and A@7: after A@7 alone, B is not behind the position.
#[tokio::test]
async fn a_position_never_passes_what_was_not_told_yet() {
    let bench = Bench::with(|limits| limits.drain_max = 1);
    bench.put("demo://a", "one").await;
    bench.put("demo://b", "one").await;
    let mut client = bench.client().await;
    client.subscribe("demo://a").await;
    client.subscribe("demo://b").await;
    bench.put("demo://a", "two").await;
    bench.put("demo://b", "two").await;
    bench.put("demo://a", "three").await;
    assert_eq!(client.next().await.unwrap(), ["demo://a v3"]);
    let reached = client.position.unwrap();
    assert_eq!(client.next().await.unwrap(), ["demo://b v2"]);
    client.forget();
    client.reader.resume_after(reached);
    let again = client.told();
    assert!(again.contains(&"demo://b v2".to_owned()), "{again:?}");
}

#[tokio::test]
async fn a_list_that_was_never_told_does_not_come_again() {
    let bench = Bench::start();
    bench.put("demo://a", "one").await;
    bench.bus.add_tool(tool("t")).await.unwrap();
    let mut client = bench.client_with(list_options(&ListKind::ALL, false)).await;
    client.subscribe("demo://a").await;
    bench.put("demo://a", "two").await;
    client.told();
    let reached = client.position.unwrap();
    bench.put("demo://b", "one").await;
    within(client.session.ready()).await.unwrap();
    client.reader.resume_after(reached);
    assert_eq!(client.told(), [""; 0], "a list_changed that means nothing");
}

#[tokio::test]
async fn a_list_told_after_the_position_is_told_again() {
    let bench = Bench::start();
    let mut client = bench.list_client().await;
    bench.bus.add_tool(tool("t")).await.unwrap();
    client.told();
    let before = client.position.unwrap();
    bench.bus.add_tool(tool("u")).await.unwrap();
    assert_eq!(client.told(), ["tools changed"]);
    client.reader.resume_after(before);
    assert_eq!(client.told(), ["tools changed"]);
    client.reader.resume_after(client.position.unwrap());
    assert_eq!(client.told(), [""; 0]);
}
