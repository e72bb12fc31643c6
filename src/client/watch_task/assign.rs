//! The choice of strategies: for each resource, the best one that the server offers and honours.
//!
//! A resource may thus use another strategy than the rest, for example when a listen stream leaves it out.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::{Link, Lost, RefusedResource, Version, WatchStrategy, WatchTask, random};
use crate::client::WatchEvent;
use crate::client::known_etags::{HeldEtags, is_of_no_version};

/// A strategy that accepts a resource.
pub(super) struct Assignment {
    pub(super) uri: String,
    pub(super) strategy: WatchStrategy,
    /// The version when the strategy began.
    pub(super) version: Version,
    /// For a resource that does not exist, but whose subscription the server holds: its refusal to read.
    pub(super) awaited: Option<RefusedResource>,
    /// The best strategy of the server and the reason it refused this resource, if it did.
    refused: Option<(WatchStrategy, String)>,
}

/// A resource that a strategy accepts.
struct Found {
    version: Version,
    awaited: Option<RefusedResource>,
}

impl Found {
    fn at(version: Version) -> Found {
        Found {
            version,
            awaited: None,
        }
    }
}

/// A resource without a strategy so far.
struct Unassigned {
    refusal: RefusedResource,
    /// The first strategy that refused it, and the reason.
    first: Option<(WatchStrategy, String)>,
}

impl WatchTask {
    /// Returns the strategies that may be used, best first.
    fn strategies(&self, link: &Link) -> Vec<WatchStrategy> {
        if let Some(only) = self.options.strategy {
            return vec![only];
        }
        let mut strategies = WatchStrategy::ALL.to_vec();
        strategies.retain(|strategy| *strategy >= self.best_allowed && link.offers(*strategy));
        strategies
    }

    /// Returns the best strategy that may be used.
    pub(in crate::client) fn best_strategy(&self, link: &Link) -> WatchStrategy {
        match self.strategies(link).first() {
            Some(best) => *best,
            None => WatchStrategy::ReadAndHash,
        }
    }

    /// Finds the best strategy for each of `uris`. Returns the assignments and the resources that all refuse.
    pub(super) async fn assign(
        &mut self,
        link: &mut Link,
        uris: Vec<String>,
    ) -> Result<(Vec<Assignment>, Vec<RefusedResource>), Lost> {
        let mut assigned = Vec::new();
        let mut left = Vec::with_capacity(uris.len());
        for uri in uris {
            let refusal = RefusedResource::new(&uri, "the server offers no strategy to it");
            left.push(Unassigned { refusal, first: None });
        }
        for strategy in self.strategies(link) {
            if left.is_empty() {
                break;
            }
            let uris: Vec<String> = left.iter().map(|one| one.refusal.uri.clone()).collect();
            let outcomes = self.try_strategy(link, strategy, &uris).await?;
            let tried = std::mem::take(&mut left);
            for (Unassigned { refusal, first }, outcome) in std::iter::zip(tried, outcomes) {
                match outcome {
                    Ok(Found { version, awaited }) => assigned.push(Assignment {
                        uri: refusal.uri,
                        strategy,
                        version,
                        awaited,
                        refused: first,
                    }),
                    Err(refusal) => {
                        let first = first.or_else(|| Some((strategy, refusal.reason.clone())));
                        left.push(Unassigned { refusal, first });
                    }
                }
            }
        }
        Ok((assigned, left.into_iter().map(|one| one.refusal).collect()))
    }

    /// Tries `strategy` for each of `uris`. Returns their versions or refusals, in order.
    async fn try_strategy(
        &mut self,
        link: &mut Link,
        strategy: WatchStrategy,
        uris: &[String],
    ) -> Result<Vec<Result<Found, RefusedResource>>, Lost> {
        let mut outcomes = Vec::with_capacity(uris.len());
        if !strategy.is_push() {
            for version in link.versions(uris, strategy).await? {
                outcomes.push(version.map(Found::at));
            }
            return Ok(outcomes);
        }
        let mut held = self.reported.present(WatchStrategy::is_push);
        held.retain(|uri| !uris.contains(uri));
        let mut held = self.reported.etags(&held);
        // Subscribe first and read afterwards: a change in between is notified, read, or both, but never
        // missed.
        let new = self.reported.etags(uris);
        let mut answers = BTreeMap::new();
        for (uri, answer) in std::iter::zip(new.keys(), link.watch(&held, &new).await?) {
            answers.insert(uri, answer);
        }
        let mut unreadable = Vec::new();
        for uri in uris {
            let outcome = match answers.remove(uri) {
                Some(Ok(current)) => {
                    let was_present = self.reported.was_present(uri);
                    version_of(link, strategy, uri, current, was_present).await?
                }
                Some(Err(refusal)) => {
                    outcomes.push(Err(refusal));
                    continue;
                }
                None => Err(RefusedResource::new(uri, "it was named twice")),
            };
            match &outcome {
                Ok(found) => {
                    held.insert(uri.clone(), found.version.etag.clone());
                }
                Err(_) => unreadable.push(uri.clone()),
            }
            outcomes.push(outcome);
        }
        if !unreadable.is_empty() {
            link.unwatch(&held, &unreadable).await?;
        }
        Ok(outcomes)
    }

    /// Assigns strategies again to `uris`, which are watched already. Reports those that changed or are
    /// missing.
    pub(super) async fn reassign(&mut self, link: &mut Link, uris: Vec<String>) -> Result<(), Lost> {
        let (assigned, refusals) = self.assign(link, uris).await?;
        let mut again = Vec::new();
        for assignment in assigned {
            let before = self.reported.strategy(&assignment.uri);
            match &assignment.refused {
                // Apply the others first, so that `try_strategy` below sees them as held.
                Some((refused, _)) if before == Some(*refused) => again.push(assignment),
                _ => self.apply(&assignment),
            }
        }
        for mut assignment in again {
            // The resource may have come back between the refusal of its own strategy and the answer of the
            // next one. Trying its own once more avoids a needless step down.
            if let Some((refused, _)) = assignment.refused {
                let uri = std::slice::from_ref(&assignment.uri);
                let mut outcomes = self.try_strategy(link, refused, uri).await?;
                if let Some(Ok(found)) = outcomes.pop() {
                    assignment.strategy = refused;
                    assignment.version = found.version;
                    assignment.awaited = found.awaited;
                    assignment.refused = None;
                }
            }
            self.apply(&assignment);
        }
        for refusal in refusals {
            self.report_missing(refusal);
        }
        Ok(())
    }

    /// Puts a watched resource on its strategy, and reports it if its version is new.
    fn apply(&mut self, assignment: &Assignment) {
        let before = self.reported.set_strategy(&assignment.uri, assignment.strategy);
        match &assignment.awaited {
            // The resource is gone, which is no version to report.
            Some(_) => self
                .reported
                .set_version(&assignment.uri, assignment.version.clone()),
            None => {
                self.polled(&assignment.uri, assignment.version.clone());
            }
        }
        self.begin_strategy(assignment, before);
    }

    /// Schedules the first poll of an assigned resource. Reports a step down, unless the resource was on that
    /// strategy `before`.
    pub(super) fn begin_strategy(&mut self, assignment: &Assignment, before: Option<WatchStrategy>) {
        let Assignment { uri, strategy, .. } = assignment;
        self.long_poll.cancel();
        let now = Instant::now().into_std();
        if let Some(refusal) = &assignment.awaited {
            self.report_awaited(RefusedResource::new(uri, &*refusal.reason));
        } else if strategy.is_push() {
            let wait = self.options.verify_first;
            self.schedule.verify(uri, now, wait, random());
        } else {
            // A long poll that takes over removes this entry again.
            self.schedule.poll(uri, now, true, random());
        }
        if let Some((from, reason)) = &assignment.refused
            && before != Some(*strategy)
        {
            let stepped = WatchEvent::SteppedDown {
                uri: Some(uri.clone()),
                from: *from,
                to: *strategy,
                reason: reason.clone(),
            };
            self.events.push(&format!("\0strategy {uri}"), stepped);
        }
    }

    /// Gives up the push strategy for all resources, because the server did not notify a change.
    pub(super) async fn step_down(&mut self, link: &mut Link, reason: String) -> Result<(), Lost> {
        let from = self.best_strategy(link);
        let uris = self.reported.present(WatchStrategy::is_push);
        link.unwatch(&HeldEtags::new(), &uris).await?;
        let worse = WatchStrategy::ALL.into_iter().find(|strategy| *strategy > from);
        self.best_allowed = worse.unwrap_or(WatchStrategy::ReadAndHash);
        let stepped = WatchEvent::SteppedDown {
            uri: None,
            from,
            to: self.best_strategy(link),
            reason,
        };
        self.events.push("\0strategy", stepped);
        self.reassign(link, uris).await
    }
}

/// Returns the version of a resource that was just subscribed to, whose etag is `current` if the server
/// answered one.
async fn version_of(
    link: &Link,
    strategy: WatchStrategy,
    uri: &str,
    current: Option<String>,
    was_present: bool,
) -> Result<Result<Found, RefusedResource>, Lost> {
    let Some(current) = current else {
        return Ok(link.version(uri, strategy).await?.map(Found::at));
    };
    let is_unknown = is_of_no_version(&current);
    let version = Version {
        etag: Some(current),
        digest: None,
    };
    // The etag of a removed resource looks like any other, so only one that was there is taken to be
    // there still; its removal would be found by the next check.
    if was_present && !is_unknown {
        return Ok(Ok(Found::at(version)));
    }
    Ok(Ok(match link.version(uri, strategy).await? {
        Ok(read) => Found::at(read),
        Err(refusal) => Found {
            version,
            awaited: Some(refusal),
        },
    }))
}
