//! The frames of HTTP/2: a head of nine bytes and a payload (RFC 9113, section 4.1).

/// The bytes that every client sends first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The bytes of a head.
pub const HEAD_BYTES: usize = 9;
/// The longest payload, unless the reader of a frame has allowed more.
pub const PAYLOAD_MAX: usize = 16_384;

/// A part of a body.
pub const DATA: u8 = 0;
/// The head of a message, or its trailers.
pub const HEADERS: u8 = 1;
/// The end of a stream without the end of its message.
pub const RST_STREAM: u8 = 3;
/// Values that hold for the sender of the frame.
pub const SETTINGS: u8 = 4;
/// A request that the server makes in the place of the client.
pub const PUSH_PROMISE: u8 = 5;
/// A question whether the other side is there, and its answer.
pub const PING: u8 = 6;
/// The end of the connection for new streams.
pub const GOAWAY: u8 = 7;
/// More bytes that the other side may send.
pub const WINDOW_UPDATE: u8 = 8;
/// The rest of a header block.
pub const CONTINUATION: u8 = 9;

/// The flag of the last frame of a message.
pub const END_STREAM: u8 = 0x1;
/// The flag of an answer to a PING or to SETTINGS.
pub const ACK: u8 = 0x1;
/// The flag of the last frame of a header block.
pub const END_HEADERS: u8 = 0x4;
/// The flag of a payload with padding.
pub const PADDED: u8 = 0x8;
/// The flag of HEADERS with a priority.
pub const PRIORITY: u8 = 0x20;

/// A frame, where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'b> {
    /// Its type, such as [`DATA`]; a reader ignores types that it does not know.
    pub kind: u8,
    /// Its flags, whose meaning depends on the type.
    pub flags: u8,
    /// The number of its stream; 0 is the connection.
    pub stream: u32,
    /// The bytes after the head.
    pub payload: &'b [u8],
}

impl<'b> Frame<'b> {
    /// Splits the first frame off; none where the bytes end before it does.
    fn split(bytes: &'b [u8]) -> Result<Option<(Frame<'b>, &'b [u8])>, String> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let length = payload_bytes(head)?;
        let Some((payload, rest)) = rest.split_at_checked(length) else {
            return Ok(None);
        };
        let [_, _, _, kind, flags, a, b, c, d] = *head;
        let frame = Frame {
            kind,
            flags,
            // The first bit is reserved and has no meaning.
            stream: u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff,
            payload,
        };
        Ok(Some((frame, rest)))
    }

    /// Returns true if the frame has all bits of a flag.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag == flag
    }

    /// Returns the payload without padding, of types that may have some.
    ///
    /// # Errors
    /// Padding that is longer than the payload.
    pub fn unpadded(&self) -> Result<&'b [u8], String> {
        if !self.has(PADDED) {
            return Ok(self.payload);
        }
        let inside = match self.payload {
            [padding, rest @ ..] => rest.split_at_checked(rest.len().wrapping_sub(usize::from(*padding))),
            [] => None,
        };
        match inside {
            Some((inside, _)) => Ok(inside),
            None => Err("the server sent a frame with more padding than payload".to_owned()),
        }
    }
}

fn payload_bytes(head: &[u8; HEAD_BYTES]) -> Result<usize, String> {
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    match length <= PAYLOAD_MAX {
        true => Ok(length),
        // What speaks HTTP/1.1 begins with letters, which make a length of millions.
        false if head.starts_with(b"HTTP/") => {
            Err("the server answers in HTTP/1.1, not in HTTP/2".to_owned())
        }
        false => Err(format!(
            "the server sent a frame of {length} bytes, more than the {PAYLOAD_MAX} that are allowed"
        )),
    }
}

/// Cuts bytes into frames, across the boundaries of reads.
#[derive(Debug, Default)]
pub struct FrameReader {
    /// The beginning of a frame whose end has not come; at most one frame is copied for each read.
    pending: Vec<u8>,
}

impl FrameReader {
    /// Hands each frame that `bytes` completes to `on_frame`.
    ///
    /// # Errors
    /// A frame that is too long, and the first error of `on_frame`; the reader cannot be used any further.
    pub fn read(
        &mut self,
        bytes: &[u8],
        mut on_frame: impl FnMut(Frame<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut rest = bytes;
        if !self.pending.is_empty() {
            rest = self.fill(HEAD_BYTES, rest);
            let Some(head) = self.pending.first_chunk::<HEAD_BYTES>() else {
                return Ok(());
            };
            let whole = HEAD_BYTES + payload_bytes(head)?;
            rest = self.fill(whole, rest);
            let Some((frame, _)) = Frame::split(&self.pending)? else {
                return Ok(());
            };
            on_frame(frame)?;
            // Cleared rather than dropped: the next cut frame finds its room.
            self.pending.clear();
        }
        while let Some((frame, after)) = Frame::split(rest)? {
            on_frame(frame)?;
            rest = after;
        }
        self.pending.extend_from_slice(rest);
        Ok(())
    }

    /// Moves bytes to the pending ones until those are `length` bytes; returns the others.
    fn fill<'b>(&mut self, length: usize, bytes: &'b [u8]) -> &'b [u8] {
        let missing = length.saturating_sub(self.pending.len());
        let (taken, rest) = bytes.split_at(missing.min(bytes.len()));
        self.pending.extend_from_slice(taken);
        rest
    }
}

/// Appends a frame. The payload must be no longer than [`PAYLOAD_MAX`].
pub fn write_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
    out.extend_from_slice(&length);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Owned = (u8, u8, u32, Vec<u8>);

    fn read(reader: &mut FrameReader, bytes: &[u8], all: &mut Vec<Owned>) -> Result<(), String> {
        reader.read(bytes, |frame| {
            all.push((frame.kind, frame.flags, frame.stream, frame.payload.to_vec()));
            Ok(())
        })
    }

    #[test]
    fn frame_is_read_as_it_was_written() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, DATA, END_STREAM, 7, b"abc");
        assert_eq!(bytes, b"\0\0\x03\0\x01\0\0\0\x07abc");
        // The reserved bit is ignored.
        bytes[5] = 0x80;
        let mut all = Vec::new();
        read(&mut FrameReader::default(), &bytes, &mut all).unwrap();
        assert_eq!(all, [(DATA, END_STREAM, 7, b"abc".to_vec())]);
    }

    #[test]
    fn frame_beyond_the_limit_is_refused() {
        let mut all = Vec::new();
        let refused = read(&mut FrameReader::default(), b"\0\x40\x01\0\0\0\0\0\x01", &mut all);
        assert!(refused.unwrap_err().contains("16385"));
        let mut reader = FrameReader::default();
        read(&mut reader, b"HTTP/", &mut all).unwrap();
        let refused = read(&mut reader, b"1.1 400 Bad Request\r\n", &mut all).unwrap_err();
        assert!(refused.contains("HTTP/1.1"), "{refused}");
        assert_eq!(all, []);
    }

    #[test]
    fn padding_is_left_out() {
        let frame = |payload| Frame {
            kind: DATA,
            flags: PADDED,
            stream: 1,
            payload,
        };
        assert_eq!(frame(&b"\x02abxx"[..]).unpadded(), Ok(&b"ab"[..]));
        assert_eq!(frame(&b"\x01x"[..]).unpadded(), Ok(&b""[..]));
        assert!(frame(&b"\x02x"[..]).unpadded().is_err());
        assert!(frame(&b""[..]).unpadded().is_err());
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_frames(
            frames in prop::collection::vec(
                (any::<u8>(), any::<u8>(), 0u32..1 << 31, prop::collection::vec(any::<u8>(), 0..300)),
                0..12,
            ),
            mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..24),
        ) {
            let mut bytes = Vec::new();
            for (kind, flags, stream, payload) in &frames {
                write_frame(&mut bytes, *kind, *flags, *stream, payload);
            }
            let mut places: Vec<usize> = cuts.drain(..).map(|cut| cut.index(bytes.len() + 1)).collect();
            places.extend([0, bytes.len()]);
            places.sort_unstable();
            let (mut reader, mut all) = (FrameReader::default(), Vec::new());
            for pair in places.windows(2) {
                read(&mut reader, &bytes[pair[0]..pair[1]], &mut all).unwrap();
            }
            prop_assert_eq!(all, frames);
        }

        #[test]
        fn no_bytes_break_the_reader(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..9)) {
            let mut reader = FrameReader::default();
            let mut all = Vec::new();
            for part in parts {
                if read(&mut reader, &part, &mut all).is_err() {
                    break;
                }
            }
        }
    }
}
