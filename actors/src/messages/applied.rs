//! The reports of a shared log, and its records as the Registry hands them to the Etag actor.

use std::sync::Arc;
use std::time::Instant;

use super::Finish;
use crate::model::{Cause, Line, ListHash, ListKind, Resource, ResourceUri};
use crate::runtime::Reply;
use crate::shared_log::{FloorStep, Heard};

/// A record of a shared log, or the end of changes that it took.
pub(crate) enum Logged {
    Resource(AppliedRecord),
    List(AppliedList),
    /// Forgets the lines of these removed URIs, whose versions are at most this one.
    Floor(Vec<ResourceUri>, u64),
    /// Answers when every shard has notified of everything before it.
    Finish(Finish),
}

/// The record of a URI, with its effect on what this node has.
pub(crate) struct AppliedRecord {
    pub(crate) uri: ResourceUri,
    /// The line, with the offset of the record.
    pub(crate) line: Line,
    /// The cause to notify subscribers of, if any.
    pub(crate) cause: Option<Cause>,
    /// The registered resource and its generation.
    pub(crate) entry: Option<(Arc<Resource>, u64)>,
    /// False if clients may not subscribe to the resource.
    pub(crate) subscribable: bool,
    /// The new hash of the resource list, if it is told here.
    pub(crate) list: Option<(ListKind, ListHash)>,
    pub(crate) finish: Finish,
    /// True if subscribers that know the version are told of it again.
    pub(crate) repeats: bool,
    /// The time of admission, or of hearing the record of another node.
    pub(crate) at: Instant,
}

/// A place of a shared log at which the resource list is told.
pub(crate) struct AppliedList {
    pub(crate) offset: u64,
    /// The hash; none if subscribers were told of it before.
    pub(crate) list: Option<(ListKind, ListHash)>,
    pub(crate) finish: Finish,
}

/// Takes the next step of forgetting the removed URIs beyond `kept_max`; from the bus.
pub(crate) struct ForgetRemoved {
    pub(crate) kept_max: usize,
    /// The floor whose records are purged.
    pub(crate) purged: Option<u64>,
    pub(crate) reply: Reply<FloorStep>,
}

/// What a shared log told, in order; from its thread to the Registry.
pub(crate) struct HeardBatch(pub(crate) Vec<Heard>);

/// The end of a shared log; from its thread to the Registry.
pub(crate) struct LogEnded;
