//! The move of a session from one node to another.

use actix::{Context, Handler};

use super::{Session, SessionActor};
use crate::messages::{ResumeLists, ResumeUris, SubscriberRequest};
use crate::model::{Closed, ListStart, ToldList, ToldResource, ToldState};

impl Session {
    /// Returns what the subscriber was told, for a node that goes on with the session when this one is gone.
    pub fn told(&self) -> ToldState {
        self.outbox.told()
    }

    /// Ends the session here, because another node goes on with it: its streams end at once, and what is
    /// pending is told there. Returns what was told until now; none if the session has ended for another
    /// reason than the stop of the bus.
    pub fn give_up(&self) -> Option<ToldState> {
        self.outbox.give_up()
    }

    /// Goes on with the subscriptions of a session of another node with the same order. What changed since it
    /// was told is pending. Unless `is_sure`, that node may have told more by now: it is settled by the
    /// position from which the client resumes, or told again.
    ///
    /// # Errors
    /// [`Closed`] if the session or the bus has ended.
    pub async fn resume(&self, told: Vec<ToldResource>, is_sure: bool) -> Result<(), Closed> {
        // Refusals are rights that have ended, whose subscriptions end with them.
        let resumed = self.ask(|reply| ResumeUris(told, is_sure, reply)).await;
        resumed.map(drop)
    }

    /// Announces that the client was [`ready`](Session::ready) at another node, which told it this of the
    /// lists. A list that differs is due; of one that is not among them the options decide.
    ///
    /// # Errors
    /// [`Closed`] if the session or the bus has ended.
    pub async fn resume_lists(&self, told: Vec<ToldList>, is_sure: bool) -> Result<(), Closed> {
        self.ask(|reply| ResumeLists(told, is_sure, reply)).await
    }
}

impl Handler<ResumeUris> for SessionActor {
    type Result = ();

    fn handle(&mut self, ResumeUris(told, is_sure, reply): ResumeUris, _: &mut Context<Self>) {
        self.route(SubscriberRequest::Resume { told, is_sure, reply });
    }
}

impl Handler<ResumeLists> for SessionActor {
    type Result = ();

    fn handle(&mut self, ResumeLists(lists, is_sure, reply): ResumeLists, _: &mut Context<Self>) {
        self.unready.remove(self.outbox.id());
        self.route(SubscriberRequest::WatchLists {
            kinds: self.terms.lists.clone(),
            start: ListStart::Told {
                lists,
                is_sure,
                announces: self.terms.announce,
            },
            reply,
        });
    }
}
