//! The task's questions: on a timer where the server has to be asked, and to verify that it tells where it should.
//!
//! Owns what an answer leads to: a report, the next question, or the end of trust in a strategy. When to ask is decided in
//! `checks`. One question may wait at the server itself; it is asked anew whenever what it waits for has changed.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use super::{Link, LinkError, Lost, Refusal, Version, WatchStrategy, WatchTask, random};
use crate::client::link::ITEMS_MAX;
use crate::client::poll_schedule::PollReason;

/// How long at least lies between two questions that wait at the server.
const WAIT_REST: Duration = Duration::from_millis(50);

/// An answer that is quicker than this and tells of nothing was no waiting.
const WAITED: Duration = Duration::from_secs(1);

/// How often in a row a server may refuse to wait before it is asked on a timer instead.
const WAIT_REFUSALS_MAX: u32 = 2;

/// A question that waits at the server.
pub(super) struct Waiting {
    uris: Vec<String>,
    asked: Instant,
    answer: Pin<Box<dyn Future<Output = Result<Vec<Version>, LinkError>> + Send>>,
}

/// The answer to the question that waits; never where there is none.
pub(super) async fn answer(waiting: &mut Option<Waiting>) -> Result<Vec<Version>, LinkError> {
    match waiting {
        Some(waiting) => waiting.answer.as_mut().await,
        None => std::future::pending().await,
    }
}

impl WatchTask {
    /// Has a question wait at the server, where it can be; otherwise sees to it that each resource has its turn.
    pub(super) fn arm(&mut self, link: &Link) {
        if self.waiting.is_some() {
            return;
        }
        let uris = self.reported.on(|strategy| strategy == WatchStrategy::EtagTool);
        if uris.is_empty() {
            return;
        }
        let can_wait = link.tools.is_some_and(|tools| tools.wait);
        if !can_wait || uris.len() > ITEMS_MAX || self.wait_held {
            let now = Instant::now().into_std();
            for uri in &uris {
                if !self.schedule.contains(uri) {
                    self.schedule.poll(uri, now, true, &self.options, random());
                }
            }
            return;
        }
        uris.iter().for_each(|uri| self.schedule.forget(uri));
        let etag = |uri: &String| {
            self.reported
                .known(uri)
                .and_then(|(version, _)| version.etag.clone())
        };
        let held: Vec<_> = uris.iter().map(|uri| (uri.clone(), etag(uri))).collect();
        let (asked, question) = (self.wait_pace.0, link.wait_for_change(&held));
        let answer = Box::pin(async move {
            tokio::time::sleep_until(asked).await;
            question.await
        });
        self.waiting = Some(Waiting {
            uris,
            asked: asked.max(Instant::now()),
            answer,
        });
    }

    /// Notes what a question answered that had waited at the server.
    pub(super) fn waited(
        &mut self,
        link: &mut Link,
        outcome: Result<Vec<Version>, LinkError>,
    ) -> Result<(), Lost> {
        let Some(Waiting { uris, asked, .. }) = self.waiting.take() else {
            return Ok(());
        };
        let now = Instant::now();
        match outcome {
            Err(LinkError::Lost(reason)) => return Err(Lost(reason)),
            Err(LinkError::Refused(reason)) => {
                // One of them may be gone: asking for each finds out, and then it may wait again.
                tracing::debug!(reason, "the server does not wait for a change");
                self.wait_held = true;
                self.wait_refusals += 1;
                if self.wait_refusals >= WAIT_REFUSALS_MAX
                    && let Some(tools) = &mut link.tools
                {
                    tools.wait = false;
                }
            }
            Ok(versions) => {
                self.wait_refusals = 0;
                let mut changed = false;
                for (uri, version) in uris.iter().zip(versions) {
                    changed |= self.compared(uri, version);
                }
                let waited = changed || asked.elapsed() >= WAITED;
                let rest = if waited { WAIT_REST } else { self.wait_pace.1 };
                let slower = self.options.slower(self.wait_pace.1);
                let next = if waited { self.options.poll_first } else { slower };
                self.wait_pace = (now + rest, next);
            }
        }
        Ok(())
    }

    /// Reports `uri` when it is at another version; whether it is.
    fn compared(&mut self, uri: &str, version: Version) -> bool {
        let changed = self.reported.compared(uri, version);
        if changed {
            self.report(uri);
        }
        changed
    }

    /// Asks for everything that is due.
    pub(super) async fn poll_due(&mut self, link: &mut Link) -> Result<(), Lost> {
        let now = Instant::now().into_std();
        let mut due = self.schedule.take_due(now, self.options.poll_max);
        let tooled =
            |task: &WatchTask, uri: &str| task.reported.strategy(uri) == Some(WatchStrategy::EtagTool);
        if due.iter().any(|(uri, _)| tooled(self, uri)) {
            // Each is asked for by itself now, which finds out what may have spoiled the question that waits.
            self.wait_held = false;
            // One call asks for all of them.
            due.retain(|(uri, _)| !tooled(self, uri));
            let tooled = self.reported.on(|strategy| strategy == WatchStrategy::EtagTool);
            due.extend(tooled.into_iter().map(|uri| (uri, PollReason::Poll)));
        }
        // The same for all, so that what was verified together stays together.
        let random = random();
        let mut silent = None;
        for strategy in WatchStrategy::ALL {
            let on = |(uri, _): &&(String, PollReason)| self.reported.strategy(uri) == Some(strategy);
            let due: Vec<(String, PollReason)> = due.iter().filter(on).cloned().collect();
            if due.is_empty() {
                continue;
            }
            let uris: Vec<String> = due.iter().map(|(uri, _)| uri.clone()).collect();
            let versions = link.versions(&uris, strategy).await?;
            for ((uri, why), version) in due.into_iter().zip(versions) {
                match version {
                    Ok(version) => {
                        if self.answered(&uri, why, version, random) {
                            silent = Some(uri);
                        }
                    }
                    Err(refusal) => self.went_missing(refusal),
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

    /// Notes an answer; whether it proves that the server kept silent about a change.
    fn answered(&mut self, uri: &str, why: PollReason, version: Version, random: u32) -> bool {
        let now = Instant::now();
        let differs = self.reported.surely_differs(uri, &version) == Some(true);
        let forced = self.options.strategy.is_some();
        match why {
            PollReason::Verify if differs => {
                let at = now + self.options.verify_grace;
                self.schedule.suspect(uri, at.into_std());
                return false;
            }
            // The step down compares and reports.
            PollReason::Suspicion if differs && !forced => return true,
            PollReason::Suspicion | PollReason::Verify | PollReason::Notice => {
                let every = self.options.verify_every;
                self.compared(uri, version);
                self.schedule.verify(uri, now.into_std(), every, random);
            }
            PollReason::Poll => {
                let changed = self.compared(uri, version);
                self.schedule
                    .poll(uri, now.into_std(), changed, &self.options, random);
            }
        }
        false
    }

    fn went_missing(&mut self, refusal: Refusal) {
        self.miss(refusal);
        self.schedule_retry();
    }
}
