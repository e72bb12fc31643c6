//! The content of a session's record, and the messages by which nodes hand a session over.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::revision::Revision;
use super::session_records::RecordOwner;
use crate::shared_log::{ToldList, ToldResource, ToldState};
use crate::{ListHash, ListKind, Position, ResourceUri};

/// The form of records. A node that finds another one takes the session for unknown.
const FORMAT: u32 = 1;

/// The largest record in bytes.
const RECORD_BYTES_MAX: usize = 64 << 10;

/// The room in it for everything besides the subscriptions.
const HEAD_BYTES: usize = 4 << 10;

/// The bytes that a subscription takes at most besides its URI: two numbers, a flag and what parts them.
const SUBSCRIPTION_BYTES: usize = 48;

/// The time after which the moves of a session are counted anew, in seconds.
const MOVES_SECONDS: u64 = 60;

/// What another node needs to go on with a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionRecord {
    format: u32,
    revision: String,
    /// The name that the client gives itself.
    pub(crate) client: String,
    /// The principal that it belongs to; none where the service has no border.
    pub(crate) principal: Option<String>,
    /// True once the client takes notifications.
    pub(crate) is_ready: bool,
    /// The least severe log messages that it wants, as their place among all levels.
    pub(crate) level: u8,
    /// The time at which it was opened, in seconds since 1970.
    pub(crate) opened: u64,
    /// The node that has it.
    pub(crate) owner: RecordOwner,
    /// The node that had it before, until it has handed it over.
    pub(crate) from: Option<RecordOwner>,
    /// The number of its moves, by which a node knows whether a question is about the session that it has.
    pub(crate) generation: u64,
    /// True once the owner has stopped, so that it tells no more than this record says.
    pub(crate) is_released: bool,
    pub(crate) moves: RecentMoves,
    told: RecordedTold,
}

/// The moves of a session within a minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecentMoves {
    since: u64,
    pub(crate) count: u32,
}

impl RecentMoves {
    /// Returns the moves with one more at `now`, in seconds.
    pub(crate) fn with_one(self, now: u64) -> RecentMoves {
        if now.saturating_sub(self.since) >= MOVES_SECONDS {
            return RecentMoves { since: now, count: 1 };
        }
        RecentMoves {
            since: self.since,
            count: self.count.saturating_add(1),
        }
    }
}

/// What the client was told, in few bytes: each subscription is written many times.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedTold {
    epoch: u64,
    offset: u64,
    /// URI, version, offset, and 1 if that is pending.
    resources: Vec<(String, u64, u64, u8)>,
    /// Name, hash and offset.
    lists: Vec<(String, Option<String>, u64)>,
}

/// The parts of a record that stay while one node has the session.
#[derive(Debug, Clone)]
pub(crate) struct RecordHead {
    pub(crate) revision: Revision,
    pub(crate) client: String,
    pub(crate) principal: Option<String>,
    pub(crate) opened: u64,
    pub(crate) owner: RecordOwner,
    pub(crate) generation: u64,
    pub(crate) moves: RecentMoves,
}

impl RecordHead {
    /// Makes the record of a session that was told this.
    pub(crate) fn record(&self, told: &ToldState, is_ready: bool, level: u8) -> SessionRecord {
        SessionRecord {
            format: FORMAT,
            revision: self.revision.as_str().to_owned(),
            client: self.client.clone(),
            principal: self.principal.clone(),
            is_ready,
            level,
            opened: self.opened,
            owner: self.owner.clone(),
            from: None,
            generation: self.generation,
            is_released: false,
            moves: self.moves,
            told: RecordedTold::of(told),
        }
    }
}

impl SessionRecord {
    /// Reads a record; none for one of another version of the program.
    pub(crate) fn read(value: &[u8]) -> Option<SessionRecord> {
        let record: SessionRecord = serde_json::from_slice(value).ok()?;
        (record.format == FORMAT).then_some(record)
    }

    /// Returns the record as it is kept.
    pub(crate) fn text(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// Returns the revision; none for one that this version does not know.
    pub(crate) fn revision(&self) -> Option<Revision> {
        Revision::parse(&self.revision)
    }

    /// Returns what the client was told.
    pub(crate) fn told(&self) -> ToldState {
        self.told.state()
    }

    /// Returns the record by which `owner` takes the session over at `now`, in seconds.
    pub(crate) fn taken_by(&self, owner: &RecordOwner, now: u64) -> SessionRecord {
        let from = match self.is_released {
            true => None,
            // This node has tried before, and does not know that it succeeded.
            false if self.owner == *owner => self.from.clone(),
            false => Some(self.owner.clone()),
        };
        SessionRecord {
            owner: owner.clone(),
            from,
            generation: self.generation + 1,
            moves: self.moves.with_one(now),
            ..self.clone()
        }
    }

    /// Returns the nodes that may tell the client more until they hear that `owner` has the session.
    pub(crate) fn former_owners(&self, owner: &RecordOwner) -> Vec<RecordOwner> {
        let mut former = Vec::new();
        if !self.is_released {
            former.push(self.owner.clone());
            former.extend(self.from.clone());
        }
        former.retain(|node| node.boot != owner.boot);
        former
    }
}

/// Returns true if a record has room for these subscriptions, whatever becomes of their versions.
pub(crate) fn has_room_for(told: &ToldState) -> bool {
    let mut bytes = HEAD_BYTES;
    for resource in &told.resources {
        // As JSON a quotation mark takes two bytes; a URI has no other character that is escaped.
        let uri = resource.uri.as_str();
        bytes += uri.len() + uri.matches(['"', '\\']).count() + SUBSCRIPTION_BYTES;
    }
    bytes <= RECORD_BYTES_MAX
}

impl RecordedTold {
    fn of(told: &ToldState) -> RecordedTold {
        let resources = told.resources.iter().map(|resource| {
            let pending = u8::from(resource.is_pending);
            (
                resource.uri.as_str().to_owned(),
                resource.version,
                resource.offset,
                pending,
            )
        });
        let lists = told.lists.iter().map(|list| {
            let hash = list.hash.map(|hash| hash.to_string());
            (list.kind.name().to_owned(), hash, list.offset)
        });
        RecordedTold {
            epoch: told.position.epoch,
            offset: told.position.offset,
            resources: resources.collect(),
            lists: lists.collect(),
        }
    }

    fn state(&self) -> ToldState {
        let mut resources = Vec::with_capacity(self.resources.len());
        for (uri, version, offset, pending) in &self.resources {
            // A URI that this version refuses cannot have changes here.
            if let Ok(uri) = ResourceUri::new(uri) {
                resources.push(ToldResource {
                    uri,
                    version: *version,
                    offset: *offset,
                    is_pending: *pending != 0,
                });
            }
        }
        let mut lists = Vec::new();
        for (name, hash, offset) in &self.lists {
            let Some(kind) = ListKind::ALL.into_iter().find(|kind| kind.name() == name) else {
                continue;
            };
            let hash = hash.as_ref().map(|hash| u128::from_str_radix(hash, 16));
            lists.push(ToldList {
                kind,
                // A hash that cannot be read counts as missed.
                hash: match hash {
                    Some(Ok(hash)) => Some(ListHash(hash)),
                    _ => None,
                },
                offset: *offset,
            });
        }
        ToldState {
            resources,
            lists,
            position: Position {
                epoch: self.epoch,
                offset: self.offset,
            },
        }
    }
}

/// The question of a node that has taken a session over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MoveQuestion {
    pub(crate) id: String,
    /// The generation of the session at the node that asks.
    pub(crate) generation: u64,
}

/// The answer of the node that had it: what it has told, after which it tells nothing more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MoveAnswer {
    told: Option<RecordedTold>,
}

impl MoveAnswer {
    /// Makes the answer; `told` is none if the session is not there any more.
    pub(crate) fn new(told: Option<&ToldState>) -> MoveAnswer {
        MoveAnswer {
            told: told.map(RecordedTold::of),
        }
    }

    /// Returns what was told.
    pub(crate) fn told(&self) -> Option<ToldState> {
        self.told.as_ref().map(RecordedTold::state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node(boot: u32) -> RecordOwner {
        RecordOwner {
            node: format!("node-{boot}"),
            boot,
        }
    }

    fn told(uris: &[String]) -> ToldState {
        let resources = uris.iter().map(|uri| ToldResource {
            uri: ResourceUri::new(uri).unwrap(),
            version: u64::from(u32::MAX),
            offset: 1 << 53,
            is_pending: true,
        });
        ToldState {
            resources: resources.collect(),
            lists: vec![
                ToldList {
                    kind: ListKind::Tools,
                    hash: Some(ListHash(7)),
                    offset: 64,
                },
                ToldList {
                    kind: ListKind::Resources,
                    hash: None,
                    offset: 0,
                },
            ],
            position: Position {
                epoch: 9,
                offset: 1 << 53,
            },
        }
    }

    fn record(told: &ToldState) -> SessionRecord {
        let head = RecordHead {
            revision: Revision::R2025_11_25,
            client: "x".repeat(200),
            principal: Some("ann".to_owned()),
            opened: 1_795_000_000,
            owner: node(1),
            generation: 3,
            moves: RecentMoves::default(),
        };
        head.record(told, true, 2)
    }

    #[test]
    fn record_is_read_as_it_was_written() {
        let told = told(&["demo://a".to_owned(), "demo://\"q".to_owned()]);
        let record = record(&told);
        let read = SessionRecord::read(&record.text()).unwrap();
        assert_eq!(read, record);
        assert_eq!(read.told(), told);
        assert_eq!(read.revision(), Some(Revision::R2025_11_25));
        let text = String::from_utf8(record.text().to_vec()).unwrap();
        let other = text.replace("\"format\":1", "\"format\":2");
        assert_ne!(text, other);
        assert_eq!(SessionRecord::read(other.as_bytes()), None);
    }

    #[test]
    fn former_owners_are_asked_until_they_have_answered() {
        let first = record(&told(&[]));
        let second = first.taken_by(&node(2), 100);
        assert_eq!((second.generation, &second.owner), (4, &node(2)));
        assert_eq!(first.former_owners(&node(2)), [node(1)]);
        // The second node died before it had asked the first one.
        assert_eq!(second.former_owners(&node(3)), [node(2), node(1)]);
        // Or it has not heard that it took the session.
        let again = second.taken_by(&node(2), 101);
        assert_eq!(again.from, Some(node(1)));
        assert_eq!(second.former_owners(&node(2)), [node(1)]);
        let mut released = first;
        released.is_released = true;
        assert_eq!(released.former_owners(&node(2)), []);
        assert_eq!(released.taken_by(&node(2), 100).from, None);
    }

    #[test]
    fn moves_are_counted_within_a_minute() {
        let mut moves = RecentMoves::default();
        for (now, count) in [(100, 1), (120, 2), (159, 3), (160, 1), (161, 2)] {
            moves = moves.with_one(now);
            assert_eq!(moves.count, count, "{now}");
        }
    }

    proptest! {
        #[test]
        fn record_with_room_is_never_larger_than_an_entry(
            uris in prop::collection::vec("demo://[a-z\"]{1,300}", 0..900),
        ) {
            let told = told(&uris);
            if has_room_for(&told) {
                let len = record(&told).text().len();
                prop_assert!(len <= RECORD_BYTES_MAX, "{}", len);
            }
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,80}") {
            prop_assert_eq!(SessionRecord::read(text.as_bytes()), None);
        }
    }
}
