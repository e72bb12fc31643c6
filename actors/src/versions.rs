//! The Etag actor: decides the version of each URI and the one order of all notices.
//!
//! It handles the decisions of the Registry in batches. With a store, every answer and notice that depends
//! on a record waits until the store's thread reports it durable, in the order in which they came; without
//! one, they are released at the end of their batch.

mod ledger;
mod etag_index;
mod release;
mod subscribe;
mod store;
mod fan_out;

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler};

use crate::messages::{
    AddListWatches, BatchStored, Decision, Effect, EtagBatch, EtagRequest, Finish, Found, Known, Route,
    SubscriberRequest,
};
use crate::metrics::Limit;
use crate::model::{
    Cause, Etag, ListHash, ListKind, ListOutcome, NoticeKind, Outcome, Position, PublishError, ResourceUri,
    TraceStep,
};
use crate::runtime::{CoreGuard, Reply, Tracer};

pub(crate) use etag_index::EtagIndex;
pub(crate) use fan_out::Shards;
pub(crate) use ledger::Ledger;
pub use ledger::{Checkpoint, Line};
pub(crate) use store::StoreThread;
pub use store::{Record, Store};

use fan_out::StampedChange;
use release::{Release, ReleasedChange};

/// The pause before a move is tried again.
const MOVE_AGAIN: Duration = Duration::from_millis(1);

/// The Etag actor.
pub(crate) struct EtagActor {
    ledger: Ledger,
    etag_index: Arc<EtagIndex>,
    shards: Shards,
    /// Without a store, records need not become durable.
    store: Option<StoreThread>,
    /// Waits for the batch that the store writes now; none when it writes none.
    in_flight: Option<Vec<Release>>,
    /// Waits for `records`.
    waiting: Vec<Release>,
    /// The next batch for the store.
    records: Vec<Record>,
    tracer: Arc<Tracer>,
    /// Stops the bus when this actor dies.
    guard: CoreGuard,
}

impl Actor for EtagActor {
    type Context = Context<Self>;
}

impl EtagActor {
    pub(crate) fn new(
        ledger: Ledger,
        etag_index: Arc<EtagIndex>,
        shards: Shards,
        store: Option<StoreThread>,
        guard: CoreGuard,
    ) -> EtagActor {
        EtagActor {
            ledger,
            etag_index,
            tracer: shards.tracer.clone(),
            shards,
            store,
            in_flight: None,
            waiting: Vec::new(),
            records: Vec::new(),
            guard,
        }
    }

    fn handle_request(&mut self, request: EtagRequest, ctx: &mut Context<Self>) {
        match request {
            EtagRequest::Change { decision, now, reply } => self.change(decision, now, reply),
            EtagRequest::List { list, reply } => self.change_list(list, reply),
            EtagRequest::Resources { found, reply } => self.find(found, reply),
            EtagRequest::Subscribe {
                outbox,
                accepted,
                rules,
                reply,
            } => {
                self.subscribe(outbox, accepted, rules, reply);
            }
            EtagRequest::WatchLists {
                outbox,
                lists,
                announce,
                reply,
            } => {
                outbox.begin_request();
                let at = self.ledger.position();
                let watches = AddListWatches {
                    outbox,
                    lists,
                    announce,
                    at,
                    reply,
                };
                self.waiting.push(Release::WatchLists(watches));
            }
            EtagRequest::AttachQueue(attach) => {
                let at = self.ledger.position();
                self.waiting.push(Release::AttachQueue(attach, at));
            }
            EtagRequest::Route(route) => self.route(route, ctx),
        }
    }

    /// Releases the waiting requests, now or when the store has written their records.
    fn settle(&mut self) {
        if self.in_flight.is_none() {
            if self.records.is_empty() {
                let mut waiting = std::mem::take(&mut self.waiting);
                self.release(&mut waiting);
                // Keeps the room for the next batch.
                self.waiting = waiting;
            } else {
                self.write_batch();
            }
        }
        self.shards.flush();
    }

    fn write_batch(&mut self) {
        let records = std::mem::take(&mut self.records);
        match &self.store {
            Some(store) if store.append(records) => self.in_flight = Some(std::mem::take(&mut self.waiting)),
            _ => self.guard.fail("the store's thread ended"),
        }
    }

    fn release(&mut self, releases: &mut Vec<Release>) {
        for release in releases.drain(..) {
            release.run(&mut self.shards, &self.etag_index);
        }
    }

    fn etag_of(&self, uri: &ResourceUri, known: Known) -> Etag {
        match (self.ledger.line(uri), known) {
            (Some(line), _) => line.etag,
            (None, Known::Registered | Known::Absent) => Etag::UNKNOWN,
            (None, Known::Member(since)) => self.ledger.untouched(since),
        }
    }

    /// Gives a decided change its version. Returns the etag, and the cause to notify subscribers of, if
    /// any.
    fn stamp(&mut self, decision: &Decision, now: u64) -> (Etag, Option<Cause>) {
        let uri = &decision.uri;
        let stamped = match decision.effect {
            Effect::Unchanged => return (self.etag_of(uri, Known::Registered), None),
            Effect::Member(since) => {
                return (self.ledger.touch_member(uri, now, since), Some(Cause::Updated));
            }
            Effect::Removed => return (self.ledger.remove(uri, now), Some(Cause::Removed)),
            Effect::Stored(digest) => self.ledger.stamp(uri, digest, now),
            Effect::Joined(digest) => self.ledger.stamp_member(uri, digest, now),
        };
        (stamped.etag, stamped.changed.then_some(Cause::Updated))
    }

    fn change(&mut self, decision: Decision, now: u64, reply: Reply<Result<Outcome, PublishError>>) {
        let forgotten = self.ledger.forgotten();
        let (etag, cause) = self.stamp(&decision, now);
        let forgotten = self.ledger.forgotten() - forgotten;
        if forgotten > 0 {
            self.shards
                .metrics
                .limit_counter(Limit::Removed)
                .increment(forgotten);
        }
        let changed = cause.is_some() || decision.list.is_some();
        let outcome = Outcome {
            etag,
            changed,
            created: decision.created,
            notified: 0,
        };
        if changed {
            self.shards.metrics.changes.add(1);
        } else {
            self.shards.metrics.unchanged.add(1);
            self.tracer.trace_unchanged(&decision.uri, etag);
        }
        let stamped = cause.map(|cause| self.place(&decision, etag, cause, &reply));
        let list = decision
            .list
            .map(|(kind, hash)| (kind, hash, self.place_list(kind)));
        if changed {
            self.record_change(&decision.uri, etag);
        }
        self.waiting.push(Release::Change(ReleasedChange {
            indexed: decision.into_indexed(etag),
            stamped,
            list,
            finish: Finish::Change(reply, outcome),
        }));
    }

    /// Gives a stamped change the next place in the order of the bus.
    fn place<T>(&mut self, decision: &Decision, etag: Etag, cause: Cause, reply: &Reply<T>) -> StampedChange {
        let uri = &decision.uri;
        match cause {
            Cause::Updated => self.shards.metrics.updated.add(1),
            Cause::Removed => self.shards.metrics.removed.add(1),
        }
        let position = self.ledger.advance();
        let stamped = StampedChange {
            uri: uri.clone(),
            etag,
            cause,
            position,
            subscribable: decision.subscribable,
            at: reply.at(),
            traced: self.tracer.wants(uri, position),
        };
        if stamped.traced {
            self.tracer
                .trace_notice(&stamped.notice(), TraceStep::Changed(cause.into()));
        }
        stamped
    }

    /// Gives a changed list the next place in the order of the bus.
    fn place_list(&mut self, kind: ListKind) -> Position {
        self.shards.metrics.count_list_change(kind);
        let position = self.ledger.advance();
        self.tracer.trace_list(kind, Some(position), || {
            TraceStep::Changed(NoticeKind::List(kind))
        });
        position
    }

    /// Queues the record of the newest change for the store.
    fn record_change(&mut self, uri: &ResourceUri, etag: Etag) {
        if self.store.is_none() {
            return;
        }
        let line = match self.ledger.line(uri) {
            Some(line) => *line,
            // The ledger had no room for one more removed URI; the store still has the line from before.
            None => Line {
                etag,
                digest: None,
                live: false,
            },
        };
        self.record(Some((uri.clone(), line)));
    }

    fn record(&mut self, line: Option<(ResourceUri, Line)>) {
        if self.store.is_some() {
            self.records.push(Record {
                offset: self.ledger.position().offset,
                floor: self.ledger.floor(),
                line,
            });
        }
    }

    fn change_list(
        &mut self,
        (kind, hash): (ListKind, ListHash),
        reply: Reply<Result<ListOutcome, PublishError>>,
    ) {
        self.shards.metrics.changes_of_lists.add(1);
        let position = self.place_list(kind);
        self.record(None);
        let outcome = ListOutcome {
            changed: true,
            notified: 0,
        };
        self.waiting.push(Release::Change(ReleasedChange {
            indexed: None,
            stamped: None,
            list: Some((kind, hash, position)),
            finish: Finish::List(reply, outcome),
        }));
    }

    fn find(&mut self, found: Vec<(ResourceUri, Option<Found>)>, reply: Reply<Vec<Option<(Found, Etag)>>>) {
        let mut etags = Vec::with_capacity(found.len());
        for (uri, found) in found {
            etags.push(match found {
                Some(found) => {
                    let etag = self.etag_of(&uri, found.known());
                    Some((found, etag))
                }
                None => None,
            });
        }
        self.waiting.push(Release::Resources(reply, etags));
    }

    fn route(&mut self, route: Route, ctx: &mut Context<Self>) {
        let outbox = &route.outbox;
        match &route.request {
            SubscriberRequest::Attach(_) => {
                // Ahead of all that waits for the store: it depends on no record.
                return self.shards.attach(route);
            }
            // The subscriber ended while its move waited.
            SubscriberRequest::Move if outbox.is_closed() => return,
            SubscriberRequest::Move if outbox.has_open_requests() => {
                // The old shard still has requests to do, which the new one could not take over.
                ctx.run_later(MOVE_AGAIN, |etag, ctx| {
                    etag.route(route, ctx);
                    etag.settle();
                });
                return;
            }
            SubscriberRequest::Watch(..) | SubscriberRequest::Unsubscribe(..) => outbox.begin_request(),
            SubscriberRequest::Detach(_) => outbox.mark_closed(),
            _ => {}
        }
        self.waiting.push(Release::Route(route));
    }
}

impl Handler<EtagBatch> for EtagActor {
    type Result = ();

    fn handle(&mut self, EtagBatch(requests): EtagBatch, ctx: &mut Context<Self>) {
        for request in requests {
            self.handle_request(request, ctx);
        }
        // Answered after all are stamped: the publishers wake once and send their next requests together.
        self.settle();
    }
}

impl Handler<BatchStored> for EtagActor {
    type Result = ();

    fn handle(&mut self, BatchStored(result): BatchStored, ctx: &mut Context<Self>) {
        if let Err(error) = result {
            // No subscriber may learn of a version that a restart could take back. Publishers that wait are
            // answered when their replies are dropped with this actor.
            self.guard.fail(&error.to_string());
            return ctx.stop();
        }
        let mut stored = self.in_flight.take().unwrap_or_default();
        self.release(&mut stored);
        self.settle();
    }
}

#[cfg(test)]
mod tests;
