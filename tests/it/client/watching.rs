//! The watcher against a server of both eras: changes, losses, and the end of subscriptions.

use std::time::Duration;

use tidings::client::{
    Backoff, ConnectError, Era, ResourceChanged, Target, WatchEvent, WatchOptions, WatchStrategy, Watcher,
};

use super::server::Server;
use super::soon;

/// Attempts come quickly, so that no test waits for long.
fn quick() -> WatchOptions {
    let mut options = WatchOptions::default();
    options.backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(200));
    options
}

const BOTH: [(Era, WatchStrategy); 2] = [
    (Era::Modern, WatchStrategy::Listen),
    (Era::Legacy, WatchStrategy::Subscribe),
];

async fn watcher(server: &Server, era: Era) -> Watcher {
    let target = Target::http(&server.url()).unwrap();
    soon(Watcher::connect_with(target, era, quick())).await.unwrap()
}

fn changed(uri: &str, etag: Option<&str>, strategy: WatchStrategy) -> ResourceChanged {
    ResourceChanged {
        uri: uri.to_owned(),
        etag: etag.map(str::to_owned),
        digest: None,
        strategy,
    }
}

/// The next change, the digest aside.
async fn next(watcher: &mut Watcher) -> ResourceChanged {
    let changed = soon(watcher.next()).await.expect("the watcher runs");
    ResourceChanged {
        digest: None,
        ..changed
    }
}

/// The first event that `wanted` answers something for.
async fn find<T>(watcher: &mut Watcher, wanted: impl Fn(&WatchEvent) -> Option<T>) -> T {
    let finding = async {
        loop {
            let event = watcher.next_event().await.expect("the watcher runs");
            if let Some(found) = wanted(&event) {
                return found;
            }
        }
    };
    soon(finding).await
}

#[tokio::test]
async fn an_update_arrives_with_its_etag_by_the_best_road() {
    for (era, modern, strategy, revision) in [
        (Era::Auto, true, WatchStrategy::Listen, "2026-07-28"),
        (Era::Modern, true, WatchStrategy::Listen, "2026-07-28"),
        (Era::Legacy, true, WatchStrategy::Subscribe, "2025-11-25"),
        (Era::Auto, false, WatchStrategy::Subscribe, "2025-11-25"),
    ] {
        let server = Server::start(modern, &[("demo://a", Some("v1-5"))]).await;
        let mut watcher = watcher(&server, era).await;
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
            next(&mut watcher).await,
            changed("demo://a", Some("v2-6"), strategy)
        );
        // Told again of what it knows, or of what came before, it says nothing.
        server.tell("demo://a", Some("v2-6")).await;
        server.tell("demo://a", Some("v1-5")).await;
        server.update("demo://a", "third", Some("v3-7")).await;
        assert_eq!(
            next(&mut watcher).await,
            changed("demo://a", Some("v3-7"), strategy)
        );
        soon(watcher.close()).await;
    }
}

#[tokio::test]
async fn a_server_without_etags_is_watched_too() {
    for (era, strategy) in BOTH {
        let server = Server::start(true, &[("demo://a", None)]).await;
        let mut watcher = watcher(&server, era).await;
        assert_eq!(soon(watcher.subscribe_resource("demo://a")).await.unwrap(), None);
        for text in ["second", "third"] {
            server.update("demo://a", text, None).await;
            assert_eq!(next(&mut watcher).await, changed("demo://a", None, strategy));
        }
    }
}

#[tokio::test]
async fn what_changed_while_the_server_was_gone_is_reported_once() {
    for etags in [true, false] {
        for (era, strategy) in BOTH {
            let etag = |etag: &'static str| etags.then_some(etag);
            let resources = [
                ("demo://a", etag("v1-5")),
                ("demo://b", etag("v1-5")),
                ("demo://c", etag("v1-5")),
            ];
            let mut server = Server::start(true, &resources).await;
            let mut watcher = watcher(&server, era).await;
            let uris = resources.map(|(uri, _)| uri.to_owned());
            soon(watcher.subscribe_resources(uris.to_vec())).await.unwrap();

            server.kill().await;
            server.set("demo://a", "changed meanwhile", etag("v2-9"));
            find(&mut watcher, |event| {
                matches!(event, WatchEvent::Lost { .. }).then_some(())
            })
            .await;
            server.revive().await;
            let restored = find(&mut watcher, |event| match event {
                WatchEvent::Restored { strategy, .. } => Some(*strategy),
                _ => None,
            });
            assert_eq!(restored.await, strategy);
            assert_eq!(
                next(&mut watcher).await,
                changed("demo://a", etag("v2-9"), strategy)
            );
            if !etags {
                // Without etags a change is told from what is known only once the comparison is over.
                soon(watcher.subscribe_resource("demo://a")).await.unwrap();
            }
            // The next word is of the next change: nothing was reported twice, and all are watched again.
            for uri in ["demo://c", "demo://b"] {
                server.update(uri, "next", etag("v2-10")).await;
                assert_eq!(next(&mut watcher).await, changed(uri, etag("v2-10"), strategy));
            }
        }
    }
}

#[tokio::test]
async fn a_stream_that_the_server_ends_is_opened_again() {
    let server = Server::start(true, &[("demo://a", Some("v1-5"))]).await;
    let mut watcher = watcher(&server, Era::Modern).await;
    soon(watcher.subscribe_resource("demo://a")).await.unwrap();
    server.end_streams();
    let reason = find(&mut watcher, |event| match event {
        WatchEvent::Lost { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    assert_eq!(reason.await, "the server ended the stream");
    find(&mut watcher, |event| {
        matches!(event, WatchEvent::Restored { .. }).then_some(())
    })
    .await;
    server.update("demo://a", "second", Some("v2-6")).await;
    assert_eq!(
        next(&mut watcher).await,
        changed("demo://a", Some("v2-6"), WatchStrategy::Listen)
    );
}

#[tokio::test]
async fn a_resource_that_went_missing_is_asked_for_until_it_is_back() {
    for (era, strategy) in BOTH {
        let mut server = Server::start(true, &[("demo://a", Some("v1-5")), ("demo://b", Some("v1-5"))]).await;
        let mut watcher = watcher(&server, era).await;
        let uris = vec!["demo://a".to_owned(), "demo://b".to_owned()];
        soon(watcher.subscribe_resources(uris)).await.unwrap();
        server.kill().await;
        server.remove("demo://a");
        server.revive().await;
        let missing = find(&mut watcher, |event| match event {
            WatchEvent::Missing { uri, .. } => Some(uri.clone()),
            _ => None,
        });
        assert_eq!(missing.await, "demo://a");
        server.update("demo://b", "second", Some("v2-8")).await;
        assert_eq!(
            next(&mut watcher).await,
            changed("demo://b", Some("v2-8"), strategy)
        );
        server.set("demo://a", "back", Some("v2-9"));
        assert_eq!(
            next(&mut watcher).await,
            changed("demo://a", Some("v2-9"), strategy)
        );
        server.update("demo://a", "again", Some("v3-9")).await;
        assert_eq!(
            next(&mut watcher).await,
            changed("demo://a", Some("v3-9"), strategy)
        );
    }
}

#[tokio::test]
async fn an_unknown_resource_is_refused_by_name_and_nothing_is_kept_of_the_call() {
    for (era, strategy) in BOTH {
        let server = Server::start(true, &[("demo://a", Some("v1-5")), ("demo://b", Some("v1-5"))]).await;
        let mut watcher = watcher(&server, era).await;
        soon(watcher.subscribe_resource("demo://b")).await.unwrap();
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
            next(&mut watcher).await,
            changed("demo://b", Some("v2-7"), strategy)
        );
    }
}

#[tokio::test]
async fn nothing_is_reported_of_what_is_watched_no_longer() {
    for (era, strategy) in BOTH {
        let server = Server::start(true, &[("demo://a", Some("v1-5")), ("demo://b", Some("v1-5"))]).await;
        let mut watcher = watcher(&server, era).await;
        let uris = vec!["demo://a".to_owned(), "demo://b".to_owned()];
        soon(watcher.subscribe_resources(uris)).await.unwrap();
        assert!(soon(watcher.unsubscribe_resource("demo://a")).await.unwrap());
        assert!(!soon(watcher.unsubscribe_resource("demo://a")).await.unwrap());
        assert_eq!(watcher.list_subscriptions(), ["demo://b"]);
        server.update("demo://a", "second", Some("v2-6")).await;
        server.update("demo://b", "second", Some("v2-7")).await;
        assert_eq!(
            next(&mut watcher).await,
            changed("demo://b", Some("v2-7"), strategy)
        );
    }
}

#[tokio::test]
async fn closing_ends_the_subscriptions_at_the_server() {
    let server = Server::start(true, &[("demo://a", Some("v1-5"))]).await;
    let mut watcher = watcher(&server, Era::Legacy).await;
    soon(watcher.subscribe_resource("demo://a")).await.unwrap();
    assert_eq!(server.subscriptions("demo://a"), 1);
    soon(watcher.close()).await;
    assert_eq!(server.subscriptions("demo://a"), 0);
}

#[tokio::test]
async fn an_absent_server_is_unreachable_and_one_of_another_era_cannot_be_spoken_with() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    for era in [Era::Auto, Era::Modern, Era::Legacy] {
        let error = soon(Watcher::connect(Target::http(&url).unwrap(), era))
            .await
            .unwrap_err();
        assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
    }
    let absent = Target::command(vec!["/nowhere/server".into()]).unwrap();
    let error = soon(Watcher::connect(absent, Era::Auto)).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");

    let server = Server::start(false, &[]).await;
    let target = Target::http(&server.url()).unwrap();
    let error = soon(Watcher::connect(target, Era::Modern)).await.unwrap_err();
    assert!(matches!(error, ConnectError::Handshake { .. }), "{error:?}");
}

/// A server in a few lines of shell: it knows no `server/discover`, and says of each resource that is read
/// that it changed right after. It ends with its input.
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
async fn a_program_is_watched_over_its_standard_input_and_output() {
    let command = ["sh", "-c", SHELL_SERVER].map(Into::into).to_vec();
    let target = Target::command(command).unwrap();
    let mut watcher = soon(Watcher::connect_with(target, Era::Auto, quick()))
        .await
        .unwrap();
    assert_eq!(watcher.revision(), "2025-11-25");
    let etag = soon(watcher.subscribe_resource("demo://a")).await.unwrap();
    assert_eq!(etag.as_deref(), Some("v1-5"));
    assert_eq!(
        next(&mut watcher).await,
        changed("demo://a", Some("v2-6"), WatchStrategy::Subscribe)
    );
    soon(watcher.close()).await;
}
