//! The records of a shared log: their versions and places are those of the log.

use super::release::{ChangeEffect, Release, ReleasedChange};
use super::{EtagActor, PlacedChange};
use crate::messages::{AppliedList, AppliedRecord, IndexedResource, Logged};

impl EtagActor {
    /// Takes over a record of the log.
    pub(super) fn apply_logged(&mut self, logged: Logged) {
        match logged {
            Logged::Resource(applied) => self.apply(applied),
            Logged::List(applied) => self.apply_list(applied),
            Logged::Floor(uris, floor) => self.ledger.forget(&uris, floor),
            Logged::Finish(finish) => self.waiting.push(Release::Finish(finish)),
        }
    }

    /// Takes over the line of a record, and tells its subscribers of it.
    fn apply(&mut self, applied: AppliedRecord) {
        let AppliedRecord {
            uri,
            line,
            cause,
            entry,
            subscribable,
            list,
            finish,
            at,
            repeats,
        } = applied;
        let etag = line.etag;
        // The versions of a resource have no holes, so those between the last one that was heard and this one
        // were replaced in the log.
        let replaced = match self.ledger.etag(&uri).version {
            0 => 0,
            heard => etag.version.saturating_sub(heard + 1),
        };
        self.ledger.put(&uri, line);
        let position = self.ledger.position();
        let placed = PlacedChange {
            uri: &uri,
            subscribable,
            at,
            replaced,
            repeats,
        };
        // A record whose etag is known says who owns the resource now, and is told to no subscriber.
        let stamped = cause.map(|cause| self.place_at(&placed, etag, cause, position));
        let list = list.map(|(kind, hash)| self.place_list(kind, hash));
        let indexed = entry.map(|(resource, generation)| IndexedResource {
            resource,
            etag,
            generation,
        });
        self.waiting.push(Release::Change(ReleasedChange {
            effect: ChangeEffect {
                indexed: Some((uri, indexed)),
                stamped,
            },
            list,
            finish,
        }));
    }

    /// Tells a list as it is at this place of the log.
    fn apply_list(&mut self, applied: AppliedList) {
        self.ledger.move_to(applied.offset);
        let list = applied.list.map(|(kind, hash)| self.place_list(kind, hash));
        match list {
            Some(list) => self.waiting.push(Release::Change(ReleasedChange {
                effect: ChangeEffect::default(),
                list: Some(list),
                finish: applied.finish,
            })),
            None => self.waiting.push(Release::Finish(applied.finish)),
        }
    }
}
