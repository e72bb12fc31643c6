//! The notice that a resource changed, with room for the encoded frames of the transports.
//!
//! A frame that is the same for many subscribers is encoded once and kept here. The bus itself encodes
//! nothing.

use std::fmt;
use std::sync::OnceLock;
use std::time::Instant;

use bytes::Bytes;

use super::etag::Etag;
use super::position::Position;
use super::uri::ResourceUri;

/// The number of encodings of one notice that transports may share.
pub(crate) const FRAME_SLOTS: usize = 4;

/// The cause of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The content or the description of the resource changed.
    Updated,
    /// The resource was removed, so the next read fails.
    Removed,
}

/// The notice of one change of a resource, shared by the outboxes in which it is pending.
pub struct Notice {
    /// The resource.
    pub uri: ResourceUri,
    /// Its version after the change.
    pub etag: Etag,
    /// The cause.
    pub cause: Cause,
    /// Its place in the order of all notices.
    pub position: Position,
    /// The time at which its change was admitted to the bus.
    pub at: Instant,
    /// The older changes of the resource that a shared log had replaced by this one before the bus heard
    /// them; none is told. Always 0 without a shared log, and for a resource that the bus first hears of.
    pub replaced: u64,
    /// True if an attached subscriber traces it.
    pub(crate) traced: bool,
    /// False if clients may not subscribe to the resource.
    pub(crate) subscribable: bool,
    /// True if subscribers that know the version are told of it again, since it may follow on changes that
    /// they missed.
    pub(crate) repeats: bool,
    frames: [OnceLock<Bytes>; FRAME_SLOTS],
}

impl Notice {
    /// Creates a notice without frames.
    pub fn new(uri: ResourceUri, etag: Etag, cause: Cause, position: Position, at: Instant) -> Notice {
        Notice {
            uri,
            etag,
            cause,
            position,
            at,
            replaced: 0,
            traced: false,
            subscribable: true,
            repeats: false,
            frames: [const { OnceLock::new() }; FRAME_SLOTS],
        }
    }

    /// Copies the notice for one shard, with the `uri` that the shard keeps and without the encoded frames.
    pub(crate) fn copy_for_shard(&self, uri: ResourceUri) -> Notice {
        // A shared notice would make the threads of all shards write to the same reference counts.
        let mut copy = Notice::new(uri, self.etag, self.cause, self.position, self.at);
        copy.replaced = self.replaced;
        copy.traced = self.traced;
        copy.subscribable = self.subscribable;
        copy.repeats = self.repeats;
        copy
    }

    /// Returns the frame in `slot`; the first call encodes it with `encode`. The transports agree among
    /// themselves on the format of each slot. Slots from 4 on keep nothing: `encode` runs at each call.
    pub fn frame(&self, slot: usize, encode: impl FnOnce(&Notice) -> Bytes) -> Bytes {
        match self.frames.get(slot) {
            Some(frame) => frame.get_or_init(|| encode(self)).clone(),
            None => encode(self),
        }
    }

    /// Appends the [`frame`](Self::frame) in `slot` to `out`.
    pub fn append_frame(&self, slot: usize, encode: impl FnOnce(&Notice) -> Bytes, out: &mut Vec<u8>) {
        // Copies the bytes: cloning the frame in many threads would contend for its reference count.
        match self.frames.get(slot) {
            Some(frame) => out.extend_from_slice(frame.get_or_init(|| encode(self))),
            None => out.extend_from_slice(&encode(self)),
        }
    }
}

impl fmt::Debug for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the frames, which are encodings of the rest.
        f.debug_struct("Notice")
            .field("uri", &self.uri)
            .field("etag", &self.etag)
            .field("cause", &self.cause)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn frame_is_encoded_once() {
        let uri = ResourceUri::new("demo://a").unwrap();
        let position = Position { epoch: 1, offset: 1 };
        let notice = Notice::new(uri, Etag::UNKNOWN, Cause::Updated, position, Instant::now());
        let encoded = Cell::new(0);
        let encode = |_: &Notice| {
            encoded.set(encoded.get() + 1);
            Bytes::from_static(b"frame")
        };
        assert_eq!(notice.frame(1, encode).as_ptr(), notice.frame(1, encode).as_ptr());
        assert_eq!(encoded.get(), 1);
        let mut out = Vec::new();
        notice.append_frame(0, encode, &mut out);
        notice.append_frame(0, encode, &mut out);
        assert_eq!((encoded.get(), &out[..]), (2, &b"frameframe"[..]));
    }
}
