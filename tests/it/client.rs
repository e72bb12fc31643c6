//! The watching client against real servers, over sockets and pipes, in both eras and with every strategy.

mod server;

mod watching;
mod strategies;
mod returning;
pub(crate) mod guarded;
mod issuer;
mod credentials;
mod oauth;
mod hostile;

use std::time::Duration;

use tidings::client::{Backoff, Era, Target, WatchEvent, WatchOptions, WatchStrategy, Watcher};

const MS: Duration = Duration::from_millis(1);

/// The eras and the strategy that a server offers in each.
const BOTH_ERAS: [(Era, WatchStrategy); 2] = [
    (Era::Modern, WatchStrategy::Listen),
    (Era::Legacy, WatchStrategy::Subscribe),
];

/// Awaits `work` and fails the test if it takes too long.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(40), work)
        .await
        .expect("it happens within the deadline")
}

/// Returns options with short waits, with which the server's promise is not checked.
///
/// The waits are real: the servers of these tests run on threads and clocks of their own.
fn quick() -> WatchOptions {
    let mut options = WatchOptions::default();
    options.backoff = Backoff::new(20 * MS, 200 * MS);
    options.poll_first = 20 * MS;
    options.poll_max = 100 * MS;
    options.verify_first = Duration::from_secs(600);
    options
}

async fn watcher(url: &str, era: Era, options: WatchOptions) -> Watcher {
    let target = Target::http(url).unwrap();
    soon(Watcher::connect_with(target, era, options)).await.unwrap()
}

/// Subscribes to `uris` and returns their etags.
async fn watch(watcher: &mut Watcher, uris: &[&str]) -> Vec<Option<String>> {
    let uris = uris.iter().map(|uri| (*uri).to_owned()).collect();
    soon(watcher.subscribe_resources(uris)).await.unwrap()
}

async fn event(watcher: &mut Watcher) -> WatchEvent {
    soon(watcher.next_event()).await.expect("the watcher runs")
}

/// A change without its digest.
type Change = (String, Option<String>, WatchStrategy);

async fn change(watcher: &mut Watcher) -> Change {
    let changed = soon(watcher.next()).await.expect("the watcher runs");
    (changed.uri, changed.etag, changed.strategy)
}

fn changed(uri: &str, etag: Option<&str>, strategy: WatchStrategy) -> Change {
    (uri.to_owned(), etag.map(str::to_owned), strategy)
}

/// Skips events until the connection is lost, and returns the reason.
async fn lost(watcher: &mut Watcher) -> String {
    loop {
        if let WatchEvent::Lost { reason, .. } = event(watcher).await {
            return reason;
        }
    }
}

/// Skips events until the connection is restored, and returns the strategy.
async fn restored(watcher: &mut Watcher) -> WatchStrategy {
    loop {
        if let WatchEvent::Restored { strategy, .. } = event(watcher).await {
            return strategy;
        }
    }
}

/// Skips events until a resource is missing, and returns it.
async fn missing(watcher: &mut Watcher) -> String {
    loop {
        if let WatchEvent::Missing { uri, .. } = event(watcher).await {
            return uri;
        }
    }
}

/// Returns the number as an etag, if the server of the test gives etags.
fn etag_if(etags: bool, version: u32) -> Option<String> {
    etags.then(|| format!("v{version}-5"))
}
