//! The Publisher actor: the subscriptions of one shard of the subscribers. There is one shard per core.
//!
//! It marks outboxes and wakes their readers, on the thread that carries their streams; it does not encode
//! or write anything. One timer ends the subscribers that are idle, stalled or too old.

mod subscriptions;
mod interest;
mod sweep;
mod rights;
mod marks;
mod slices;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler};

use crate::messages::{
    AddListWatches, AddSubscriptions, EndAll, Route, ShardBatch, ShardRequest, StampedSubscription,
    SubscriberRequest,
};
use crate::metrics::{Limit, Metrics};
use crate::model::{
    EndReason, Etag, Filter, Limits, ResourceUri, SubscribeError, SubscriberId, SubscriptionRules,
};
use crate::outbox::{AudienceHashes, Outbox, OutboxSet, SlotId};
use crate::runtime::{CoreGuard, Tracer};
use crate::sink::Attachments;
pub(crate) use interest::Interest;
pub(crate) use subscriptions::{Member, SubscriptionTable};

use marks::MarkCounts;
use rights::RightsWalk;
use slices::Slices;
use sweep::{SWEEP_ROUND, SWEEP_ROUND_MIN, Stalling};

/// The ticks over which the keep-alives of a shard are spread, so that not all streams write at once.
const KEEP_ALIVE_TICKS: u32 = 8;

/// The interval between two checks of the attached subscribers.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// The parts of the bus that every shard uses.
pub(crate) struct PublisherParts {
    pub(crate) limits: Arc<Limits>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tracer: Arc<Tracer>,
    pub(crate) attachments: Arc<Attachments>,
}

/// The actor of one shard.
pub(crate) struct Publisher {
    shard: usize,
    /// The counts by which the Etag actor finds the shards that want a change. Raised there, lowered here.
    interest: Arc<Interest>,
    table: SubscriptionTable<Arc<Outbox>>,
    members: HashMap<SubscriberId, Member>,
    /// The members that watch each kind of list.
    lists: [BTreeSet<Member>; 3],
    /// The hash of each kind of list for each audience, as of its last change; none without audiences.
    shown: [Option<AudienceHashes>; 3],
    /// The members that watch resources by filter.
    watching: BTreeSet<Member>,
    /// The attached subscribers, in the one shard that checks them.
    attachments: Option<Arc<Attachments>>,
    tracer: Arc<Tracer>,
    /// Set when the bus drains. A subscriber that comes later is ended at once.
    ended: Option<EndReason>,
    keep_alive: Duration,
    tick: u32,
    /// For each tick of the keep-alive, the age of the oldest entry that was pending then.
    ages: [Duration; KEEP_ALIVE_TICKS as usize],
    /// The time in which every subscriber is looked at once: an eighth of the shortest timeout.
    sweep_round: Duration,
    sweep_step: usize,
    stalled_after: Duration,
    stalling: Stalling,
    rights: RightsWalk,
    slices: Slices,
    metrics: Arc<Metrics>,
    /// Stops the bus when this actor dies.
    guard: CoreGuard,
}

impl Publisher {
    /// Creates a shard. The first one checks the attached subscribers.
    pub(crate) fn new(
        shard: usize,
        interest: Arc<Interest>,
        parts: &PublisherParts,
        guard: CoreGuard,
    ) -> Publisher {
        let PublisherParts {
            limits,
            metrics,
            tracer,
            attachments,
        } = parts;
        Publisher {
            shard,
            interest,
            table: SubscriptionTable::default(),
            members: HashMap::new(),
            lists: Default::default(),
            shown: Default::default(),
            watching: BTreeSet::new(),
            attachments: (shard == 0).then(|| attachments.clone()),
            tracer: tracer.clone(),
            ended: None,
            keep_alive: limits.keep_alive,
            tick: 0,
            ages: Default::default(),
            sweep_round: SWEEP_ROUND,
            sweep_step: 0,
            stalled_after: limits.stalled_after,
            stalling: Stalling::default(),
            rights: RightsWalk::default(),
            slices: Slices::default(),
            metrics: metrics.clone(),
            guard,
        }
    }

    /// Returns the member of an outbox; none before it was attached or taken over.
    fn member(&self, outbox: &Outbox) -> Option<Member> {
        self.members.get(&outbox.id()).copied()
    }

    fn attach(&mut self, outbox: &Arc<Outbox>) -> Member {
        // A session may be opened while the bus drains. Its stream must learn of the end like the others.
        if let Some(reason) = self.ended {
            outbox.end(reason);
        }
        if let Some(shortest) = outbox.timeouts().shortest() {
            self.sweep_round = self.sweep_round.min(shortest / 8).max(SWEEP_ROUND_MIN);
        }
        outbox.settle_in(self.shard);
        let table = &mut self.table;
        *self
            .members
            .entry(outbox.id())
            .or_insert_with(|| table.insert(outbox.clone()))
    }

    /// Takes a subscriber over from another shard.
    fn adopt(&mut self, outbox: &Arc<Outbox>) {
        let member = self.attach(outbox);
        // Until here the Etag actor sent everything to this shard for the sake of this subscriber. From
        // here on its subscriptions are counted one by one.
        let open = outbox.with(|set| {
            for (slot, uri) in set.slots() {
                if self.table.subscribe(member, slot, uri) {
                    self.interest.raise(self.shard, uri);
                }
            }
            for kind in set.lists() {
                self.lists[kind.index()].insert(member);
            }
            set.has_filter()
        });
        if !(open && self.watching.insert(member)) {
            self.interest.lower_everything(self.shard);
        }
        // A look at all subscribers may have passed this shard before, and not yet come to the other one.
        outbox.recheck();
    }

    fn detach(&mut self, outbox: &Outbox) {
        if let Some(member) = self.members.remove(&outbox.id()) {
            self.table
                .remove(member, |uri| self.interest.lower(self.shard, uri));
            for list in &mut self.lists {
                list.remove(&member);
            }
            if self.watching.remove(&member) {
                self.interest.lower_everything(self.shard);
            }
        }
    }

    fn enlist(
        &mut self,
        outbox: &Outbox,
        subscription: &StampedSubscription,
        at: u64,
        rules: SubscriptionRules,
    ) -> Result<Etag, SubscribeError> {
        let subscribed = self.subscribe(outbox, subscription, at, rules);
        if !matches!(subscribed, Ok(true)) {
            // The Etag actor counted a subscription that was not made.
            self.interest.lower(self.shard, &subscription.uri);
        }
        subscribed.map(|_new| subscription.etag)
    }

    /// Returns true if the subscription is a new one.
    fn subscribe(
        &mut self,
        outbox: &Outbox,
        subscription: &StampedSubscription,
        at: u64,
        rules: SubscriptionRules,
    ) -> Result<bool, SubscribeError> {
        let member = self.member(outbox).ok_or(crate::model::Closed)?;
        // The table and the outbox share one text, so the many subscribers of a URI do not keep one each.
        let uri = &self.table.shared(&subscription.uri);
        let mut hidden = Vec::new();
        let begun = outbox.with(|set| {
            // Their slots may be taken again.
            hidden = set.take_hidden();
            if !outbox.may_be_told(uri) {
                return Err(SubscribeError::NotFound(uri.clone()));
            }
            let is_new = !set.is_subscribed(uri);
            if is_new && set.subscriptions() >= rules.max {
                self.metrics.count_limit(Limit::Subscriptions);
                return Err(SubscribeError::TooMany(rules.max));
            }
            if is_new && subscription.awaited && set.awaited() >= rules.pending_max {
                self.metrics.count_limit(Limit::PendingSubscriptions);
                return Err(SubscribeError::NotFound(uri.clone()));
            }
            if is_new && let Err(max) = set.take_allowed() {
                self.metrics.count_limit(Limit::Allowance);
                return Err(SubscribeError::AllowanceUsed(max));
            }
            let subscribed = set.subscribe(uri, subscription.etag, at);
            if is_new && subscription.awaited {
                set.await_resource(uri);
            }
            Ok(subscribed)
        });
        for slot in hidden {
            self.forget(member, slot);
        }
        let (slot, new) = begun?;
        self.metrics.subscriptions.change(0, usize::from(new));
        Ok(new && self.table.subscribe(member, slot, uri))
    }

    /// Checks the attached subscribers.
    fn watch(&self) {
        if self.tracer.is_on() {
            self.tracer.prune();
        }
        if let Some(attachments) = &self.attachments {
            attachments.report_health();
        }
    }
}

impl Actor for Publisher {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(self.keep_alive / KEEP_ALIVE_TICKS, |publisher, _| {
            publisher.ping();
        });
        if self.attachments.is_some() {
            ctx.run_interval(WATCH_INTERVAL, |publisher, _| publisher.watch());
        }
        self.sweep(ctx);
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let reason = self.guard.end_reason();
        self.table.members().for_each(|(_, outbox)| outbox.end(reason));
    }
}

impl Handler<ShardBatch> for Publisher {
    type Result = ();

    fn handle(&mut self, ShardBatch(requests): ShardBatch, ctx: &mut Context<Self>) {
        for request in requests {
            match request {
                ShardRequest::FanOut(fan_out) => self.fan_out(fan_out),
                ShardRequest::AddSubscriptions(subscriptions) => self.add_subscriptions(subscriptions),
                ShardRequest::AddListWatches(watches) => self.add_list_watches(watches),
                ShardRequest::Shown(kind, hashes) => self.shown[kind.index()] = Some(hashes),
                ShardRequest::Settle(settle, at) => self.settle(settle, at),
                ShardRequest::Route(route) => self.serve(route),
            }
        }
        self.schedule_slice(ctx);
    }
}

impl Publisher {
    fn add_subscriptions(&mut self, subscriptions: AddSubscriptions) {
        let AddSubscriptions {
            outbox,
            accepted,
            at,
            rules,
            reply,
        } = subscriptions;
        self.catch_up(&outbox);
        outbox.set_epoch(at.epoch);
        let mut answers = Vec::with_capacity(accepted.len());
        let mut count = MarkCounts::now();
        for result in accepted {
            let answer = match result {
                Ok(subscription) => {
                    let answer = self.enlist(&outbox, &subscription, at.offset, rules);
                    if answer.is_ok() {
                        self.mark_missed(&outbox, &subscription, at, &mut count);
                        self.resume(&outbox, &subscription, at, &mut count);
                    }
                    answer
                }
                Err(error) => Err(error),
            };
            self.metrics.subscriptions_denied.add(u64::from(answer.is_err()));
            answers.push(answer);
        }
        count.report(&self.metrics);
        outbox.end_request();
        reply.answer(answers);
    }

    fn add_list_watches(&mut self, watches: AddListWatches) {
        let AddListWatches {
            outbox,
            lists,
            joined,
            start,
            at,
            reply,
        } = watches;
        self.catch_up(&outbox);
        outbox.set_epoch(at.epoch);
        if let Some(member) = self.member(&outbox) {
            let mut count = MarkCounts::now();
            for (kind, hash) in lists {
                let told = start.told(kind, hash);
                outbox.with(|set| set.watch_list_from(told, hash, at.offset, start.is_unsure()));
                self.lists[kind.index()].insert(member);
                count.add_list(outbox.mark_list(kind, hash, at, count.at));
            }
            count.report(&self.metrics);
            if let Some(joined) = joined {
                outbox.join(joined);
            }
        }
        outbox.end_request();
        reply.answer(());
    }

    /// Does one request of a subscriber.
    fn serve(&mut self, Route { outbox, request }: Route) {
        self.catch_up(&outbox);
        match request {
            SubscriberRequest::Attach(reply) => {
                self.attach(&outbox);
                reply.answer(());
            }
            SubscriberRequest::Watch(filter, max, reply) => {
                self.watch_filtered(&outbox, filter, max);
                outbox.end_request();
                reply.answer(());
            }
            SubscriberRequest::Unsubscribe(uri, reply) => {
                let subscribed = self.unsubscribe(&outbox, &uri);
                outbox.end_request();
                reply.answer(subscribed);
            }
            SubscriberRequest::TakeOver => self.adopt(&outbox),
            SubscriberRequest::HandOver => {
                self.detach(&outbox);
                outbox.with(OutboxSet::end_handover);
            }
            SubscriberRequest::Detach(place) => {
                outbox.trace_dropped(outbox.ended().unwrap_or(EndReason::Closed));
                let left = outbox.with(|set| {
                    set.give_back_allowed();
                    set.subscriptions()
                });
                self.metrics.subscriptions.change(left, 0);
                self.detach(&outbox);
                drop(place);
            }
            SubscriberRequest::Subscribe { .. }
            | SubscriberRequest::Resume { .. }
            | SubscriberRequest::WatchLists { .. }
            | SubscriberRequest::Settle(_)
            | SubscriberRequest::Move => {
                debug_assert!(false, "an actor before this one turns it into another request");
            }
        }
    }

    fn watch_filtered(&mut self, outbox: &Outbox, filter: Arc<Filter>, max: usize) {
        if let Some(member) = self.member(outbox) {
            outbox.with(|set| set.set_filter(filter, max));
            if self.watching.insert(member) {
                return;
            }
        }
        // The Etag actor counted a subscriber that is not new here.
        self.interest.lower_everything(self.shard);
    }

    /// Returns true if there was such a subscription.
    fn unsubscribe(&mut self, outbox: &Outbox, uri: &ResourceUri) -> bool {
        let Some(slot) = outbox.with(|set| set.unsubscribe(uri)) else {
            return false;
        };
        if let Some(member) = self.member(outbox) {
            self.forget(member, slot);
            self.metrics.subscriptions.change(1, 0);
        }
        true
    }

    /// Removes a subscription from the table.
    fn forget(&mut self, member: Member, slot: SlotId) {
        if let Some(uri) = self.table.unsubscribe(member, slot) {
            self.interest.lower(self.shard, &uri);
        }
    }
}

impl Handler<EndAll> for Publisher {
    type Result = ();

    fn handle(&mut self, EndAll(reason): EndAll, _: &mut Context<Self>) {
        // They are told before the end.
        self.finish_slices();
        self.ended = Some(reason);
        self.table.members().for_each(|(_, outbox)| outbox.end(reason));
    }
}

#[cfg(test)]
mod tests;
