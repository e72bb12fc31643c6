//! The task behind a watcher: it keeps a connection, makes another one when that is lost, and finds out what was
//! missed meanwhile.
//!
//! Owns the order of things: here what the watcher asks and what the server says, in `reconnect` the life after a loss,
//! in `place` the choice of roads, in `look` the questions that are asked on a timer. What is news is decided in
//! `watched`, when to ask in `checks`. Receives commands from the watcher and signals from the link; puts events into the
//! feed, which the watcher reads. It never waits for whoever reads the feed.

mod reconnect;
mod place;
mod look;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::backoff::Backoff;
use super::checks::Checks;
use super::conflated::Conflated;
use super::error::WatchError;
use super::inbox::Signal;
use super::link::{Link, LinkError, Refusal};
use super::options::WatchOptions;
use super::target::{Era, Road, Target};
use super::version::Version;
use super::watched::{News, Watched};
use super::{Event, ResourceChanged};
use look::Waiting;

/// How often a session of an older revision is used, so that no server ends it as idle: half the shortest limit seen.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Not the URI of anything.
const CONNECTION: &str = "\0connection";

/// The etags that resources have and the roads they are on, or why they are not watched.
type Subscribed = Result<Vec<(Option<String>, Road)>, WatchError>;

/// What the watcher asks of its keeper.
pub(super) enum Command {
    /// Watch these too; answers the etags they have now and the roads they are on, in order.
    Subscribe(Vec<String>, oneshot::Sender<Subscribed>),
    /// Watch this no longer.
    Unsubscribe(String, oneshot::Sender<Result<(), WatchError>>),
}

impl From<Refusal> for WatchError {
    fn from(Refusal { uri, reason }: Refusal) -> WatchError {
        WatchError::Refused { uri, reason }
    }
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
    Look,
    Waited(Result<Vec<Version>, LinkError>),
}

pub(super) struct Keeper {
    target: Target,
    era: Era,
    options: WatchOptions,
    backoff: Backoff,
    commands: mpsc::Receiver<Command>,
    feed: Arc<Conflated<Event>>,
    watched: Watched,
    checks: Checks,
    /// The best road that may be taken still: those before it the server did not keep.
    floor: Road,
    /// The question that waits at the server for a change.
    waiting: Option<Waiting>,
    /// When it may be asked next, and how long to wait after it failed to wait.
    wait_pace: (Instant, Duration),
    /// How often in a row it was refused.
    wait_refusals: u32,
    /// Whether each resource is asked for by itself first, after a refusal.
    wait_held: bool,
    /// When resources that are missing are asked for again, and how long to wait after that.
    retry: Option<(Instant, Backoff)>,
    ping_at: Instant,
}

impl Keeper {
    pub(super) fn new(
        target: Target,
        era: Era,
        options: WatchOptions,
        commands: mpsc::Receiver<Command>,
        feed: Arc<Conflated<Event>>,
    ) -> Keeper {
        Keeper {
            target,
            era,
            backoff: options.backoff,
            commands,
            feed,
            watched: Watched::default(),
            checks: Checks::default(),
            floor: Road::Listen,
            waiting: None,
            wait_pace: (Instant::now(), options.poll_first),
            wait_refusals: 0,
            wait_held: false,
            retry: None,
            ping_at: Instant::now() + PING_EVERY,
            options,
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
            self.waiting = None;
            tokio::spawn(link.close());
            link = match self.reconnect(reason).await {
                Some(link) => link,
                None => return self.feed.close(),
            };
        }
        self.feed.close();
        self.waiting = None;
        let held = self.watched.on(Road::is_told);
        if link.told == Some(Road::Subscribe)
            && let Err(reason) = link.unwatch(&[], &held).await
        {
            tracing::debug!(reason, "the connection was lost before its end");
        }
        link.close().await;
    }

    /// Serves the watcher and the link until either is gone.
    async fn follow(&mut self, link: &mut Link) -> Result<(), Lost> {
        loop {
            self.arm(link);
            match self.turn(link).await {
                Turn::Command(None) => return Ok(()),
                Turn::Command(Some(command)) => self.obey(link, command).await?,
                Turn::Signal(Signal::Updated(uri, etag)) => self.updated(&uri, etag.as_deref()),
                Turn::Signal(Signal::Gap) => {
                    let told = self.watched.on(Road::is_told);
                    self.compare(link, told).await?;
                }
                Turn::Signal(Signal::Lost(reason)) => return Err(Lost(reason)),
                Turn::Ping => {
                    self.ping_at = Instant::now() + PING_EVERY;
                    link.ping().await?;
                }
                Turn::Retry => self.resubscribe(link).await?,
                Turn::Look => self.look(link).await?,
                Turn::Waited(outcome) => self.waited(link, outcome)?,
            }
        }
    }

    async fn turn(&mut self, link: &Link) -> Turn {
        let retry_at = self.retry.map(|(at, _)| at);
        let look_at = self.checks.next().map(Instant::from_std);
        // Signals go before looks, so that nobody is suspected of silence who has spoken.
        tokio::select! {
            biased;
            command = self.commands.recv() => Turn::Command(command),
            signal = link.inbox.next() => Turn::Signal(signal),
            outcome = look::answer(&mut self.waiting) => Turn::Waited(outcome),
            () = tokio::time::sleep_until(self.ping_at), if link.session => Turn::Ping,
            () = until(retry_at) => Turn::Retry,
            () = until(look_at) => Turn::Look,
        }
    }

    /// Reports a notification, unless what it tells of was reported already, or has to be looked at first.
    fn updated(&mut self, uri: &str, etag: Option<&str>) {
        let now = Instant::now().into_std();
        match self.watched.updated(uri, etag) {
            News::Known => {}
            News::Unclear => self.checks.notice(uri, now),
            News::New => {
                self.checks.verify(uri, now, self.options.verify_every, random());
                self.report(uri);
            }
        }
    }

    /// Reports the version that `uri` is known to be at.
    fn report(&self, uri: &str) {
        let Some((version, road)) = self.watched.known(uri) else {
            return;
        };
        let changed = ResourceChanged {
            uri: uri.to_owned(),
            etag: version.etag.clone(),
            digest: version.digest,
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
                let told = self.watched.road(&uri).is_some_and(Road::is_told);
                self.forget(&uri);
                let held = self.watched.on(Road::is_told);
                let outcome = if told {
                    link.unwatch(&held, &[uri]).await
                } else {
                    Ok(())
                };
                drop(answer.send(Ok(())));
                outcome?;
            }
        }
        Ok(())
    }

    /// Watches `uri` no longer.
    fn forget(&mut self, uri: &str) {
        self.watched.remove(uri);
        self.checks.forget(uri);
        self.waiting = None;
    }

    /// Watches all of `uris` or none.
    async fn subscribe(&mut self, link: &mut Link, uris: &[String]) -> Result<Subscribed, Lost> {
        let (held, new): (BTreeSet<String>, BTreeSet<String>) =
            uris.iter().cloned().partition(|uri| self.watched.contains(uri));
        let mut etags = BTreeMap::new();
        for uri in held {
            let road = self.watched.road(&uri).unwrap_or(Road::ReadAndHash);
            let versions = link.versions(std::slice::from_ref(&uri), road).await?;
            match versions.into_iter().next() {
                Some(Ok(version)) => etags.insert(uri, (version.etag, road)),
                Some(Err(refusal)) => return Ok(Err(refusal.into())),
                None => None,
            };
        }
        let (placed, refusals) = self.place(link, new.into_iter().collect()).await?;
        if let Some(refusal) = refusals.into_iter().next() {
            let told = placed.iter().filter(|placed| placed.road.is_told());
            let told: Vec<String> = told.map(|placed| placed.uri.clone()).collect();
            if !told.is_empty() {
                link.unwatch(&self.watched.on(Road::is_told), &told).await?;
            }
            return Ok(Err(refusal.into()));
        }
        for placed in placed {
            etags.insert(placed.uri.clone(), (placed.version.etag.clone(), placed.road));
            self.watched
                .add(placed.uri.clone(), placed.version.clone(), placed.road);
            self.settle(&placed, None);
        }
        let of = |uri| etags.get(uri).cloned().expect("each is held or was placed");
        Ok(Ok(uris.iter().map(of).collect()))
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
