//! The start of a life with a store, and the URIs of former lives that no owner claims.

use std::sync::Arc;
use std::time::Duration;

use actix::{AsyncContext, Context};

use super::Registry;
use crate::messages::{EtagRequest, FinishStart, RegistryRequest};
use crate::model::{ListHash, ListKind};
use crate::runtime::Reply;
use crate::versions::StoreHealth;

/// The longest start: after it, changes of lists are announced although the embedder has not said that all
/// is registered.
const START_MAX: Duration = Duration::from_secs(10);

/// The longest and the shortest interval at which unclaimed URIs are looked at.
const UNCLAIMED_CHECK_MAX: Duration = Duration::from_secs(60);
const UNCLAIMED_CHECK_MIN: Duration = Duration::from_millis(100);

/// The interval in which cursors that moved are handed to the store.
const CURSOR_INTERVAL: Duration = Duration::from_secs(1);

/// What a life with a store keeps of the one before.
pub(crate) struct Restart {
    /// The hashes of the lists at the end of the life before, as long as this one starts. Sources register
    /// everything again at the start, so a list seems to change many times and is the same in the end.
    pub(crate) starting: Option<[Option<ListHash>; 3]>,
    pub(crate) unclaimed_after: Duration,
    pub(crate) clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    pub(crate) health: Arc<StoreHealth>,
}

impl Registry {
    /// Starts the timers of a bus with a store.
    pub(super) fn begin_checks(&self, ctx: &mut Context<Registry>) {
        if let Some(restart) = &self.restart {
            let check = (restart.unclaimed_after / 4).clamp(UNCLAIMED_CHECK_MIN, UNCLAIMED_CHECK_MAX);
            ctx.run_later(START_MAX, |registry, _| {
                registry.decide(RegistryRequest::FinishStart(FinishStart(None)));
                registry.send_decided();
            });
            ctx.run_interval(CURSOR_INTERVAL, |registry, _| registry.keep_cursors());
            ctx.run_interval(check, |registry, _| {
                registry.collect_unclaimed();
                registry.send_decided();
            });
        }
    }

    /// Returns true while the sources of a life that continues another one register everything again.
    pub(super) fn is_starting(&self) -> bool {
        match &self.restart {
            Some(restart) => restart.starting.is_some(),
            None => false,
        }
    }

    /// Announces the lists that differ from those of the life before.
    pub(super) fn finish_start(&mut self, reply: Option<Reply<()>>) {
        let before = match &mut self.restart {
            Some(restart) => restart.starting.take(),
            None => None,
        };
        for (kind, before) in ListKind::ALL.into_iter().zip(before.into_iter().flatten()) {
            let now = (kind, self.catalog.hash(kind));
            self.show_list(kind);
            self.decided
                .push(match before.unwrap_or(ListHash::EMPTY) == now.1 {
                    // Sessions of this life may have seen it half full.
                    true => EtagRequest::SameList(now),
                    false => EtagRequest::StartedList(now),
                });
        }
        if let Some(reply) = reply {
            self.decided.push(EtagRequest::Started(reply));
        }
    }

    /// Removes the URIs that no owner has claimed for long enough.
    fn collect_unclaimed(&mut self) {
        // A later check finds the same URIs.
        if !self.may_change() {
            return;
        }
        let Some(restart) = &self.restart else {
            return;
        };
        let now = (restart.clock)();
        let deadline = now.saturating_sub(restart.unclaimed_after.as_secs());
        let unclaimed = self.catalog.unclaimed();
        let marked = unclaimed.mark(now);
        let uris = unclaimed.take_waiting_since(deadline);
        if !marked.is_empty() {
            self.decided.push(EtagRequest::MarkUnclaimed(marked, now));
        }
        if !uris.is_empty() {
            let reply = None;
            self.decided.push(EtagRequest::Unclaimed { uris, now, reply });
        }
    }

    /// Removes, as changes, the unclaimed URIs that had to make room for a new one.
    pub(super) fn collect_evicted(&mut self, now: u64) {
        let uris = self.catalog.take_evicted();
        if !uris.is_empty() {
            let reply = None;
            self.decided.push(EtagRequest::Unclaimed { uris, now, reply });
        }
    }
}
