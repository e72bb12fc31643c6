//! The proposals of this node that have no end yet, and the end that each gets.
//!
//! Time is handed in, so the tests need no clock.

mod entry;
mod own_records;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use tidings_actors::shared_log::{Heard, LogEntry, OperationId, Proposal, Verdict};

use super::record_answer::{RecordAnswer, refusal};
use crate::metrics::ClusterMetrics;
use crate::{Body, ResourceUri};
pub(super) use entry::{Attempt, RecordToSend};
use entry::{InFlightEntry, ProposalStage, TimeStep, earlier};

/// The pause while another record of the URI is being decided, which takes milliseconds.
const IN_PROCESS_PAUSE: Duration = Duration::from_millis(10);

/// The pause while the log has no leader.
const UNAVAILABLE_PAUSE: Duration = Duration::from_millis(150);

/// The most proposals without an end; further ones wait in the channel.
pub(super) const ENTRIES_MAX: usize = 16_384;

/// The proposals of this node without an end.
pub(super) struct InFlight {
    entries: HashMap<u64, InFlightEntry>,
    by_operation: HashMap<OperationId, u64>,
    by_uri: HashMap<ResourceUri, u64>,
    waiting: VecDeque<u64>,
    /// The stored entries by sequence number.
    stored: BTreeMap<u64, u64>,
    /// The lost entries, with the sequence number of the record that must be told first.
    lost: BTreeSet<(u64, u64)>,
    doubted: Vec<u64>,
    /// The number of entries that are sent.
    sent: usize,
    next_token: u64,
    /// The sequence number up to which all records were told.
    told: u64,
    /// The time at which an entry must be looked at.
    due: Option<Instant>,
    /// The times of the last answer that a log with a quorum alone gives: by this server, and by any.
    answered: Instant,
    decided: Instant,
    metrics: ClusterMetrics,
}

impl InFlight {
    pub(super) fn new(metrics: ClusterMetrics, now: Instant) -> InFlight {
        InFlight {
            entries: HashMap::new(),
            by_operation: HashMap::new(),
            by_uri: HashMap::new(),
            waiting: VecDeque::new(),
            stored: BTreeMap::new(),
            lost: BTreeSet::new(),
            doubted: Vec::new(),
            sent: 0,
            next_token: 0,
            told: 0,
            due: None,
            answered: now,
            decided: now,
            metrics,
        }
    }

    /// The number of proposals that can be added.
    pub(super) fn room(&self) -> usize {
        ENTRIES_MAX.saturating_sub(self.entries.len())
    }

    /// The time at which [`tick`](Self::tick) has something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// True if a proposal waits for its turn.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The sequence number up to which all records were told.
    pub(super) fn told_sequence(&self) -> u64 {
        self.told
    }

    /// Returns the body of a proposal of this node that has no end yet.
    pub(super) fn body_of(&self, operation: OperationId) -> Option<Body> {
        self.entries.get(self.by_operation.get(&operation)?)?.body()
    }

    /// Adds a proposal, to be sent as this record.
    pub(super) fn add(&mut self, proposal: Proposal, record: RecordToSend, now: Instant) {
        let token = self.next_token;
        self.next_token += 1;
        if let LogEntry::Resource(logged) = &proposal.entry {
            self.by_uri.insert(logged.uri.clone(), token);
        }
        self.by_operation.insert(proposal.operation, token);
        let entry = InFlightEntry::new(proposal, record, now);
        self.look_at(entry.expires);
        self.entries.insert(token, entry);
        self.waiting.push_back(token);
        self.count();
    }

    /// Returns the next record to send, if fewer than `max` wait for an answer.
    pub(super) fn next_attempt(&mut self, max: usize, now: Instant) -> Option<Attempt> {
        while self.sent < max {
            let token = self.waiting.pop_front()?;
            let Some(entry) = self.entries.get_mut(&token) else {
                continue;
            };
            // An answer that came late may have given it another state. One whose time is up has an end soon:
            // a node that hung must not write what others may have replaced since.
            if entry.stage != ProposalStage::Waiting || entry.expires <= now {
                continue;
            }
            let attempt = entry.attempt(token, now);
            let patience = entry.patience(now, self.decided);
            self.sent += 1;
            self.look_at(now + patience);
            return Some(attempt);
        }
        None
    }

    /// Takes the answer to the record of `token`, and returns the end of its proposal if it is due.
    pub(super) fn answer(&mut self, token: u64, answer: RecordAnswer, now: Instant) -> Option<Heard> {
        let is_decided = match &answer {
            RecordAnswer::Stored { .. } | RecordAnswer::Refused { .. } => true,
            // A leader that was cut off compares, too, with what it has.
            RecordAnswer::Conflict { newest } => !self.is_behind(token, *newest),
            RecordAnswer::InProcess | RecordAnswer::Unavailable => false,
        };
        if is_decided {
            self.answered = now;
            self.decided = now;
        }
        match self.entries.get(&token)?.stage {
            ProposalStage::Sent(_) | ProposalStage::Waiting | ProposalStage::Paused(_) => {}
            // A second answer adds nothing.
            ProposalStage::Stored(_) | ProposalStage::Lost(_) | ProposalStage::Doubted => return None,
        }
        match answer {
            RecordAnswer::Stored {
                sequence,
                is_duplicate,
            } => {
                if is_duplicate {
                    self.metrics.duplicates.increment(1);
                }
                if sequence <= self.told {
                    // Its place was told without it: others have replaced it, and none of them names it.
                    return self.end(token, Verdict::Unknown);
                }
                // Success is told by the record alone, at its place: then this node has applied it, too.
                self.stored.insert(sequence, token);
                self.set_stage(token, ProposalStage::Stored(sequence));
                None
            }
            RecordAnswer::Conflict { newest } => self.lose(token, newest),
            RecordAnswer::InProcess => {
                // Entries are few enough for one pause to fit all; the spread keeps two nodes apart.
                let spread = Duration::from_millis(token % 8);
                self.pause(token, now + IN_PROCESS_PAUSE + spread);
                None
            }
            RecordAnswer::Unavailable => {
                let spread = Duration::from_millis(token % 64);
                self.pause(token, now + UNAVAILABLE_PAUSE + spread);
                None
            }
            RecordAnswer::Refused { is_full, reason } => {
                let refused = refusal(is_full, &reason);
                self.end_unless_uncertain(token, refused)
            }
        }
    }

    /// True if this newest record of its URI is older than the one that a proposal would replace.
    fn is_behind(&self, token: u64, newest: u64) -> bool {
        match self.entries.get(&token) {
            Some(entry) => newest < entry.expected.unwrap_or(0),
            None => false,
        }
    }

    fn lose(&mut self, token: u64, newest: u64) -> Option<Heard> {
        // In one history the newest record never gets older, so this may be another history, or a server
        // that was cut off. The answer waits until that is known: told at once, it would be proposed again
        // and again.
        if self.is_behind(token, newest) {
            self.doubted.push(token);
            self.set_stage(token, ProposalStage::Doubted);
            return None;
        }
        if newest <= self.told {
            return self.end_lost(token);
        }
        self.lost.insert((newest, token));
        self.set_stage(token, ProposalStage::Lost(newest));
        None
    }

    /// True if a proposal was refused by a log whose newest record is older than the one applied here.
    pub(super) fn has_doubted(&self) -> bool {
        !self.doubted.is_empty()
    }

    /// The proposals that were refused by a log whose newest record is older than the one applied here.
    pub(super) fn doubted(&self) -> Vec<u64> {
        self.doubted.clone()
    }

    /// Ends these doubted proposals: the history is the one that this node knows.
    pub(super) fn settle(&mut self, doubted: &[u64]) -> Vec<Heard> {
        self.doubted.retain(|token| !doubted.contains(token));
        let mut ended = Vec::new();
        for token in doubted {
            ended.extend(self.end_lost(*token));
        }
        ended
    }

    /// Gives the entries whose time has come their next state, and returns the ends of those that expired.
    pub(super) fn tick(&mut self, now: Instant) -> Vec<Heard> {
        let mut expired = Vec::new();
        let mut due = None;
        for (token, entry) in &mut self.entries {
            match entry.step(now, self.decided) {
                TimeStep::Expires => expired.push(*token),
                TimeStep::Again { after_silence } => {
                    if after_silence {
                        entry.is_uncertain = true;
                        self.sent -= 1;
                        self.metrics.retries.increment(1);
                    }
                    entry.stage = ProposalStage::Waiting;
                    self.waiting.push_back(*token);
                    due = earlier(due, entry.expires);
                }
                TimeStep::Stays(until) => due = earlier(due, until),
            }
        }
        self.due = due;
        // Tokens of what has ended stay behind while no server is connected for which they are taken out.
        if self.waiting.len() > 2 * self.entries.len() {
            self.waiting.retain(|token| self.entries.contains_key(token));
        }
        // In the order in which they came, as a map has none.
        expired.sort_unstable();
        let ended = expired.into_iter().map(|token| self.end(token, Verdict::Unknown));
        ended.flatten().collect()
    }

    /// Lets everything that was sent be sent again: its answers cannot come any more. So is what was refused
    /// by a server that may have been cut off.
    pub(super) fn reconnect(&mut self, now: Instant) {
        self.answered = now;
        self.doubted.clear();
        let mut again = Vec::new();
        for (token, entry) in &mut self.entries {
            match entry.stage {
                ProposalStage::Sent(_) => {
                    entry.is_uncertain = true;
                    self.metrics.retries.increment(1);
                }
                ProposalStage::Paused(_) | ProposalStage::Doubted => {}
                ProposalStage::Waiting | ProposalStage::Stored(_) | ProposalStage::Lost(_) => continue,
            }
            entry.stage = ProposalStage::Waiting;
            again.push(*token);
        }
        self.sent = 0;
        again.sort_unstable();
        self.waiting.extend(again);
    }

    /// True if a server has decided a proposal after `since`.
    pub(super) fn is_decided_since(&self, since: Instant) -> bool {
        self.decided > since
    }

    /// True if the server has taken no proposal for `limit`, although some are tried for as long.
    pub(super) fn is_stuck(&self, limit: Duration, now: Instant) -> bool {
        if now.saturating_duration_since(self.answered) < limit {
            return false;
        }
        match now.checked_sub(limit) {
            Some(before) => self.entries.values().any(|entry| entry.is_tried_since(before)),
            None => false,
        }
    }

    /// Notes that the record at `sequence` is told, and returns the ends that are due after it.
    pub(super) fn told(&mut self, sequence: u64, operation: OperationId, entry: &LogEntry) -> Vec<Heard> {
        self.told = sequence;
        if self.entries.is_empty() {
            return Vec::new();
        }
        self.heard(operation);
        if let LogEntry::Resource(logged) = entry {
            // They were stored and replaced before this node heard them; their callers have an answer.
            for operation in &logged.former {
                self.heard(*operation);
            }
            if let Some(token) = self.by_uri.get(&logged.uri)
                && let Some(entry) = self.entries.get_mut(token)
            {
                let version = logged.line.etag.version;
                let named = version.saturating_sub(logged.former.len() as u64);
                entry.named_from = Some(named);
            }
        }
        self.passed()
    }

    /// Notes that the place `sequence` has no record any more, and returns the ends that are due after it.
    pub(super) fn skipped(&mut self, sequence: u64) -> Vec<Heard> {
        self.told = sequence;
        self.passed()
    }

    fn heard(&mut self, operation: OperationId) {
        if let Some(token) = self.by_operation.get(&operation)
            && let Some(entry) = self.remove(*token)
        {
            self.metrics.propose.record(entry.began.elapsed().as_secs_f64());
        }
    }

    /// Ends what waited for the record that is told.
    fn passed(&mut self) -> Vec<Heard> {
        let mut ended = Vec::new();
        while let Some((newest, token)) = self.lost.first().copied()
            && newest <= self.told
        {
            self.lost.remove(&(newest, token));
            ended.extend(self.end_lost(token));
        }
        while let Some(first) = self.stored.first_entry()
            && *first.key() <= self.told
        {
            let token = first.remove();
            ended.extend(self.end(token, Verdict::Unknown));
        }
        ended
    }

    /// Ends everything as unknown: the log has another history now, which is told from its beginning.
    pub(super) fn end_all(&mut self) -> Vec<Heard> {
        let mut tokens: Vec<u64> = self.entries.keys().copied().collect();
        tokens.sort_unstable();
        let ended = tokens.into_iter().map(|token| self.end(token, Verdict::Unknown));
        let ended = ended.flatten().collect();
        self.waiting.clear();
        self.doubted.clear();
        self.told = 0;
        ended
    }

    /// Ends a proposal that another record came before of. If an attempt had no answer, the record may have
    /// been stored and replaced; the newest record tells, as far as the operations go that it names.
    fn end_lost(&mut self, token: u64) -> Option<Heard> {
        match self.entries.get(&token)?.would_be_named() {
            true => self.end(token, Verdict::Lost),
            false => self.end_unless_uncertain(token, Verdict::Lost),
        }
    }

    fn end_unless_uncertain(&mut self, token: u64, verdict: Verdict) -> Option<Heard> {
        match self.entries.get(&token)?.is_uncertain {
            true => self.end(token, Verdict::Unknown),
            false => self.end(token, verdict),
        }
    }

    fn end(&mut self, token: u64, verdict: Verdict) -> Option<Heard> {
        let entry = self.remove(token)?;
        if verdict == Verdict::Unknown {
            self.metrics.unknown.increment(1);
        }
        Some(Heard::Ended(entry.operation, verdict))
    }

    fn remove(&mut self, token: u64) -> Option<InFlightEntry> {
        let entry = self.entries.remove(&token)?;
        self.by_operation.remove(&entry.operation);
        if let LogEntry::Resource(logged) = &entry.entry
            && self.by_uri.get(&logged.uri) == Some(&token)
        {
            self.by_uri.remove(&logged.uri);
        }
        match entry.stage {
            ProposalStage::Sent(_) => self.sent -= 1,
            ProposalStage::Stored(sequence) => {
                self.stored.remove(&sequence);
            }
            ProposalStage::Lost(newest) => {
                self.lost.remove(&(newest, token));
            }
            ProposalStage::Waiting | ProposalStage::Paused(_) | ProposalStage::Doubted => {}
        }
        self.count();
        Some(entry)
    }

    fn pause(&mut self, token: u64, until: Instant) {
        self.metrics.retries.increment(1);
        self.set_stage(token, ProposalStage::Paused(until));
        self.look_at(until);
    }

    fn set_stage(&mut self, token: u64, stage: ProposalStage) {
        if let Some(entry) = self.entries.get_mut(&token)
            && let ProposalStage::Sent(_) = std::mem::replace(&mut entry.stage, stage)
        {
            self.sent -= 1;
        }
    }

    fn look_at(&mut self, at: Instant) {
        self.due = earlier(self.due, at);
    }

    fn count(&self) {
        self.metrics.in_flight.set(self.entries.len() as f64);
    }
}

#[cfg(test)]
mod tests;
