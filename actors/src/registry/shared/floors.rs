//! Forgetting removed URIs: a floor of versions in the log names them, and then their records are purged.
//!
//! Every node forgets the same URIs at the same place of the log. Until the next floor it knows that their
//! records may still be there, since the node that purges them may die before it has.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::{Aim, SharedOrder};
use crate::messages::{EtagRequest, ForgetRemoved, Logged};
use crate::model::{Etag, Line, LineState, ResourceUri};
use crate::registry::Registry;
use crate::shared_log::{FloorStep, LogEntry, LoggedResource};

/// The most URIs that one floor names.
const URIS_MAX: usize = 4_096;

/// The bytes of URIs after which a floor names no further one.
const URI_BYTES_MAX: usize = 256 << 10;

/// The time for which a floor is tried.
const FLOOR_TIMEOUT: Duration = Duration::from_secs(10);

impl Registry {
    /// Takes the next step of forgetting the removed URIs beyond a number.
    pub(in crate::registry) fn forget_removed(&mut self, forget: ForgetRemoved) {
        let ForgetRemoved {
            kept_max,
            purged,
            reply,
        } = forget;
        let step = match &mut self.shared {
            Some(shared) if shared.state.is_caught_up => shared.next_floor_step(kept_max, purged),
            _ => FloorStep::Nothing,
        };
        reply.answer(step);
    }

    /// Takes over a floor with its version, which was proposed when all records up to `through` were applied.
    pub(super) fn hear_floor(
        &mut self,
        (sequence, version): (u64, u64),
        through: u64,
        uris: Vec<ResourceUri>,
        now: Instant,
    ) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        shared.floor = sequence;
        // The proposer of this floor had purged what the one before names.
        shared.forgotten.clear();
        let mut named = Vec::new();
        for uri in uris {
            if let Some(place) = shared.places.get(&uri)
                && place.sequence <= through
            {
                shared.forgotten.insert(uri.clone(), place.sequence);
                named.push(uri);
            }
        }
        self.forget(sequence, version, named, now);
    }

    /// Forgets what the log does not have any more, after it was read once more.
    pub(super) fn forget_unheard(&mut self) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        let unheard = std::mem::take(&mut shared.unheard);
        if unheard.is_empty() {
            return;
        }
        let sequence = shared.state.applied;
        let version = shared.ledger.floor();
        let uris = unheard.into_keys().collect();
        self.forget(sequence, version, uris, Instant::now());
    }

    /// Forgets URIs. One that is still registered here was removed by a record that this node has missed.
    fn forget(&mut self, sequence: u64, version: u64, uris: Vec<ResourceUri>, now: Instant) {
        let mut highest = version;
        for uri in &uris {
            let Some(shared) = &mut self.shared else {
                return;
            };
            shared.places.swap_remove(uri);
            let Some(line) = shared.ledger.line(uri) else {
                continue;
            };
            let etag = Etag {
                version: version.max(line.etag.version + 1),
                ..line.etag
            };
            if line.is_live() {
                highest = highest.max(etag.version);
                self.install(sequence, removal(uri, etag), None, now);
            }
        }
        // After the removals, since a line that is live is not forgotten.
        if let Some(shared) = &mut self.shared {
            shared.ledger.forget(&uris, highest);
        }
        let floor = Logged::Floor(uris, highest);
        self.decided.push(EtagRequest::Logged(Box::new(floor)));
    }
}

/// Makes the record of a removal.
fn removal(uri: &ResourceUri, etag: Etag) -> LoggedResource {
    LoggedResource {
        uri: uri.clone(),
        line: Line {
            etag,
            digest: None,
            state: LineState::Removed,
            offset: 0,
            owner: None,
            unclaimed_since: None,
        },
        resource: None,
        former: Vec::new(),
        announces: true,
    }
}

impl SharedOrder {
    /// The sequence number that the newest record of a URI has, 0 if there seems to be none.
    pub(super) fn expected(&self, uri: &ResourceUri) -> u64 {
        match (self.places.get(uri), self.forgotten.get(uri)) {
            (Some(place), _) => place.sequence,
            (None, Some(forgotten)) => *forgotten,
            (None, None) => 0,
        }
    }

    /// Notes that a proposal was lost that expected this record. Had another one come first, it was heard
    /// before, so the expected one was purged.
    pub(super) fn note_lost(&mut self, uri: &ResourceUri, expected: u64) {
        if self.forgotten.get(uri) == Some(&expected) {
            self.forgotten.swap_remove(uri);
        }
        if let Some(place) = self.places.get(uri)
            && place.sequence == expected
        {
            self.places.swap_remove(uri);
        }
    }

    fn next_floor_step(&mut self, kept_max: usize, purged: Option<u64>) -> FloorStep {
        if purged == Some(self.floor) {
            self.forgotten.clear();
        }
        if !self.forgotten.is_empty() {
            let records = self.forgotten.iter();
            return FloorStep::Purge {
                floor: self.floor,
                records: records.map(|(uri, sequence)| (uri.clone(), *sequence)).collect(),
            };
        }
        if self.in_flight.values().any(|aim| matches!(aim, Aim::Floor)) {
            return FloorStep::Proposed;
        }
        let Some(floor) = self.next_floor(kept_max) else {
            return FloorStep::Nothing;
        };
        let expires = Instant::now() + FLOOR_TIMEOUT;
        match self.propose(floor, self.floor, (expires, Aim::Floor)) {
            Some(_operation) => FloorStep::Proposed,
            None => FloorStep::Nothing,
        }
    }

    /// Makes the floor that forgets the oldest removed URIs beyond `kept_max`; none if there are none.
    fn next_floor(&self, kept_max: usize) -> Option<LogEntry> {
        let beyond = self.ledger.removed_len().saturating_sub(kept_max).min(URIS_MAX);
        let mut named = HashSet::new();
        let mut uris = Vec::new();
        let mut version = self.ledger.floor();
        let mut bytes = 0;
        for (uri, line) in self.ledger.oldest_removed() {
            if uris.len() >= beyond || bytes >= URI_BYTES_MAX {
                break;
            }
            // A URI that was removed twice is listed twice.
            if self.places.contains_key(uri) && named.insert(uri) {
                version = version.max(line.etag.version);
                bytes += uri.as_str().len();
                uris.push(uri.clone());
            }
        }
        let floor = LogEntry::Floor {
            version,
            through: self.state.applied,
            previous: self.floor,
            uris,
        };
        match named.is_empty() {
            true => None,
            false => Some(floor),
        }
    }
}
