//! The rights of the subscribers of a shard: the end of hidden subscriptions, and the look at all subscribers
//! after a policy changed.
//!
//! The look goes in steps, between which the thread serves its streams and the notices that wait. A step
//! waits until the lists of the one before it were compared, so that no crowd of such requests stands in the
//! order in front of a change.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use actix::fut::ActorFutureExt;
use actix::{AsyncContext, Context, Handler, WrapFuture};

use super::{Member, Publisher};
use crate::messages::{RightsChanged, SettleRights};
use crate::model::Position;
use crate::outbox::Outbox;
use crate::runtime::Reply;

/// The subscribers, and the subscriptions of theirs, after which a step ends: a few hundred microseconds.
const STEP_SUBSCRIBERS: usize = 64;
const STEP_SUBSCRIPTIONS: usize = 512;
/// The time between two looks at the requests of a step.
const SETTLE_PAUSE: Duration = Duration::from_millis(1);

/// The look at the rights of all subscribers.
#[derive(Default)]
pub(super) struct RightsWalk {
    /// The subscribers to look at, if a walk is under way.
    left: Vec<Member>,
    /// The subscribers of the last step whose lists are not compared yet.
    unsettled: Vec<Arc<Outbox>>,
    /// The request of the walk under way, and those that came meanwhile: each needs a walk that began after
    /// it.
    replies: VecDeque<Reply<()>>,
}

impl Publisher {
    /// Ends the hidden subscriptions of a subscriber, and compares its lists with what it sees now.
    pub(super) fn settle(&mut self, settle: SettleRights, at: Position) {
        let SettleRights {
            outbox,
            joined,
            lists,
        } = settle;
        self.catch_up(&outbox);
        outbox.settle(joined, &lists, at);
        self.forget_hidden(&outbox);
        outbox.end_request();
    }

    /// Removes the hidden subscriptions of a subscriber from the table.
    pub(super) fn forget_hidden(&mut self, outbox: &Outbox) {
        if let Some(member) = self.member(outbox) {
            for slot in outbox.take_hidden(self.shard) {
                self.forget(member, slot);
            }
        }
    }

    /// Begins the next walk that was asked for.
    fn begin_walk(&mut self, ctx: &mut Context<Self>) {
        if self.rights.replies.is_empty() {
            return;
        }
        let judged = self
            .table
            .members()
            .filter(|(_, outbox)| outbox.viewer().is_some());
        self.rights.left = judged.map(|(member, _)| member).collect();
        self.walk(ctx);
    }

    /// Looks at the next subscribers. A place that was taken by another one meanwhile is no harm.
    fn walk(&mut self, ctx: &mut Context<Self>) {
        self.rights.unsettled.retain(|outbox| outbox.is_settling());
        if !self.rights.unsettled.is_empty() {
            // A timer, not a message of the last answer: a session may end before its lists are compared.
            ctx.run_later(SETTLE_PAUSE, Self::walk);
            return;
        }
        let mut subscribers = 0;
        let mut subscriptions = 0;
        while subscribers < STEP_SUBSCRIBERS && subscriptions < STEP_SUBSCRIPTIONS {
            let Some(member) = self.rights.left.pop() else {
                if let Some(reply) = self.rights.replies.pop_front() {
                    reply.answer(());
                }
                return self.begin_walk(ctx);
            };
            subscribers += 1;
            if let Some(outbox) = self.table.get(member).map(Arc::clone) {
                subscriptions += outbox.recheck();
                self.forget_hidden(&outbox);
                self.rights.unsettled.push(outbox);
            }
        }
        // Not a message: this actor takes all messages before it lets the streams of its thread run.
        let pause = tokio::task::yield_now().into_actor(self);
        ctx.spawn(pause.map(|(), publisher, ctx| publisher.walk(ctx)));
    }
}

impl Handler<RightsChanged> for Publisher {
    type Result = ();

    fn handle(&mut self, RightsChanged(reply): RightsChanged, ctx: &mut Context<Self>) {
        self.rights.replies.push_back(reply);
        if self.rights.replies.len() == 1 {
            self.begin_walk(ctx);
        }
    }
}
