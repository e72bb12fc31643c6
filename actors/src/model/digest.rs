//! Digests of content, by which the bus detects that a change altered nothing.
//!
//! The hash is xxh3 with 128 bits. It is not cryptographic, because a publisher that forges a collision only
//! hides its own change.

use serde_json::Value;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// The bytes that the length of a part takes.
const LEN_BYTES: usize = size_of::<u64>();
// The largest input, in bytes, that is hashed with one call. Up to this length xxh3 needs no state between
// blocks.
const AT_ONCE_MAX: usize = 240;

/// The digest of some content. Equal digests mean equal content.
// Packed to the alignment of a pointer: an optional digest takes 24 bytes of each resource, not 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(Rust, packed(8))]
pub struct Digest(pub u128);

impl Digest {
    /// Hashes `parts` in order, each after its length, so that moving bytes from one part to the next changes
    /// the digest.
    pub fn of(parts: &[&[u8]]) -> Digest {
        let len: usize = parts.iter().map(|part| part.len() + LEN_BYTES).sum();
        if len <= AT_ONCE_MAX {
            return Digest::at_once(parts, len);
        }
        let mut hasher = Xxh3::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Digest(hasher.digest128())
    }

    /// Computes the same digest for short input. Setting up a streaming hasher would cost more than the
    /// hashing.
    fn at_once(parts: &[&[u8]], len: usize) -> Digest {
        let mut all = [0; AT_ONCE_MAX];
        let mut rest = &mut all[..];
        for part in parts {
            for bytes in [&(part.len() as u64).to_le_bytes()[..], part] {
                let (place, after) = rest.split_at_mut(bytes.len());
                place.copy_from_slice(bytes);
                rest = after;
            }
        }
        Digest(xxh3_128(&all[..len]))
    }

    /// Returns the digest of two digests and two flags, the same that [`of`](Self::of) returns for their
    /// bytes. With lengths that are known it takes a third of the instructions, and every change needs it
    /// once.
    pub(crate) fn combine(self, other: Digest, flags: [bool; 2]) -> Digest {
        let mut all = [0; 3 * LEN_BYTES + 34];
        all[..8].copy_from_slice(&16_u64.to_le_bytes());
        all[8..24].copy_from_slice(&self.0.to_le_bytes());
        all[24..32].copy_from_slice(&16_u64.to_le_bytes());
        all[32..48].copy_from_slice(&other.0.to_le_bytes());
        all[48..56].copy_from_slice(&2_u64.to_le_bytes());
        all[56..].copy_from_slice(&flags.map(u8::from));
        Digest(xxh3_128(&all))
    }

    /// Hashes a JSON value; the order of object keys does not matter.
    pub fn of_json(value: &Value) -> Digest {
        let mut text = Vec::with_capacity(256);
        write_canonical(value, &mut text);
        Digest::of(&[&text])
    }
}

/// Writes `value` with sorted keys and without spaces.
fn write_canonical(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(map) => {
            // serde_json keeps the order of insertion if any crate of the build enables `preserve_order`.
            let mut keys: Vec<_> = map.iter().collect();
            keys.sort_unstable_by_key(|(key, _)| *key);
            out.push(b'{');
            for (key, value) in keys {
                write_scalar(&Value::from(key.as_str()), out);
                out.push(b':');
                write_canonical(value, out);
                out.push(b',');
            }
            out.push(b'}');
        }
        Value::Array(items) => {
            out.push(b'[');
            for item in items {
                write_canonical(item, out);
                // A comma after the last item does no harm, since the text is only hashed.
                out.push(b',');
            }
            out.push(b']');
        }
        scalar => write_scalar(scalar, out),
    }
}

fn write_scalar(value: &Value, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("a scalar written to memory cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn boundaries_between_parts_change_the_digest() {
        assert_ne!(Digest::of(&[b"ab", b"c"]), Digest::of(&[b"a", b"bc"]));
        assert_ne!(Digest::of(&[b""]), Digest::of(&[]));
    }

    /// Stores keep digests, so both ways to compute one must agree.
    #[test]
    fn short_and_long_input_have_the_same_digest() {
        for len in [0, 1, 8, 100, AT_ONCE_MAX - 2 * LEN_BYTES, AT_ONCE_MAX, 1_000] {
            let one = vec![b'a'; len / 2];
            let two = vec![b'b'; len - len / 2];
            let mut hasher = Xxh3::new();
            for part in [&one, &two] {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
            assert_eq!(Digest::of(&[&one, &two]), Digest(hasher.digest128()), "{len}");
        }
    }

    /// Stores keep the digests of descriptions with their bodies.
    #[test]
    fn combined_digest_is_that_of_the_bytes() {
        let one = Digest::of(&[b"body"]);
        let two = Digest::of(&[b"item"]);
        for flags in [[false, false], [false, true], [true, false], [true, true]] {
            let parts: [&[u8]; 3] = [&one.0.to_le_bytes(), &two.0.to_le_bytes(), &flags.map(u8::from)];
            assert_eq!(one.combine(two, flags), Digest::of(&parts), "{flags:?}");
        }
    }

    #[test]
    fn json_digest_ignores_only_the_order_of_keys() {
        let one: Value = serde_json::from_str(r#"{"a":1,"b":{"c":[1,2],"d":null}}"#).unwrap();
        let two: Value = serde_json::from_str(r#"{"b":{"d":null,"c":[1,2]},"a":1}"#).unwrap();
        assert_eq!(Digest::of_json(&one), Digest::of_json(&two));
        for other in [
            json!({"a":1,"b":{"c":[2,1],"d":null}}),
            json!({"a":1,"b":{"c":[1,2]}}),
            json!({"a":"1","b":{"c":[1,2],"d":null}}),
        ] {
            assert_ne!(Digest::of_json(&one), Digest::of_json(&other), "{other}");
        }
    }
}
