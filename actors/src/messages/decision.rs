//! The decisions of the Registry, as it hands them to the Etag actor.

use std::sync::Arc;

use crate::model::{
    Digest, Etag, ListHash, ListKind, Owner, Resource, ResourceTemplate, ResourceUri, Variables,
};

/// The effect of a change on the version of its URI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Has the same content.
    Unchanged,
    /// Has content with this digest; none if the digest cannot be known.
    Stored(Option<Digest>),
    /// Is announced as changed, with content of this digest; none if the digest cannot be known.
    Touched(Option<Digest>),
    /// Like `Stored`, for a member of this family that becomes a registered resource.
    Joined(Option<Digest>, FamilyId),
    /// Touches a member of this family.
    Member(FamilyId),
    Removed,
}

/// The result of a change in the catalog.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) uri: ResourceUri,
    pub(crate) effect: Effect,
    pub(crate) created: bool,
    /// The owner that makes the change.
    pub(crate) owner: Owner,
    /// The new hash of the resource list, if it is another one.
    pub(crate) list: Option<(ListKind, ListHash)>,
    /// False if clients may not subscribe to the resource.
    pub(crate) subscribable: bool,
    /// The registered resource and its generation.
    pub(crate) entry: Option<(Arc<Resource>, u64)>,
}

impl Decision {
    /// The new entry of the etag index, which has registered resources alone; none if it stays as it is.
    pub(crate) fn into_indexed(self, etag: Etag) -> Option<(ResourceUri, Option<IndexedResource>)> {
        match (self.entry, self.effect) {
            (Some((resource, generation)), _) => Some((
                self.uri,
                Some(IndexedResource {
                    resource,
                    etag,
                    generation,
                }),
            )),
            (None, Effect::Removed) => Some((self.uri, None)),
            (None, _) => None,
        }
    }
}

/// A registered resource at one version, as the etag index has it.
#[derive(Debug, Clone)]
pub(crate) struct IndexedResource {
    pub(crate) resource: Arc<Resource>,
    pub(crate) etag: Etag,
    /// The generation in the catalog that the etag belongs to.
    pub(crate) generation: u64,
}

/// The number of one registration of a template. A template that is registered with another reader is another
/// family, since its members may have other content.
pub(crate) type FamilyId = u64;

/// The beginning or the end of a family.
#[derive(Clone)]
pub(crate) enum FamilyChange {
    Begin {
        family: FamilyId,
        template: Arc<ResourceTemplate>,
        /// The time of registration, in seconds since 1970.
        since: u64,
    },
    End(FamilyId),
}

/// The registration of a URI, as far as its version depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Known {
    Registered,
    /// A member of this family.
    Member(FamilyId),
    /// Not registered, and waited for.
    Absent,
}

/// The resource or the template behind a URI.
pub(crate) enum Found {
    Resource(Arc<Resource>),
    /// A member of this family.
    Member(Arc<ResourceTemplate>, Variables, FamilyId),
}

impl Found {
    pub(crate) fn known(&self) -> Known {
        match self {
            Found::Resource(_) => Known::Registered,
            Found::Member(_, _, family) => Known::Member(*family),
        }
    }
}
