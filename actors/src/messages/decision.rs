//! The decisions of the Registry, as it hands them to the Etag actor.

use std::sync::Arc;

use crate::model::{Digest, Etag, ListHash, ListKind, Resource, ResourceTemplate, ResourceUri, Variables};

/// What a change does to the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing: same content.
    Unchanged,
    /// The URI has content with this digest (none: cannot be known).
    Stored(Option<Digest>),
    /// The same, for a member of a template that is a resource of its own from now on.
    Joined(Option<Digest>),
    /// A member of a template registered at this time was touched.
    Member(u64),
    /// The URI is gone.
    Removed,
}

/// What the catalog made of a change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) uri: ResourceUri,
    pub(crate) effect: Effect,
    pub(crate) created: bool,
    /// The new hash of the resource list, when it is another one.
    pub(crate) list: Option<(ListKind, ListHash)>,
}

impl Decision {
    /// The new entry of the etag index, which has registered resources alone; none if it stays as it is.
    pub(crate) fn into_shown(self, etag: Etag) -> Option<(ResourceUri, Option<Etag>)> {
        match self.effect {
            Effect::Unchanged | Effect::Member(_) => None,
            Effect::Stored(_) | Effect::Joined(_) => Some((self.uri, Some(etag))),
            Effect::Removed => Some((self.uri, None)),
        }
    }
}

/// What the Registry knows of a URI, for the Etag actor.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Known {
    Registered,
    /// A member of a template that was registered at this time.
    Member(u64),
}

/// What a URI stands for.
pub(crate) enum Found {
    /// A registered resource at a revision.
    Resource(Arc<Resource>, u64),
    /// A member of a template that was registered at that time.
    Member(Arc<ResourceTemplate>, Variables, u64),
}

impl Found {
    /// What the ledger has to know of it.
    pub(crate) fn known(&self) -> Known {
        match self {
            Found::Resource(..) => Known::Registered,
            Found::Member(_, _, since) => Known::Member(*since),
        }
    }
}
