//! The watcher against a server of both eras: changes, losses, and the end of subscriptions.

use futures_util::StreamExt;
use tidings::client::{ConnectError, Era, Target, WatchEvent, WatchStrategy, Watcher};

use super::server::Server;
use super::{BOTH_ERAS, change, changed, etag_if, lost, missing, quick, restored, soon, watch, watcher};
use crate::support::free_port;

#[tokio::test]
async fn update_arrives_with_its_etag_by_the_best_strategy() {
    for (era, modern, strategy, revision) in [
        (Era::Auto, true, WatchStrategy::Listen, "2026-07-28"),
        (Era::Modern, true, WatchStrategy::Listen, "2026-07-28"),
        (Era::Legacy, true, WatchStrategy::Subscribe, "2025-11-25"),
        (Era::Auto, false, WatchStrategy::Subscribe, "2025-11-25"),
    ] {
        let server = Server::start(modern, &[("demo://a", Some("v1-5"))]).await;
        let mut watcher = watcher(&server.url(), era, quick()).await;
        assert_eq!(
            (watcher.strategy(), watcher.revision()),
            (strategy, revision),
            "{era:?} {modern}"
        );
        let etag = soon(watcher.subscribe_resource("demo://a")).await.unwrap();
        assert_eq!(etag.as_deref(), Some("v1-5"));
        assert_eq!(watcher.list_subscriptions(), ["demo://a"]);
        server.update("demo://a", "second", Some("v2-6")).await;
        assert_eq!(
            change(&mut watcher).await,
            changed("demo://a", Some("v2-6"), strategy)
        );
        // Notifications of known and of older versions are not reported.
        server.notify("demo://a", Some("v2-6")).await;
        server.notify("demo://a", Some("v1-5")).await;
        server.update("demo://a", "third", Some("v3-7")).await;
        assert_eq!(
            change(&mut watcher).await,
            changed("demo://a", Some("v3-7"), strategy)
        );
        soon(watcher.close()).await;
    }
}

#[tokio::test]
async fn server_without_etags_is_watched() {
    for (era, strategy) in BOTH_ERAS {
        let server = Server::start(true, &[("demo://a", None)]).await;
        let mut watcher = watcher(&server.url(), era, quick()).await;
        assert_eq!(soon(watcher.subscribe_resource("demo://a")).await.unwrap(), None);
        for text in ["second", "third"] {
            server.update("demo://a", text, None).await;
            assert_eq!(change(&mut watcher).await, changed("demo://a", None, strategy));
        }
    }
}

#[tokio::test]
async fn change_during_an_outage_is_reported_once() {
    for etags in [true, false] {
        for (era, strategy) in BOTH_ERAS {
            let first = etag_if(etags, 1);
            let uris = ["demo://a", "demo://b", "demo://c"];
            let mut server = Server::start(true, &uris.map(|uri| (uri, first.as_deref()))).await;
            let mut watcher = watcher(&server.url(), era, quick()).await;
            watch(&mut watcher, &uris).await;

            // Change one resource while the server is down.
            server.kill().await;
            let second = etag_if(etags, 2);
            server.set("demo://a", "changed meanwhile", second.as_deref());
            lost(&mut watcher).await;
            server.revive().await;
            assert_eq!(restored(&mut watcher).await, strategy);
            assert_eq!(
                change(&mut watcher).await,
                changed("demo://a", second.as_deref(), strategy)
            );
            if !etags {
                // Without etags a notification says nothing until the comparison is over; a subscription
                // waits for it.
                watch(&mut watcher, &["demo://a"]).await;
            }

            // The next event is the next change: nothing is reported twice, and all resources are watched
            // again.
            let third = etag_if(etags, 3);
            for uri in ["demo://c", "demo://b"] {
                server.update(uri, "next", third.as_deref()).await;
                assert_eq!(
                    change(&mut watcher).await,
                    changed(uri, third.as_deref(), strategy)
                );
            }
        }
    }
}

#[tokio::test]
async fn stream_tells_when_a_missing_resource_comes() {
    for (era, strategy) in BOTH_ERAS {
        let server = Server::start(true, &[]).await;
        let mut options = quick();
        options.wait_for_missing = true;
        let mut watcher = watcher(&server.url(), era, options).await;
        assert_eq!(watch(&mut watcher, &["demo://a"]).await, [None], "{era:?}");
        let first = soon(StreamExt::next(&mut watcher)).await;
        assert!(
            matches!(first, Some(WatchEvent::Missing { .. })),
            "{era:?}: {first:?}"
        );
        server.set("demo://a", "here", Some("v1-5"));
        loop {
            let event = soon(StreamExt::next(&mut watcher))
                .await
                .expect("the watcher runs");
            if let WatchEvent::Changed(found) = event {
                let found = (found.uri, found.etag, found.strategy);
                assert_eq!(found, changed("demo://a", Some("v1-5"), strategy), "{era:?}");
                break;
            }
        }
        server.update("demo://a", "second", Some("v2-6")).await;
        assert_eq!(
            change(&mut watcher).await,
            changed("demo://a", Some("v2-6"), strategy)
        );
    }
}

#[tokio::test]
async fn stream_ended_by_the_server_is_reopened() {
    let server = Server::start(true, &[("demo://a", Some("v1-5"))]).await;
    let mut watcher = watcher(&server.url(), Era::Modern, quick()).await;
    watch(&mut watcher, &["demo://a"]).await;
    server.end_streams();
    assert_eq!(lost(&mut watcher).await, "the server ended the stream");
    restored(&mut watcher).await;
    server.update("demo://a", "second", Some("v2-6")).await;
    assert_eq!(
        change(&mut watcher).await,
        changed("demo://a", Some("v2-6"), WatchStrategy::Listen)
    );
}

#[tokio::test]
async fn missing_resource_is_retried_until_it_returns() {
    for (era, strategy) in BOTH_ERAS {
        let mut server = Server::start(true, &[("demo://a", Some("v1-5")), ("demo://b", Some("v1-5"))]).await;
        let mut watcher = watcher(&server.url(), era, quick()).await;
        watch(&mut watcher, &["demo://a", "demo://b"]).await;
        server.kill().await;
        server.remove("demo://a");
        server.revive().await;
        assert_eq!(missing(&mut watcher).await, "demo://a");
        server.update("demo://b", "second", Some("v2-8")).await;
        assert_eq!(
            change(&mut watcher).await,
            changed("demo://b", Some("v2-8"), strategy)
        );
        server.set("demo://a", "back", Some("v2-9"));
        assert_eq!(
            change(&mut watcher).await,
            changed("demo://a", Some("v2-9"), strategy)
        );
        server.update("demo://a", "again", Some("v3-9")).await;
        assert_eq!(
            change(&mut watcher).await,
            changed("demo://a", Some("v3-9"), strategy)
        );
    }
}

#[tokio::test]
async fn unknown_resource_fails_the_whole_subscription() {
    for (era, strategy) in BOTH_ERAS {
        let server = Server::start(true, &[("demo://a", Some("v1-5")), ("demo://b", Some("v1-5"))]).await;
        let mut watcher = watcher(&server.url(), era, quick()).await;
        watch(&mut watcher, &["demo://b"]).await;
        let uris = vec!["demo://a".to_owned(), "demo://absent".to_owned()];
        let error = soon(watcher.subscribe_resources(uris)).await.unwrap_err();
        assert!(
            error.to_string().starts_with("cannot watch demo://absent: "),
            "{error}"
        );
        assert_eq!(watcher.list_subscriptions(), ["demo://b"]);
        server.update("demo://a", "second", Some("v2-6")).await;
        server.update("demo://b", "second", Some("v2-7")).await;
        assert_eq!(
            change(&mut watcher).await,
            changed("demo://b", Some("v2-7"), strategy)
        );
    }
}

#[tokio::test]
async fn unsubscribed_resource_is_not_reported() {
    for (era, strategy) in BOTH_ERAS {
        let server = Server::start(true, &[("demo://a", Some("v1-5")), ("demo://b", Some("v1-5"))]).await;
        let mut watcher = watcher(&server.url(), era, quick()).await;
        watch(&mut watcher, &["demo://a", "demo://b"]).await;
        assert!(soon(watcher.unsubscribe_resource("demo://a")).await.unwrap());
        assert!(!soon(watcher.unsubscribe_resource("demo://a")).await.unwrap());
        assert_eq!(watcher.list_subscriptions(), ["demo://b"]);
        server.update("demo://a", "second", Some("v2-6")).await;
        server.update("demo://b", "second", Some("v2-7")).await;
        assert_eq!(
            change(&mut watcher).await,
            changed("demo://b", Some("v2-7"), strategy)
        );
    }
}

#[tokio::test]
async fn close_unsubscribes_at_the_server() {
    let server = Server::start(true, &[("demo://a", Some("v1-5"))]).await;
    let mut watcher = watcher(&server.url(), Era::Legacy, quick()).await;
    watch(&mut watcher, &["demo://a"]).await;
    assert_eq!(server.subscriptions("demo://a"), 1);
    soon(watcher.close()).await;
    assert_eq!(server.subscriptions("demo://a"), 0);
}

#[tokio::test]
async fn absent_server_is_unreachable() {
    let url = format!("http://127.0.0.1:{}/mcp", free_port());
    for era in [Era::Auto, Era::Modern, Era::Legacy] {
        let target = Target::http(&url).unwrap();
        let error = soon(Watcher::connect(target, era)).await.unwrap_err();
        assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
    }
    let absent = Target::command(vec!["/nowhere/server".into()]).unwrap();
    let error = soon(Watcher::connect(absent, Era::Auto)).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn server_of_another_era_fails_the_handshake() {
    let server = Server::start(false, &[]).await;
    let target = Target::http(&server.url()).unwrap();
    let error = soon(Watcher::connect(target, Era::Modern)).await.unwrap_err();
    assert!(matches!(error, ConnectError::Handshake { .. }), "{error:?}");
}

/// A server in a few lines of shell: it does not know `server/discover`, and notifies a change of each
/// resource right after a read. It ends with its input.
#[cfg(unix)]
const SHELL_SERVER: &str = r#"
    answer() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
    while read -r line; do
        id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
        case "$line" in
            *'"server/discover"'*) answer '"error":{"code":-32601,"message":"unknown method"}' ;;
            *'"initialize"'*) answer '"result":{"protocolVersion":"2025-11-25","serverInfo":{"name":"sh","version":"1"},"capabilities":{"resources":{"subscribe":true}}}' ;;
            *'"resources/subscribe"'*) answer '"result":{}' ;;
            *'"resources/read"'*)
                answer '"result":{"contents":[{"uri":"demo://a","text":"x"}],"_meta":{"io.github.tidings/etag":"v1-5"}}'
                printf '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"demo://a","_meta":{"io.github.tidings/etag":"v2-6"}}}\n' ;;
            *'"resources/unsubscribe"'*) answer '"result":{}' ;;
        esac
    done"#;

#[cfg(unix)]
#[tokio::test]
async fn program_is_watched_over_standard_io() {
    let command = ["sh", "-c", SHELL_SERVER].map(Into::into).to_vec();
    let target = Target::command(command).unwrap();
    let mut watcher = soon(Watcher::connect_with(target, Era::Auto, quick()))
        .await
        .unwrap();
    assert_eq!(watcher.revision(), "2025-11-25");
    let etag = soon(watcher.subscribe_resource("demo://a")).await.unwrap();
    assert_eq!(etag.as_deref(), Some("v1-5"));
    assert_eq!(
        change(&mut watcher).await,
        changed("demo://a", Some("v2-6"), WatchStrategy::Subscribe)
    );
    soon(watcher.close()).await;
}
