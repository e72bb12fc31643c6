//! Polls: on a timer for the strategies that need it, as a long poll where the server supports it, and as
//! checks that the server sends a notification for every change.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use super::{Link, LinkError, Lost, Version, WatchStrategy, WatchTask, random};
use crate::client::link::{ITEMS_MAX, ItemVersion};
use crate::client::poll_schedule::PollReason;

/// The pause between two long polls, which bounds the load of a resource that changes all the time.
const LONG_POLL_PAUSE: Duration = Duration::from_millis(50);

/// A long poll that returns sooner than this without a change did not wait.
const WAITED_MIN: Duration = Duration::from_secs(1);

/// The number of consecutive refusals after which the server is polled on a timer instead.
const REFUSALS_MAX: u32 = 2;

/// The long poll of the etag strategy, by which one request waits at the server for a change of any resource.
pub(super) struct LongPoll {
    pending: Option<PendingPoll>,
    /// The earliest time of the next request.
    next_at: Instant,
    /// The pause after a request that did not wait.
    pause: Duration,
    /// The number of consecutive refusals.
    refusals: u32,
    /// True after a refusal, until each resource was polled by itself.
    suspended: bool,
}

/// A long poll that was sent.
struct PendingPoll {
    uris: Vec<String>,
    asked: Instant,
    answer: Pin<Box<dyn Future<Output = Result<Vec<ItemVersion>, LinkError>> + Send>>,
}

impl LongPoll {
    pub(super) fn new(pause: Duration) -> LongPoll {
        LongPoll {
            pending: None,
            next_at: Instant::now(),
            pause,
            refusals: 0,
            suspended: false,
        }
    }

    /// Waits for the answer; for ever if nothing is pending. Cancel safe.
    pub(super) async fn answer(&mut self) -> Result<Vec<ItemVersion>, LinkError> {
        match &mut self.pending {
            Some(pending) => pending.answer.as_mut().await,
            None => std::future::pending().await,
        }
    }

    /// Cancels the pending request, because the resources or their etags have changed.
    pub(super) fn cancel(&mut self) {
        self.pending = None;
    }

    /// Forgets the refusals of the last connection.
    pub(super) fn reconnected(&mut self) {
        self.refusals = 0;
        self.suspended = false;
    }
}

impl WatchTask {
    /// Sends a long poll if there is none and the server supports it, or else makes sure that each resource
    /// of the etag strategy is scheduled.
    pub(super) fn start_long_poll(&mut self, link: &Link) {
        if self.long_poll.pending.is_some() {
            return;
        }
        let uris = self
            .reported
            .present(|strategy| strategy == WatchStrategy::EtagTool);
        if uris.is_empty() {
            return;
        }
        let supported = match link.tools {
            Some(tools) => tools.wait && uris.len() <= ITEMS_MAX && !self.long_poll.suspended,
            None => false,
        };
        if !supported {
            let now = Instant::now().into_std();
            for uri in &uris {
                if !self.schedule.contains(uri) {
                    self.schedule.poll(uri, now, true, random());
                }
            }
            return;
        }
        let mut held = Vec::with_capacity(uris.len());
        for uri in &uris {
            self.schedule.forget(uri);
            let etag = match self.reported.known(uri) {
                Some((version, _)) => version.etag.clone(),
                None => None,
            };
            held.push((uri.clone(), etag));
        }
        let next_at = self.long_poll.next_at;
        let request = link.wait_for_change(&held);
        self.long_poll.pending = Some(PendingPoll {
            uris,
            asked: next_at.max(Instant::now()),
            answer: Box::pin(async move {
                tokio::time::sleep_until(next_at).await;
                request.await
            }),
        });
    }

    /// Takes in the answer of the long poll.
    pub(super) fn finish_long_poll(
        &mut self,
        link: &mut Link,
        outcome: Result<Vec<ItemVersion>, LinkError>,
    ) -> Result<(), Lost> {
        let Some(PendingPoll { uris, asked, .. }) = self.long_poll.pending.take() else {
            return Ok(());
        };
        match outcome {
            Err(LinkError::Lost(lost)) => return Err(lost),
            Err(LinkError::Refused(reason)) => {
                // One resource may be gone. Polling each by itself finds out which; then a long poll may work
                // again.
                tracing::debug!(reason, "the server does not wait for a change");
                self.long_poll.suspended = true;
                self.long_poll.refusals += 1;
                if self.long_poll.refusals >= REFUSALS_MAX
                    && let Some(tools) = &mut link.tools
                {
                    tools.wait = false;
                }
            }
            Ok(versions) => {
                self.long_poll.refusals = 0;
                let mut changed = false;
                for (uri, version) in std::iter::zip(&uris, versions) {
                    match version {
                        Ok(version) => changed |= self.polled(uri, version),
                        Err(refusal) => {
                            // The next long poll leaves it out, so it does not end at once.
                            changed = true;
                            self.report_missing(refusal);
                        }
                    }
                }
                self.schedule_retry();
                let pause = self.long_poll.pause;
                if changed || asked.elapsed() >= WAITED_MIN {
                    self.long_poll.next_at = Instant::now() + LONG_POLL_PAUSE;
                    self.long_poll.pause = self.options.poll_first;
                } else {
                    // The server answers at once, so it is asked less and less often.
                    self.long_poll.next_at = Instant::now() + pause;
                    self.long_poll.pause = self.options.slower(pause);
                }
            }
        }
        Ok(())
    }

    /// Polls every resource that is due.
    pub(super) async fn poll_due(&mut self, link: &mut Link) -> Result<(), Lost> {
        let now = Instant::now().into_std();
        let mut by_strategy: BTreeMap<WatchStrategy, Vec<(String, PollReason)>> = BTreeMap::new();
        for (uri, reason) in self.schedule.take_due(now, self.options.poll_max) {
            if let Some(strategy) = self.reported.strategy(&uri) {
                by_strategy.entry(strategy).or_default().push((uri, reason));
            }
        }
        if let Some(due) = by_strategy.get_mut(&WatchStrategy::EtagTool) {
            // This finds the resource that may have caused the refusal of a long poll, so the next one may
            // work.
            self.long_poll.suspended = false;
            // One call serves all, so those that are not due yet are polled too.
            let uris = self
                .reported
                .present(|strategy| strategy == WatchStrategy::EtagTool);
            *due = uris.into_iter().map(|uri| (uri, PollReason::Poll)).collect();
        }
        // One random number for all, so that resources that were checked together stay together.
        let random = random();
        let mut silent = None;
        for (strategy, due) in by_strategy {
            let uris: Vec<String> = due.iter().map(|(uri, _)| uri.clone()).collect();
            let versions = link.versions(&uris, strategy).await?;
            for ((uri, reason), version) in std::iter::zip(due, versions) {
                match version {
                    Ok(version) => {
                        if self.answered(&uri, reason, version, random) {
                            silent = Some(uri);
                        }
                    }
                    Err(refusal) => {
                        self.found_missing(link, refusal);
                        self.schedule_retry();
                    }
                }
            }
        }
        match silent {
            Some(uri) if self.options.strategy.is_none() => {
                let reason = format!("the server did not tell that {uri} changed");
                self.step_down(link, reason).await
            }
            _ => Ok(()),
        }
    }

    /// Takes in the answer to a poll and schedules the next one. Returns true if it proves that the server
    /// did not send a notification.
    fn answered(&mut self, uri: &str, reason: PollReason, version: Version, random: u32) -> bool {
        let now = Instant::now();
        let differs = self.reported.differs(uri, &version);
        let only_strategy = self.options.strategy.is_some();
        match reason {
            PollReason::Verify if differs => {
                // The notification may be on its way, so it gets some more time.
                let at = now + self.options.verify_grace;
                self.schedule.suspect(uri, at.into_std());
            }
            // The step down compares versions itself and reports the change then.
            PollReason::Suspicion if differs && !only_strategy => return true,
            PollReason::Suspicion | PollReason::Verify | PollReason::Notice => {
                let every = self.options.verify_every;
                self.polled(uri, version);
                self.schedule.verify(uri, now.into_std(), every, random);
            }
            PollReason::Poll => {
                let changed = self.polled(uri, version);
                self.schedule.poll(uri, now.into_std(), changed, random);
            }
        }
        false
    }
}
