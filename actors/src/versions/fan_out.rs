//! The way from the Etag actor to the Publisher shards.
//!
//! A change goes to every shard with a subscriber that may want it; every request that can add such a
//! subscriber is counted before it is passed on. Each shard gets the requests of one turn as one message.
//! The queues of attached subscribers are filled here, where the order of the bus is decided.

use std::sync::Arc;
use std::time::Instant;

use actix::Recipient;

use crate::messages::{
    AddSubscriptions, Completion, FanOut, Finish, Route, ShardBatch, ShardRequest, SubscriberRequest,
};
use crate::metrics::Metrics;
use crate::model::{Cause, Etag, ListHash, ListKind, Notice, NoticeKind, Position, ResourceUri, TraceStep};
use crate::outbox::{AudienceHashes, Outbox, OutboxSet};
use crate::publisher::Interest;
use crate::runtime::{Tracer, mailbox};
use crate::sink::{AttachmentState, Delivery};

/// A change of a resource in its place in the order of the bus. It becomes a notice when a subscriber wants
/// it.
pub(super) struct StampedChange {
    pub(super) uri: ResourceUri,
    pub(super) etag: Etag,
    pub(super) cause: Cause,
    pub(super) position: Position,
    /// False if clients may not subscribe to the resource.
    pub(super) subscribable: bool,
    /// The time of admission.
    pub(super) at: Instant,
    /// The older changes that this one has replaced unheard.
    pub(super) replaced: u64,
    /// True if a tracer follows the notice.
    pub(super) traced: bool,
    /// True if subscribers that know the version are told of it again.
    pub(super) repeats: bool,
}

impl StampedChange {
    pub(super) fn notice(&self) -> Notice {
        let mut notice = Notice::new(self.uri.clone(), self.etag, self.cause, self.position, self.at);
        notice.replaced = self.replaced;
        notice.traced = self.traced;
        notice.repeats = self.repeats;
        notice.subscribable = self.subscribable;
        notice
    }
}

/// One shard with the batch for the end of the turn.
struct ShardLine {
    addr: Recipient<ShardBatch>,
    batch: Vec<ShardRequest>,
}

/// The publisher shards, as the Etag actor sends to them.
pub(crate) struct Shards {
    lines: Vec<ShardLine>,
    /// The attached subscribers that take every notice.
    queues: Vec<Arc<AttachmentState>>,
    /// The position up to which every notice was offered to them.
    released: Position,
    interest: Arc<Interest>,
    pub(super) tracer: Arc<Tracer>,
    pub(super) metrics: Arc<Metrics>,
}

impl Shards {
    pub(crate) fn new(
        addrs: Vec<Recipient<ShardBatch>>,
        interest: Arc<Interest>,
        tracer: Arc<Tracer>,
        metrics: Arc<Metrics>,
    ) -> Shards {
        let lines = addrs.into_iter().map(|addr| ShardLine {
            addr,
            batch: Vec::new(),
        });
        Shards {
            lines: lines.collect(),
            queues: Vec::new(),
            released: Position { epoch: 0, offset: 0 },
            interest,
            tracer,
            metrics,
        }
    }

    /// Notifies every shard with a matching subscription; the last of them answers the publisher.
    pub(super) fn notify(&mut self, stamped: StampedChange, finish: Finish) {
        self.released = stamped.position;
        // Hashed once for all shards. Without interest the notice goes to the queues alone, and the publisher
        // is answered from this thread.
        let group = self.interest.group(&stamped.uri);
        let Some(first) = (0..self.lines.len()).find(|shard| self.interest.wants(*shard, group)) else {
            if stamped.traced || !self.queues.is_empty() {
                let notice = Arc::new(stamped.notice());
                self.offer_notice(&notice);
                if notice.traced {
                    self.tracer
                        .trace_notice(&notice, TraceStep::Fanned { notified: 0 });
                }
            }
            return finish.answer(0, 0, &self.metrics);
        };
        let fan_out = self.fan_out(Some(stamped), None, finish);
        for shard in first..self.lines.len() {
            if self.interest.wants(shard, group) {
                self.send(shard, ShardRequest::FanOut(fan_out.clone()));
            }
        }
    }

    /// Notifies all shards of a list's new hash, alone or with the change of a resource. It goes to all
    /// because every shard counts the subscribers that it does not notify of a list.
    pub(super) fn notify_list(
        &mut self,
        stamped: Option<StampedChange>,
        list: (ListKind, ListHash, Position),
        finish: Finish,
    ) {
        self.released = list.2;
        let fan_out = self.fan_out(stamped, Some(list), finish);
        for shard in 0..self.lines.len() {
            self.send(shard, ShardRequest::FanOut(fan_out.clone()));
        }
    }

    /// Lets every session compare a list with what it was told. Attached subscribers know it from before the
    /// restart.
    pub(super) fn repeat_list(&mut self, list: (ListKind, ListHash, Position)) {
        let fan_out = FanOut {
            notice: None,
            list: Some(list),
            completion: Arc::new(Completion::new(Finish::Silent, self.metrics.clone())),
        };
        for shard in 0..self.lines.len() {
            self.send(shard, ShardRequest::FanOut(fan_out.clone()));
        }
    }

    /// Passes the hashes of a list for the audiences on, in front of its change.
    pub(super) fn show_list(&mut self, kind: ListKind, hashes: &AudienceHashes) {
        for shard in 0..self.lines.len() {
            self.send(shard, ShardRequest::Shown(kind, hashes.clone()));
        }
    }

    /// Answers a publisher when every shard has notified of everything before.
    pub(super) fn finish(&mut self, finish: Finish) {
        let fan_out = FanOut {
            notice: None,
            list: None,
            completion: Arc::new(Completion::new(finish, self.metrics.clone())),
        };
        for shard in 0..self.lines.len() {
            self.send(shard, ShardRequest::FanOut(fan_out.clone()));
        }
    }

    fn fan_out(
        &self,
        stamped: Option<StampedChange>,
        list: Option<(ListKind, ListHash, Position)>,
        finish: Finish,
    ) -> FanOut {
        let mut completion = Completion::new(finish, self.metrics.clone());
        let mut notice = None;
        if let Some(stamped) = stamped {
            let shared = Arc::new(stamped.notice());
            if shared.traced {
                completion = completion.traced(&shared, &self.tracer);
            }
            // Before the publisher is answered, as on the way without shards.
            self.offer_notice(&shared);
            notice = Some(shared);
        }
        if let Some((kind, _, position)) = list {
            self.offer_list(kind, position);
        }
        FanOut {
            notice,
            list,
            completion: Arc::new(completion),
        }
    }

    /// Adds an attached subscriber that takes every notice after `at`.
    pub(super) fn add_queue(&mut self, state: Arc<AttachmentState>, at: Position) {
        self.released = at;
        self.queues.push(state);
    }

    fn offer_notice(&self, notice: &Arc<Notice>) {
        for state in &self.queues {
            if state.filter().wants(notice) {
                state.offer(Delivery::Notice(notice.clone()));
            }
        }
    }

    fn offer_list(&self, kind: ListKind, position: Position) {
        for state in &self.queues {
            if state.filter().wants_kind(NoticeKind::List(kind)) {
                state.offer(Delivery::List(kind, position));
            }
        }
    }

    /// Passes new subscriptions on to the shard of their outbox.
    pub(super) fn subscribe(&mut self, subscriptions: AddSubscriptions) {
        let shard = subscriptions.outbox.shard();
        for subscription in subscriptions.accepted.iter().flatten() {
            self.interest.raise(shard, &subscription.uri);
        }
        self.send(shard, ShardRequest::AddSubscriptions(subscriptions));
    }

    /// Passes a new subscriber on to its shard at once.
    pub(super) fn attach(&mut self, route: Route) {
        let shard = route.outbox.shard();
        self.send(shard, ShardRequest::Route(route));
    }

    /// Moves a subscriber to the shard that its outbox asks for.
    pub(super) fn move_subscriber(&mut self, outbox: &Arc<Outbox>) {
        let from = outbox.shard();
        let to = outbox.end_move();
        if from == to || to >= self.lines.len() {
            return;
        }
        outbox.with(OutboxSet::begin_handover);
        // Both at this one point of the order, so that exactly one of the two shards marks each notice.
        self.route(from, outbox, SubscriberRequest::HandOver);
        outbox.set_shard(to);
        // The new shard counts the subscriptions one by one when it has them.
        self.expect_everything(to);
        self.route(to, outbox, SubscriberRequest::TakeOver);
    }

    fn route(&mut self, shard: usize, outbox: &Arc<Outbox>, request: SubscriberRequest) {
        let outbox = outbox.clone();
        self.send(shard, ShardRequest::Route(Route { outbox, request }));
    }

    /// Counts a subscriber that wants more than single URIs and goes to `shard` next.
    pub(super) fn expect_everything(&self, shard: usize) {
        self.interest.raise_everything(shard);
    }

    /// Queues a request for `shard` until the end of the turn.
    pub(super) fn send(&mut self, shard: usize, request: ShardRequest) {
        if let Some(line) = self.lines.get_mut(shard) {
            line.batch.push(request);
        }
    }

    /// Sends each shard its batch, and wakes the attached subscribers.
    pub(super) fn flush(&mut self) {
        for line in &mut self.lines {
            // An empty message would wake the thread of a shard for nothing.
            if !line.batch.is_empty() {
                let batch = std::mem::take(&mut line.batch);
                mailbox::send_to(&line.addr, ShardBatch(batch), &self.metrics);
            }
        }
        self.queues.retain(|state| !state.is_closed());
        // Once for all changes of the turn: a woken thread takes this one's core, empties its queue and
        // sleeps again.
        for state in &self.queues {
            state.wake(self.released);
        }
    }
}
