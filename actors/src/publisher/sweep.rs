//! The sweep over the subscribers of a shard, which ends the idle, stalled and old ones, their keep-alives,
//! and the answers to questions about them.
//!
//! A sweep goes in steps, so that no step takes long. A listing ranks all subscribers and describes only
//! those that it returns.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use actix::{AsyncContext, Context, Handler};

use super::{KEEP_ALIVE_TICKS, Publisher};
use crate::messages::{
    CountReaders, CountSubscribers, ListMembers, ListSubscribers, QuerySubscriber, SubscriberQuery,
};
use crate::metrics::Metrics;
use crate::model::{MonotonicMillis, ResourceUri, SubscriberFilter, SubscriberId, SubscriberPage};
use crate::outbox::Outbox;
use crate::runtime::current_shard;

/// The steps of one sweep.
const SWEEP_STEPS: usize = 8;

/// The longest and the shortest time of one sweep.
pub(super) const SWEEP_ROUND: Duration = Duration::from_secs(1);
pub(super) const SWEEP_ROUND_MIN: Duration = Duration::from_millis(16);

/// The stalled subscribers, counted anew in each sweep.
#[derive(Debug, Default)]
pub(super) struct Stalling {
    count: usize,
    example: Option<SubscriberId>,
    /// The count of the sweep before.
    before: usize,
}

impl Stalling {
    /// Publishes the count. Logs only when stalling begins and ends, since a subscriber may stall for long.
    fn end_round(&mut self, metrics: &Metrics) {
        if let Some(shard) = current_shard() {
            metrics.set_stalled(shard, self.count);
        }
        match (self.before, self.count, self.example) {
            (0, count, Some(id)) if count > 0 => {
                tracing::warn!(count, %id, "sessions take nothing of what waits for them; the others are not held up");
            }
            (1.., 0, _) => tracing::info!("no session stalls any more"),
            _ => {}
        }
        *self = Stalling {
            before: self.count,
            ..Stalling::default()
        };
    }
}

impl Publisher {
    /// Looks at the next part of the subscribers, and schedules the step after.
    pub(super) fn sweep(&mut self, ctx: &mut Context<Self>) {
        self.sweep_step = (self.sweep_step + 1) % SWEEP_STEPS;
        let now = MonotonicMillis::now();
        for (member, outbox) in self.table.members() {
            // Members are spread over the steps by their number, so that each is looked at once in a round.
            if member % SWEEP_STEPS != self.sweep_step {
                continue;
            }
            let (overdue, untaken) = outbox.sweep(now);
            if let Some(untaken) = untaken
                && untaken >= self.stalled_after
            {
                self.stalling.count += 1;
                self.stalling.example = Some(outbox.id());
            }
            if let Some(reason) = overdue {
                outbox.evict(reason);
            }
        }
        if self.sweep_step == 0 {
            self.stalling.end_round(&self.metrics);
        }
        ctx.run_later(self.sweep_round / SWEEP_STEPS as u32, Self::sweep);
    }

    /// Asks the next part of the subscribers to write keep-alives.
    pub(super) fn ping(&mut self) {
        self.tick = (self.tick + 1) % KEEP_ALIVE_TICKS;
        let due = self
            .table
            .members()
            .filter(|(member, _)| *member as u32 % KEEP_ALIVE_TICKS == self.tick);
        let age = due.map(|(_, outbox)| outbox.keep_alive()).max();
        self.ages[self.tick as usize] = age.unwrap_or_default();
        let oldest = self.ages.iter().max().copied().unwrap_or_default();
        if let Some(shard) = current_shard() {
            self.metrics.set_oldest(shard, oldest);
        }
    }

    fn find(&self, id: SubscriberId) -> Option<&Arc<Outbox>> {
        self.table.get(*self.members.get(&id)?)
    }

    /// Lists the `limit` slowest of these subscribers that a filter accepts.
    fn slowest<'a>(
        &self,
        all: impl Iterator<Item = &'a Arc<Outbox>>,
        filter: &SubscriberFilter,
        limit: usize,
    ) -> SubscriberPage {
        let now = MonotonicMillis::now();
        // Ranked by numbers alone, since a description of each subscriber would copy its texts.
        let mut ranked: Vec<_> = all
            .filter(|outbox| outbox.is_in(filter, now, self.stalled_after))
            .map(|outbox| (Reverse(outbox.slowness(now)), outbox.id(), outbox))
            .collect();
        let total = ranked.len();
        if limit < total {
            // A full sort of all subscribers would hold up the shard, and the page needs only the slowest.
            ranked.select_nth_unstable_by_key(limit, |(slowness, id, _)| (*slowness, *id));
            ranked.truncate(limit);
        }
        let infos = ranked
            .iter()
            .map(|(_, _, outbox)| outbox.info(self.stalled_after));
        SubscriberPage {
            total,
            subscribers: infos.collect(),
        }
    }
}

impl Handler<ListSubscribers> for Publisher {
    type Result = ();

    fn handle(&mut self, question: ListSubscribers, _: &mut Context<Self>) {
        let ListSubscribers { filter, limit, reply } = question;
        reply.answer(match &filter.uri {
            None => self.slowest(self.table.members().map(|(_, outbox)| outbox), &filter, limit),
            Some(uri) => {
                let subscribers = self.table.subscribers(uri).map(|(outbox, _)| outbox);
                self.slowest(subscribers, &filter, limit)
            }
        });
    }
}

impl Handler<CountSubscribers> for Publisher {
    type Result = ();

    fn handle(&mut self, CountSubscribers { uris, reply }: CountSubscribers, _: &mut Context<Self>) {
        // A look at the table alone: subscribers by filter have no row for a URI.
        let count = |uri: &ResourceUri| (uri.clone(), self.table.subscribers(uri).len());
        reply.answer(match uris {
            Some(uris) => uris.iter().map(count).collect(),
            None => self.table.uris().map(count).collect(),
        });
    }
}

impl Handler<ListMembers> for Publisher {
    type Result = ();

    fn handle(&mut self, ListMembers { template, reply }: ListMembers, _: &mut Context<Self>) {
        let template = template.uri_template();
        let mut members = Vec::new();
        for uri in self.table.uris() {
            if template.matches(uri.as_str()).is_some() {
                members.push(uri.clone());
            }
        }
        reply.answer(members);
    }
}

impl Handler<QuerySubscriber> for Publisher {
    type Result = ();

    fn handle(&mut self, QuerySubscriber { id, question }: QuerySubscriber, _: &mut Context<Self>) {
        let outbox = self.find(id);
        let after = self.stalled_after;
        match question {
            SubscriberQuery::Info(reply) => reply.answer(outbox.map(|outbox| outbox.info(after))),
            SubscriberQuery::Explain(uri, reply) => {
                reply.answer(outbox.map(|outbox| outbox.explain(&uri, after)));
            }
            SubscriberQuery::Evict(reason, reply) => {
                let evicted = matches!(outbox, Some(outbox) if outbox.evict(reason));
                reply.answer(evicted.then_some(()));
            }
        }
    }
}

impl Handler<CountReaders> for Publisher {
    type Result = ();

    fn handle(&mut self, CountReaders(reply): CountReaders, _: &mut Context<Self>) {
        reply.answer(self.table.members().map(|(_, outbox)| outbox.readers()).sum());
    }
}
