//! The client side: watches resources of any MCP server, whatever revision it speaks.
//!
//! Owns the connection, the subscriptions and the memory of what was last reported. It takes the best road the server
//! offers and keeps (`subscriptions/listen`, else `resources/subscribe`, else the etag tools, else reading on a timer),
//! says which, connects again when the connection is lost and then reports what changed meanwhile. No type of the
//! protocol library is part of its interface.
//!
//! Behind a [`Watcher`] works one task, the keeper; behind that one connection, the link. Between each two stands a
//! queue that holds the newest word per resource, so a slow reader costs one entry per resource and loses none.

mod options;
mod keeper;
mod watched;
mod checks;
mod handshake;
mod link;
mod version;
mod observed;
mod inbox;
mod conflated;
mod backoff;
mod target;
mod error;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod road_tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::Digest;

pub use backoff::Backoff;
use conflated::Conflated;
pub use error::{ConnectError, WatchError};
use keeper::{Command, Keeper};
pub use options::WatchOptions;
pub use target::{Era, Road, Target};

/// How many commands may wait; a watcher sends one at a time.
const COMMANDS: usize = 4;

/// How long [`Watcher::close`] waits: the farewell of a link, and a request in flight.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// "This resource changed."
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceChanged {
    /// Which one.
    pub uri: String,
    /// The version it has now, where the server says so.
    pub etag: Option<String>,
    /// The digest of its contents, where they were read to learn this.
    pub digest: Option<Digest>,
    /// By which road it became known.
    pub road: Road,
}

/// What a watcher can say. Of several of a kind that were not read in time, only the newest is handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A resource changed. Every version is reported once at most: versions are told apart by etag, and by a digest of
    /// the contents where the server gives none. Where one connection gives etags and the next does not, nothing can be
    /// compared, and a change may be reported though there was none.
    Changed(ResourceChanged),
    /// The connection is lost, and will be made again.
    Lost {
        /// What happened.
        reason: String,
        /// When it is tried next.
        retry_in: Duration,
    },
    /// There is a connection again.
    Restored {
        /// The revision spoken now.
        revision: String,
        /// The road taken now.
        road: Road,
    },
    /// The server does not offer the better road for this, or does not keep it: another one is taken.
    SteppedDown {
        /// The resource that it is about; none when it is all of them.
        uri: Option<String>,
        /// The road that was tried.
        from: Road,
        /// The road that is taken.
        to: Road,
        /// What was wrong with the first.
        reason: String,
    },
    /// A watched resource is not there any more, or may not be watched. It stays watched, and is asked for again from
    /// time to time.
    Missing {
        /// Which one.
        uri: String,
        /// The server's words where it has any.
        reason: String,
    },
}

/// A client that watches resources of one server. Dropping it ends the connection.
///
/// ```no_run
/// use tidings::client::{Era, Target, Watcher};
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let target = Target::http("http://127.0.0.1:8808/mcp")?;
/// let mut watcher = Watcher::connect(target, Era::Auto).await?;
/// watcher.subscribe_resource("demo://a").await?;
/// while let Some(changed) = watcher.next().await {
///     println!("{} is at {:?}", changed.uri, changed.etag);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Watcher {
    revision: String,
    road: Road,
    subscribed: BTreeMap<String, Road>,
    commands: mpsc::Sender<Command>,
    feed: Arc<Conflated<Event>>,
    keeper: JoinHandle<()>,
}

impl Watcher {
    /// Connects to the server at `target`, in a revision of `era`. Call it within a tokio runtime.
    ///
    /// # Errors
    /// [`ConnectError`]; this first connection is not tried again.
    pub async fn connect(target: Target, era: Era) -> Result<Watcher, ConnectError> {
        Watcher::connect_with(target, era, WatchOptions::default()).await
    }

    /// Like [`connect`](Self::connect), with other waits than usual, or on one road alone.
    ///
    /// # Errors
    /// As `connect`, and [`ConnectError::NoRoad`] when the server does not offer the one road.
    pub async fn connect_with(
        target: Target,
        era: Era,
        options: WatchOptions,
    ) -> Result<Watcher, ConnectError> {
        let options = options.bounded();
        let link = handshake::open(&target, era, options.road).await?;
        let (commands, received) = mpsc::channel(COMMANDS);
        let feed = Arc::new(Conflated::new());
        let keeper = Keeper::new(target, era, options, received, feed.clone());
        let (revision, road) = (link.revision.clone(), keeper.best_road(&link));
        let keeper = tokio::spawn(keeper.run(link));
        Ok(Watcher {
            revision,
            road,
            subscribed: BTreeMap::new(),
            commands,
            feed,
            keeper,
        })
    }

    /// The revision of the protocol that was agreed on; [`Event::Restored`] tells of another one.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// The best road that the server offered; [`Event::SteppedDown`] and [`Event::Restored`] tell of others.
    pub fn road(&self) -> Road {
        self.road
    }

    /// The road that `uri` took when it was last subscribed to; none when it is not watched.
    pub fn road_of(&self, uri: &str) -> Option<Road> {
        self.subscribed.get(uri).copied()
    }

    /// Watches `uri` and answers the etag it has now, where the server gives any. Watching twice is watching once.
    ///
    /// # Errors
    /// As [`subscribe_resources`](Self::subscribe_resources).
    pub async fn subscribe_resource(&mut self, uri: &str) -> Result<Option<String>, WatchError> {
        let etags = self.subscribe_resources(vec![uri.to_owned()]).await?;
        Ok(etags.into_iter().next().flatten())
    }

    /// Watches all of `uris` or none, and answers the etags they have now, in order.
    ///
    /// # Errors
    /// [`WatchError::Refused`] naming the first that the server does not have, cannot read or does not let us watch;
    /// [`WatchError::Disconnected`] while the connection is lost.
    pub async fn subscribe_resources(
        &mut self,
        uris: Vec<String>,
    ) -> Result<Vec<Option<String>>, WatchError> {
        let answers = self
            .ask(|answer| Command::Subscribe(uris.clone(), answer))
            .await?;
        let (etags, roads): (Vec<Option<String>>, Vec<Road>) = answers.into_iter().unzip();
        self.subscribed.extend(uris.into_iter().zip(roads));
        Ok(etags)
    }

    /// Watches `uri` no longer; answers whether it was. Nothing is reported of it afterwards.
    ///
    /// # Errors
    /// [`WatchError::Closed`].
    pub async fn unsubscribe_resource(&mut self, uri: &str) -> Result<bool, WatchError> {
        if self.subscribed.remove(uri).is_none() {
            return Ok(false);
        }
        self.ask(|answer| Command::Unsubscribe(uri.to_owned(), answer))
            .await?;
        self.feed.forget(uri);
        Ok(true)
    }

    /// What is watched, in the order of the texts.
    pub fn list_subscriptions(&self) -> Vec<String> {
        self.subscribed.keys().cloned().collect()
    }

    /// The next change; none once the watcher has ended. May be cancelled.
    pub async fn next(&mut self) -> Option<ResourceChanged> {
        loop {
            if let Event::Changed(changed) = self.next_event().await? {
                return Some(changed);
            }
        }
    }

    /// The next change, or word about the connection; none once the watcher has ended. May be cancelled.
    pub async fn next_event(&mut self) -> Option<Event> {
        self.feed.next().await.map(|(_, event)| event)
    }

    /// Ends the subscriptions and the connection, and waits for it, though not for ever.
    pub async fn close(self) {
        let Watcher {
            commands, mut keeper, ..
        } = self;
        drop(commands);
        if tokio::time::timeout(CLOSE_TIMEOUT, &mut keeper).await.is_err() {
            keeper.abort();
        }
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, WatchError>>) -> Command,
    ) -> Result<T, WatchError> {
        let (answer, answered) = oneshot::channel();
        let sent = self.commands.send(command(answer)).await;
        sent.map_err(|_| WatchError::Closed)?;
        answered.await.map_err(|_| WatchError::Closed)?
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Server;
    use super::*;

    /// Attempts come quickly, so that no test waits for long.
    fn quick() -> WatchOptions {
        WatchOptions {
            backoff: Backoff::new(Duration::from_millis(20), Duration::from_millis(200)),
            ..WatchOptions::default()
        }
    }

    const BOTH: [(Era, Road); 2] = [(Era::Modern, Road::Listen), (Era::Legacy, Road::Subscribe)];

    async fn soon<T>(work: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(20), work)
            .await
            .expect("it happens within the deadline")
    }

    async fn watcher(server: &Server, era: Era) -> Watcher {
        let target = Target::http(&server.url()).unwrap();
        soon(Watcher::connect_with(target, era, quick())).await.unwrap()
    }

    fn changed(uri: &str, etag: Option<&str>, road: Road) -> ResourceChanged {
        ResourceChanged {
            uri: uri.to_owned(),
            etag: etag.map(str::to_owned),
            digest: None,
            road,
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
    async fn find<T>(watcher: &mut Watcher, wanted: impl Fn(&Event) -> Option<T>) -> T {
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
        for (era, modern, road, revision) in [
            (Era::Auto, true, Road::Listen, "2026-07-28"),
            (Era::Modern, true, Road::Listen, "2026-07-28"),
            (Era::Legacy, true, Road::Subscribe, "2025-11-25"),
            (Era::Auto, false, Road::Subscribe, "2025-11-25"),
        ] {
            let server = Server::start(modern, &[("demo://a", Some("v1-5"))]).await;
            let mut watcher = watcher(&server, era).await;
            assert_eq!(
                (watcher.road(), watcher.revision()),
                (road, revision),
                "{era:?} {modern}"
            );
            let etag = soon(watcher.subscribe_resource("demo://a")).await.unwrap();
            assert_eq!(etag.as_deref(), Some("v1-5"));
            assert_eq!(watcher.list_subscriptions(), ["demo://a"]);
            server.update("demo://a", "second", Some("v2-6")).await;
            assert_eq!(next(&mut watcher).await, changed("demo://a", Some("v2-6"), road));
            // Told again of what it knows, or of what came before, it says nothing.
            server.tell("demo://a", Some("v2-6")).await;
            server.tell("demo://a", Some("v1-5")).await;
            server.update("demo://a", "third", Some("v3-7")).await;
            assert_eq!(next(&mut watcher).await, changed("demo://a", Some("v3-7"), road));
            soon(watcher.close()).await;
        }
    }

    #[tokio::test]
    async fn a_server_without_etags_is_watched_too() {
        for (era, road) in BOTH {
            let server = Server::start(true, &[("demo://a", None)]).await;
            let mut watcher = watcher(&server, era).await;
            assert_eq!(soon(watcher.subscribe_resource("demo://a")).await.unwrap(), None);
            for text in ["second", "third"] {
                server.update("demo://a", text, None).await;
                assert_eq!(next(&mut watcher).await, changed("demo://a", None, road));
            }
        }
    }

    #[tokio::test]
    async fn what_changed_while_the_server_was_gone_is_reported_once() {
        for etags in [true, false] {
            for (era, road) in BOTH {
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
                    matches!(event, Event::Lost { .. }).then_some(())
                })
                .await;
                server.revive().await;
                let restored = find(&mut watcher, |event| match event {
                    Event::Restored { road, .. } => Some(*road),
                    _ => None,
                });
                assert_eq!(restored.await, road);
                assert_eq!(next(&mut watcher).await, changed("demo://a", etag("v2-9"), road));
                if !etags {
                    // Without etags a change is told from what is known only once the comparison is over.
                    soon(watcher.subscribe_resource("demo://a")).await.unwrap();
                }
                // The next word is of the next change: nothing was reported twice, and all are watched again.
                for uri in ["demo://c", "demo://b"] {
                    server.update(uri, "next", etag("v2-10")).await;
                    assert_eq!(next(&mut watcher).await, changed(uri, etag("v2-10"), road));
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
            Event::Lost { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        assert_eq!(reason.await, "the server ended the stream");
        find(&mut watcher, |event| {
            matches!(event, Event::Restored { .. }).then_some(())
        })
        .await;
        server.update("demo://a", "second", Some("v2-6")).await;
        assert_eq!(
            next(&mut watcher).await,
            changed("demo://a", Some("v2-6"), Road::Listen)
        );
    }

    #[tokio::test]
    async fn a_resource_that_went_missing_is_asked_for_until_it_is_back() {
        for (era, road) in BOTH {
            let mut server =
                Server::start(true, &[("demo://a", Some("v1-5")), ("demo://b", Some("v1-5"))]).await;
            let mut watcher = watcher(&server, era).await;
            let uris = vec!["demo://a".to_owned(), "demo://b".to_owned()];
            soon(watcher.subscribe_resources(uris)).await.unwrap();
            server.kill().await;
            server.remove("demo://a");
            server.revive().await;
            let missing = find(&mut watcher, |event| match event {
                Event::Missing { uri, .. } => Some(uri.clone()),
                _ => None,
            });
            assert_eq!(missing.await, "demo://a");
            server.update("demo://b", "second", Some("v2-8")).await;
            assert_eq!(next(&mut watcher).await, changed("demo://b", Some("v2-8"), road));
            server.set("demo://a", "back", Some("v2-9"));
            assert_eq!(next(&mut watcher).await, changed("demo://a", Some("v2-9"), road));
            server.update("demo://a", "again", Some("v3-9")).await;
            assert_eq!(next(&mut watcher).await, changed("demo://a", Some("v3-9"), road));
        }
    }

    #[tokio::test]
    async fn an_unknown_resource_is_refused_by_name_and_nothing_is_kept_of_the_call() {
        for (era, road) in BOTH {
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
            assert_eq!(next(&mut watcher).await, changed("demo://b", Some("v2-7"), road));
        }
    }

    #[tokio::test]
    async fn nothing_is_reported_of_what_is_watched_no_longer() {
        for (era, road) in BOTH {
            let server = Server::start(true, &[("demo://a", Some("v1-5")), ("demo://b", Some("v1-5"))]).await;
            let mut watcher = watcher(&server, era).await;
            let uris = vec!["demo://a".to_owned(), "demo://b".to_owned()];
            soon(watcher.subscribe_resources(uris)).await.unwrap();
            assert!(soon(watcher.unsubscribe_resource("demo://a")).await.unwrap());
            assert!(!soon(watcher.unsubscribe_resource("demo://a")).await.unwrap());
            assert_eq!(watcher.list_subscriptions(), ["demo://b"]);
            server.update("demo://a", "second", Some("v2-6")).await;
            server.update("demo://b", "second", Some("v2-7")).await;
            assert_eq!(next(&mut watcher).await, changed("demo://b", Some("v2-7"), road));
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

    /// A server in a few lines of shell: it knows no `server/discover`, and says of each resource that is read that it
    /// changed right after. It ends with its input.
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
            changed("demo://a", Some("v2-6"), Road::Subscribe)
        );
        soon(watcher.close()).await;
    }
}
