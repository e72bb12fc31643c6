//! The task after a loss: it waits, connects again, and asks for what is missing.
//!
//! Owns the waits between attempts. Commands that come meanwhile are answered as far as that needs no connection; what
//! changed meanwhile is found out by comparing versions.

use std::time::Duration;

use tokio::time::Instant;

use super::{CONNECTION, Command, Link, Lost, PING_EVERY, Refusal, WatchError, WatchTask, random};
use crate::client::{WatchEvent, handshake};

impl WatchTask {
    /// Tries until there is a connection on which everything is watched that can be; none when the watcher is gone.
    pub(super) async fn reconnect(&mut self, mut reason: String) -> Option<Link> {
        loop {
            let wait = self.backoff.next(random());
            let lost = WatchEvent::Lost {
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
        let opened = handshake::open(&self.target, self.era, self.options.strategy).await;
        let mut link = opened.map_err(|error| Lost(error.to_string()))?;
        self.ping_at = Instant::now() + PING_EVERY;
        self.retry = None;
        self.schedule.clear();
        self.wait_refusals = 0;
        self.wait_held = false;
        self.reported.reconnected();
        let restored = WatchEvent::Restored {
            revision: link.revision.clone(),
            strategy: self.best_strategy(&link),
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

    /// Puts everything that is watched but missing on a strategy, and reports what changed meanwhile.
    pub(super) async fn resubscribe(&mut self, link: &mut Link) -> Result<(), Lost> {
        let missing = self.reported.absent();
        self.replace(link, missing).await?;
        self.schedule_retry();
        Ok(())
    }

    /// Asks for `uris` and reports those that are not at the version last reported.
    pub(super) async fn compare(&mut self, link: &mut Link, uris: Vec<String>) -> Result<(), Lost> {
        for uri in uris {
            let strategy = self.best_strategy(link);
            let versions = link.versions(std::slice::from_ref(&uri), strategy).await?;
            match versions.into_iter().next() {
                Some(Ok(version)) => {
                    if self.reported.compared(&uri, version) {
                        self.report(&uri);
                    }
                    let now = Instant::now().into_std();
                    self.schedule
                        .verify(&uri, now, self.options.verify_first, random());
                }
                Some(Err(refusal)) => self.miss(refusal),
                None => {}
            }
        }
        self.schedule_retry();
        Ok(())
    }

    /// Notes that the server does not have a resource now, and says so once.
    pub(super) fn miss(&mut self, Refusal { uri, reason }: Refusal) {
        self.schedule.forget(&uri);
        if self.reported.missed(&uri) {
            let key = format!("\0missing {uri}");
            self.feed.push(&key, WatchEvent::Missing { uri, reason });
        }
    }

    /// Decides when what is missing is asked for again.
    pub(super) fn schedule_retry(&mut self) {
        if self.reported.absent().is_empty() {
            self.retry = None;
            return;
        }
        let (_, mut backoff) = self.retry.unwrap_or((Instant::now(), self.options.backoff));
        let wait = backoff.next(random());
        self.retry = Some((Instant::now() + wait, backoff));
    }
}
