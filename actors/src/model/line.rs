//! The line of a URI: its newest version, and the state of what has it.

use super::digest::Digest;
use super::etag::Etag;
use super::owner::Owner;

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

/// The newest version of one URI.
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
