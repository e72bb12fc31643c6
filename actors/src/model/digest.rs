//! Content digests: how the bus knows that nothing changed.
//!
//! Owns: the digest of a body and the canonical text of JSON that digests are taken of. Never: leaves the process;
//! the digest is not cryptographic (xxh3, 128 bits), since nobody gains by making his own change go unnoticed.

use serde_json::Value;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// How the length of a part is written.
const LEN_BYTES: usize = size_of::<u64>();
/// Up to so many bytes are digested at once.
const AT_ONCE_MAX: usize = 240;

/// The digest of some content. Equal digests mean equal content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub u128);

impl Digest {
    /// Digests `parts` in order; each part's length is digested too, so moving bytes between parts shows.
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

    /// The same of parts that are short together: a hasher that takes one after the other costs more than they do.
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

    /// Digests a JSON value; the order of object keys does not matter.
    pub fn of_json(value: &Value) -> Digest {
        let mut text = Vec::with_capacity(256);
        write_canonical(value, &mut text);
        Digest::of(&[&text])
    }
}

/// Writes `value` with sorted keys and no spaces, whatever order its maps keep.
fn write_canonical(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(map) => {
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
    fn parts_do_not_run_together() {
        assert_ne!(Digest::of(&[b"ab", b"c"]), Digest::of(&[b"a", b"bc"]));
        assert_ne!(Digest::of(&[b""]), Digest::of(&[]));
    }

    /// Digests are kept by stores, so however they are taken they are the same.
    #[test]
    fn short_and_long_parts_are_digested_alike() {
        for len in [0, 1, 8, 100, AT_ONCE_MAX - 2 * LEN_BYTES, AT_ONCE_MAX, 1_000] {
            let (one, two) = (vec![b'a'; len / 2], vec![b'b'; len - len / 2]);
            let mut hasher = Xxh3::new();
            for part in [&one, &two] {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
            assert_eq!(Digest::of(&[&one, &two]), Digest(hasher.digest128()), "{len}");
        }
    }

    #[test]
    fn key_order_is_no_change_and_everything_else_is() {
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
