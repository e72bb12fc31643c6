//! The keeper's choice of roads: for each resource the best one that the server offers, keeps and takes it on.
//!
//! Owns the order in which roads are tried, and the step down after a broken promise. A resource may be on another road
//! than the rest, as when a listen stream leaves it out. Steps are reported; what to do on a road is decided in `look`.

use tokio::time::Instant;

use super::{Keeper, Link, Lost, Refusal, Road, Version, random};
use crate::client::Event;

/// Where a resource found its place.
pub(super) struct Placed {
    pub(super) uri: String,
    pub(super) road: Road,
    /// What it is at.
    pub(super) version: Version,
    /// The best road of the server, and why it did not take this resource.
    refused: Option<(Road, String)>,
}

impl Keeper {
    /// The roads that may be taken, the best first.
    fn roads(&self, link: &Link) -> Vec<Road> {
        let allowed = |road: &Road| match self.options.road {
            Some(only) => *road == only,
            None => *road >= self.floor && link.offers(*road),
        };
        Road::ALL.into_iter().filter(allowed).collect()
    }

    /// The best road that may be taken.
    pub(in crate::client) fn best_road(&self, link: &Link) -> Road {
        self.roads(link).first().copied().unwrap_or(Road::ReadAndHash)
    }

    /// Finds the best road for each of `uris`; answers those that found one, and those that none takes.
    pub(super) async fn place(
        &mut self,
        link: &mut Link,
        uris: Vec<String>,
    ) -> Result<(Vec<Placed>, Vec<Refusal>), Lost> {
        let mut placed = Vec::new();
        let mut left: Vec<(Refusal, Option<(Road, String)>)> = uris
            .into_iter()
            .map(|uri| (Refusal::new(&uri, "the server offers no road to it"), None))
            .collect();
        for road in self.roads(link) {
            if left.is_empty() {
                break;
            }
            let tried: Vec<String> = left.iter().map(|(refusal, _)| refusal.uri.clone()).collect();
            let outcomes = self.try_road(link, road, &tried).await?;
            let before = std::mem::take(&mut left);
            for ((Refusal { uri, .. }, refused), outcome) in before.into_iter().zip(outcomes) {
                match outcome {
                    Ok(version) => placed.push(Placed {
                        uri,
                        road,
                        version,
                        refused,
                    }),
                    Err(refusal) => {
                        let refused = refused.or_else(|| Some((road, refusal.reason.clone())));
                        left.push((refusal, refused));
                    }
                }
            }
        }
        Ok((placed, left.into_iter().map(|(refusal, _)| refusal).collect()))
    }

    /// What comes of `road` for each of `uris`, in order.
    async fn try_road(
        &mut self,
        link: &mut Link,
        road: Road,
        uris: &[String],
    ) -> Result<Vec<Result<Version, Refusal>>, Lost> {
        if !road.is_told() {
            return Ok(link.versions(uris, road).await?);
        }
        let mut held = self.watched.on(Road::is_told);
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
            let mut versions = link.versions(std::slice::from_ref(uri), road).await?;
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

    /// Finds roads for `uris`, which are watched already, and reports what changed meanwhile or is missing.
    pub(super) async fn replace(&mut self, link: &mut Link, uris: Vec<String>) -> Result<(), Lost> {
        let (placed, refusals) = self.place(link, uris).await?;
        let (mut again, settled): (Vec<Placed>, Vec<Placed>) = placed.into_iter().partition(|placed| {
            let before = self.watched.road(&placed.uri);
            placed
                .refused
                .as_ref()
                .is_some_and(|(road, _)| before == Some(*road))
        });
        settled.iter().for_each(|placed| self.put(placed));
        for placed in &mut again {
            // It may have come back between the refusal of one road and the answer of the next.
            if let Some((road, _)) = placed.refused
                && let [Ok(version)] = &self
                    .try_road(link, road, std::slice::from_ref(&placed.uri))
                    .await?[..]
            {
                (placed.road, placed.version, placed.refused) = (road, version.clone(), None);
            }
            self.put(placed);
        }
        refusals.into_iter().for_each(|refusal| self.miss(refusal));
        Ok(())
    }

    /// Notes where a resource that is watched already found its place, and reports it when it changed.
    fn put(&mut self, placed: &Placed) {
        let before = self.watched.put_on(&placed.uri, placed.road);
        if self.watched.compared(&placed.uri, placed.version.clone()) {
            self.report(&placed.uri);
        }
        self.settle(placed, before);
    }

    /// Says when a resource that found its place is looked at, and reports when it is another road than `before` and
    /// than the server's best.
    pub(super) fn settle(&mut self, placed: &Placed, before: Option<Road>) {
        self.waiting = None;
        let now = Instant::now().into_std();
        if placed.road.is_told() {
            self.checks
                .verify(&placed.uri, now, self.options.verify_first, random());
        } else {
            // What waits at the server is scheduled by `arm` where that fails.
            self.checks.poll(&placed.uri, now, true, &self.options, random());
        }
        if let Some((from, reason)) = &placed.refused
            && before != Some(placed.road)
        {
            let stepped = Event::SteppedDown {
                uri: Some(placed.uri.clone()),
                from: *from,
                to: placed.road,
                reason: reason.clone(),
            };
            self.feed.push(&format!("\0road {}", placed.uri), stepped);
        }
    }

    /// Gives up the road on which the server kept silent about a change, for everything that is watched.
    pub(super) async fn step_down(&mut self, link: &mut Link, reason: String) -> Result<(), Lost> {
        let from = self.best_road(link);
        let uris = self.watched.on(Road::is_told);
        link.unwatch(&[], &uris).await?;
        self.floor = Road::ALL
            .into_iter()
            .find(|road| *road > from)
            .unwrap_or(Road::ReadAndHash);
        let to = self.best_road(link);
        let stepped = Event::SteppedDown {
            uri: None,
            from,
            to,
            reason,
        };
        self.feed.push("\0road", stepped);
        self.replace(link, uris).await
    }
}
