//! The proposals, and the answers to their publishers.

use std::sync::Arc;

use super::{Aim, Answer, Intent, Sent, unavailable};
use crate::messages::Finish;
use crate::model::{Outcome, PublishError, Resource};
use crate::registry::Registry;
use crate::shared_log::{LogEntry, LoggedResource, OperationId, Verdict};

impl Registry {
    pub(super) fn send_proposal(
        &mut self,
        intent: Intent,
        logged: LoggedResource,
        (outcome, resource): (Outcome, Option<Arc<Resource>>),
    ) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        let uri = logged.uri.clone();
        let expected = shared.expected(&uri);
        let entry = LogEntry::Resource(Box::new(logged));
        let aim = Aim::Resource(uri.clone());
        match shared.propose(entry, expected, (intent.expires, aim)) {
            Some(operation) => {
                let sent = Sent {
                    operation,
                    outcome,
                    resource,
                    expected,
                };
                shared.queues.entry(uri).or_default().sent = Some((intent, sent));
            }
            None => self.end_unproposed(intent.answer, Err(unavailable(false, "the log has ended"))),
        }
    }

    /// Ends a proposal that is not heard as a record.
    pub(super) fn end_proposal(&mut self, operation: OperationId, verdict: Verdict) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        let uri = match shared.in_flight.remove(&operation.number) {
            Some(Aim::Resource(uri)) => uri,
            Some(Aim::List(end)) => return self.end_list(end),
            // Its record was replaced by one that names it, which was heard before. A floor comes again.
            Some(Aim::Floor) | None => return,
        };
        let Some(queue) = shared.queues.get_mut(&uri) else {
            return;
        };
        let Some((intent, sent)) = queue.sent.take() else {
            return;
        };
        match verdict {
            Verdict::Lost => {
                self.metrics.log_conflicts.add(1);
                // Told after the record that came first.
                queue.waiting.push_front(Intent { came: None, ..intent });
                shared.note_lost(&uri, sent.expected);
            }
            Verdict::Refused { full, reason } => {
                let unknown = false;
                let error = PublishError::LogUnavailable {
                    unknown,
                    full,
                    reason,
                };
                self.end_unproposed(intent.answer, Err(error));
            }
            Verdict::Unknown => {
                let error = unavailable(true, "the cluster did not answer in time");
                self.end_unproposed(intent.answer, Err(error));
            }
        }
        self.judge_next(uri);
    }

    /// Answers a change that made no record.
    pub(super) fn end_unproposed(&mut self, answer: Answer, result: Result<Outcome, PublishError>) {
        match &result {
            Ok(_) => self.metrics.count_change(false),
            Err(error) => self.metrics.count_refusal(error),
        }
        match answer {
            Answer::One(reply) => reply.answer(result),
            Answer::OfBatch(batch, place) => self.end_of_batch(batch, place, result),
            Answer::Silent => {}
        }
    }

    /// Returns the answer to a change whose record was heard.
    pub(super) fn finish_of(&mut self, answer: Answer, outcome: Outcome) -> (Finish, Option<u64>) {
        match answer {
            Answer::One(reply) => (Finish::Change(reply, outcome), None),
            Answer::OfBatch(id, place) => {
                let batch = match &self.shared {
                    Some(shared) => shared.batches.get(&id),
                    None => None,
                };
                match batch {
                    Some(batch) => {
                        batch.answer.set(place, Ok(outcome));
                        (Finish::Counted(batch.answer.clone(), place), Some(id))
                    }
                    None => (Finish::Silent, None),
                }
            }
            Answer::Silent => (Finish::Silent, None),
        }
    }
}
