//! The Etag actor: which version each URI has, and the one order of all notices. Second on the way.
//!
//! Owns: the [`Ledger`] and its store, and what the [`EtagIndex`] shows of them. Never: knows bodies or who is subscribed, and never waits: with a store, what
//! depends on a record is held back until the store's thread reports it durable, in the order in which it came.
//! Receives from the Registry and the store's thread; sends to every Publisher shard.

mod ledger;
mod etag_index;
mod store;
mod fan_out;

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{Actor, ActorContext, AsyncContext, Context, Handler};

use crate::messages::{
    AddListWatches, AddQueue, AddSubscriptions, AttachQueue, BatchStored, Decision, Effect, Finish, Known,
    Route, Stamp, StampEtags, StampList, StampPage, StampRead, StampSubscribe, StampWatchLists,
    SubscriberRequest,
};
use crate::metrics::Limit;
use crate::model::{
    Cause, Etag, ListKind, ListOutcome, NoticeKind, Outcome, Position, ResourceUri, TraceStep,
};
use crate::runtime::{CoreGuard, Tracer};

pub(crate) use etag_index::EtagIndex;
pub(crate) use fan_out::Shards;
pub(crate) use ledger::Ledger;
pub use ledger::{Checkpoint, Line};
pub(crate) use store::StoreThread;
pub use store::{Record, Store};

use fan_out::StampedChange;

/// How long a move waits for what its subscriber has asked for.
const MOVE_AGAIN: Duration = Duration::from_millis(1);

/// What is done once the ledger's records so far are durable.
type HeldBack = Box<dyn FnOnce(&Shards) + Send>;

/// Which version each URI has.
pub(crate) struct EtagActor {
    /// All the truth this actor has.
    pub(crate) ledger: Ledger,
    /// Where registered resources show their etags to those who read without asking.
    pub(crate) etag_index: Arc<EtagIndex>,
    /// Next on the way.
    pub(crate) shards: Shards,
    /// Where records become durable; without one they need not.
    pub(crate) store: Option<StoreThread>,
    /// What waits for the batch that the store is writing; none when it writes none.
    pub(crate) in_flight: Option<Vec<HeldBack>>,
    /// What came since, for the next batch.
    pub(crate) waiting: Vec<(Option<Record>, HeldBack)>,
    pub(crate) tracer: Arc<Tracer>,
    /// Makes this actor's death the bus's.
    pub(crate) guard: CoreGuard,
}

impl Actor for EtagActor {
    type Context = Context<Self>;
}

impl EtagActor {
    /// Does `release` when `record` and everything before it is durable.
    fn after(&mut self, record: Option<Record>, release: impl FnOnce(&Shards) + Send + 'static) {
        if self.store.is_none() || (self.in_flight.is_none() && record.is_none()) {
            return release(&self.shards);
        }
        self.waiting.push((record, Box::new(release)));
        if self.in_flight.is_none() {
            self.write_batch();
        }
    }

    fn write_batch(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let (records, releases): (Vec<_>, Vec<_>) = waiting.into_iter().unzip();
        let records: Vec<Record> = records.into_iter().flatten().collect();
        if records.is_empty() {
            releases.into_iter().for_each(|release| release(&self.shards));
        } else if self.store.as_ref().is_some_and(|store| store.append(records)) {
            self.in_flight = Some(releases);
        } else {
            self.guard.fail("the store's thread ended");
        }
    }

    fn etag_of(&self, uri: &ResourceUri, known: Known) -> Option<Etag> {
        let line = self.ledger.line(uri).map(|line| line.etag);
        match known {
            Known::Nothing => None,
            Known::Registered => Some(line.unwrap_or(Etag::UNKNOWN)),
            Known::Member(since) => Some(line.unwrap_or_else(|| self.ledger.untouched(since))),
        }
    }

    /// Stamps what the Registry decided. Answers the etag, and why subscribers are told, if they are.
    fn stamp(&mut self, decision: &Decision, now: u64) -> (Etag, Option<Cause>) {
        let uri = &decision.uri;
        match decision.effect {
            Effect::Unchanged => (
                self.etag_of(uri, Known::Registered).unwrap_or(Etag::UNKNOWN),
                None,
            ),
            Effect::Stored(digest) => {
                let stamped = self.ledger.stamp(uri, digest, now);
                (stamped.etag, stamped.changed.then_some(Cause::Updated))
            }
            Effect::Joined(digest) => {
                let stamped = self.ledger.stamp_member(uri, digest, now);
                (stamped.etag, stamped.changed.then_some(Cause::Updated))
            }
            Effect::Member(since) => (self.ledger.touch_member(uri, now, since), Some(Cause::Updated)),
            Effect::Removed => (self.ledger.remove(uri, now), Some(Cause::Removed)),
        }
    }
}

impl EtagActor {
    /// Gives a stamped change the next place in the order of the bus.
    fn place(&mut self, uri: ResourceUri, etag: Etag, cause: Cause, at: Instant) -> StampedChange {
        match cause {
            Cause::Updated => self.shards.metrics.updated.add(1),
            Cause::Removed => self.shards.metrics.removed.add(1),
        }
        let position = self.ledger.advance();
        let traced = self.tracer.wants(&uri, position);
        let stamped = StampedChange {
            uri,
            etag,
            cause,
            position,
            at,
            traced,
        };
        if traced {
            self.tracer
                .trace_notice(&stamped.notice(), TraceStep::Changed(cause.into()));
        }
        stamped
    }

    /// What a store has to know of the newest change, which is at `etag`; none without a store.
    fn record(&self, uri: &ResourceUri, etag: Etag) -> Option<Record> {
        self.store.as_ref()?;
        // With no room for removed URIs the ledger has forgotten it by now; a store still holds the line before.
        let forgotten = Line {
            etag,
            digest: None,
            live: false,
        };
        let line = self.ledger.line(uri).copied().unwrap_or(forgotten);
        Some(Record {
            offset: self.ledger.position().offset,
            floor: self.ledger.floor(),
            line: Some((uri.clone(), line)),
        })
    }
}

/// Tells the tracer, if anybody traces, that a list changed.
fn trace_list(tracer: &Tracer, kind: ListKind, position: Position) {
    let changed = || TraceStep::Changed(NoticeKind::List(kind));
    tracer.trace_list(kind, Some(position), changed);
}

impl Handler<Stamp> for EtagActor {
    type Result = ();

    fn handle(&mut self, Stamp { decision, now, reply }: Stamp, _: &mut Context<Self>) {
        let forgotten = self.ledger.forgotten();
        let (etag, cause) = self.stamp(&decision, now);
        let changed = cause.is_some() || decision.list.is_some();
        let outcome = Outcome {
            etag,
            changed,
            created: decision.created,
            notified: 0,
        };
        let etag_index = self.etag_index.clone();
        let shown = decision.shown(etag);
        let show = move || {
            if let Some((uri, etag)) = shown {
                etag_index.show(&uri, etag);
            }
        };
        let metrics = &self.shards.metrics;
        if self.ledger.forgotten() > forgotten {
            let forgotten = self.ledger.forgotten() - forgotten;
            metrics.limit_counter(Limit::Removed).increment(forgotten);
        }
        if !changed {
            metrics.unchanged.add(1);
            self.tracer.trace_unchanged(&decision.uri, etag);
            return self.after(None, move |_| {
                show();
                reply.answer(Ok(outcome));
            });
        }
        metrics.changes.add(1);
        let at = reply.at();
        let stamped = cause.map(|cause| self.place(decision.uri.clone(), etag, cause, at));
        let list = decision.list.map(|(kind, hash)| {
            self.shards.metrics.count_list_change(kind);
            let position = self.ledger.advance();
            trace_list(&self.tracer, kind, position);
            (kind, hash, position)
        });
        let record = self.record(&decision.uri, etag);
        let tracer = self.tracer.clone();
        self.after(record, move |shards| {
            // Before anybody is told: whoever was told and asks the board must not find the version before.
            show();
            let finish = Finish::Change(reply, outcome);
            match (stamped, list) {
                (stamped, Some(list)) => shards.tell_list(stamped, list, finish, &tracer),
                (Some(stamped), None) => shards.tell(stamped, finish, &tracer),
                (None, None) => finish.answer(0, 0, &shards.metrics),
            }
        });
    }
}

impl Handler<StampList> for EtagActor {
    type Result = ();

    fn handle(
        &mut self,
        StampList {
            list: (kind, hash),
            reply,
        }: StampList,
        _: &mut Context<Self>,
    ) {
        self.shards.metrics.changes_of_lists.add(1);
        self.shards.metrics.count_list_change(kind);
        let position = self.ledger.advance();
        trace_list(&self.tracer, kind, position);
        let tracer = self.tracer.clone();
        self.after(
            Some(Record {
                offset: position.offset,
                floor: self.ledger.floor(),
                line: None,
            }),
            move |shards| {
                let outcome = ListOutcome {
                    changed: true,
                    notified: 0,
                };
                let finish = Finish::List(reply, outcome);
                shards.tell_list(None, (kind, hash, position), finish, &tracer);
            },
        );
    }
}

impl Handler<StampRead> for EtagActor {
    type Result = ();

    fn handle(&mut self, StampRead { uri, found, reply }: StampRead, _: &mut Context<Self>) {
        let answer = found.and_then(|found| {
            let etag = self.etag_of(&uri, found.known())?;
            Some((found, etag))
        });
        self.after(None, move |_| reply.answer(answer));
    }
}

impl Handler<StampEtags> for EtagActor {
    type Result = ();

    fn handle(&mut self, StampEtags { uris, reply }: StampEtags, _: &mut Context<Self>) {
        let etags = uris
            .iter()
            .map(|(uri, known)| self.etag_of(uri, *known))
            .collect();
        self.after(None, move |_| reply.answer(etags));
    }
}

impl Handler<StampPage> for EtagActor {
    type Result = ();

    fn handle(&mut self, StampPage { resources, reply }: StampPage, _: &mut Context<Self>) {
        let with_etag = |resource: Arc<crate::model::Resource>| {
            let etag = self
                .etag_of(resource.uri(), Known::Registered)
                .unwrap_or(Etag::UNKNOWN);
            (resource, etag)
        };
        let page = resources.into_iter().map(with_etag).collect();
        self.after(None, move |_| reply.answer(page));
    }
}

impl Handler<StampSubscribe> for EtagActor {
    type Result = ();

    fn handle(&mut self, subscribe: StampSubscribe, _: &mut Context<Self>) {
        let stamp = |(uri, known): (ResourceUri, Known)| {
            let etag = self.etag_of(&uri, known).unwrap_or(Etag::UNKNOWN);
            (uri, etag)
        };
        let verdicts: Vec<Result<(ResourceUri, Etag), _>> = subscribe
            .verdicts
            .into_iter()
            .map(|verdict| verdict.map(stamp))
            .collect();
        let StampSubscribe {
            outbox, max, reply, ..
        } = subscribe;
        let at = self.ledger.position();
        outbox.begin_request();
        self.after(None, move |shards| {
            for (uri, _) in verdicts.iter().flatten() {
                shards.will_want(&outbox, uri);
            }
            shards.send(
                outbox.shard(),
                AddSubscriptions {
                    outbox,
                    verdicts,
                    at,
                    max,
                    reply,
                },
            );
        });
    }
}

impl Handler<StampWatchLists> for EtagActor {
    type Result = ();

    fn handle(&mut self, watch: StampWatchLists, _: &mut Context<Self>) {
        let StampWatchLists {
            outbox,
            lists,
            announce,
            reply,
        } = watch;
        let at = self.ledger.position();
        outbox.begin_request();
        self.after(None, move |shards| {
            shards.send(
                outbox.shard(),
                AddListWatches {
                    outbox,
                    lists,
                    announce,
                    at,
                    reply,
                },
            );
        });
    }
}

impl Handler<AttachQueue> for EtagActor {
    type Result = ();

    fn handle(&mut self, AttachQueue { state, reply }: AttachQueue, _: &mut Context<Self>) {
        let at = self.ledger.position();
        // One shard offers to the queues, so that they are in the order of the bus.
        self.after(None, move |shards| {
            shards.will_want_everything(0);
            shards.send(0, AddQueue { state, at, reply });
        });
    }
}

impl Handler<Route> for EtagActor {
    type Result = ();

    fn handle(&mut self, Route { outbox, request }: Route, ctx: &mut Context<Self>) {
        match request {
            SubscriberRequest::Attach(_) => {
                return self.shards.send(outbox.shard(), Route { outbox, request });
            }
            // It went while its move waited.
            SubscriberRequest::Move if outbox.is_closed() => return,
            SubscriberRequest::Move if outbox.has_open_requests() => {
                // The shard that it leaves has not done all it was asked to; the other could not take that over.
                ctx.run_later(MOVE_AGAIN, |etag, ctx| {
                    etag.handle(Route { outbox, request }, ctx);
                });
                return;
            }
            SubscriberRequest::Watch(..) | SubscriberRequest::Unsubscribe(..) => outbox.begin_request(),
            SubscriberRequest::Detach(_) => outbox.mark_closed(),
            _ => {}
        }
        self.after(None, move |shards| match request {
            SubscriberRequest::Move => {
                let (from, to) = (outbox.shard(), outbox.end_move());
                if from != to && to < shards.addrs.len() {
                    // Both at this one point of the order: every notice is marked by exactly one of the two.
                    shards.send(
                        from,
                        Route {
                            outbox: outbox.clone(),
                            request: SubscriberRequest::HandOver,
                        },
                    );
                    outbox.set_shard(to);
                    // Its subscriptions are not known here; `to` counts them when it has them.
                    shards.will_want_everything(to);
                    shards.send(
                        to,
                        Route {
                            outbox,
                            request: SubscriberRequest::TakeOver,
                        },
                    );
                }
            }
            request => {
                if matches!(request, SubscriberRequest::Watch(..)) {
                    shards.will_want_everything(outbox.shard());
                }
                shards.send(outbox.shard(), Route { outbox, request });
            }
        });
    }
}

impl Handler<BatchStored> for EtagActor {
    type Result = ();

    fn handle(&mut self, BatchStored(result): BatchStored, ctx: &mut Context<Self>) {
        if let Err(error) = result {
            // Nobody may be told of a version that a restart could take back. Whoever waits is answered when the
            // tickets go with this actor.
            self.guard.fail(&error.to_string());
            return ctx.stop();
        }
        for release in self.in_flight.take().unwrap_or_default() {
            release(&self.shards);
        }
        self.write_batch();
    }
}
