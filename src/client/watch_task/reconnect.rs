//! The time without a connection: the waits, the new connection, and the comparison of versions after it.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    CONNECTION, Link, Lost, PING_EVERY, RefusedResource, WatchCommand, WatchError, WatchTask, random,
    send_reply,
};
use crate::client::{WatchEvent, handshake};

impl WatchTask {
    /// Connects again, however long that takes, and watches the resources on the new connection. Returns
    /// `None` once the watcher is dropped.
    pub(super) async fn reconnect(&mut self, mut reason: String) -> Option<Link> {
        loop {
            let wait = self.backoff.next(random());
            let lost = WatchEvent::Lost {
                reason: reason.clone(),
                retry_in: wait,
            };
            self.events.push(CONNECTION, lost);
            if !self.wait(wait, &reason).await {
                return None;
            }
            reason = match self.connect().await {
                Ok(link) => return Some(link),
                Err(Lost(reason)) => reason,
            };
        }
    }

    /// Waits and meanwhile executes the commands that need no connection. Returns false if the watcher is
    /// dropped.
    async fn wait(&mut self, time: Duration, reason: &str) -> bool {
        let end = Instant::now() + time;
        loop {
            // Biased: a watcher that is dropped ends the wait at once.
            let command = tokio::select! {
                biased;
                command = self.commands.recv() => command,
                () = tokio::time::sleep_until(end) => return true,
            };
            match command {
                None => return false,
                Some(WatchCommand::Subscribe(_, reply)) => {
                    send_reply(reply, Err(WatchError::Disconnected(reason.to_owned())));
                }
                Some(WatchCommand::List(reply)) => {
                    send_reply(reply, Err(WatchError::Disconnected(reason.to_owned())));
                }
                Some(WatchCommand::Unsubscribe(uri, reply)) => {
                    self.forget(&uri);
                    send_reply(reply, Ok(()));
                }
            }
        }
    }

    async fn connect(&mut self) -> Result<Link, Lost> {
        let opened = handshake::open(&self.target, self.era, &self.options).await;
        let mut link = opened.map_err(|error| Lost(error.to_string()))?;
        // The schedule belongs to the old connection; the server may offer other strategies now.
        self.ping_at = Instant::now() + PING_EVERY;
        self.retry = None;
        self.schedule.clear();
        self.long_poll.reconnected();
        self.reported.reconnected();
        let restored = WatchEvent::Restored {
            revision: link.revision.clone(),
            strategy: self.best_strategy(&link),
        };
        self.events.push(CONNECTION, restored);
        match self.resubscribe(&mut link).await {
            Ok(()) => Ok(link),
            Err(lost) => {
                // In the background, since closing may take seconds.
                tokio::spawn(link.close());
                Err(lost)
            }
        }
    }

    /// Assigns a strategy to every watched resource that has none now, and reports those that changed.
    pub(super) async fn resubscribe(&mut self, link: &mut Link) -> Result<(), Lost> {
        let absent = self.reported.absent();
        self.reassign(link, absent).await?;
        self.schedule_retry();
        Ok(())
    }

    /// Polls `uris` after a gap in the notifications, and reports those that changed.
    pub(super) async fn compare(&mut self, link: &mut Link, uris: Vec<String>) -> Result<(), Lost> {
        for uri in uris {
            match link.version(&uri, self.best_strategy(link)).await? {
                Ok(version) => {
                    self.polled(&uri, version);
                    let now = Instant::now().into_std();
                    let wait = self.options.verify_first;
                    self.schedule.verify(&uri, now, wait, random());
                }
                Err(refusal) => self.found_missing(link, refusal),
            }
        }
        self.schedule_retry();
        Ok(())
    }

    /// Notes that a watched resource is gone. A server that holds the subscription notifies its return; any
    /// other is asked again.
    pub(super) fn found_missing(&mut self, link: &Link, refusal: RefusedResource) {
        match self.reported.strategy(&refusal.uri) {
            Some(strategy) if strategy.is_push() && link.compares_etags => self.report_awaited(refusal),
            _ => self.report_missing(refusal),
        }
    }

    /// Notes that the server holds the subscription to a resource that does not exist, and reports it once.
    pub(super) fn report_awaited(&mut self, RefusedResource { uri, reason }: RefusedResource) {
        self.schedule.forget(&uri);
        if self.reported.awaits(&uri) {
            let key = format!("\0missing {uri}");
            self.events.push(&key, WatchEvent::Missing { uri, reason });
        }
    }

    /// Notes that the server refuses a resource, and reports it unless it was missing before.
    pub(super) fn report_missing(&mut self, RefusedResource { uri, reason }: RefusedResource) {
        // `schedule_retry` asks for it again; polling would only repeat the refusal.
        self.schedule.forget(&uri);
        if self.reported.missed(&uri) {
            let key = format!("\0missing {uri}");
            self.events.push(&key, WatchEvent::Missing { uri, reason });
        }
    }

    /// Schedules the next attempt to watch missing resources, if there are any.
    pub(super) fn schedule_retry(&mut self) {
        if self.reported.absent().is_empty() {
            self.retry = None;
            return;
        }
        let mut backoff = match self.retry {
            Some((_, backoff)) => backoff,
            None => self.options.backoff,
        };
        let wait = backoff.next(random());
        self.retry = Some((Instant::now() + wait, backoff));
    }
}
