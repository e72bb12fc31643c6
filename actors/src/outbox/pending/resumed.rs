//! The state in which another node left a subscriber.
//!
//! An entry is *unsure* if that node may have handed it out without saying so, as it died: it is pending, and
//! a client that says where it stands settles it.

use std::sync::Arc;

use super::{Key, ListSlot, MarkResult, OutboxSet};
use crate::model::{ListHash, ListKind, Notice, ToldList, ToldResource};

/// The lists whose changes have the same offset on all nodes. The others are code of a node.
const SHARED_LISTS: [ListKind; 1] = [ListKind::Resources];

impl OutboxSet {
    /// Takes the newest notice of a subscription as another node left it.
    pub(crate) fn resume(&mut self, notice: &Arc<Notice>, is_pending: bool, is_sure: bool) -> MarkResult {
        let Some(index) = self.find(&notice.uri) else {
            return MarkResult::Ignored;
        };
        // Offsets begin at 1: the position before the oldest entry must have a number.
        let offset = notice.position.offset.max(1);
        self.highest_offset = self.highest_offset.max(offset);
        let Some(slot) = self.slots.get_mut(index) else {
            return MarkResult::Ignored;
        };
        slot.version = slot.version.max(notice.etag.version);
        slot.latest = Some(notice.clone());
        slot.latest_offset = offset;
        if !is_pending || slot.is_pending() {
            return MarkResult::Ignored;
        }
        slot.first_offset = Some(offset);
        slot.pending_since = Some(notice.at);
        slot.unsure = !is_sure;
        self.queue.push_back(Key::Slot(index));
        // In the order of the log, since the safe position is that before the head of the queue.
        self.queue_again();
        MarkResult::New
    }

    /// Starts to watch a list of which the subscriber was told this.
    pub(crate) fn watch_list_from(&mut self, told: ToldList, current: ListHash, at: u64, is_unsure: bool) {
        let notified = told.hash;
        // Not compared here: the mark that follows does that, as for any change.
        let slot = ListSlot {
            notified,
            notified_offset: told.offset,
            current: notified.unwrap_or(current),
            current_offset: at,
            current_local: at,
            first_offset: None,
            unsure: is_unsure && SHARED_LISTS.contains(&told.kind),
        };
        // A list that is watched already keeps its hash, since the client may announce that it is ready
        // twice.
        self.lists.get_or_insert_default()[told.kind.index()].get_or_insert(slot);
        self.highest_offset = self.highest_offset.max(at);
    }

    /// Settles what is unsure for a subscriber that has everything up to `offset`.
    pub(super) fn settle_up_to(&mut self, offset: u64) {
        for slot in self.slots.values_mut() {
            if slot.unsure && slot.is_pending() && slot.latest_offset <= offset {
                slot.first_offset = None;
                slot.pending_since = None;
            }
            slot.unsure = false;
        }
        for list in self.lists.iter_mut().flat_map(|lists| lists.iter_mut()).flatten() {
            if list.unsure && list.first_offset.is_some() && list.current_offset <= offset {
                list.first_offset = None;
                list.notified = Some(list.current);
                list.notified_offset = list.current_local;
            }
            list.unsure = false;
        }
    }

    /// Returns what the subscriber was told of its subscriptions.
    pub(crate) fn told_resources(&self) -> Vec<ToldResource> {
        let subscribed = self.slots.iter().filter(|(_, slot)| slot.subscribed);
        subscribed
            .map(|(_, slot)| ToldResource {
                uri: slot.uri.clone(),
                version: slot.version,
                offset: match slot.latest {
                    Some(_) => slot.latest_offset,
                    None => 0,
                },
                is_pending: slot.is_pending(),
            })
            .collect()
    }

    /// Returns what the subscriber was told of its lists.
    pub(crate) fn told_lists(&self) -> Vec<ToldList> {
        let mut told = Vec::new();
        for kind in ListKind::ALL {
            if let Some(list) = self.list(kind) {
                told.push(ToldList {
                    kind,
                    hash: list.notified,
                    offset: list.notified_offset,
                });
            }
        }
        told
    }

    /// Returns the highest offset of everything that is known here.
    pub(crate) fn highest_offset(&self) -> u64 {
        self.highest_offset
    }

    /// Leaves everything that is pending to another node.
    pub(crate) fn forget_pending(&mut self) {
        for slot in self.slots.values_mut() {
            slot.first_offset = None;
            slot.pending_since = None;
        }
        for list in self.lists.iter_mut().flat_map(|lists| lists.iter_mut()).flatten() {
            list.first_offset = None;
        }
        self.queue.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::model::{Cause, Etag, Position, ResourceUri};
    use crate::outbox::OutboxEntry;

    fn uri(name: u8) -> ResourceUri {
        ResourceUri::new(&format!("demo://{name}")).unwrap()
    }

    fn notice(name: u8, version: u64, offset: u64) -> Arc<Notice> {
        let etag = Etag {
            version,
            ..Etag::UNKNOWN
        };
        let position = Position { epoch: 1, offset };
        Arc::new(Notice::new(
            uri(name),
            etag,
            Cause::Updated,
            position,
            Instant::now(),
        ))
    }

    fn subscribed(names: &[u8]) -> OutboxSet {
        let mut set = OutboxSet::default();
        for name in names {
            set.subscribe(&uri(*name), Etag::UNKNOWN, 640);
        }
        set
    }

    fn taken(set: &mut OutboxSet) -> Vec<String> {
        let mut taken = Vec::new();
        while let Some(entry) = set.pop() {
            taken.push(match entry {
                OutboxEntry::Updated(notice) => format!("{}@{}", notice.uri, notice.etag.version),
                OutboxEntry::ListChanged(kind) => kind.name().to_owned(),
            });
        }
        taken
    }

    #[test]
    fn pending_notices_are_told_in_the_order_of_the_log() {
        let mut set = subscribed(&[1, 2, 3]);
        set.resume(&notice(1, 4, 256), true, true);
        set.resume(&notice(2, 2, 128), true, true);
        set.resume(&notice(3, 9, 192), false, true);
        assert_eq!(set.safe_offset(), 127);
        assert_eq!(taken(&mut set), ["demo://2@2", "demo://1@4"]);
        assert_eq!(set.safe_offset(), 640);
        // A client that lost what the former node wrote gets it again.
        set.rewind(128);
        assert_eq!(taken(&mut set), ["demo://3@9", "demo://1@4"]);
    }

    #[test]
    fn unsure_notice_is_settled_by_a_position() {
        for (position, told) in [
            (Some(128), vec!["demo://2@2"]),
            (Some(256), vec![]),
            (None, vec!["demo://1@4", "demo://2@2"]),
        ] {
            let mut set = subscribed(&[1, 2]);
            set.resume(&notice(1, 4, 128), true, false);
            set.resume(&notice(2, 2, 256), true, false);
            if let Some(position) = position {
                set.rewind(position);
            }
            assert_eq!(taken(&mut set), told, "{position:?}");
        }
    }

    #[test]
    fn sure_notice_is_told_whatever_the_client_says() {
        let mut set = subscribed(&[1]);
        set.resume(&notice(1, 4, 128), true, true);
        set.rewind(640);
        assert_eq!(taken(&mut set), ["demo://1@4"]);
    }

    #[test]
    fn newer_change_makes_an_unsure_notice_sure() {
        let mut set = subscribed(&[1]);
        set.resume(&notice(1, 4, 128), true, false);
        let slot = set.find(&uri(1)).unwrap();
        set.mark(slot, &notice(1, 5, 704));
        set.rewind(256);
        assert_eq!(taken(&mut set), ["demo://1@5"]);
    }

    #[test]
    fn list_is_told_once_if_it_differs_from_what_was_told() {
        let hash = |n: u128| ListHash(n);
        for (told, current, expected) in [
            (Some(hash(1)), hash(1), vec![]),
            (Some(hash(1)), hash(2), vec!["resources"]),
            (None, hash(1), vec!["resources"]),
        ] {
            let mut set = OutboxSet::default();
            let kind = ListKind::Resources;
            let told = ToldList {
                kind,
                hash: told,
                offset: 64,
            };
            set.watch_list_from(told, current, 640, false);
            set.mark_list(kind, current, 640);
            assert_eq!(taken(&mut set), expected, "{told:?}");
            set.mark_list(kind, current, 700);
            assert_eq!(taken(&mut set), Vec::<String>::new());
        }
    }

    #[test]
    fn list_of_a_node_is_not_settled_by_a_position() {
        for (kind, expected) in [(ListKind::Resources, vec![]), (ListKind::Tools, vec!["tools"])] {
            let mut set = OutboxSet::default();
            let told = ToldList {
                kind,
                hash: Some(ListHash(1)),
                offset: 64,
            };
            set.watch_list_from(told, ListHash(2), 640, true);
            set.mark_list(kind, ListHash(2), 640);
            set.rewind(640);
            assert_eq!(taken(&mut set), expected, "{kind:?}");
        }
    }

    #[test]
    fn told_state_is_the_one_from_which_it_goes_on() {
        let mut set = subscribed(&[1, 2]);
        set.resume(&notice(1, 4, 128), true, true);
        let told = set.told_resources();
        assert_eq!(
            (told[0].version, told[0].offset, told[0].is_pending),
            (4, 128, true)
        );
        assert_eq!(
            (told[1].version, told[1].offset, told[1].is_pending),
            (0, 0, false)
        );
        set.forget_pending();
        assert_eq!((set.pending(), taken(&mut set).len()), (0, 0));
    }
}
