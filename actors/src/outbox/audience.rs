//! The audience by which the lists of a subscriber are compared.

use std::sync::Arc;

use crate::model::{Audience, ListHash};

/// The hashes of one list by the ids of the audiences.
pub(crate) type AudienceHashes = Arc<[(u64, ListHash)]>;

/// An audience that the Registry counts for as long as an outbox has joined it.
#[derive(Debug)]
pub(crate) struct ListAudience {
    pub(crate) id: u64,
    pub(crate) audience: Arc<dyn Audience>,
}

/// The audience of a subscriber by its rights of one generation.
#[derive(Debug, Clone)]
pub(crate) struct JoinedAudience {
    pub(crate) audience: Arc<ListAudience>,
    pub(crate) generation: u64,
}
