//! The keeper after a loss: it waits, connects again, and asks for what is missing.
//!
//! Owns the waits between attempts. Commands that come meanwhile are answered as far as that needs no connection; what
//! changed meanwhile is found out by comparing versions.

use std::time::Duration;

use tokio::time::Instant;

use super::{CONNECTION, Command, Keeper, Link, Lost, PING_EVERY, Refusal, WatchError, random};
use crate::client::{Event, handshake};

impl Keeper {
    /// Tries until there is a connection on which everything is watched that can be; none when the watcher is gone.
    pub(super) async fn reconnect(&mut self, mut reason: String) -> Option<Link> {
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
                    self.forget(&uri);
                    drop(answer.send(Ok(())));
                }
            }
        }
    }

    async fn connect(&mut self) -> Result<Link, Lost> {
        let opened = handshake::open(&self.target, self.era, self.options.road).await;
        let mut link = opened.map_err(|error| Lost(error.to_string()))?;
        self.ping_at = Instant::now() + PING_EVERY;
        self.retry = None;
        self.checks.clear();
        self.wait_refusals = 0;
        self.wait_held = false;
        self.watched.reconnected();
        let restored = Event::Restored {
            revision: link.revision.clone(),
            road: self.best_road(&link),
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

    /// Puts everything that is watched but missing on a road, and reports what changed meanwhile.
    pub(super) async fn resubscribe(&mut self, link: &mut Link) -> Result<(), Lost> {
        let missing = self.watched.absent();
        self.replace(link, missing).await?;
        self.schedule();
        Ok(())
    }

    /// Asks for `uris` and reports those that are not at the version last reported.
    pub(super) async fn compare(&mut self, link: &mut Link, uris: Vec<String>) -> Result<(), Lost> {
        for uri in uris {
            let road = self.best_road(link);
            let versions = link.versions(std::slice::from_ref(&uri), road).await?;
            match versions.into_iter().next() {
                Some(Ok(version)) => {
                    if self.watched.compared(&uri, version) {
                        self.report(&uri);
                    }
                    let now = Instant::now().into_std();
                    self.checks.verify(&uri, now, self.options.verify_first, random());
                }
                Some(Err(refusal)) => self.miss(refusal),
                None => {}
            }
        }
        self.schedule();
        Ok(())
    }

    /// Notes that the server does not have a resource now, and says so once.
    pub(super) fn miss(&mut self, Refusal { uri, reason }: Refusal) {
        self.checks.forget(&uri);
        if self.watched.missed(&uri) {
            let key = format!("\0missing {uri}");
            self.feed.push(&key, Event::Missing { uri, reason });
        }
    }

    /// Decides when what is missing is asked for again.
    pub(super) fn schedule(&mut self) {
        if self.watched.absent().is_empty() {
            self.retry = None;
            return;
        }
        let (_, mut backoff) = self.retry.unwrap_or((Instant::now(), self.options.backoff));
        let wait = backoff.next(random());
        self.retry = Some((Instant::now() + wait, backoff));
    }
}
