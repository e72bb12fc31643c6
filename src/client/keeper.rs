//! The task behind a watcher: it keeps a connection, makes another one when that is lost, and finds out what was
//! missed meanwhile.
//!
//! Owns what is watched, which version of it was last reported, and the waits between attempts. Receives commands from
//! the watcher and signals from the link; puts events into the feed, which the watcher reads. It never waits for
//! whoever reads the feed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::backoff::Backoff;
use super::conflated::Conflated;
use super::error::WatchError;
use super::inbox::{Signal, is_older};
use super::link::{Link, LinkError, Refusal, Version};
use super::target::{Era, Road, Target};
use super::{Event, ResourceChanged};

/// How often a session of an older revision is used, so that no server ends it as idle: half the shortest limit seen.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Not the URI of anything.
const CONNECTION: &str = "\0connection";

/// What the watcher asks of its keeper.
pub(super) enum Command {
    /// Watch these too; answers the etags they have now, in order.
    Subscribe(
        Vec<String>,
        oneshot::Sender<Result<Vec<Option<String>>, WatchError>>,
    ),
    /// Watch this no longer.
    Unsubscribe(String, oneshot::Sender<Result<(), WatchError>>),
}

/// Why the connection cannot be used any more.
struct Lost(String);

impl From<String> for Lost {
    fn from(reason: String) -> Lost {
        Lost(reason)
    }
}

/// One watched resource.
#[derive(Debug, Default)]
struct Held {
    /// The version last reported; none when that is not known.
    version: Option<Version>,
    /// Whether the server would not let it be watched when it was last asked.
    missing: bool,
}

/// What happened first.
enum Turn {
    Command(Option<Command>),
    Signal(Signal),
    Ping,
    Retry,
}

pub(super) struct Keeper {
    pub(super) target: Target,
    pub(super) era: Era,
    pub(super) backoff: Backoff,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) feed: Arc<Conflated<Event>>,
    watched: BTreeMap<String, Held>,
    /// When resources that are missing are asked for again, and how long to wait after that.
    retry: Option<(Instant, Backoff)>,
    ping_at: Instant,
}

impl Keeper {
    pub(super) fn new(
        target: Target,
        era: Era,
        backoff: Backoff,
        commands: mpsc::Receiver<Command>,
        feed: Arc<Conflated<Event>>,
    ) -> Keeper {
        Keeper {
            target,
            era,
            backoff,
            commands,
            feed,
            watched: BTreeMap::new(),
            retry: None,
            ping_at: Instant::now() + PING_EVERY,
        }
    }

    /// Keeps watching over `link` and its successors until the watcher is gone.
    pub(super) async fn run(mut self, mut link: Link) {
        loop {
            let since = Instant::now();
            let lost = self.follow(&mut link).await;
            let Err(Lost(reason)) = lost else { break };
            if since.elapsed() >= self.backoff.holds_after() {
                self.backoff.reset();
            }
            // The farewell to a server that may be gone takes its time.
            tokio::spawn(link.close());
            link = match self.reconnect(reason).await {
                Some(link) => link,
                None => return self.feed.close(),
            };
        }
        self.feed.close();
        let held: Vec<String> = self.watched.into_keys().collect();
        if link.road == Road::Subscribe
            && let Err(reason) = link.unwatch(&[], &held).await
        {
            tracing::debug!(reason, "the connection was lost before its end");
        }
        link.close().await;
    }

    /// Serves the watcher and the link until either is gone.
    async fn follow(&mut self, link: &mut Link) -> Result<(), Lost> {
        loop {
            match self.turn(link).await {
                Turn::Command(None) => return Ok(()),
                Turn::Command(Some(command)) => self.obey(link, command).await?,
                Turn::Signal(Signal::Updated(uri, etag)) => self.updated(&uri, etag, link.road),
                Turn::Signal(Signal::Gap) => self.compare(link).await?,
                Turn::Signal(Signal::Lost(reason)) => return Err(Lost(reason)),
                Turn::Ping => {
                    self.ping_at = Instant::now() + PING_EVERY;
                    link.ping().await?;
                }
                Turn::Retry => self.resubscribe(link).await?,
            }
        }
    }

    async fn turn(&mut self, link: &Link) -> Turn {
        let retry_at = self.retry.map(|(at, _)| at);
        let pings = link.road == Road::Subscribe;
        tokio::select! {
            biased;
            command = self.commands.recv() => Turn::Command(command),
            signal = link.inbox.next() => Turn::Signal(signal),
            () = tokio::time::sleep_until(self.ping_at), if pings => Turn::Ping,
            () = until(retry_at) => Turn::Retry,
        }
    }

    /// Reports a notification, unless what it tells of was reported already.
    fn updated(&mut self, uri: &str, etag: Option<String>, road: Road) {
        let Some(held) = self.watched.get_mut(uri) else {
            return;
        };
        let known = held.version.as_ref().and_then(|version| version.etag.as_deref());
        if let (Some(new), Some(known)) = (&etag, known)
            && (new == known || is_older(new, known))
        {
            return;
        }
        held.version = etag.clone().map(|etag| Version {
            etag: Some(etag),
            digest: None,
        });
        self.report(uri, etag, road);
    }

    fn report(&self, uri: &str, etag: Option<String>, road: Road) {
        let changed = ResourceChanged {
            uri: uri.to_owned(),
            etag,
            road,
        };
        self.feed.push(uri, Event::Changed(changed));
    }

    // ── Commands ────────────────────────────────────────────────────────────────────────────────────────────────

    async fn obey(&mut self, link: &mut Link, command: Command) -> Result<(), Lost> {
        // An answer that nobody waits for any more is not missed.
        match command {
            Command::Subscribe(uris, answer) => match self.subscribe(link, &uris).await {
                Ok(outcome) => drop(answer.send(outcome)),
                Err(Lost(reason)) => {
                    drop(answer.send(Err(WatchError::Disconnected(reason.clone()))));
                    return Err(Lost(reason));
                }
            },
            Command::Unsubscribe(uri, answer) => {
                self.watched.remove(&uri);
                let held = self.present();
                let outcome = link.unwatch(&held, &[uri]).await;
                drop(answer.send(Ok(())));
                outcome?;
            }
        }
        Ok(())
    }

    async fn subscribe(
        &mut self,
        link: &mut Link,
        uris: &[String],
    ) -> Result<Result<Vec<Option<String>>, WatchError>, Lost> {
        let unknown = |uri: &&String| !self.watched.contains_key(*uri);
        let new: BTreeSet<String> = uris.iter().filter(unknown).cloned().collect();
        let new: Vec<String> = new.into_iter().collect();
        let held = self.present();
        let mut refusals = link.watch(&held, &new).await?;
        let mut etags = Vec::new();
        let mut versions = BTreeMap::new();
        for uri in uris.iter().filter(|_| refusals.is_empty()).collect::<Vec<_>>() {
            match link.read(uri).await {
                Ok(version) => {
                    etags.push(version.etag.clone());
                    versions.insert(uri.clone(), version);
                }
                Err(LinkError::Lost(reason)) => return Err(Lost(reason)),
                Err(LinkError::Refused(reason)) => {
                    refusals.push(Refusal {
                        uri: uri.clone(),
                        reason,
                    });
                    break;
                }
            }
        }
        if let Some(Refusal { uri, reason }) = refusals.into_iter().next() {
            link.unwatch(&held, &new).await?;
            return Ok(Err(WatchError::Refused { uri, reason }));
        }
        for uri in new {
            let version = versions.remove(&uri);
            self.watched.insert(
                uri,
                Held {
                    version,
                    missing: false,
                },
            );
        }
        Ok(Ok(etags))
    }

    /// What the server lets us watch.
    fn present(&self) -> Vec<String> {
        let present = self.watched.iter().filter(|(_, held)| !held.missing);
        present.map(|(uri, _)| uri.clone()).collect()
    }

    // ── After a loss ────────────────────────────────────────────────────────────────────────────────────────────

    /// Tries until there is a connection on which everything is watched that can be; none when the watcher is gone.
    async fn reconnect(&mut self, mut reason: String) -> Option<Link> {
        loop {
            let wait = self.backoff.next(random());
            let lost = Event::Lost {
                reason: reason.clone(),
                retry_in: wait,
            };
            self.feed.push(CONNECTION, lost);
            if !self.wait(wait, &reason).await {
                return None;
            }
            reason = match self.connect().await {
                Ok(link) => return Some(link),
                Err(Lost(reason)) => reason,
            };
        }
    }

    /// Waits, and meanwhile answers what can be answered without a connection; whether the watcher is still there.
    async fn wait(&mut self, time: Duration, reason: &str) -> bool {
        let end = Instant::now() + time;
        loop {
            let command = tokio::select! {
                biased;
                command = self.commands.recv() => command,
                () = tokio::time::sleep_until(end) => return true,
            };
            match command {
                None => return false,
                Some(Command::Subscribe(_, answer)) => {
                    drop(answer.send(Err(WatchError::Disconnected(reason.to_owned()))));
                }
                Some(Command::Unsubscribe(uri, answer)) => {
                    self.watched.remove(&uri);
                    drop(answer.send(Ok(())));
                }
            }
        }
    }

    async fn connect(&mut self) -> Result<Link, Lost> {
        let opened = Link::open(&self.target, self.era).await;
        let mut link = opened.map_err(|error| Lost(error.to_string()))?;
        self.ping_at = Instant::now() + PING_EVERY;
        self.retry = None;
        self.watched.values_mut().for_each(|held| held.missing = true);
        let restored = Event::Restored {
            revision: link.revision.clone(),
            road: link.road,
        };
        self.feed.push(CONNECTION, restored);
        match self.resubscribe(&mut link).await {
            Ok(()) => Ok(link),
            Err(lost) => {
                tokio::spawn(link.close());
                Err(lost)
            }
        }
    }

    /// Has the server tell of everything that is watched but missing, and reports what changed meanwhile.
    async fn resubscribe(&mut self, link: &mut Link) -> Result<(), Lost> {
        let missing = self.watched.iter().filter(|(_, held)| held.missing);
        let missing: Vec<String> = missing.map(|(uri, _)| uri.clone()).collect();
        let refusals = link.watch(&self.present(), &missing).await?;
        for uri in &missing {
            if !refusals.iter().any(|refusal| refusal.uri == *uri)
                && let Some(held) = self.watched.get_mut(uri)
            {
                held.missing = false;
            }
        }
        for Refusal { uri, reason } in refusals {
            self.miss(uri, reason);
        }
        self.compare(link).await
    }

    /// Reads what is watched and reports what is not the version last reported.
    async fn compare(&mut self, link: &mut Link) -> Result<(), Lost> {
        for uri in self.present() {
            match link.read(&uri).await {
                Ok(version) => self.compared(&uri, version, link.road),
                Err(LinkError::Lost(reason)) => return Err(Lost(reason)),
                Err(LinkError::Refused(reason)) => self.miss(uri, reason),
            }
        }
        self.schedule();
        Ok(())
    }

    fn compared(&mut self, uri: &str, version: Version, road: Road) {
        let Some(held) = self.watched.get_mut(uri) else {
            return;
        };
        let changed = held
            .version
            .as_ref()
            .is_none_or(|known| known.may_differ(&version));
        let etag = version.etag.clone();
        held.version = Some(version);
        if changed {
            self.report(uri, etag, road);
        }
    }

    /// Notes that the server does not have `uri` now, and says so.
    fn miss(&mut self, uri: String, reason: String) {
        if let Some(held) = self.watched.get_mut(&uri) {
            held.missing = true;
            let key = format!("\0missing {uri}");
            self.feed.push(&key, Event::Missing { uri, reason });
        }
    }

    /// Decides when what is missing is asked for again.
    fn schedule(&mut self) {
        if self.watched.values().all(|held| !held.missing) {
            self.retry = None;
            return;
        }
        let (_, mut backoff) = self.retry.unwrap_or((Instant::now(), self.backoff_anew()));
        let wait = backoff.next(random());
        self.retry = Some((Instant::now() + wait, backoff));
    }

    fn backoff_anew(&self) -> Backoff {
        let mut backoff = self.backoff;
        backoff.reset();
        backoff
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// A number that nobody guesses; where the system has none, the longest wait.
fn random() -> u32 {
    getrandom::u32().unwrap_or(u32::MAX)
}
