//! The records that the Etag actor queues for the store.

use super::{ChangeKind, EtagActor, KeptContent, LoggedChange, Record};
use crate::messages::Decision;
use crate::metrics::Limit;
use crate::model::{Content, Position, ResourceUri};

impl EtagActor {
    /// Queues the record of a change for the store.
    pub(super) fn record_change(&mut self, decision: &Decision) {
        if self.store.is_none() {
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
        if self.store.is_none() {
            return;
        }
        self.records.push(match self.ledger.line(uri) {
            Some(line) => Record::Line {
                uri: uri.clone(),
                line: line.clone(),
                content,
            },
            // The ledger had no room for one more removed URI; its version is in the floor.
            None => Record::Forget(uri.clone()),
        });
    }

    /// Logs the change that was stamped last, for subscribers that may have to take it again.
    pub(super) fn log_change(&mut self, position: Position, change: ChangeKind) {
        let offset = position.offset;
        let logged = LoggedChange { offset, change };
        if self.store.is_some() {
            self.records.push(Record::Change(logged.clone()));
        }
        if self.change_log.push(logged) {
            self.shards.metrics.count_limit(Limit::ChangeLog);
        }
    }
}
