//! What a subscriber was told on one node, for another node of the same order that goes on with it.

use super::list::{ListHash, ListKind};
use super::position::Position;
use super::uri::ResourceUri;

/// A subscription, and what its subscriber was told of the resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldResource {
    /// The resource.
    pub uri: ResourceUri,
    /// The version that the subscriber knows, or will know once it was handed what is pending.
    pub version: u64,
    /// The offset of the newest notice; 0 if there was none since it subscribed.
    pub offset: u64,
    /// True if that notice was not handed out.
    pub is_pending: bool,
}

/// What a subscriber was told of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToldList {
    /// The list.
    pub kind: ListKind,
    /// The hash that it was told of last; none if it may have missed that.
    pub hash: Option<ListHash>,
    /// The offset of that notification; 0 if there was none.
    pub offset: u64,
}

/// What a subscriber was told of everything that it is to be told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldState {
    /// Its subscriptions.
    pub resources: Vec<ToldResource>,
    /// The lists that it watches; none before its client was ready.
    pub lists: Vec<ToldList>,
    /// The place in the order up to which the node had told it of changes, or they are pending.
    pub position: Position,
}

/// The state from which a subscriber watches its lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListStart {
    /// It was told of empty lists, so each that is not empty is due at once.
    Announced,
    /// It knows the lists as they are.
    Known,
    /// It was told this by another node.
    Told {
        lists: Vec<ToldList>,
        /// False if the other node may have told it more by now.
        is_sure: bool,
        /// The rule for lists that the other node said nothing of.
        announces: bool,
    },
}

impl ListStart {
    /// Returns what the subscriber was told of a list that has the hash `current`.
    pub(crate) fn told(&self, kind: ListKind, current: ListHash) -> ToldList {
        let fresh = |announces: bool| ToldList {
            kind,
            hash: Some(if announces { ListHash::EMPTY } else { current }),
            offset: 0,
        };
        match self {
            ListStart::Announced => fresh(true),
            ListStart::Known => fresh(false),
            ListStart::Told { lists, announces, .. } => {
                let found = lists.iter().find(|told| told.kind == kind);
                found.copied().unwrap_or_else(|| fresh(*announces))
            }
        }
    }

    /// Returns true if the subscriber may have been told more than it seems.
    pub(crate) fn is_unsure(&self) -> bool {
        matches!(self, ListStart::Told { is_sure: false, .. })
    }
}
