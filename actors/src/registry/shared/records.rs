//! The records of the log, as they take effect at this node.

use std::sync::Arc;
use std::time::Instant;

use super::{Answer, Intent, Place, Sent};
use crate::messages::{AppliedRecord, EtagRequest, Finish, Logged};
use crate::model::{Cause, Line, LineState, ListHash, ListKind, Owner, Resource, ResourceUri};
use crate::registry::Registry;
use crate::shared_log::{LogEntry, LoggedResource, OperationId};

/// The state in which this node had the line of a record before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Never,
    /// With this etag, in this history.
    Same,
    /// In the history before. Told in any case: a subscriber may have missed a change that this one lacks.
    InFormerHistory,
}

impl Registry {
    /// Takes over the record at the next place of the log.
    pub(super) fn hear_record(
        &mut self,
        sequence: u64,
        operation: OperationId,
        entry: LogEntry,
        now: Instant,
    ) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        shared.state.applied = sequence;
        match entry {
            LogEntry::Resource(logged) => self.hear_resource(sequence, operation, *logged, now),
            LogEntry::ResourceList => self.hear_list(sequence, operation),
            LogEntry::Floor {
                version,
                through,
                uris,
                ..
            } => {
                if operation.node == shared.node {
                    shared.in_flight.remove(&operation.number);
                }
                self.hear_floor((sequence, version), through, uris, now);
            }
        }
    }

    fn hear_resource(&mut self, sequence: u64, operation: OperationId, logged: LoggedResource, now: Instant) {
        let uri = logged.uri.clone();
        if let Some(shared) = &mut self.shared {
            shared.unheard.swap_remove(&uri);
        }
        let own = self.take_own(&uri, operation, &logged.former);
        self.note_place(&uri, sequence, operation, &logged.former);
        if self.has_higher_version(&logged) {
            // Put right when the history was read whole, or now if it was.
            self.keep_higher(logged);
            if let Some((intent, _)) = own {
                self.intend_again(intent);
            }
        } else {
            self.install(sequence, logged, own, now);
        }
        self.judge_next(uri);
    }

    fn note_place(
        &mut self,
        uri: &ResourceUri,
        sequence: u64,
        operation: OperationId,
        former: &[OperationId],
    ) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        let mut operations = Vec::with_capacity(LoggedResource::FORMER_MAX);
        operations.push(operation);
        operations.extend(former.iter().take(LoggedResource::FORMER_MAX - 1));
        let place = Place { sequence, operations };
        shared.forgotten.swap_remove(uri);
        shared.places.insert(uri.clone(), place);
    }

    /// Takes the change of this node that the record is of, or one that it has replaced already.
    fn take_own(
        &mut self,
        uri: &ResourceUri,
        operation: OperationId,
        former: &[OperationId],
    ) -> Option<(Intent, Sent)> {
        let shared = self.shared.as_mut()?;
        let queue = shared.queues.get_mut(uri)?;
        let (_, sent) = queue.sent.as_ref()?;
        if sent.operation != operation && !former.contains(&sent.operation) {
            return None;
        }
        // Its verdict, if there still comes one, finds nothing to end.
        shared.in_flight.remove(&sent.operation.number);
        let mut own = queue.sent.take()?;
        if own.1.operation != operation {
            // The reader belongs to content that was replaced.
            own.1.resource = None;
        }
        Some(own)
    }

    pub(super) fn install(
        &mut self,
        sequence: u64,
        logged: LoggedResource,
        own: Option<(Intent, Sent)>,
        now: Instant,
    ) {
        let LoggedResource {
            uri,
            mut line,
            resource,
            announces,
            ..
        } = logged;
        let Some(seen) = self.note_line(sequence, &uri, &mut line) else {
            return;
        };
        // Compared as a whole, since replacing a resource by an equal one is no change of the list.
        let before = self.catalog.hash(ListKind::Resources);
        let (answer, outcome, reader) = match own {
            Some((intent, sent)) => (intent.answer, Some(sent.outcome), sent.resource),
            None => (Answer::Silent, None, None),
        };
        let at = answer.at().unwrap_or(now);
        let owner = line.owner.clone().unwrap_or_default();
        let resource = match line.state {
            LineState::Live => self.installable(&uri, resource.or(reader), owner),
            LineState::Removed | LineState::Touched => None,
        };
        let entry = self.catalog.install(&uri, resource);
        let list = self.changed_list(before, announces);
        let (finish, batch) = match outcome {
            Some(outcome) => self.finish_of(answer, outcome),
            None => (Finish::Silent, None),
        };
        let cause = match line.state {
            LineState::Removed => Cause::Removed,
            LineState::Live | LineState::Touched => Cause::Updated,
        };
        self.decided
            .push(EtagRequest::Logged(Box::new(Logged::Resource(AppliedRecord {
                uri,
                cause: (seen != Seen::Same).then_some(cause),
                subscribable: match &entry {
                    Some((resource, _)) => resource.descriptor().subscribable,
                    None => true,
                },
                line,
                entry,
                list,
                finish,
                repeats: seen == Seen::InFormerHistory,
                at,
            }))));
        if let Some(batch) = batch {
            self.count_ended(batch);
        }
    }

    /// Takes over the line of a record, with its offset. Returns none before the log was opened.
    fn note_line(&mut self, sequence: u64, uri: &ResourceUri, line: &mut Line) -> Option<Seen> {
        let shared = self.shared.as_mut()?;
        line.offset = shared.state.history?.offset(sequence);
        shared.newer.swap_remove(uri);
        let seen = match (shared.current_line(uri), shared.ledger.line(uri)) {
            (Some(before), _) if before.etag == line.etag => Seen::Same,
            (None, Some(_)) => Seen::InFormerHistory,
            _ => Seen::Never,
        };
        shared.ledger.put(uri, line.clone());
        Some(seen)
    }

    /// The resource to install for a live line. One whose body a callback makes is in no record: this node
    /// has it if its own program registered it.
    fn installable(
        &self,
        uri: &ResourceUri,
        resource: Option<Arc<Resource>>,
        owner: Owner,
    ) -> Option<(Arc<Resource>, Owner)> {
        if let Some(resource) = resource {
            return Some((resource, owner));
        }
        let (resource, owner) = self.catalog.owned(uri)?;
        Some((resource.clone(), owner.clone()))
    }

    /// Returns the new hash of the resource list if subscribers are told of it now.
    fn changed_list(&mut self, before: ListHash, announces: bool) -> Option<(ListKind, ListHash)> {
        let hash = self.catalog.hash(ListKind::Resources);
        if hash == before {
            return None;
        }
        if !announces {
            self.unannounced.get_or_insert(before);
            if let Some(shared) = &mut self.shared {
                shared.unannounced_since = Some(Instant::now());
            }
            return None;
        }
        self.unannounced = None;
        self.show_list(ListKind::Resources);
        Some((ListKind::Resources, hash))
    }
}
