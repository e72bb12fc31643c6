//! The encoding of one line of the ledger, which every later version must be able to read.
//!
//! One byte of format (1), one of flags (1: live, 2: has a digest), then version, time and offset as 8 bytes
//! each, and the digest, if there is one, as 16 bytes; all little-endian.

use tidings_actors::{Digest, Etag, Line};

use super::error::Fault;

const FORMAT: u8 = 1;
const LIVE: u8 = 1;
const DIGEST: u8 = 2;

/// A line and the offset at which it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredLine {
    pub(super) line: Line,
    pub(super) offset: u64,
}

impl StoredLine {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Line { etag, digest, live } = self.line;
        let flags = if live { LIVE } else { 0 } | if digest.is_some() { DIGEST } else { 0 };
        let mut bytes = vec![FORMAT, flags];
        for number in [etag.version, etag.updated_at, self.offset] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        if let Some(Digest(digest)) = digest {
            bytes.extend_from_slice(&digest.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<StoredLine, Fault> {
        // First, so that an operator is told to use the newer version rather than that the file is damaged.
        if let Some(&format) = bytes.first()
            && format > FORMAT
        {
            return Err(Fault::Newer(format.into()));
        }
        parse(bytes).ok_or_else(|| Fault::Damaged(format!("a line of {} bytes makes no sense", bytes.len())))
    }
}

fn parse(bytes: &[u8]) -> Option<StoredLine> {
    let [FORMAT, flags, rest @ ..] = bytes else {
        return None;
    };
    if flags & !(LIVE | DIGEST) != 0 {
        return None;
    }
    let (version, rest) = rest.split_first_chunk::<8>()?;
    let (updated_at, rest) = rest.split_first_chunk::<8>()?;
    let (offset, rest) = rest.split_first_chunk::<8>()?;
    let digest = match (flags & DIGEST != 0, rest) {
        (false, []) => None,
        (true, rest) => Some(Digest(u128::from_le_bytes(rest.try_into().ok()?))),
        (false, _) => return None,
    };
    let etag = Etag {
        version: u64::from_le_bytes(*version),
        updated_at: u64::from_le_bytes(*updated_at),
        life: 0,
    };
    let live = flags & LIVE != 0;
    Some(StoredLine {
        line: Line { etag, digest, live },
        offset: u64::from_le_bytes(*offset),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stored(version: u64, digest: Option<u128>, live: bool) -> StoredLine {
        let etag = Etag {
            version,
            updated_at: 0x0102_0304_0506_0708,
            life: 0,
        };
        let digest = digest.map(Digest);
        StoredLine {
            line: Line { etag, digest, live },
            offset: 9,
        }
    }

    #[test]
    fn encoding_is_fixed() {
        let bytes = stored(3, None, true).encode();
        let expected = [
            1, 1, 3, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(bytes, expected);
        assert_eq!(stored(3, Some(1), false).encode()[..2], [1, 2]);
        assert_eq!(stored(3, Some(1), true).encode().len(), 42);
    }

    #[test]
    fn newer_format_is_not_damage() {
        let mut bytes = stored(3, None, true).encode();
        bytes[0] = 2;
        assert!(matches!(StoredLine::decode(&bytes), Err(Fault::Newer(2))));
        for bytes in [&[][..], &[1], &[0, 1], &[1, 4], &[1, 1, 0]] {
            assert!(
                matches!(StoredLine::decode(bytes), Err(Fault::Damaged(_))),
                "{bytes:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn encoded_lines_decode_to_themselves(version: u64, digest: Option<u128>, live: bool) {
            let stored = stored(version, digest, live);
            prop_assert_eq!(StoredLine::decode(&stored.encode()).unwrap(), stored);
        }

        #[test]
        fn decoded_bytes_encode_to_themselves(bytes in prop::collection::vec(0..4u8, 0..44)) {
            if let Ok(stored) = StoredLine::decode(&bytes) {
                prop_assert_eq!(stored.encode(), bytes);
            }
        }
    }
}
