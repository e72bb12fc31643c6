//! The version of each URI, and the offset of the bus.
//!
//! Times are handed in, so its tests need no clock.
//!
//! Versions never go backward. A removed URI keeps its version. When more removed URIs are kept than
//! allowed, the oldest are forgotten, and their highest version becomes the *floor* that every new URI
//! starts above.

use std::collections::VecDeque;

use super::store::Checkpoint;
use crate::model::{Digest, Etag, Owner, Position, ResourceUri, UriHashState, UriMap};

/// The existence of a URI, as its line shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineState {
    /// Registered, or registered in a former life and not claimed yet.
    Live,
    /// Removed.
    Removed,
    /// A touched member of a template.
    Touched,
}

/// The ledger's line of one URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The newest etag.
    pub etag: Etag,
    /// The digest of the content at that etag; none for a lazy body and a URI that is not live.
    pub digest: Option<Digest>,
    /// The existence of the URI.
    pub state: LineState,
    /// The offset of the newest change.
    pub offset: u64,
    /// The owner of a live URI. Lines of old stores have none until they are claimed.
    pub owner: Option<Owner>,
    /// The time, in seconds since 1970, since which a live URI of a former life waits for its owner.
    pub unclaimed_since: Option<u64>,
}

impl Line {
    /// Returns true if the URI is live.
    pub fn is_live(&self) -> bool {
        self.state == LineState::Live
    }
}

/// The versions of all URIs.
#[derive(Debug)]
pub(crate) struct Ledger {
    lines: UriMap<Line>,
    /// Removed URIs, the oldest first. May contain URIs that were registered again.
    removed: VecDeque<ResourceUri>,
    removed_len: usize,
    removed_max: usize,
    floor: u64,
    /// The number of URIs whose version was forgotten in this life.
    forgotten: u64,
    /// The offset up to which changes of forgotten URIs may lie.
    forgotten_offset: u64,
    position: Position,
    /// Makes the times of etags.
    stamp: TimeStamp,
}

/// The times of etags in one life of the bus.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TimeStamp {
    /// The earliest second that an etag may have: later than every second of a former life, also after the
    /// clock was set back.
    pub(crate) first: u64,
    /// The tag of this life; 0 with a store.
    pub(crate) life: u32,
}

impl TimeStamp {
    fn etag(self, version: u64, now: u64) -> Etag {
        Etag {
            version,
            updated_at: now.max(self.first),
            life: self.life,
        }
    }
}

/// The owner and the content of a resource that is registered or changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Registration<'a> {
    pub(crate) digest: Option<Digest>,
    pub(crate) owner: &'a Owner,
    /// Seconds since 1970.
    pub(crate) now: u64,
}

impl Ledger {
    /// Creates a ledger that continues from `checkpoint` and keeps at most `removed_max` removed URIs.
    pub(crate) fn new(checkpoint: Checkpoint, epoch: u64, stamp: TimeStamp, removed_max: usize) -> Ledger {
        let mut ledger = Ledger {
            lines: UriMap::with_capacity_and_hasher(checkpoint.lines.len(), UriHashState::default()),
            removed: VecDeque::new(),
            removed_len: 0,
            removed_max,
            floor: checkpoint.floor,
            forgotten: 0,
            forgotten_offset: 0,
            position: Position {
                epoch,
                offset: checkpoint.offset,
            },
            stamp,
        };
        if checkpoint.floor > 0 {
            // The offsets of what former lives forgot are not kept, but the oldest were forgotten first.
            let oldest = checkpoint.lines.iter().find(|kept| !kept.line.is_live());
            ledger.forgotten_offset = match oldest {
                Some(kept) => kept.line.offset,
                None => checkpoint.offset,
            };
        }
        for kept in checkpoint.lines {
            if !kept.line.is_live() {
                ledger.removed.push_back(kept.uri.clone());
                ledger.removed_len += 1;
            }
            ledger.lines.insert(kept.uri, kept.line);
        }
        ledger.forget_oldest();
        ledger
    }

    /// Returns the line of `uri`.
    pub(crate) fn line(&self, uri: &ResourceUri) -> Option<&Line> {
        self.lines.get(uri)
    }

    /// The position of the last notice.
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// The highest version that was forgotten.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// The number of URIs whose version was forgotten in this life.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The offset up to which changes of URIs may lie that have no line any more.
    pub(crate) fn forgotten_offset(&self) -> u64 {
        self.forgotten_offset
    }

    /// The lines of all URIs, in no order.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (&ResourceUri, &Line)> {
        self.lines.iter()
    }

    /// The etag of an untouched member of a template registered at `since`: the first version above the
    /// floor.
    pub(crate) fn untouched(&self, since: u64) -> Etag {
        self.stamp.etag(self.floor + 1, since)
    }

    /// Takes the next place in the order of the bus.
    pub(crate) fn advance(&mut self) -> Position {
        self.position.offset += 1;
        self.position
    }

    /// Registers `uri` or changes its content, as the next place in the order of the bus. The etag stays if
    /// the live line has this digest: the content is the same again, or the same as before a restart.
    /// Otherwise the version rises by one.
    pub(crate) fn stamp(&mut self, uri: &ResourceUri, registration: Registration<'_>) -> StampResult {
        self.stamp_above(uri, registration, self.floor)
    }

    /// Raises the version of a registered `uri` with this content. The digest is kept, so that the same
    /// content after a restart is no change.
    pub(crate) fn touch(&mut self, uri: &ResourceUri, registration: Registration<'_>) -> StampResult {
        let mut stamped = self.stamp(uri, registration);
        if !stamped.changed
            && let Some(line) = self.lines.get_mut(uri)
        {
            line.etag = self.stamp.etag(line.etag.version + 1, registration.now);
            line.offset = self.position.offset + 1;
            stamped.etag = line.etag;
            stamped.changed = true;
        }
        stamped
    }

    /// Registers a member of a template as a resource. Its subscribers know the version of untouched
    /// members, so it starts above that one.
    pub(crate) fn stamp_member(&mut self, uri: &ResourceUri, registration: Registration<'_>) -> StampResult {
        let base = self.untouched(registration.now).version;
        self.stamp_above(uri, registration, base)
    }

    fn stamp_above(&mut self, uri: &ResourceUri, registration: Registration<'_>, base: u64) -> StampResult {
        let Registration { digest, owner, now } = registration;
        let mut stamped = Line {
            etag: self.stamp.etag(base + 1, now),
            digest,
            state: LineState::Live,
            offset: self.position.offset + 1,
            owner: Some(owner.clone()),
            unclaimed_since: None,
        };
        let Some(line) = self.lines.get_mut(uri) else {
            let etag = stamped.etag;
            self.lines.insert(uri.clone(), stamped);
            return StampResult {
                etag,
                changed: true,
                claimed: false,
            };
        };
        let claimed = line.unclaimed_since.is_some() || line.owner.as_ref() != Some(owner);
        // Without a digest the contents cannot be compared, so a lazy body always counts as another one.
        let changed = !line.is_live() || digest.is_none() || line.digest != digest;
        if changed {
            self.removed_len -= usize::from(!line.is_live());
            stamped.etag.version = line.etag.version + 1;
            *line = stamped;
        } else if claimed {
            line.owner = stamped.owner;
            line.unclaimed_since = None;
        }
        StampResult {
            etag: line.etag,
            changed,
            claimed,
        }
    }

    /// Notes that a live URI of a former life has waited for its owner since `now`.
    pub(crate) fn mark_unclaimed(&mut self, uri: &ResourceUri, now: u64) {
        if let Some(line) = self.lines.get_mut(uri) {
            line.unclaimed_since = Some(now);
        }
    }

    /// Removes `uri`. Its version rises once more, for the notice of the removal.
    pub(crate) fn remove(&mut self, uri: &ResourceUri, now: u64) -> Etag {
        self.raise_unregistered(uri, LineState::Removed, now, self.floor)
    }

    /// Raises the version of a member of a template registered at `since`. Members are kept and forgotten
    /// like removed URIs.
    pub(crate) fn touch_member(&mut self, uri: &ResourceUri, now: u64, since: u64) -> Etag {
        self.raise_unregistered(uri, LineState::Touched, now, self.untouched(since).version)
    }

    fn raise_unregistered(&mut self, uri: &ResourceUri, state: LineState, now: u64, base: u64) -> Etag {
        let (before, kept) = match self.lines.get(uri) {
            Some(line) => (line.etag.version, !line.is_live()),
            None => (base, false),
        };
        let etag = self.stamp.etag(before + 1, now);
        if !kept {
            self.removed_len += 1;
            self.removed.push_back(uri.clone());
        }
        self.lines.insert(
            uri.clone(),
            Line {
                etag,
                digest: None,
                state,
                offset: self.position.offset + 1,
                owner: None,
                unclaimed_since: None,
            },
        );
        self.forget_oldest();
        etag
    }

    fn forget_oldest(&mut self) {
        while self.removed_len > self.removed_max {
            let Some(uri) = self.removed.pop_front() else {
                return;
            };
            if let Some(line) = self.lines.get(&uri).filter(|line| !line.is_live()) {
                self.floor = self.floor.max(line.etag.version);
                self.forgotten_offset = self.forgotten_offset.max(line.offset);
                self.lines.remove(&uri);
                self.removed_len -= 1;
                self.forgotten += 1;
            }
        }
        // URIs that were registered again leave their old entry in the queue. Swept when those are the
        // most, so that the cost per removal stays constant.
        if self.removed.len() > 2 * self.removed_len + 64 {
            let lines = &self.lines;
            let mut seen = std::collections::HashSet::new();
            self.removed.retain(|uri| match lines.get(uri) {
                Some(line) => !line.is_live() && seen.insert(uri.clone()),
                None => false,
            });
        }
    }
}

/// The result of [`Ledger::stamp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StampResult {
    pub(crate) etag: Etag,
    pub(crate) changed: bool,
    /// True if the line has another owner than before, or is not unclaimed any more.
    pub(crate) claimed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::KeptLine;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn uri(name: u8) -> ResourceUri {
        ResourceUri::new(&format!("demo://{name}")).unwrap()
    }

    fn ledger(removed_max: usize) -> Ledger {
        Ledger::new(Checkpoint::default(), 1, TimeStamp::default(), removed_max)
    }

    fn content(digest: Option<Digest>, now: u64) -> Registration<'static> {
        let owner = &Owner::Embedder;
        Registration { digest, owner, now }
    }

    fn digest(content: u8) -> Option<Digest> {
        Some(Digest(u128::from(content)))
    }

    #[test]
    fn first_registration_is_version_1() {
        let mut ledger = ledger(10);
        assert_eq!(ledger.line(&uri(1)), None);
        let stamped = ledger.stamp(&uri(1), content(digest(1), 100));
        assert_eq!(
            stamped,
            StampResult {
                etag: Etag {
                    version: 1,
                    updated_at: 100,
                    life: 0,
                },
                changed: true,
                claimed: false,
            }
        );
    }

    #[test]
    fn registered_member_is_newer_than_untouched() {
        let mut ledger = ledger(10);
        let untouched = ledger.untouched(100);
        assert!(ledger.stamp_member(&uri(1), content(digest(1), 100)).etag.version > untouched.version);
        let gone = ledger.remove(&uri(1), 101);
        assert_eq!(
            ledger.stamp_member(&uri(1), content(digest(1), 101)).etag.version,
            gone.version + 1
        );
    }

    #[test]
    fn lazy_body_moves_with_every_touch() {
        let mut ledger = ledger(10);
        assert_eq!(ledger.stamp(&uri(1), content(None, 1)).etag.version, 1);
        assert_eq!(ledger.stamp(&uri(1), content(None, 1)).etag.version, 2);
    }

    #[test]
    fn same_content_after_restart_keeps_its_etag() {
        let line = Line {
            etag: Etag {
                version: 7,
                updated_at: 5,
                life: 0,
            },
            digest: digest(3),
            state: LineState::Live,
            offset: 7,
            owner: Some(Owner::Embedder),
            unclaimed_since: None,
        };
        let kept = KeptLine {
            uri: uri(1),
            line: line.clone(),
            resource: None,
        };
        let checkpoint = Checkpoint {
            lines: vec![kept],
            ..Checkpoint::default()
        };
        let mut ledger = Ledger::new(checkpoint, 1, TimeStamp::default(), 10);
        assert_eq!(
            ledger.stamp(&uri(1), content(digest(3), 99)),
            StampResult {
                etag: line.etag,
                changed: false,
                claimed: false,
            }
        );
        assert_eq!(ledger.stamp(&uri(1), content(digest(4), 99)).etag.version, 8);
    }

    #[test]
    fn touch_keeps_the_digest() {
        let mut ledger = ledger(10);
        ledger.stamp(&uri(1), content(digest(3), 1));
        let touched = ledger.touch(&uri(1), content(digest(3), 2));
        assert_eq!((touched.etag.version, touched.etag.updated_at), (2, 2));
        assert!(touched.changed);
        // A store hands the same line to the next life.
        assert_eq!(ledger.line(&uri(1)).unwrap().digest, digest(3));
        assert!(!ledger.stamp(&uri(1), content(digest(3), 9)).changed);
    }

    #[derive(Debug, Clone)]
    enum TraceStep {
        Stamp(u8, u8),
        Remove(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<TraceStep>> {
        let step = prop_oneof![
            (0..6u8, 0..3u8).prop_map(|(name, content)| TraceStep::Stamp(name, content)),
            (0..6u8).prop_map(TraceStep::Remove),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// Versions never go backward and no-ops never move one, however few removed URIs are kept.
        #[test]
        fn versions_never_go_backward(steps in steps(), removed_max in 0..4usize) {
            let mut ledger = ledger(removed_max);
            let mut seen: HashMap<u8, u64> = HashMap::new();
            let mut contents: HashMap<u8, u8> = HashMap::new();
            for (now, step) in steps.into_iter().enumerate() {
                match step {
                    TraceStep::Stamp(name, new) => {
                        let same = contents.insert(name, new) == Some(new);
                        let stamped = ledger.stamp(&uri(name), content(digest(new), now as u64));
                        prop_assert_eq!(stamped.changed, !same);
                        let before = seen.insert(name, stamped.etag.version).unwrap_or(0);
                        prop_assert_eq!(stamped.etag.version, if same { before } else { stamped.etag.version.max(before + 1) });
                    }
                    TraceStep::Remove(name) => {
                        if contents.remove(&name).is_none() {
                            continue;
                        }
                        let etag = ledger.remove(&uri(name), now as u64);
                        prop_assert!(etag.version > seen.insert(name, etag.version).unwrap_or(0));
                    }
                }
                let removed = ledger.lines.values().filter(|line| !line.is_live()).count();
                prop_assert!(removed <= removed_max);
                prop_assert_eq!(removed, ledger.removed_len);
                prop_assert!(ledger.removed.len() <= 2 * removed + 64 + 1);
            }
        }
    }
}
