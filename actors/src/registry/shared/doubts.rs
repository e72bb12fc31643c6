//! The changes that would be refused, or would alter nothing, on what this node has applied.
//!
//! The log may have more by some milliseconds: the resource that is to be removed was made at another node,
//! the etag that a client names is one of there, the content that comes again was replaced there. So the log
//! is asked for its newest record, and such a change is judged again when this node has applied it. One
//! question at a time is under way, for all changes that came before it was sent.
//!
//! A proposal needs no question, since the log takes none that was judged on an older record.

use std::time::{Duration, Instant};

use actix::fut::ActorFutureExt;
use actix::{AsyncContext, Context, WrapFuture};
use tokio::time::timeout;

use super::{Intent, Judgement, SharedOrder, Wish, unavailable};
use crate::model::{Owner, PublishError, ResourceUri};
use crate::registry::Registry;
use crate::shared_log::AskNewest;

/// The time for which the log may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The changes in doubt.
#[derive(Default)]
pub(super) struct Doubts {
    /// Asks the log for its newest record; none for one that cannot tell.
    ask: Option<AskNewest>,
    /// The URIs whose next change is in doubt.
    uris: Vec<ResourceUri>,
    question: Option<Question>,
    /// This node has applied what the log had at this time.
    current_at: Option<Instant>,
}

/// The question that is under way.
#[derive(Clone, Copy)]
struct Question {
    sent: Instant,
    /// The sequence number of the newest record, once the log has told it.
    newest: Option<u64>,
}

impl Doubts {
    pub(super) fn new(ask: Option<AskNewest>) -> Doubts {
        Doubts {
            ask,
            ..Doubts::default()
        }
    }

    /// Forgets the question, since its answer may be of another history.
    pub(super) fn forget_question(&mut self) {
        self.question = None;
    }
}

impl SharedOrder {
    /// Returns true if a newer record may judge a change otherwise.
    pub(super) fn doubts(&self, intent: &Intent, judged: &Result<Judgement, PublishError>) -> bool {
        let makes_no_record = match judged {
            Ok(Judgement::Proposed { .. }) => false,
            Ok(Judgement::Unchanged(_)) => true,
            Err(error) => matches!(
                error,
                PublishError::AlreadyExists(_)
                    | PublishError::NotFound(_)
                    | PublishError::Conflict { .. }
                    | PublishError::NotOwner { .. }
                    | PublishError::TooMany { .. }
                    | PublishError::BytesFull { .. }
            ),
        };
        // Sources have their turns at one node at a time, which has applied all of the turn before.
        let is_of_any_node = matches!(intent.owner, Owner::Api | Owner::Embedder);
        let is_change = matches!(intent.wish, Wish::Change(_));
        self.doubts.ask.is_some()
            && makes_no_record
            && is_of_any_node
            && is_change
            && !self.is_current(intent)
    }

    /// Returns true if this node has applied all that the log had when a change came.
    fn is_current(&self, intent: &Intent) -> bool {
        match (intent.came, self.doubts.current_at) {
            (Some(came), Some(current_at)) => came <= current_at,
            (came, _) => came.is_none(),
        }
    }

    /// Holds a change back until this node has what the log has now.
    pub(super) fn hold(&mut self, intent: Intent) {
        let uri = intent.wish.uri().clone();
        self.queues.entry(uri.clone()).or_default().doubted = Some(intent);
        self.doubts.uris.push(uri);
    }

    /// Returns the URIs whose changes can be judged now.
    fn take_cleared(&mut self) -> Vec<ResourceUri> {
        let Some(Question {
            sent,
            newest: Some(newest),
        }) = self.doubts.question
        else {
            return Vec::new();
        };
        if !self.state.is_caught_up || self.state.applied < newest {
            return Vec::new();
        }
        self.doubts.question = None;
        self.doubts.current_at = Some(sent);
        std::mem::take(&mut self.doubts.uris)
    }

    /// Takes the changes in doubt that are due.
    fn take_doubted(&mut self, is_due: impl Fn(&Intent) -> bool) -> Vec<Intent> {
        let mut taken = Vec::new();
        let queues = &mut self.queues;
        self.doubts.uris.retain(|uri| {
            let Some(queue) = queues.get_mut(uri) else {
                return false;
            };
            taken.extend(queue.doubted.take_if(|intent| is_due(intent)));
            queue.doubted.is_some()
        });
        taken
    }
}

impl Registry {
    /// Asks the log for its newest record, if a change is in doubt and no question is under way.
    pub(in crate::registry) fn ask_in_doubt(&mut self, ctx: &mut Context<Registry>) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        let doubts = &mut shared.doubts;
        if doubts.uris.is_empty() || doubts.question.is_some() {
            return;
        }
        let Some(ask) = &doubts.ask else {
            return;
        };
        let sent = Instant::now();
        doubts.question = Some(Question { sent, newest: None });
        self.metrics.log_questions.add(1);
        let answer = timeout(ANSWER_MAX, ask()).into_actor(self);
        ctx.spawn(answer.map(move |answer, registry, ctx| {
            let newest = answer.unwrap_or_else(|_late| Err("it did not answer in time".to_owned()));
            registry.hear_newest(sent, newest);
            registry.send_decided();
            registry.ask_in_doubt(ctx);
        }));
    }

    /// Takes the answer to the question that was sent at this time.
    fn hear_newest(&mut self, sent: Instant, newest: Result<u64, String>) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        let question = shared.doubts.question.as_mut();
        let Some(question) = question.filter(|question| question.sent == sent) else {
            return;
        };
        match newest {
            Ok(newest) => {
                question.newest = Some(newest);
                self.judge_cleared();
            }
            Err(reason) => {
                shared.doubts.question = None;
                let asked = shared.take_doubted(|intent| intent.came <= Some(sent));
                self.end_doubted(asked, &reason);
            }
        }
    }

    /// Judges the changes in doubt again, if this node has what the log had when it was asked.
    pub(super) fn judge_cleared(&mut self) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        for uri in shared.take_cleared() {
            if let Some(shared) = &mut self.shared
                && let Some(queue) = shared.queues.get_mut(&uri)
                && let Some(intent) = queue.doubted.take()
            {
                queue.waiting.push_front(intent);
            }
            self.judge_next(uri);
        }
    }

    /// Refuses the changes that have been in doubt for too long.
    pub(super) fn refuse_late_doubted(&mut self) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        let now = Instant::now();
        let late = shared.take_doubted(|intent| intent.expires <= now);
        if !late.is_empty() {
            // It may wait for a record that never comes, of a history that is gone.
            shared.doubts.forget_question();
            self.end_doubted(late, "this node did not get all that it has in time");
        }
    }

    fn end_doubted(&mut self, intents: Vec<Intent>, reason: &str) {
        for intent in intents {
            let uri = intent.wish.uri().clone();
            self.end_unproposed(intent.answer, Err(unavailable(false, reason)));
            self.judge_next(uri);
        }
    }
}
