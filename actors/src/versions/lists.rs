//! Changes of lists in the order of the bus.

use super::release::{ChangeEffect, Release, ReleasedChange};
use super::{ChangeKind, EtagActor};
use crate::messages::Finish;
use crate::model::{ListHash, ListKind, NoticeKind, Position, TraceStep};

impl EtagActor {
    /// Gives a changed list the next place in the order of the bus.
    pub(super) fn place_list(&mut self, kind: ListKind, hash: ListHash) -> (ListKind, ListHash, Position) {
        self.shards.metrics.count_list_change(kind);
        let position = self.ledger.advance();
        self.tracer.trace_list(kind, Some(position), || {
            TraceStep::Changed(NoticeKind::List(kind))
        });
        self.record_list(kind, hash, position.offset);
        self.change_log.list_changed(kind, position.offset);
        if self.change_log.is_on() {
            self.log_change(position, ChangeKind::List(kind));
        }
        (kind, hash, position)
    }

    pub(super) fn change_list(&mut self, (kind, hash): (ListKind, ListHash), finish: Finish) {
        self.shards.metrics.changes_of_lists.add(1);
        let list = self.place_list(kind, hash);
        self.waiting.push(Release::Change(ReleasedChange {
            effect: ChangeEffect::default(),
            list: Some(list),
            finish,
        }));
    }
}
