//! The ledger of a bus with a shared log: versions and offsets come with its records.

use super::{Ledger, Stamped};
use crate::messages::Decision;
use crate::model::{Line, ResourceUri};
use crate::shared_log::OFFSETS_PER_RECORD;

impl Ledger {
    /// Leaves the places in the order of the bus to the records of a shared log, and the forgetting of
    /// removed URIs, too.
    pub(crate) fn follow_log(&mut self) {
        self.offsets_per_record = OFFSETS_PER_RECORD;
        self.removed_max = usize::MAX;
    }

    /// Takes over the line of a record of a shared log. Its offset becomes the position.
    pub(crate) fn put(&mut self, uri: &ResourceUri, line: Line) {
        self.move_to(line.offset);
        self.restore(uri, Some(line));
        self.forget_oldest();
    }

    /// Moves the position to the offset of a record of a shared log.
    pub(crate) fn move_to(&mut self, offset: u64) {
        self.position.offset = self.position.offset.max(offset);
    }

    /// Forgets the lines of these removed URIs, whose versions are at most `floor`.
    pub(crate) fn forget(&mut self, uris: &[ResourceUri], floor: u64) {
        self.floor = self.floor.max(floor);
        for uri in uris {
            if let Some(line) = self.lines.get(uri).filter(|line| !line.is_live()) {
                self.forgotten_offset = self.forgotten_offset.max(line.offset);
                self.families.forget(uri, line);
                self.lines.swap_remove(uri);
                self.removed_len -= 1;
                self.forgotten += 1;
            }
        }
    }

    /// The number of removed URIs that are kept.
    pub(crate) fn removed_len(&self) -> usize {
        self.removed_len
    }

    /// Returns the removed URIs, the oldest first. One that was removed again is returned more than once.
    pub(crate) fn oldest_removed(&self) -> impl Iterator<Item = (&ResourceUri, &Line)> {
        let lines = self
            .removed
            .iter()
            .filter_map(|uri| Some((uri, self.lines.get(uri)?)));
        lines.filter(|(_, line)| !line.is_live())
    }

    /// Returns the line that a decided change would make, and changes nothing.
    pub(crate) fn try_make(&mut self, decision: &Decision, now: u64) -> (Option<Line>, Stamped) {
        let before = self.lines.get(&decision.uri).cloned();
        // The clocks of nodes differ, and the time of an etag never goes back.
        let earliest = before.as_ref().map(|line| line.etag.updated_at);
        let stamped = self.make(decision, now.max(earliest.unwrap_or(0)));
        let made = self.lines.get(&decision.uri).cloned();
        self.restore(&decision.uri, before);
        (made, stamped)
    }
}
