//! The task behind a watcher: it keeps a connection, replaces it when it is lost, and reports the changes.
//!
//! This file has the main loop and the commands. `assign` chooses strategies, `poll` asks for versions,
//! `reconnect` is the time without a connection.

mod assign;
mod poll;
mod reconnect;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::error::WatchError;
use super::inbox::Signal;
use super::known_etags::HeldEtags;
use super::latest_queue::LatestQueue;
use super::link::{ItemVersion, Link, LinkError, Lost, RefusedResource};
use super::options::WatchOptions;
use super::poll_schedule::PollSchedule;
use super::reported::{Novelty, Reported};
use super::strategy::WatchStrategy;
use super::target::{Era, Target};
use super::version::Version;
use super::{ResourceChanged, WatchEvent};
use crate::ListKind;
use crate::backoff::Backoff;
use poll::LongPoll;

/// The interval of pings in a session of an older revision, so that no server ends it as idle: half of the
/// shortest idle timeout of known servers.
const PING_EVERY: Duration = Duration::from_secs(30);

/// The event key of the connection. Keys that begin with a NUL byte cannot be URIs.
const CONNECTION: &str = "\0connection";

/// The etag and the strategy of each resource, or the reason that none is watched.
type Subscribed = Result<Vec<(Option<String>, WatchStrategy)>, WatchError>;

/// A request of the watcher to its task.
pub(super) enum WatchCommand {
    /// Watch these resources; the reply is in the same order.
    Subscribe(Vec<String>, oneshot::Sender<Subscribed>),
    /// Name the listed resources.
    List(oneshot::Sender<Result<Vec<String>, WatchError>>),
    /// Stop watching this resource.
    Unsubscribe(String, oneshot::Sender<Result<(), WatchError>>),
}

impl From<RefusedResource> for WatchError {
    fn from(RefusedResource { uri, reason }: RefusedResource) -> WatchError {
        WatchError::Refused { uri, reason }
    }
}

/// The next thing to handle.
enum Turn {
    Command(Option<WatchCommand>),
    Signal(Signal),
    Ping,
    Retry,
    Poll,
    LongPoll(Result<Vec<ItemVersion>, LinkError>),
}

/// The state of the task.
pub(super) struct WatchTask {
    target: Target,
    era: Era,
    options: WatchOptions,
    backoff: Backoff,
    commands: mpsc::Receiver<WatchCommand>,
    events: Arc<LatestQueue<WatchEvent>>,
    reported: Reported,
    schedule: PollSchedule,
    /// The best strategy that is still allowed: the server did not honour those before it.
    best_allowed: WatchStrategy,
    long_poll: LongPoll,
    /// The time of the next attempt to watch missing resources, and the waits after it.
    retry: Option<(Instant, Backoff)>,
    ping_at: Instant,
}

impl WatchTask {
    pub(super) fn new(
        target: Target,
        era: Era,
        options: WatchOptions,
        commands: mpsc::Receiver<WatchCommand>,
        events: Arc<LatestQueue<WatchEvent>>,
    ) -> WatchTask {
        WatchTask {
            target,
            era,
            backoff: options.backoff,
            commands,
            events,
            reported: Reported::default(),
            schedule: PollSchedule::new(options.clone()),
            best_allowed: WatchStrategy::Listen,
            long_poll: LongPoll::new(options.poll_first),
            retry: None,
            ping_at: Instant::now() + PING_EVERY,
            options,
        }
    }

    /// Watches over `link` and its successors until the watcher is dropped.
    pub(super) async fn run(mut self, mut link: Link) {
        loop {
            let since = Instant::now();
            let Err(Lost(reason)) = self.serve(&mut link).await else {
                break;
            };
            if since.elapsed() >= self.backoff.stable_after() {
                self.backoff = self.backoff.restarted();
            }
            self.long_poll.cancel();
            // Closing waits for a server that may be gone, so it must not delay the reconnection.
            tokio::spawn(link.close());
            link = match self.reconnect(reason).await {
                Some(link) => link,
                None => return self.events.close(),
            };
        }
        self.events.close();
        self.long_poll.cancel();
        let held = self.reported.present(WatchStrategy::is_push);
        let none = HeldEtags::new();
        // A listen stream ends with the connection, but not every server ends subscriptions with it.
        if link.push == Some(WatchStrategy::Subscribe)
            && let Err(Lost(reason)) = link.unwatch(&none, &held).await
        {
            tracing::debug!(reason, "the connection was lost before it was closed");
        }
        link.close().await;
    }

    /// Serves the watcher and the link until one of them is gone.
    async fn serve(&mut self, link: &mut Link) -> Result<(), Lost> {
        loop {
            self.start_long_poll(link);
            match self.next_turn(link).await {
                Turn::Command(None) => return Ok(()),
                Turn::Command(Some(command)) => self.execute(link, command).await?,
                Turn::Signal(Signal::Updated(uri, etag)) => self.notified(&uri, etag.as_deref()),
                Turn::Signal(Signal::List(kind)) => self.list_changed(link, kind).await?,
                Turn::Signal(Signal::Gap) => {
                    let pushed = self.reported.present(WatchStrategy::is_push);
                    self.compare(link, pushed).await?;
                }
                Turn::Signal(Signal::Lost(reason)) => return Err(Lost(reason)),
                Turn::Ping => {
                    self.ping_at = Instant::now() + PING_EVERY;
                    link.ping().await?;
                }
                Turn::Retry => self.resubscribe(link).await?,
                Turn::Poll => self.poll_due(link).await?,
                Turn::LongPoll(outcome) => self.finish_long_poll(link, outcome)?,
            }
        }
    }

    async fn next_turn(&mut self, link: &Link) -> Turn {
        let poll_at = self.schedule.next().map(Instant::from_std);
        let retry_at = self.retry.map(|(at, _)| at);
        // Biased: signals go before polls, so that a notification that has arrived is never found missing.
        tokio::select! {
            biased;
            command = self.commands.recv() => Turn::Command(command),
            signal = link.inbox.next() => Turn::Signal(signal),
            outcome = self.long_poll.answer() => Turn::LongPoll(outcome),
            () = tokio::time::sleep_until(self.ping_at), if link.session => Turn::Ping,
            () = until(retry_at) => Turn::Retry,
            () = until(poll_at) => Turn::Poll,
        }
    }

    /// Reports a notification if it is new, or schedules a poll if it has no etag.
    fn notified(&mut self, uri: &str, etag: Option<&str>) {
        let now = Instant::now().into_std();
        match self.reported.notified(uri, etag) {
            Novelty::Known => {}
            Novelty::Unclear => self.schedule.notice(uri, now),
            Novelty::New => {
                let every = self.options.verify_every;
                self.schedule.verify(uri, now, every, random());
                self.report(uri);
            }
        }
    }

    /// Reports a change of a list, after which resources that were missing may be there.
    async fn list_changed(&mut self, link: &mut Link, kind: ListKind) -> Result<(), Lost> {
        if self.options.lists {
            let key = format!("\0list {}", kind.name());
            self.events.push(&key, WatchEvent::ListChanged(kind));
        }
        match kind {
            ListKind::Resources if self.retry.is_some() => self.resubscribe(link).await,
            _ => Ok(()),
        }
    }

    /// Takes in a polled version and reports it if it is new. Returns true if it is.
    fn polled(&mut self, uri: &str, version: Version) -> bool {
        let changed = self.reported.polled(uri, version);
        if changed {
            self.report(uri);
        }
        changed
    }

    /// Reports the known version of `uri`.
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
        self.events.push(uri, WatchEvent::Changed(changed));
    }

    // ── Commands ──────────────────────────────────────────────────────────────────────────────────────

    async fn execute(&mut self, link: &mut Link, command: WatchCommand) -> Result<(), Lost> {
        match command {
            WatchCommand::Subscribe(uris, reply) => match self.subscribe(link, &uris).await {
                Ok(outcome) => send_reply(reply, outcome),
                Err(Lost(reason)) => {
                    send_reply(reply, Err(WatchError::Disconnected(reason.clone())));
                    return Err(Lost(reason));
                }
            },
            WatchCommand::List(reply) => match link.list().await {
                Ok(uris) => send_reply(reply, Ok(uris)),
                Err(LinkError::Refused(reason)) => {
                    let uri = "the list of resources".to_owned();
                    send_reply(reply, Err(WatchError::Refused { uri, reason }));
                }
                Err(LinkError::Lost(Lost(reason))) => {
                    send_reply(reply, Err(WatchError::Disconnected(reason.clone())));
                    return Err(Lost(reason));
                }
            },
            WatchCommand::Unsubscribe(uri, reply) => {
                let strategy = self.reported.strategy(&uri);
                self.forget(&uri);
                let outcome = match strategy {
                    Some(strategy) if strategy.is_push() => {
                        let held = self.reported.present(WatchStrategy::is_push);
                        link.unwatch(&self.reported.etags(&held), &[uri]).await
                    }
                    _ => Ok(()),
                };
                // The resource is forgotten even if the connection was lost meanwhile.
                send_reply(reply, Ok(()));
                outcome?;
            }
        }
        Ok(())
    }

    /// Stops watching `uri`.
    fn forget(&mut self, uri: &str) {
        self.reported.remove(uri);
        self.schedule.forget(uri);
        self.long_poll.cancel();
    }

    /// Watches resources that the server does not have yet.
    fn await_missing(
        &mut self,
        link: &Link,
        refusals: impl Iterator<Item = RefusedResource>,
        answers: &mut BTreeMap<String, (Option<String>, WatchStrategy)>,
    ) {
        let strategy = self.best_strategy(link);
        for refusal in refusals {
            answers.insert(refusal.uri.clone(), (None, strategy));
            // Of no version, so that the first one that is found is a change.
            self.reported
                .add(refusal.uri.clone(), Version::default(), strategy);
            self.report_missing(refusal);
        }
        self.schedule_retry();
    }

    /// Watches all of `uris` or none.
    async fn subscribe(&mut self, link: &mut Link, uris: &[String]) -> Result<Subscribed, Lost> {
        let mut answers = BTreeMap::new();
        let mut new = BTreeSet::new();
        for uri in uris {
            let Some(strategy) = self.reported.strategy(uri) else {
                new.insert(uri.clone());
                continue;
            };
            // Watched already; only its current etag is asked for.
            if !answers.contains_key(uri) {
                match link.version(uri, strategy).await? {
                    Ok(version) => answers.insert(uri.clone(), (version.etag, strategy)),
                    Err(_) if self.options.wait_for_missing => answers.insert(uri.clone(), (None, strategy)),
                    Err(refusal) => return Ok(Err(refusal.into())),
                };
            }
        }
        let (assigned, mut refusals) = self.assign(link, new.into_iter().collect()).await?;
        if self.options.wait_for_missing {
            self.await_missing(link, refusals.drain(..), &mut answers);
        }
        if let Some(refusal) = refusals.into_iter().next() {
            let mut pushed = Vec::new();
            for assignment in assigned {
                if assignment.strategy.is_push() {
                    pushed.push(assignment.uri);
                }
            }
            if !pushed.is_empty() {
                let held = self.reported.present(WatchStrategy::is_push);
                link.unwatch(&self.reported.etags(&held), &pushed).await?;
            }
            return Ok(Err(refusal.into()));
        }
        for assignment in assigned {
            let uri = assignment.uri.clone();
            let version = assignment.version.clone();
            let strategy = assignment.strategy;
            let etag = match assignment.awaited {
                Some(_) => None,
                None => version.etag.clone(),
            };
            answers.insert(uri.clone(), (etag, strategy));
            self.reported.add(uri, version, strategy);
            self.begin_strategy(&assignment, None);
        }
        let mut ordered = Vec::with_capacity(uris.len());
        for uri in uris {
            ordered.push(
                answers
                    .get(uri)
                    .cloned()
                    .expect("each is watched or was assigned"),
            );
        }
        Ok(Ok(ordered))
    }
}

/// Sends a reply. The caller may have been cancelled and dropped its end, which is no error.
fn send_reply<T>(reply: oneshot::Sender<T>, value: T) {
    if reply.send(value).is_err() {
        tracing::debug!("a call of the watcher was cancelled before its reply");
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Returns a random number, or the largest one if the system has no source of random numbers.
fn random() -> u32 {
    getrandom::u32().unwrap_or(u32::MAX)
}
