//! Looking at the subscribers of a shard: which of them were idle, stalled or there for too long, and how they stand.
//!
//! Owns: the one timer of all their times, and the answers to surveys. Never: looks at all of them in one go to end
//! them, or asks more of them in full than a survey shows. Receives surveys from the bus.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use actix::{AsyncContext, Context, Handler};

use super::Publisher;
use crate::messages::{CountReaders, ListSubscribers, QuerySubscriber, SubscriberQuery};
use crate::metrics::Metrics;
use crate::model::{MonotonicMillis, SubscriberId, SubscriberPage};
use crate::outbox::Outbox;
use crate::runtime::current_shard;

/// A round in which every subscriber is looked at goes in this many steps, so that none of them takes long.
const SWEEP_STEPS: usize = 8;

/// The longest and the shortest such round.
pub(super) const SWEEP_ROUND: Duration = Duration::from_secs(1);
pub(super) const SWEEP_ROUND_MIN: Duration = Duration::from_millis(16);

/// Subscribers that take nothing of what waits for them, as they are counted round by round.
#[derive(Debug, Default)]
pub(super) struct Stalling {
    count: usize,
    example: Option<SubscriberId>,
    /// The count of the round before.
    before: usize,
}

impl Stalling {
    /// Shows the count; logs when it begins and ends, since who stalls may do so for long.
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
    /// Looks at a part of the subscribers, counts those that stall, ends those whose time is up, and comes again.
    pub(super) fn sweep(&mut self, ctx: &mut Context<Self>) {
        self.sweep_step = (self.sweep_step + 1) % SWEEP_STEPS;
        let now = MonotonicMillis::now();
        let part = |member: usize| member % SWEEP_STEPS == self.sweep_step;
        for (_, outbox) in self.table.members().filter(|(member, _)| part(*member)) {
            let (overdue, untaken) = outbox.sweep(now);
            if untaken.is_some_and(|untaken| untaken >= self.stalled_after) {
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

    fn find(&self, id: SubscriberId) -> Option<&Arc<Outbox>> {
        self.table.get(*self.members.get(&id)?)
    }

    /// The `limit` slowest of `all`. Only of those it is asked in full how they stand.
    fn slowest<'a>(&self, all: impl Iterator<Item = &'a Arc<Outbox>>, limit: usize) -> SubscriberPage {
        let now = MonotonicMillis::now();
        let rank = |outbox: &'a Arc<Outbox>| (Reverse(outbox.slowness(now)), outbox.id(), outbox);
        let mut ranked: Vec<_> = all.map(rank).collect();
        let total = ranked.len();
        if limit < total {
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

    fn handle(&mut self, ListSubscribers { uri, limit, reply }: ListSubscribers, _: &mut Context<Self>) {
        reply.answer(match uri {
            None => self.slowest(self.table.members().map(|(_, outbox)| outbox), limit),
            Some(uri) => self.slowest(self.table.subscribers(&uri).map(|(outbox, _)| outbox), limit),
        });
    }
}

impl Handler<QuerySubscriber> for Publisher {
    type Result = ();

    fn handle(&mut self, QuerySubscriber { id, question }: QuerySubscriber, _: &mut Context<Self>) {
        let outbox = self.find(id);
        match question {
            SubscriberQuery::Info(reply) => {
                reply.answer(outbox.map(|outbox| outbox.info(self.stalled_after)));
            }
            SubscriberQuery::Explain(uri, reply) => {
                reply.answer(outbox.map(|outbox| outbox.explain(&uri, self.stalled_after)));
            }
            SubscriberQuery::Evict(reason, reply) => {
                let evicted = outbox.is_some_and(|outbox| outbox.evict(reason));
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
