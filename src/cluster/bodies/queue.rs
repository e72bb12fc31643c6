//! The proposals of this node whose bodies are not stored yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tidings_actors::shared_log::{Heard, LogEntry, Proposal, Verdict};

use crate::store::encoding::BodyHash;
use crate::{Body, Content};

/// A proposal whose body is not stored yet.
#[derive(Debug)]
pub(in crate::cluster) struct WaitingBody {
    pub(in crate::cluster) proposal: Proposal,
    pub(in crate::cluster) subject: Arc<str>,
    /// The record, which names the body.
    pub(in crate::cluster) frame: Bytes,
    hash: BodyHash,
}

/// A body to store, for the proposal of this number.
#[derive(Debug, Clone)]
pub(super) struct BodyToStore {
    pub(super) number: u64,
    pub(super) hash: BodyHash,
    pub(super) body: Body,
}

/// The proposals whose bodies are not stored yet, in the order in which they came.
#[derive(Debug, Default)]
pub(in crate::cluster) struct BodyQueue {
    waiting: BTreeMap<u64, WaitingBody>,
    next: u64,
}

impl BodyQueue {
    /// The number of proposals.
    pub(in crate::cluster) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a proposal, to be sent as `frame` on `subject` when the body with this hash is stored.
    pub(in crate::cluster) fn add(
        &mut self,
        proposal: Proposal,
        subject: Arc<str>,
        frame: Bytes,
        hash: BodyHash,
    ) {
        let number = self.next;
        self.next += 1;
        let waiting = WaitingBody {
            proposal,
            subject,
            frame,
            hash,
        };
        self.waiting.insert(number, waiting);
    }

    /// The first `count` bodies.
    pub(super) fn first(&self, count: usize) -> Vec<BodyToStore> {
        let mut first = Vec::new();
        for (number, waiting) in self.waiting.iter().take(count) {
            if let LogEntry::Resource(logged) = &waiting.proposal.entry
                && let Some(resource) = &logged.resource
                && let Content::Held(body) = resource.content()
            {
                first.push(BodyToStore {
                    number: *number,
                    hash: waiting.hash,
                    body: body.clone(),
                });
            }
        }
        first
    }

    /// Takes a proposal out; none if it has ended meanwhile.
    pub(super) fn take(&mut self, number: u64) -> Option<WaitingBody> {
        self.waiting.remove(&number)
    }

    /// The time at which the first of them expires.
    pub(in crate::cluster) fn due(&self) -> Option<Instant> {
        self.waiting
            .values()
            .map(|waiting| waiting.proposal.expires)
            .min()
    }

    /// Ends those whose time is up. Their records were never sent, so nothing was made.
    pub(in crate::cluster) fn expire(&mut self, now: Instant) -> Vec<Heard> {
        let (expired, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(_, waiting)| waiting.proposal.expires <= now);
        self.waiting = waiting;
        let expired: BTreeMap<u64, WaitingBody> = expired;
        let mut ended = Vec::new();
        for waiting in expired.into_values() {
            let reason = "the servers of the shared log did not store the body in time";
            let refused = Verdict::Refused {
                full: false,
                reason: reason.into(),
            };
            ended.push(Heard::Ended(waiting.proposal.operation, refused));
        }
        ended
    }

    /// Ends all of them: they were judged by a history that is gone.
    pub(in crate::cluster) fn end_all(&mut self) -> Vec<Heard> {
        let ended = std::mem::take(&mut self.waiting);
        ended
            .into_values()
            .map(|waiting| Heard::Ended(waiting.proposal.operation, Verdict::Unknown))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Etag, Line, LineState, Resource};
    use std::time::Duration;
    use tidings_actors::shared_log::{LoggedResource, OperationId};

    fn add(queue: &mut BodyQueue, number: u64, expires: Instant) -> OperationId {
        let resource = Resource::text("demo://a", "x").unwrap();
        let operation = OperationId { node: 1, number };
        let logged = LoggedResource {
            uri: resource.uri().clone(),
            line: Line {
                etag: Etag::default(),
                digest: None,
                state: LineState::Live,
                offset: 0,
                owner: None,
                unclaimed_since: None,
            },
            resource: Some(Arc::new(resource)),
            former: Vec::new(),
            announces: true,
        };
        let proposal = Proposal {
            operation,
            expected: 0,
            entry: LogEntry::Resource(Box::new(logged)),
            expires,
        };
        queue.add(proposal, "s".into(), Bytes::new(), [0; 32]);
        operation
    }

    #[test]
    fn body_that_is_not_stored_in_time_makes_no_change() {
        let mut queue = BodyQueue::default();
        let now = Instant::now();
        let late = add(&mut queue, 1, now + Duration::from_secs(1));
        add(&mut queue, 2, now + Duration::from_secs(9));
        assert_eq!(queue.due(), Some(now + Duration::from_secs(1)));
        assert!(queue.expire(now).is_empty());
        let ended = queue.expire(now + Duration::from_secs(1));
        let [Heard::Ended(operation, Verdict::Refused { full: false, .. })] = &ended[..] else {
            panic!("{ended:?}");
        };
        assert_eq!((*operation, queue.len()), (late, 1));
    }

    #[test]
    fn bodies_are_stored_in_their_order() {
        let mut queue = BodyQueue::default();
        let expires = Instant::now() + Duration::from_secs(9);
        for number in 1..=3 {
            add(&mut queue, number, expires);
        }
        let first = queue.first(2);
        assert_eq!(first.iter().map(|body| body.number).collect::<Vec<_>>(), [0, 1]);
        assert!(queue.take(0).is_some());
        assert_eq!(queue.end_all().len(), 2);
        assert!(queue.take(1).is_none());
    }
}
