//! The task behind a watcher: it keeps a connection, makes another one when that is lost, and finds out what was
//! missed meanwhile.
//!
//! Owns the order of things: here what the watcher asks and what the server says, in `reconnect` the life after a loss,
//! in `place` the choice of strategies, in `look` the questions that are asked on a timer. What is news is decided in
//! `watched`, when to ask in `checks`. Receives commands from the watcher and signals from the link; puts events into the
//! feed, which the watcher reads. It never waits for whoever reads the feed.

mod reconnect;
mod assign;
mod poll;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::backoff::Backoff;
use super::error::WatchError;
use super::inbox::Signal;
use super::latest_queue::LatestQueue;
use super::link::{Link, LinkError, Refusal};
use super::options::WatchOptions;
use super::poll_schedule::PollSchedule;
use super::reported::{Novelty, Reported};
use super::strategy::WatchStrategy;
use super::target::{Era, Target};
use super::version::Version;
use super::{ResourceChanged, WatchEvent};
use poll::Waiting;

/// How often a session of an older revision is used, so that no server ends it as idle: half the shortest limit seen.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Not the URI of anything.
const CONNECTION: &str = "\0connection";

/// The etags that resources have and the strategies they are on, or why they are not watched.
type Subscribed = Result<Vec<(Option<String>, WatchStrategy)>, WatchError>;

/// What the watcher asks of its task.
pub(super) enum Command {
    /// Watch these too; answers the etags they have now and the strategies they are on, in order.
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
    Poll,
    Waited(Result<Vec<Version>, LinkError>),
}

pub(super) struct WatchTask {
    target: Target,
    era: Era,
    options: WatchOptions,
    backoff: Backoff,
    commands: mpsc::Receiver<Command>,
    feed: Arc<LatestQueue<WatchEvent>>,
    reported: Reported,
    schedule: PollSchedule,
    /// The best strategy that may be taken still: those before it the server did not keep.
    floor: WatchStrategy,
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

impl WatchTask {
    pub(super) fn new(
        target: Target,
        era: Era,
        options: WatchOptions,
        commands: mpsc::Receiver<Command>,
        feed: Arc<LatestQueue<WatchEvent>>,
    ) -> WatchTask {
        WatchTask {
            target,
            era,
            backoff: options.backoff,
            commands,
            feed,
            reported: Reported::default(),
            schedule: PollSchedule::default(),
            floor: WatchStrategy::Listen,
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
        let held = self.reported.on(WatchStrategy::is_push);
        if link.push == Some(WatchStrategy::Subscribe)
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
                    let told = self.reported.on(WatchStrategy::is_push);
                    self.compare(link, told).await?;
                }
                Turn::Signal(Signal::Lost(reason)) => return Err(Lost(reason)),
                Turn::Ping => {
                    self.ping_at = Instant::now() + PING_EVERY;
                    link.ping().await?;
                }
                Turn::Retry => self.resubscribe(link).await?,
                Turn::Poll => self.poll_due(link).await?,
                Turn::Waited(outcome) => self.waited(link, outcome)?,
            }
        }
    }

    async fn turn(&mut self, link: &Link) -> Turn {
        let retry_at = self.retry.map(|(at, _)| at);
        let poll_at = self.schedule.next().map(Instant::from_std);
        // Signals go before looks, so that nobody is suspected of silence who has spoken.
        tokio::select! {
            biased;
            command = self.commands.recv() => Turn::Command(command),
            signal = link.inbox.next() => Turn::Signal(signal),
            outcome = poll::answer(&mut self.waiting) => Turn::Waited(outcome),
            () = tokio::time::sleep_until(self.ping_at), if link.session => Turn::Ping,
            () = until(retry_at) => Turn::Retry,
            () = until(poll_at) => Turn::Poll,
        }
    }

    /// Reports a notification, unless what it tells of was reported already, or has to be looked at first.
    fn updated(&mut self, uri: &str, etag: Option<&str>) {
        let now = Instant::now().into_std();
        match self.reported.updated(uri, etag) {
            Novelty::Known => {}
            Novelty::Unclear => self.schedule.notice(uri, now),
            Novelty::New => {
                self.schedule
                    .verify(uri, now, self.options.verify_every, random());
                self.report(uri);
            }
        }
    }

    /// Reports the version that `uri` is known to be at.
    fn report(&self, uri: &str) {
        let Some((version, strategy)) = self.reported.known(uri) else {
            return;
        };
        let changed = ResourceChanged {
            uri: uri.to_owned(),
            etag: version.etag.clone(),
            digest: version.digest,
            strategy,
        };
        self.feed.push(uri, WatchEvent::Changed(changed));
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
                let told = self.reported.strategy(&uri).is_some_and(WatchStrategy::is_push);
                self.forget(&uri);
                let held = self.reported.on(WatchStrategy::is_push);
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
        self.reported.remove(uri);
        self.schedule.forget(uri);
        self.waiting = None;
    }

    /// Watches all of `uris` or none.
    async fn subscribe(&mut self, link: &mut Link, uris: &[String]) -> Result<Subscribed, Lost> {
        let (held, new): (BTreeSet<String>, BTreeSet<String>) =
            uris.iter().cloned().partition(|uri| self.reported.contains(uri));
        let mut etags = BTreeMap::new();
        for uri in held {
            let strategy = self.reported.strategy(&uri).unwrap_or(WatchStrategy::ReadAndHash);
            let versions = link.versions(std::slice::from_ref(&uri), strategy).await?;
            match versions.into_iter().next() {
                Some(Ok(version)) => etags.insert(uri, (version.etag, strategy)),
                Some(Err(refusal)) => return Ok(Err(refusal.into())),
                None => None,
            };
        }
        let (placed, refusals) = self.assign(link, new.into_iter().collect()).await?;
        if let Some(refusal) = refusals.into_iter().next() {
            let told = placed.iter().filter(|placed| placed.strategy.is_push());
            let told: Vec<String> = told.map(|placed| placed.uri.clone()).collect();
            if !told.is_empty() {
                link.unwatch(&self.reported.on(WatchStrategy::is_push), &told)
                    .await?;
            }
            return Ok(Err(refusal.into()));
        }
        for placed in placed {
            etags.insert(placed.uri.clone(), (placed.version.etag.clone(), placed.strategy));
            self.reported
                .add(placed.uri.clone(), placed.version.clone(), placed.strategy);
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
