//! The histories of the log: one that was deleted and made anew, or restored from a copy, may lack what this
//! node has applied. The node puts it in again, so no version goes backward.

use std::time::{Duration, Instant};

use super::judgement::unchanged;
use super::{Answer, Intent, Judgement, Wish};
use crate::model::Line;
use crate::model::{Condition, Etag, Outcome, Owner, ResourceUri};
use crate::registry::Registry;
use crate::shared_log::{LogHistory, LoggedResource};

/// The time for which a node tries to put a line into another history.
const RESTATE_TIMEOUT: Duration = Duration::from_secs(600);

impl Registry {
    /// Begins to read a history. Changes wait until it is read.
    pub(super) fn open_history(&mut self, history: LogHistory) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        let before = shared.state.history.replace(history);
        shared.state.is_caught_up = false;
        if before == Some(history) {
            // What was purged meanwhile is not told again.
            shared.unheard = shared.places.keys().map(|uri| (uri.clone(), ())).collect();
            return;
        }
        shared.state.applied = 0;
        shared.doubts.forget_question();
        // A record of the history before does not count in this one, so nothing may be expected there.
        shared.places.clear();
        shared.newer.clear();
        shared.forgotten.clear();
        shared.unheard.clear();
        shared.floor = 0;
        if before.is_some() {
            tracing::warn!(
                epoch = history.epoch,
                "the log of the cluster has another history; every subscriber is told of everything once"
            );
        }
    }

    /// Decides the changes that waited for the log to be read, and puts in again what it lacks.
    pub(super) fn caught_up(&mut self) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        // First, since what waited is decided below.
        shared.state.is_caught_up = true;
        let early = std::mem::take(&mut shared.early);
        self.forget_unheard();
        let Some(shared) = &mut self.shared else {
            return;
        };
        let mut lacking = Vec::new();
        for (uri, _) in shared.ledger.lines() {
            if shared.current_line(uri).is_none() {
                lacking.push(uri.clone());
            }
        }
        for uri in lacking {
            self.restate(uri);
        }
        for (_, request) in early {
            self.decide(request);
        }
    }

    /// Returns true if this node has a higher version of the URI, from the history before.
    pub(super) fn has_higher_version(&self, logged: &LoggedResource) -> bool {
        let Some(shared) = &self.shared else {
            return false;
        };
        match shared.ledger.line(&logged.uri) {
            Some(line) if shared.current_line(&logged.uri).is_none() => {
                line.etag.version > logged.line.etag.version
            }
            _ => false,
        }
    }

    /// Keeps the line of this node in place of a record with a lower version. If the record is the newer of
    /// the two, its content is proposed with a higher version.
    pub(super) fn keep_higher(&mut self, logged: LoggedResource) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        let uri = logged.uri.clone();
        if let Some(line) = shared.ledger.line(&uri)
            && line.etag.updated_at < logged.line.etag.updated_at
        {
            shared.newer.insert(uri.clone(), logged);
        }
        if shared.state.is_caught_up {
            self.restate(uri);
        }
    }

    /// Judges a change again whose record had a lower version than this node has.
    pub(super) fn intend_again(&mut self, intent: Intent) {
        if let Some(shared) = &mut self.shared {
            let queue = shared.queues.entry(intent.wish.uri().clone()).or_default();
            queue.waiting.push_back(intent);
        }
    }

    fn restate(&mut self, uri: ResourceUri) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        // Before the changes of publishers, which build on it.
        let queue = shared.queues.entry(uri.clone()).or_default();
        queue.waiting.push_front(Intent {
            wish: Wish::Restate(uri.clone()),
            condition: Condition::Always,
            owner: Owner::default(),
            now: 0,
            expires: Instant::now() + RESTATE_TIMEOUT.max(shared.timeout),
            came: None,
            announces: true,
            answer: Answer::Silent,
        });
        self.judge_next(uri);
    }

    /// Judges what this node puts into another history.
    pub(super) fn judge_restatement(&mut self, uri: &ResourceUri, intent: &Intent) -> Judgement {
        let Some(shared) = self.shared.as_deref() else {
            return unchanged(None, uri);
        };
        let Some(line) = shared.ledger.line(uri) else {
            return unchanged(Some(shared), uri);
        };
        if shared.current_line(uri).is_some() {
            // Another node was faster.
            return unchanged(Some(shared), uri);
        }
        let mut line = line.clone();
        let mut resource = self.catalog.owned(uri).map(|(resource, _)| resource.clone());
        if let Some(newer) = shared.newer.get(uri) {
            let version = line.etag.version + 1;
            line = Line {
                etag: Etag {
                    version,
                    ..newer.line.etag
                },
                ..newer.line.clone()
            };
            resource = newer.resource.clone();
        }
        let outcome = Outcome {
            etag: line.etag,
            changed: true,
            created: false,
            notified: 0,
        };
        let held = resource.clone().filter(|resource| resource.digest().is_some());
        Judgement::Proposed {
            logged: Box::new(LoggedResource {
                former: shared.former(uri),
                uri: uri.clone(),
                line: Line { offset: 0, ..line },
                resource: held,
                announces: intent.announces,
            }),
            outcome,
            resource,
        }
    }
}
