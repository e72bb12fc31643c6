//! What a change becomes once the Etag actor has stamped it.
//!
//! Owns: [`Notice`] and the slots in which transports keep its encoded frames, so that a frame that is the same for
//! many subscribers is encoded once. Never: encodes anything; the bus knows no protocol.

use std::sync::OnceLock;
use std::time::Instant;

use bytes::Bytes;

use super::etag::Etag;
use super::position::Position;
use super::uri::ResourceUri;

/// How many encodings of one notice transports may share.
pub(crate) const FRAME_SLOTS: usize = 4;

/// Why a resource's subscribers are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Its content is another one.
    Updated,
    /// It is gone; the next read says so.
    Removed,
}

/// "This resource changed": shared by every outbox it is marked in.
#[derive(Debug)]
pub struct Notice {
    /// What changed.
    pub uri: ResourceUri,
    /// The version it has now.
    pub etag: Etag,
    /// Why subscribers are told.
    pub cause: Cause,
    /// Where it stands in the order of the bus.
    pub position: Position,
    /// When its change passed the door.
    pub at: Instant,
    /// Whether somebody wants to know what becomes of it.
    pub(crate) traced: bool,
    frames: [OnceLock<Bytes>; FRAME_SLOTS],
}

impl Notice {
    /// A notice without frames yet.
    pub fn new(uri: ResourceUri, etag: Etag, cause: Cause, position: Position, at: Instant) -> Notice {
        Notice {
            uri,
            etag,
            cause,
            position,
            at,
            traced: false,
            frames: [const { OnceLock::new() }; FRAME_SLOTS],
        }
    }

    /// The same notice for a shard of its own: shards that share one wait for each other wherever it is counted who
    /// holds it. It names `uri`, which is the same as the shard keeps it. Its frames are encoded anew.
    pub(crate) fn apart(&self, uri: ResourceUri) -> Notice {
        let mut apart = Notice::new(uri, self.etag, self.cause, self.position, self.at);
        apart.traced = self.traced;
        apart
    }

    /// The frame kept in `slot`, encoded by `encode` when it is asked for first. Which slot means which wire is the
    /// transports' own agreement. A slot out of range (see [`FRAME_SLOTS`]) encodes anew each time.
    pub fn frame(&self, slot: usize, encode: impl FnOnce(&Notice) -> Bytes) -> Bytes {
        match self.frames.get(slot) {
            Some(frame) => frame.get_or_init(|| encode(self)).clone(),
            None => encode(self),
        }
    }

    /// Appends the [`frame`](Self::frame) kept in `slot` to `out`, without sharing it: threads that count references to
    /// the same frame wait for each other.
    pub fn append_frame(&self, slot: usize, encode: impl FnOnce(&Notice) -> Bytes, out: &mut Vec<u8>) {
        match self.frames.get(slot) {
            Some(frame) => out.extend_from_slice(frame.get_or_init(|| encode(self))),
            None => out.extend_from_slice(&encode(self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_frame_is_encoded_once_for_all_who_ask() {
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
