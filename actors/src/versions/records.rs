//! The records that the Etag actor queues for the store.

use std::sync::Arc;

use super::{ChangeKind, EtagActor, KeptContent, LoggedChange, Record};
use crate::messages::Decision;
use crate::metrics::Limit;
use crate::model::{Content, ListHash, ListKind, Position, ResourceUri};

impl EtagActor {
    /// Queues the record of a change for the store.
    pub(super) fn record_change(&mut self, decision: &Decision) {
        if !self.is_recording() {
            return;
        }
        let content = match &decision.entry {
            Some((resource, _)) if decision.owner.keeps_content() => match resource.content() {
                Content::Held(_) => KeptContent::Resource(resource.clone()),
                Content::Lazy(_) => KeptContent::None,
            },
            _ => KeptContent::None,
        };
        self.record_line(&decision.uri, content);
    }

    /// Queues the record of the line of `uri`.
    pub(super) fn record_line(&mut self, uri: &ResourceUri, content: KeptContent) {
        let record = self.line_record(uri, content);
        if let Some(commit) = &mut self.commit {
            commit.records.push(record);
        }
    }

    pub(super) fn line_record(&self, uri: &ResourceUri, content: KeptContent) -> Record {
        match self.ledger.line(uri) {
            Some(line) => Record::Line {
                uri: uri.clone(),
                line: line.clone(),
                content,
            },
            // The ledger had no room for one more removed URI; its version is in the floor.
            None => Record::Forget(uri.clone()),
        }
    }

    /// Queues the record of a list.
    pub(super) fn record_list(&mut self, kind: ListKind, hash: ListHash, offset: u64) {
        let recording = self.is_recording();
        if let Some(commit) = &mut self.commit {
            if recording {
                commit.records.push(Record::List(kind, hash, offset));
            } else {
                commit.unsaved[kind.index()] = true;
            }
        }
    }

    /// Queues the record of a cursor.
    pub(super) fn record_cursor(&mut self, name: Arc<str>, offset: Option<u64>) {
        if let Some(commit) = &mut self.commit {
            commit.cursors.insert(name, offset);
        }
    }

    /// Logs the change that was stamped last, for subscribers that may have to take it again.
    pub(super) fn log_change(&mut self, position: Position, change: ChangeKind) {
        let offset = position.offset;
        let logged = LoggedChange { offset, change };
        let recording = self.is_recording();
        if let Some(commit) = &mut self.commit
            && recording
        {
            commit.records.push(Record::Change(logged.clone()));
        }
        if self.change_log.push(logged) {
            self.shards.metrics.count_limit(Limit::ChangeLog);
        }
    }
}
