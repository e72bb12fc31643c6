//! The way from the Etag actor to the Publisher shards.
//!
//! Owns: their addresses. Never: decides who is told; an outbox knows its shard, and a change goes to every shard in
//! which somebody may want it. Whatever can make a shard want more is counted here before it is passed on.

use std::sync::Arc;
use std::time::Instant;

use actix::{Addr, Handler};

use crate::messages::{Completion, FanOut, Finish};
use crate::metrics::Metrics;
use crate::model::{Cause, Etag, ListHash, ListKind, Notice, Position, ResourceUri, TraceStep};
use crate::outbox::Outbox;
use crate::publisher::{Interest, Publisher};
use crate::runtime::{Tracer, mailbox};

/// A change of a resource that has its place in the order of the bus. It becomes a notice when somebody wants it.
pub(super) struct StampedChange {
    pub(super) uri: ResourceUri,
    pub(super) etag: Etag,
    pub(super) cause: Cause,
    pub(super) position: Position,
    /// When it passed the door.
    pub(super) at: Instant,
    /// Whether somebody wants to know what becomes of it.
    pub(super) traced: bool,
}

impl StampedChange {
    pub(super) fn notice(&self) -> Notice {
        let mut notice = Notice::new(self.uri.clone(), self.etag, self.cause, self.position, self.at);
        notice.traced = self.traced;
        notice
    }
}

/// The publisher shards, as the Etag actor sends to them.
pub(crate) struct Shards {
    pub(crate) addrs: Vec<Addr<Publisher>>,
    /// What they care about.
    pub(crate) interest: Arc<Interest>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Shards {
    /// Has everybody told of what was stamped who wants it, and then whoever made the change answered.
    pub(super) fn tell(&self, stamped: StampedChange, finish: Finish, tracer: &Arc<Tracer>) {
        let group = self.interest.group(&stamped.uri);
        let wanting = |shard: &usize| self.interest.wants(*shard, group);
        let mut shards = (0..self.addrs.len()).filter(wanting).peekable();
        if shards.peek().is_none() {
            if stamped.traced {
                tracer.trace_notice(&stamped.notice(), TraceStep::Fanned { notified: 0 });
            }
            return finish.answer(0, 0, &self.metrics);
        }
        let fan = self.fan(Some(stamped), None, finish, tracer);
        for shard in shards {
            self.send(shard, fan.clone());
        }
    }

    /// The same when a list has another hash now, by itself or with the change of a resource. Every shard counts those
    /// whom it does not tell of a list, so it goes to all.
    pub(super) fn tell_list(
        &self,
        stamped: Option<StampedChange>,
        list: (ListKind, ListHash, Position),
        finish: Finish,
        tracer: &Arc<Tracer>,
    ) {
        let fan = self.fan(stamped, Some(list), finish, tracer);
        for shard in 0..self.addrs.len() {
            self.send(shard, fan.clone());
        }
    }

    fn fan(
        &self,
        stamped: Option<StampedChange>,
        list: Option<(ListKind, ListHash, Position)>,
        finish: Finish,
        tracer: &Arc<Tracer>,
    ) -> FanOut {
        let notice = stamped.map(|stamped| Arc::new(stamped.notice()));
        let mut completion = Completion::new(finish, self.metrics.clone());
        if let Some(notice) = notice.as_ref().filter(|notice| notice.traced) {
            completion = completion.traced(notice, tracer);
        }
        FanOut {
            notice,
            list,
            completion: Arc::new(completion),
        }
    }

    /// Counts a subscription to `uri` that is sent to the shard of `outbox` next.
    pub(super) fn will_want(&self, outbox: &Outbox, uri: &ResourceUri) {
        self.interest.raise(outbox.shard(), uri);
    }

    /// Counts somebody who wants more than can be counted by URI and is sent to `shard` next.
    pub(super) fn will_want_everything(&self, shard: usize) {
        self.interest.raise_everything(shard);
    }

    pub(super) fn send<M>(&self, shard: usize, message: M)
    where
        Publisher: Handler<M>,
        M: actix::Message<Result = ()> + Send + 'static,
    {
        if let Some(addr) = self.addrs.get(shard) {
            mailbox::send(addr, message, &self.metrics);
        }
    }
}
