//! The Etag actor: decides the version of each URI and the one order of all notices.
//!
//! It handles the decisions of the Registry in batches. With a store, every change waits until the store's
//! thread reports it durable, and all other requests are answered at once from what is durable; without one,
//! all are released at the end of their batch, in the order in which they came.

mod batches;
mod commit;
mod families;
mod ledger;
mod lists;
mod change_log;
mod cursors;
mod applied;
mod etag_index;
mod health;
mod records;
mod release;
mod subscribe;
mod store;
mod fan_out;

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{Actor, AsyncContext, Context, Handler};

use crate::messages::{
    AddListWatches, Decision, EtagBatch, EtagRequest, Finish, Found, Route, SubscriberRequest,
};
use crate::metrics::Limit;
use crate::model::{Cause, Etag, ListOutcome, Outcome, Position, PublishError, ResourceUri, TraceStep};
use crate::runtime::{CoreGuard, Reply, Tracer};

pub(crate) use change_log::ChangeLog;
pub(crate) use commit::Commit;
pub(crate) use etag_index::EtagIndex;
pub(crate) use fan_out::Shards;
pub(crate) use health::StoreHealth;
pub use health::StoreState;
pub(crate) use ledger::Ledger;
pub(crate) use ledger::{Stamped, TimeStamp};
pub(crate) use store::StoreThread;
pub use store::{Batch, ChangeKind, Checkpoint, KeptContent, KeptLine, LoggedChange, Record, Store};

use fan_out::StampedChange;
use release::{ChangeEffect, Release, ReleasedChange};

/// The interval at which cursors that have moved are handed to the store.
const CURSOR_INTERVAL: Duration = Duration::from_secs(1);

/// The pause before a move is tried again.
const MOVE_AGAIN: Duration = Duration::from_millis(1);

/// The Etag actor.
pub(crate) struct EtagActor {
    ledger: Ledger,
    change_log: ChangeLog,
    etag_index: Arc<EtagIndex>,
    shards: Shards,
    /// The changes that are not durable; none without a store.
    commit: Option<Commit>,
    /// The requests of this turn.
    waiting: Vec<Release>,
    tracer: Arc<Tracer>,
    /// Stops the bus when this actor dies.
    guard: CoreGuard,
}

/// A change that takes a place in the order of the bus.
struct PlacedChange<'a> {
    uri: &'a ResourceUri,
    /// True if clients may subscribe to the resource.
    subscribable: bool,
    /// The time of admission.
    at: Instant,
    /// The older changes that this one has replaced unheard.
    replaced: u64,
    /// True if subscribers that know the version are told of it again.
    repeats: bool,
}

impl Actor for EtagActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.run_interval(CURSOR_INTERVAL, |etag, _| etag.record_moved());
    }
}

impl EtagActor {
    pub(crate) fn new(
        ledger: Ledger,
        etag_index: Arc<EtagIndex>,
        shards: Shards,
        commit: Option<Commit>,
        guard: CoreGuard,
    ) -> EtagActor {
        EtagActor {
            ledger,
            change_log: ChangeLog::default(),
            etag_index,
            tracer: shards.tracer.clone(),
            shards,
            commit,
            waiting: Vec::new(),
            guard,
        }
    }

    fn handle_request(&mut self, request: EtagRequest, ctx: &mut Context<Self>) {
        match request {
            EtagRequest::Change { decision, now, reply } => self.change(decision, now, reply),
            EtagRequest::Changes(changes) => self.change_many(changes),
            EtagRequest::List { list, reply } => {
                let outcome = ListOutcome {
                    changed: true,
                    notified: 0,
                };
                self.change_list(list, Finish::List(reply, outcome));
            }
            EtagRequest::StartedList(list) => self.change_list(list, Finish::Silent),
            EtagRequest::SameList((kind, hash)) => {
                let list = (kind, hash, self.ledger.position());
                self.waiting.push(Release::SameList(list));
            }
            EtagRequest::Logged(logged) => self.apply_logged(*logged),
            EtagRequest::Unclaimed { uris, now, reply } => self.remove_unclaimed(uris, now, reply),
            EtagRequest::MarkUnclaimed(uris, now) => self.mark_unclaimed(uris, now),
            EtagRequest::Started(reply) => {
                self.forget_detached();
                self.waiting.push(Release::Done(reply));
            }
            EtagRequest::Family(change) => self.ledger.change_family(change),
            EtagRequest::Resources { found, reply } => self.find(found, reply),
            EtagRequest::Subscribe {
                outbox,
                accepted,
                rules,
                reply,
            } => self.subscribe(outbox, accepted, rules, reply),
            EtagRequest::WatchLists {
                outbox,
                lists,
                joined,
                start,
                reply,
            } => {
                outbox.begin_request();
                let at = self.visible_position();
                let watches = AddListWatches {
                    outbox,
                    lists,
                    joined,
                    start,
                    at,
                    reply,
                };
                self.pass(Release::WatchLists(watches));
            }
            EtagRequest::Shown(kind, hashes) => self.waiting.push(Release::Shown(kind, hashes)),
            EtagRequest::Settle(settle) => self.settle_rights(settle),
            EtagRequest::AttachQueue(attach) => self.attach_queue(attach),
            EtagRequest::Cursors(request) => self.serve_cursors(request),
            EtagRequest::Route(route) => self.route(route, ctx),
            EtagRequest::Commit => self.commit(),
            EtagRequest::Stored(stored) => self.stored(stored),
            EtagRequest::TryStore => self.try_store(),
        }
    }

    /// Releases the requests of this turn that do not wait for the store.
    fn end_turn(&mut self) {
        self.release_waiting();
        self.shards.flush();
    }

    fn change(&mut self, decision: Decision, now: u64, reply: Reply<Result<Outcome, PublishError>>) {
        let (outcome, stamped) = self.stamp_change(&decision, now, reply.at());
        let list = decision.list.map(|(kind, hash)| self.place_list(kind, hash));
        self.waiting.push(Release::Change(ReleasedChange {
            effect: ChangeEffect {
                indexed: decision.into_indexed(outcome.etag),
                stamped,
            },
            list,
            finish: Finish::Change(reply, outcome),
        }));
    }

    /// Gives a decided change its version and its place in the order of the bus, and queues its record. The
    /// second value is none if no subscriber need be notified of the resource.
    fn stamp_change(
        &mut self,
        decision: &Decision,
        now: u64,
        at: Instant,
    ) -> (Outcome, Option<StampedChange>) {
        let forgotten = self.ledger.forgotten();
        self.save_line(&decision.uri);
        let Stamped { etag, cause, claimed } = self.ledger.make(decision, now);
        self.count_forgotten(forgotten);
        let changed = cause.is_some() || decision.list.is_some();
        let outcome = Outcome {
            etag,
            changed,
            created: decision.created,
            notified: 0,
        };
        if !changed {
            self.tracer.trace_unchanged(&decision.uri, etag);
        }
        let placed = PlacedChange {
            uri: &decision.uri,
            subscribable: decision.subscribable,
            at,
            replaced: 0,
            repeats: false,
        };
        let stamped = cause.map(|cause| self.place(&placed, etag, cause));
        if cause.is_some() || claimed {
            self.record_change(decision);
        }
        (outcome, stamped)
    }

    fn count_forgotten(&self, before: u64) {
        let forgotten = self.ledger.forgotten() - before;
        if forgotten > 0 {
            self.shards
                .metrics
                .limit_counter(Limit::Removed)
                .increment(forgotten);
        }
    }

    /// Removes URIs of former lives as changes.
    fn remove_unclaimed(&mut self, uris: Vec<ResourceUri>, now: u64, reply: Option<Reply<usize>>) {
        // Answered after the last of them.
        let mut left = uris.len();
        let mut finish = match reply {
            Some(reply) => Finish::Unclaimed(reply, left),
            None => Finish::Silent,
        };
        if left == 0 {
            self.release_later(None, finish);
            return;
        }
        let forgotten = self.ledger.forgotten();
        for uri in uris {
            self.save_line(&uri);
            let etag = self.ledger.remove(&uri, now);
            let placed = PlacedChange {
                uri: &uri,
                subscribable: true,
                at: Instant::now(),
                replaced: 0,
                repeats: false,
            };
            let stamped = self.place(&placed, etag, Cause::Removed);
            self.record_line(&uri, KeptContent::None);
            left -= 1;
            let answer = match left {
                0 => std::mem::replace(&mut finish, Finish::Silent),
                _ => Finish::Silent,
            };
            self.release_later(Some(stamped), answer);
        }
        self.count_forgotten(forgotten);
    }

    /// Queues a change of a URI that the etag index does not have.
    fn release_later(&mut self, stamped: Option<StampedChange>, finish: Finish) {
        self.waiting.push(Release::Change(ReleasedChange {
            effect: ChangeEffect {
                indexed: None,
                stamped,
            },
            list: None,
            finish,
        }));
    }

    fn mark_unclaimed(&mut self, uris: Vec<ResourceUri>, now: u64) {
        for uri in uris {
            self.save_line(&uri);
            self.ledger.mark_unclaimed(&uri, now);
            self.record_line(&uri, KeptContent::Same);
        }
    }

    /// Gives a stamped change the next place in the order of the bus.
    fn place(&mut self, change: &PlacedChange<'_>, etag: Etag, cause: Cause) -> StampedChange {
        let position = self.ledger.advance();
        self.place_at(change, etag, cause, position)
    }

    /// Gives a stamped change this place in the order of the bus.
    fn place_at(
        &mut self,
        change: &PlacedChange<'_>,
        etag: Etag,
        cause: Cause,
        position: Position,
    ) -> StampedChange {
        let uri = change.uri;
        match cause {
            Cause::Updated => self.shards.metrics.updated.add(1),
            Cause::Removed => self.shards.metrics.removed.add(1),
        }
        let stamped = StampedChange {
            uri: uri.clone(),
            etag,
            cause,
            position,
            subscribable: change.subscribable,
            at: change.at,
            replaced: change.replaced,
            traced: self.tracer.wants(uri, position),
            repeats: change.repeats,
        };
        if stamped.traced {
            self.tracer
                .trace_notice(&stamped.notice(), TraceStep::Changed(cause.into()));
        }
        if self.change_log.is_on() {
            self.log_change(position, ChangeKind::Resource(uri.clone(), etag, cause));
        }
        stamped
    }

    fn find(&mut self, found: Vec<(ResourceUri, Option<Found>)>, reply: Reply<Vec<Option<(Found, Etag)>>>) {
        let mut etags = Vec::with_capacity(found.len());
        for (uri, found) in found {
            etags.push(match found {
                Some(found) => {
                    let etag = self.visible_etag(&uri, found.known());
                    Some((found, etag))
                }
                None => None,
            });
        }
        self.pass(Release::Resources(reply, etags));
    }

    fn route(&mut self, route: Route, ctx: &mut Context<Self>) {
        let outbox = &route.outbox;
        match &route.request {
            SubscriberRequest::Attach(_) => {
                // Ahead of all that waits: it depends on nothing.
                return self.shards.attach(route);
            }
            // The subscriber ended while its move waited.
            SubscriberRequest::Move if outbox.is_closed() => return,
            SubscriberRequest::Move if outbox.has_open_requests() => {
                // The old shard still has requests to do, which the new one could not take over.
                ctx.run_later(MOVE_AGAIN, |etag, ctx| {
                    etag.route(route, ctx);
                    etag.end_turn();
                });
                return;
            }
            SubscriberRequest::Watch(..) | SubscriberRequest::Unsubscribe(..) => outbox.begin_request(),
            SubscriberRequest::Detach(_) => outbox.mark_closed(),
            _ => {}
        }
        self.pass(Release::Route(route));
    }
}

impl Handler<EtagBatch> for EtagActor {
    type Result = ();

    fn handle(&mut self, EtagBatch(requests): EtagBatch, ctx: &mut Context<Self>) {
        for request in requests {
            self.handle_request(request, ctx);
        }
        // Answered after all are stamped: the publishers wake once and send their next requests together.
        self.end_turn();
    }
}

#[cfg(test)]
mod tests;
