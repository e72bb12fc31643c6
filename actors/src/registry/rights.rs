//! The lists of subscribers with a viewer, by the rights that they have now.
//!
//! A subscriber of an audience that is not known waits until the resources were walked for it, in steps
//! between which the thread serves other requests. Its request has its place in the order at the end of the
//! walk.

use std::sync::Arc;

use actix::fut::ActorFutureExt;
use actix::{AsyncContext, Context, WrapFuture};

use super::Registry;
use super::audiences::Walked;
use crate::messages::{EtagRequest, SettleRights};
use crate::model::{ListHash, ListKind, ListStart};
use crate::outbox::{JoinedAudience, Outbox};
use crate::runtime::Reply;

/// The resources that one step of a walk looks at: the requests behind it wait for less than a millisecond.
const STEP_RESOURCES: usize = 1_000;

/// The request of a subscriber for the hashes of its lists.
pub(super) struct ListRequest {
    pub(super) outbox: Arc<Outbox>,
    pub(super) kinds: Vec<ListKind>,
    pub(super) purpose: Purpose,
}

/// The use of the hashes.
pub(super) enum Purpose {
    /// The subscriber watches the lists from here on.
    Watch { start: ListStart, reply: Reply<()> },
    /// The rights of the subscriber changed.
    Settle,
}

/// A request whose audience is being walked for.
pub(super) struct WaitingRequest {
    request: ListRequest,
    joined: JoinedAudience,
}

impl ListRequest {
    /// Takes the hashes of the lists asked for among those of all lists.
    fn decided(self, joined: Option<JoinedAudience>, hashes: [ListHash; 3]) -> Option<EtagRequest> {
        let ListRequest {
            outbox,
            kinds,
            purpose,
        } = self;
        let lists = kinds.iter().map(|kind| (*kind, hashes[kind.index()])).collect();
        match purpose {
            Purpose::Watch { start, reply } => Some(EtagRequest::WatchLists {
                outbox,
                lists,
                joined,
                start,
                reply,
            }),
            // Without a viewer there are no rights that change.
            Purpose::Settle => Some(EtagRequest::Settle(SettleRights {
                outbox,
                joined: joined?,
                lists,
            })),
        }
    }
}

impl Registry {
    /// Decides a request for lists, or has it wait for the walk of its audience.
    pub(super) fn ask_for_lists(&mut self, request: ListRequest) {
        let Some(viewer) = request.outbox.viewer() else {
            let hashes = ListKind::ALL.map(|kind| self.visible_hash(kind));
            let decided = request.decided(None, hashes);
            self.decided.extend(decided);
            return;
        };
        let durable = self.has_unsettled_batch();
        let idle = !self.audiences.is_walking();
        let (joined, hashes) = self.audiences.join(viewer.as_ref(), &mut self.catalog, durable);
        if let Some(hashes) = hashes {
            let decided = request.decided(Some(joined), hashes);
            self.decided.extend(decided);
            return;
        }
        self.waiting.push(WaitingRequest { request, joined });
        if idle {
            // A short list takes one step, and no second turn of the thread.
            self.step_walk();
        }
    }

    /// Takes the next step of the walks. Decides the requests that waited for its end.
    fn step_walk(&mut self) {
        let durable = self.has_unsettled_batch();
        let walked = self.audiences.step(&mut self.catalog, STEP_RESOURCES, durable);
        let Some(Walked { id, hashes }) = walked else {
            return;
        };
        for waiting in std::mem::take(&mut self.waiting) {
            if waiting.joined.audience.id == id {
                let decided = waiting.request.decided(Some(waiting.joined), hashes);
                self.decided.extend(decided);
            } else {
                self.waiting.push(waiting);
            }
        }
    }

    /// Has the walks go on after the requests that wait, if there are any.
    pub(super) fn continue_walks(&mut self, ctx: &mut Context<Self>) {
        if self.walks_later || !self.audiences.is_walking() {
            return;
        }
        self.walks_later = true;
        // Not a message: this actor takes all messages before it lets others of its thread run.
        let pause = tokio::task::yield_now().into_actor(self);
        ctx.spawn(pause.map(|(), registry, ctx| {
            registry.walks_later = false;
            registry.step_walk();
            registry.send_decided();
            registry.continue_walks(ctx);
        }));
    }

    /// Sends the hashes of a list for the audiences, in front of its change.
    pub(super) fn show_list(&mut self, kind: ListKind) {
        if let Some(hashes) = self.audiences.hashes(kind, &mut self.catalog) {
            self.decided.push(EtagRequest::Shown(kind, hashes));
        }
    }
}
