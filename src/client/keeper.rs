//! The task behind a watcher: it keeps a connection, makes another one when that is lost, and finds out what was
//! missed meanwhile.
//!
//! Owns the waits between attempts and the order of things; what is news is decided in `watched`. Receives commands from
//! the watcher and signals from the link; puts events into the feed, which the watcher reads. It never waits for
//! whoever reads the feed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::backoff::Backoff;
use super::conflated::Conflated;
use super::error::WatchError;
use super::handshake;
use super::inbox::Signal;
use super::link::{Link, LinkError, Refusal};
use super::target::{Era, Road, Target};
use super::version::Version;
use super::watched::Watched;
use super::{Event, ResourceChanged};

/// How often a session of an older revision is used, so that no server ends it as idle: half the shortest limit seen.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Not the URI of anything.
const CONNECTION: &str = "\0connection";

/// The etags that resources have, or why they are not watched.
type Subscribed = Result<Vec<Option<String>>, WatchError>;

/// What the watcher asks of its keeper.
pub(super) enum Command {
    /// Watch these too; answers the etags they have now, in order.
    Subscribe(Vec<String>, oneshot::Sender<Subscribed>),
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
    watched: Watched,
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
            watched: Watched::default(),
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
                self.backoff = self.backoff.anew();
            }
            // The farewell to a server that may be gone takes its time.
            tokio::spawn(link.close());
            link = match self.reconnect(reason).await {
                Some(link) => link,
                None => return self.feed.close(),
            };
        }
        self.feed.close();
        let held = self.watched.present();
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
                Turn::Signal(Signal::Gap) => self.compare(link, self.watched.present()).await?,
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
        if self.watched.updated(uri, etag.as_deref()) {
            self.report(uri, etag, road);
        }
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
                let held = self.watched.present();
                let outcome = link.unwatch(&held, &[uri]).await;
                drop(answer.send(Ok(())));
                outcome?;
            }
        }
        Ok(())
    }

    async fn subscribe(&mut self, link: &mut Link, uris: &[String]) -> Result<Subscribed, Lost> {
        let unknown = uris.iter().filter(|uri| !self.watched.contains(uri));
        let new: Vec<String> = unknown.collect::<BTreeSet<_>>().into_iter().cloned().collect();
        let held = self.watched.present();
        let refusals = link.watch(&held, &new).await?;
        let read = match refusals.into_iter().next() {
            Some(refusal) => Err(refusal),
            None => read_all(link, uris).await?,
        };
        match read {
            Ok(versions) => {
                let etags = versions.iter().map(|version| version.etag.clone()).collect();
                for (uri, version) in uris.iter().zip(versions) {
                    if new.contains(uri) {
                        self.watched.add(uri.clone(), version);
                    }
                }
                Ok(Ok(etags))
            }
            Err(Refusal { uri, reason }) => {
                link.unwatch(&held, &new).await?;
                Ok(Err(WatchError::Refused { uri, reason }))
            }
        }
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
        let opened = handshake::open(&self.target, self.era).await;
        let mut link = opened.map_err(|error| Lost(error.to_string()))?;
        self.ping_at = Instant::now() + PING_EVERY;
        self.retry = None;
        self.watched.reconnected();
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
        let missing = self.watched.absent();
        let refusals = link.watch(&self.watched.present(), &missing).await?;
        let answered = missing
            .iter()
            .filter(|uri| !refusals.iter().any(|refusal| refusal.uri == **uri));
        let answered: Vec<String> = answered.cloned().collect();
        for Refusal { uri, reason } in refusals {
            self.miss(uri, reason);
        }
        self.compare(link, answered).await
    }

    /// Reads `uris` and reports those that are not at the version last reported.
    async fn compare(&mut self, link: &mut Link, uris: Vec<String>) -> Result<(), Lost> {
        for uri in uris {
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
        let etag = version.etag.clone();
        if self.watched.compared(uri, version) {
            self.report(uri, etag, road);
        }
    }

    /// Notes that the server does not have `uri` now, and says so once.
    fn miss(&mut self, uri: String, reason: String) {
        if self.watched.missed(&uri) {
            let key = format!("\0missing {uri}");
            self.feed.push(&key, Event::Missing { uri, reason });
        }
    }

    /// Decides when what is missing is asked for again.
    fn schedule(&mut self) {
        if self.watched.absent().is_empty() {
            self.retry = None;
            return;
        }
        let (_, mut backoff) = self.retry.unwrap_or((Instant::now(), self.backoff.anew()));
        let wait = backoff.next(random());
        self.retry = Some((Instant::now() + wait, backoff));
    }
}

/// The versions of all of `uris`, or the first that cannot be read.
async fn read_all(link: &Link, uris: &[String]) -> Result<Result<Vec<Version>, Refusal>, Lost> {
    let mut versions = Vec::new();
    for uri in uris {
        match link.read(uri).await {
            Ok(version) => versions.push(version),
            Err(LinkError::Lost(reason)) => return Err(Lost(reason)),
            Err(LinkError::Refused(reason)) => {
                let uri = uri.clone();
                return Ok(Err(Refusal { uri, reason }));
            }
        }
    }
    Ok(Ok(versions))
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
