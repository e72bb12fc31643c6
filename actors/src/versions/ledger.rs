//! The version of each URI, and the offset of the bus.
//!
//! Times are handed in, so its tests need no clock.
//!
//! Versions never go backward. A removed URI keeps its version. When more removed URIs are kept than
//! allowed, the oldest are forgotten, and their highest version becomes the *floor* that every new URI
//! starts above.

mod log;

use std::collections::VecDeque;

use super::families::Families;
use super::store::Checkpoint;
use crate::messages::{Decision, Effect, FamilyChange, FamilyId};
use crate::model::{
    Cause, Digest, Etag, Line, LineState, Owner, Position, ResourceUri, UriHashState, UriMap,
};

/// The version of a change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamped {
    pub(crate) etag: Etag,
    /// The cause to notify subscribers of, if any.
    pub(crate) cause: Option<Cause>,
    /// True if the line has another owner than before.
    pub(crate) claimed: bool,
}

impl Stamped {
    fn new(etag: Etag, cause: Cause) -> Stamped {
        let cause = Some(cause);
        let claimed = false;
        Stamped { etag, cause, claimed }
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
    /// The offsets that one record of a shared log takes; 1 without one.
    offsets_per_record: u64,
    /// Makes the times of etags.
    stamp: TimeStamp,
    families: Families,
}

/// The times of etags in one life of the bus.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TimeStamp {
    /// The earliest second that an etag may have: later than every second of a former life, also after the
    /// clock was set back.
    pub(crate) first: u64,
    /// The tag of this life; 0 with a clock of the embedding program.
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
            offsets_per_record: 1,
            stamp,
            families: Families::default(),
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

    /// Begins or ends the family of a template's members. The first version above the floor is that of the
    /// untouched ones.
    pub(crate) fn change_family(&mut self, change: FamilyChange) {
        match change {
            FamilyChange::Begin {
                family,
                template,
                since,
            } => {
                let untouched = match self.offsets_per_record {
                    1 => self.stamp.etag(self.floor + 1, since),
                    // The nodes of a shared log register it at different times, and the etags that they give
                    // to a member must be equal.
                    _ => Etag {
                        version: self.floor + 1,
                        updated_at: 0,
                        life: 0,
                    },
                };
                self.families
                    .begin(family, template, untouched, self.position.offset);
            }
            FamilyChange::End(family) => {
                // Whatever has the URI of a member next must be newer than the member.
                if let Some(version) = self.families.end(family) {
                    self.floor = self.floor.max(version);
                }
            }
        }
    }

    /// Returns the etag of a member of a template.
    pub(crate) fn member_etag(&mut self, uri: &ResourceUri, family: FamilyId) -> Etag {
        let etag = self.families.etag(family, self.lines.get(uri));
        etag.unwrap_or(Etag::UNKNOWN)
    }

    /// Returns the etag of a member of a template whose URI had this line.
    pub(crate) fn member_etag_at(&mut self, line: Option<&Line>, family: FamilyId) -> Etag {
        self.families.etag(family, line).unwrap_or(Etag::UNKNOWN)
    }

    /// Returns the etag of a URI that is no member of a template.
    pub(crate) fn etag(&self, uri: &ResourceUri) -> Etag {
        match self.lines.get(uri) {
            Some(line) => line.etag,
            None => Etag::UNKNOWN,
        }
    }

    /// Takes the next place in the order of the bus. With a shared log these are the places between two
    /// records; from the last of them on, all changes until the next record share it.
    pub(crate) fn advance(&mut self) -> Position {
        let next = self.position.offset + 1;
        if self.offsets_per_record == 1 || !next.is_multiple_of(self.offsets_per_record) {
            self.position.offset = next;
        }
        self.position
    }

    /// Gives a decided change its version, as the next place in the order of the bus.
    pub(crate) fn make(&mut self, decision: &Decision, now: u64) -> Stamped {
        let uri = &decision.uri;
        let content = |digest| Registration {
            digest,
            owner: &decision.owner,
            now,
        };
        let stamped = match decision.effect {
            Effect::Unchanged => {
                return Stamped {
                    etag: self.etag(uri),
                    cause: None,
                    claimed: false,
                };
            }
            Effect::Member(family) => {
                return Stamped::new(self.touch_member(uri, now, family), Cause::Updated);
            }
            Effect::Removed => return Stamped::new(self.remove(uri, now), Cause::Removed),
            Effect::Stored(digest) => self.stamp(uri, content(digest)),
            Effect::Touched(digest) => self.touch(uri, content(digest)),
            Effect::Joined(digest, family) => self.stamp_member(uri, content(digest), family),
        };
        Stamped {
            etag: stamped.etag,
            cause: stamped.changed.then_some(Cause::Updated),
            claimed: stamped.claimed,
        }
    }

    /// Registers `uri` or changes its content, as the next place in the order of the bus. The etag stays if
    /// the live line has this digest: the content is the same again, or the same as before a restart.
    /// Otherwise the version rises by one.
    pub(crate) fn stamp(&mut self, uri: &ResourceUri, registration: Registration<'_>) -> StampResult {
        self.stamp_above(uri, registration, 0)
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

    /// Registers a member of a template as a resource. Its subscribers know the version of the member, so it
    /// starts above that one.
    pub(crate) fn stamp_member(
        &mut self,
        uri: &ResourceUri,
        registration: Registration<'_>,
        family: FamilyId,
    ) -> StampResult {
        let member = self.member_etag(uri, family);
        self.stamp_above(uri, registration, member.version)
    }

    fn stamp_above(&mut self, uri: &ResourceUri, registration: Registration<'_>, above: u64) -> StampResult {
        let Registration { digest, owner, now } = registration;
        let offset = self.position.offset + 1;
        let Some(line) = self.lines.get_mut(uri) else {
            let etag = self.stamp.etag(self.floor.max(above) + 1, now);
            let line = Line {
                etag,
                digest,
                state: LineState::Live,
                offset,
                owner: Some(owner.clone()),
                unclaimed_since: None,
            };
            self.lines.insert(uri.clone(), line);
            return StampResult {
                etag,
                changed: true,
                claimed: false,
            };
        };
        let claimed = line.unclaimed_since.is_some() || line.owner.as_ref() != Some(owner);
        if claimed {
            line.owner = Some(owner.clone());
            line.unclaimed_since = None;
        }
        // Without a digest the contents cannot be compared, so a lazy body always counts as another one.
        let changed = !line.is_live() || digest.is_none() || line.digest != digest;
        if changed {
            self.removed_len -= usize::from(!line.is_live());
            line.etag = self.stamp.etag(line.etag.version.max(above) + 1, now);
            line.digest = digest;
            line.state = LineState::Live;
            line.offset = offset;
        }
        StampResult {
            etag: line.etag,
            changed,
            claimed,
        }
    }

    /// Gives `uri` back the line that it had before a change that was not kept.
    pub(crate) fn restore(&mut self, uri: &ResourceUri, before: Option<Line>) {
        if let Some(line) = self.lines.swap_remove(uri) {
            self.removed_len -= usize::from(!line.is_live());
        }
        let Some(line) = before else {
            return;
        };
        if !line.is_live() {
            // The queue may have this URI twice then, of which the second is skipped.
            self.removed_len += 1;
            self.removed.push_back(uri.clone());
        }
        self.lines.insert(uri.clone(), line);
    }

    /// Gives back the places after `position`, of which no subscriber was told.
    pub(crate) fn go_back(&mut self, position: Position) {
        self.position = position;
        self.families.go_back(position.offset);
    }

    /// Notes that a live URI of a former life has waited for its owner since `now`.
    pub(crate) fn mark_unclaimed(&mut self, uri: &ResourceUri, now: u64) {
        if let Some(line) = self.lines.get_mut(uri) {
            line.unclaimed_since = Some(now);
        }
    }

    /// Removes `uri`. Its version rises once more, for the notice of the removal.
    pub(crate) fn remove(&mut self, uri: &ResourceUri, now: u64) -> Etag {
        let above = match self.lines.get(uri) {
            // A member whose line is from before its template: its etag was one above the line.
            Some(line) if !line.is_live() => line.etag.version + 1,
            _ => 0,
        };
        self.raise_unregistered(uri, LineState::Removed, now, above)
    }

    /// Raises the version of a member of a template. Touched members are kept and forgotten like removed
    /// URIs.
    pub(crate) fn touch_member(&mut self, uri: &ResourceUri, now: u64, family: FamilyId) -> Etag {
        let member = self.member_etag(uri, family);
        self.raise_unregistered(uri, LineState::Touched, now, member.version)
    }

    fn raise_unregistered(&mut self, uri: &ResourceUri, state: LineState, now: u64, above: u64) -> Etag {
        let (before, kept) = match self.lines.get(uri) {
            Some(line) => (line.etag.version.max(above), !line.is_live()),
            None => (self.floor.max(above), false),
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
                self.families.forget(&uri, line);
                // The oldest are found by the queue, so the order of the lines does not count.
                self.lines.swap_remove(&uri);
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
    use crate::model::{ResourceTemplate, Variables};
    use crate::versions::KeptLine;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::sync::Arc;

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
        begin_family(&mut ledger, 1, 100);
        let untouched = ledger.member_etag(&uri(1), 1);
        let stamped = ledger.stamp_member(&uri(1), content(digest(1), 100), 1);
        assert!(stamped.etag.version > untouched.version);
        let gone = ledger.remove(&uri(1), 101);
        assert_eq!(
            ledger
                .stamp_member(&uri(1), content(digest(1), 101), 1)
                .etag
                .version,
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

    /// Begins a family whose members have a URI of one digit.
    fn begin_family(ledger: &mut Ledger, family: FamilyId, since: u64) {
        let template =
            ResourceTemplate::new("demo://{id}", |_: ResourceUri, _: Variables| async { Ok(None) });
        let template = Arc::new(template.unwrap());
        ledger.change_family(FamilyChange::Begin {
            family,
            template,
            since,
        });
    }

    /// Creates and removes a resource that is no member.
    fn pass(ledger: &mut Ledger, name: &str, now: u64) {
        let other = ResourceUri::new(&format!("other://{name}")).unwrap();
        ledger.stamp(&other, content(digest(1), now));
        ledger.advance();
        ledger.remove(&other, now);
        ledger.advance();
    }

    #[test]
    fn forgotten_removals_leave_members_alone() {
        let mut ledger = ledger(2);
        begin_family(&mut ledger, 1, 100);
        let untouched = ledger.member_etag(&uri(1), 1);
        for name in ["a", "b", "c", "d"] {
            pass(&mut ledger, name, 101);
        }
        assert!(ledger.floor() > untouched.version);
        assert_eq!(ledger.member_etag(&uri(1), 1), untouched);
        // A touched member whose line is forgotten must not fall back to it.
        let touched = ledger.touch_member(&uri(2), 102, 1);
        ledger.advance();
        for name in ["e", "f", "g"] {
            pass(&mut ledger, name, 103);
        }
        assert_eq!(ledger.line(&uri(2)), None);
        assert!(ledger.member_etag(&uri(2), 1).version >= touched.version);
    }

    #[test]
    fn touched_member_of_a_former_life_is_newer() {
        let mut first = ledger(10);
        begin_family(&mut first, 1, 100);
        first.advance();
        let touched = first.touch_member(&uri(1), 101, 1);
        let checkpoint = Checkpoint {
            offset: 2,
            lines: vec![KeptLine {
                uri: uri(1),
                line: first.line(&uri(1)).unwrap().clone(),
                resource: None,
            }],
            ..Checkpoint::default()
        };
        let mut second = Ledger::new(checkpoint, 2, TimeStamp::default(), 10);
        begin_family(&mut second, 1, 200);
        let member = second.member_etag(&uri(1), 1);
        assert!(member.version > touched.version, "the content may be another one");
        assert_eq!(second.member_etag(&uri(1), 1), member);
        assert_eq!(second.touch_member(&uri(1), 201, 1).version, member.version + 1);
        second.advance();
        assert_eq!(second.member_etag(&uri(1), 1).updated_at, 201);
    }

    #[test]
    fn another_reader_makes_new_members() {
        let mut ledger = ledger(10);
        begin_family(&mut ledger, 1, 100);
        let untouched = ledger.member_etag(&uri(1), 1);
        let touched = ledger.touch_member(&uri(2), 100, 1);
        ledger.advance();
        ledger.change_family(FamilyChange::End(1));
        // In the same second, so that the versions alone tell them apart.
        begin_family(&mut ledger, 2, 100);
        assert!(ledger.member_etag(&uri(1), 2).version > untouched.version);
        assert!(ledger.member_etag(&uri(2), 2).version > touched.version);
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
