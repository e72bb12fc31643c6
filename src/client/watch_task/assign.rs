//! The task's choice of strategies: for each resource the best one that the server offers, keeps and takes it on.
//!
//! Owns the order in which strategies are tried, and the step down after a broken promise. A resource may be on another strategy
//! than the rest, as when a listen stream leaves it out. Steps are reported; what to do on a strategy is decided in `look`.

use tokio::time::Instant;

use super::{Link, Lost, Refusal, Version, WatchStrategy, WatchTask, random};
use crate::client::WatchEvent;

/// Where a resource found its place.
pub(super) struct Assignment {
    pub(super) uri: String,
    pub(super) strategy: WatchStrategy,
    /// What it is at.
    pub(super) version: Version,
    /// The best strategy of the server, and why it did not take this resource.
    refused: Option<(WatchStrategy, String)>,
}

impl WatchTask {
    /// The strategies that may be taken, the best first.
    fn strategies(&self, link: &Link) -> Vec<WatchStrategy> {
        let allowed = |strategy: &WatchStrategy| match self.options.strategy {
            Some(only) => *strategy == only,
            None => *strategy >= self.floor && link.offers(*strategy),
        };
        WatchStrategy::ALL.into_iter().filter(allowed).collect()
    }

    /// The best strategy that may be taken.
    pub(in crate::client) fn best_strategy(&self, link: &Link) -> WatchStrategy {
        self.strategies(link)
            .first()
            .copied()
            .unwrap_or(WatchStrategy::ReadAndHash)
    }

    /// Finds the best strategy for each of `uris`; answers those that found one, and those that none takes.
    pub(super) async fn assign(
        &mut self,
        link: &mut Link,
        uris: Vec<String>,
    ) -> Result<(Vec<Assignment>, Vec<Refusal>), Lost> {
        let mut placed = Vec::new();
        let mut left: Vec<(Refusal, Option<(WatchStrategy, String)>)> = uris
            .into_iter()
            .map(|uri| (Refusal::new(&uri, "the server offers no strategy to it"), None))
            .collect();
        for strategy in self.strategies(link) {
            if left.is_empty() {
                break;
            }
            let tried: Vec<String> = left.iter().map(|(refusal, _)| refusal.uri.clone()).collect();
            let outcomes = self.try_strategy(link, strategy, &tried).await?;
            let before = std::mem::take(&mut left);
            for ((Refusal { uri, .. }, refused), outcome) in before.into_iter().zip(outcomes) {
                match outcome {
                    Ok(version) => placed.push(Assignment {
                        uri,
                        strategy,
                        version,
                        refused,
                    }),
                    Err(refusal) => {
                        let refused = refused.or_else(|| Some((strategy, refusal.reason.clone())));
                        left.push((refusal, refused));
                    }
                }
            }
        }
        Ok((placed, left.into_iter().map(|(refusal, _)| refusal).collect()))
    }

    /// What comes of `strategy` for each of `uris`, in order.
    async fn try_strategy(
        &mut self,
        link: &mut Link,
        strategy: WatchStrategy,
        uris: &[String],
    ) -> Result<Vec<Result<Version, Refusal>>, Lost> {
        if !strategy.is_push() {
            return Ok(link.versions(uris, strategy).await?);
        }
        let mut held = self.reported.on(WatchStrategy::is_push);
        held.retain(|uri| !uris.contains(uri));
        // Told of changes first and asked afterwards, so that no change falls between.
        let refusals = link.watch(&held, uris).await?;
        let mut outcomes = Vec::with_capacity(uris.len());
        let mut unread = Vec::new();
        for uri in uris {
            let refusal = refusals.iter().find(|refusal| refusal.uri == *uri);
            if let Some(refusal) = refusal {
                outcomes.push(Err(Refusal::new(uri, &*refusal.reason)));
                continue;
            }
            let mut versions = link.versions(std::slice::from_ref(uri), strategy).await?;
            let outcome = versions
                .pop()
                .unwrap_or_else(|| Err(Refusal::new(uri, "no answer")));
            if outcome.is_err() {
                unread.push(uri.clone());
            } else {
                held.push(uri.clone());
            }
            outcomes.push(outcome);
        }
        if !unread.is_empty() {
            link.unwatch(&held, &unread).await?;
        }
        Ok(outcomes)
    }

    /// Finds strategies for `uris`, which are watched already, and reports what changed meanwhile or is missing.
    pub(super) async fn replace(&mut self, link: &mut Link, uris: Vec<String>) -> Result<(), Lost> {
        let (placed, refusals) = self.assign(link, uris).await?;
        let (mut again, settled): (Vec<Assignment>, Vec<Assignment>) =
            placed.into_iter().partition(|placed| {
                let before = self.reported.strategy(&placed.uri);
                placed
                    .refused
                    .as_ref()
                    .is_some_and(|(strategy, _)| before == Some(*strategy))
            });
        settled.iter().for_each(|placed| self.put(placed));
        for placed in &mut again {
            // It may have come back between the refusal of one strategy and the answer of the next.
            if let Some((strategy, _)) = placed.refused
                && let [Ok(version)] = &self
                    .try_strategy(link, strategy, std::slice::from_ref(&placed.uri))
                    .await?[..]
            {
                (placed.strategy, placed.version, placed.refused) = (strategy, version.clone(), None);
            }
            self.put(placed);
        }
        refusals.into_iter().for_each(|refusal| self.miss(refusal));
        Ok(())
    }

    /// Notes where a resource that is watched already found its place, and reports it when it changed.
    fn put(&mut self, placed: &Assignment) {
        let before = self.reported.put_on(&placed.uri, placed.strategy);
        if self.reported.compared(&placed.uri, placed.version.clone()) {
            self.report(&placed.uri);
        }
        self.settle(placed, before);
    }

    /// Says when a resource that found its place is looked at, and reports when it is another strategy than `before` and
    /// than the server's best.
    pub(super) fn settle(&mut self, placed: &Assignment, before: Option<WatchStrategy>) {
        self.waiting = None;
        let now = Instant::now().into_std();
        if placed.strategy.is_push() {
            self.schedule
                .verify(&placed.uri, now, self.options.verify_first, random());
        } else {
            // What waits at the server is scheduled by `arm` where that fails.
            self.schedule
                .poll(&placed.uri, now, true, &self.options, random());
        }
        if let Some((from, reason)) = &placed.refused
            && before != Some(placed.strategy)
        {
            let stepped = WatchEvent::SteppedDown {
                uri: Some(placed.uri.clone()),
                from: *from,
                to: placed.strategy,
                reason: reason.clone(),
            };
            self.feed.push(&format!("\0road {}", placed.uri), stepped);
        }
    }

    /// Gives up the strategy on which the server kept silent about a change, for everything that is watched.
    pub(super) async fn step_down(&mut self, link: &mut Link, reason: String) -> Result<(), Lost> {
        let from = self.best_strategy(link);
        let uris = self.reported.on(WatchStrategy::is_push);
        link.unwatch(&[], &uris).await?;
        self.floor = WatchStrategy::ALL
            .into_iter()
            .find(|strategy| *strategy > from)
            .unwrap_or(WatchStrategy::ReadAndHash);
        let to = self.best_strategy(link);
        let stepped = WatchEvent::SteppedDown {
            uri: None,
            from,
            to,
            reason,
        };
        self.feed.push("\0road", stepped);
        self.replace(link, uris).await
    }
}
