//! Content digests: how the bus knows that nothing changed.
//!
//! Owns: the digest of a body and the canonical text of JSON that digests are taken of. Never: leaves the process;
//! the digest is not cryptographic (xxh3, 128 bits), since nobody gains by making his own change go unnoticed.

use serde_json::Value;
use xxhash_rust::xxh3::Xxh3;

/// The digest of some content. Equal digests mean equal content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub u128);

impl Digest {
    /// Digests `parts` in order; each part's length is digested too, so moving bytes between parts shows.
    pub fn of(parts: &[&[u8]]) -> Digest {
        let mut hasher = Xxh3::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Digest(hasher.digest128())
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
