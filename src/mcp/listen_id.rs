//! The id of a listen request, with which its stream tags every message.

use std::borrow::Cow;

use serde_json::value::RawValue;
use smallvec::SmallVec;

/// The bytes of an id that a stream holds in its own place. A longer one takes one more line of the
/// processor's cache with each message.
const INLINE_MAX: usize = 24;

/// An id, as its client wrote it: a number or a string of JSON.
#[derive(Debug)]
pub(super) struct ListenId(SmallVec<[u8; INLINE_MAX]>);

impl ListenId {
    pub(super) fn new(id: &RawValue) -> ListenId {
        ListenId(SmallVec::from_slice(id.get().as_bytes()))
    }

    /// Returns its JSON.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns its JSON as text.
    pub(super) fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}
