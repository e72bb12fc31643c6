//! The names of the streams and the subjects of a log.

use sha2::{Digest as _, Sha256};

use crate::ResourceUri;
use crate::store::encoding::BodyHash;

/// The bytes of a hash that stand in the subject of a URI.
const URI_HASH_BYTES: usize = 16;

/// The epoch of the positions that the nodes of a namespace give: a part of its hash, so that clusters are
/// told apart. It has 48 bits, like the epochs of a node alone.
pub(super) fn position_epoch(namespace: &str) -> u64 {
    let hash = Sha256::digest(namespace.as_bytes());
    let mut epoch = 0;
    for byte in hash.iter().take(6) {
        epoch = epoch << 8 | u64::from(*byte);
    }
    epoch
}

/// The names of one log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogNames {
    /// The stream with the records.
    pub(super) records: String,
    /// The stream with the chunks of large bodies.
    pub(super) bodies: String,
    namespace: String,
}

impl LogNames {
    pub(super) fn new(namespace: &str) -> LogNames {
        LogNames {
            records: format!("TIDINGS_{namespace}"),
            bodies: format!("TIDINGS_{namespace}_B"),
            namespace: namespace.to_owned(),
        }
    }

    /// The subjects of the stream with the records.
    pub(super) fn record_subjects(&self) -> Vec<String> {
        let namespace = &self.namespace;
        vec![
            format!("tidings.{namespace}.r.*"),
            format!("tidings.{namespace}.e.*"),
        ]
    }

    /// The subjects of the stream with the chunks.
    pub(super) fn body_subjects(&self) -> Vec<String> {
        vec![format!("tidings.{}.b.*.*", self.namespace)]
    }

    /// The subject of the records of `uri`. It has a hash because a URI may have characters, a length and a
    /// case that subjects do not.
    pub(super) fn resource(&self, uri: &ResourceUri) -> String {
        let hash = Sha256::digest(uri.as_str().as_bytes());
        let mut subject = format!("tidings.{}.r.", self.namespace);
        write_hex(&hash[..URI_HASH_BYTES], &mut subject);
        subject
    }

    /// The subject of the entries that tell the resource list.
    pub(super) fn list(&self) -> String {
        format!("tidings.{}.e.list", self.namespace)
    }

    /// The subject of the entries that forget URIs.
    pub(super) fn floor(&self) -> String {
        format!("tidings.{}.e.floor", self.namespace)
    }

    /// The subject of a chunk of the body with this hash.
    pub(super) fn chunk(&self, body: &BodyHash, index: u64) -> String {
        let mut subject = format!("tidings.{}.b.", self.namespace);
        write_hex(body, &mut subject);
        subject.push('.');
        subject.push_str(&index.to_string());
        subject
    }

    /// The subjects of all chunks of the body with this hash.
    pub(super) fn chunks(&self, body: &BodyHash) -> String {
        let mut subject = format!("tidings.{}.b.", self.namespace);
        write_hex(body, &mut subject);
        subject.push_str(".*");
        subject
    }

    /// The subjects of all chunks.
    pub(super) fn all_chunks(&self) -> String {
        format!("tidings.{}.b.>", self.namespace)
    }

    /// The subject at which nodes ask for bodies that are gone.
    pub(super) fn lost_bodies(&self) -> String {
        format!("tidings.{}.q.bodies", self.namespace)
    }

    /// The hash of the body whose chunk has this subject; none for another subject.
    pub(super) fn body_of(&self, subject: &str) -> Option<BodyHash> {
        let rest = subject.strip_prefix("tidings.")?.strip_prefix(&self.namespace)?;
        let (hash, _index) = rest.strip_prefix(".b.")?.split_once('.')?;
        read_hex(hash)
    }
}

/// Reads a hash from its hexadecimal digits.
fn read_hex(digits: &str) -> Option<BodyHash> {
    let mut hash = BodyHash::default();
    if digits.len() != 2 * hash.len() || !digits.is_ascii() {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(hash)
}

/// Appends the hexadecimal digits of `bytes`.
pub(super) fn write_hex(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_has_a_hash_of_the_uri() {
        let names = LogNames::new("x");
        let uri = ResourceUri::new("demo://a").unwrap();
        let subject = names.resource(&uri);
        assert_eq!(subject, names.resource(&uri));
        assert_eq!(subject.len(), "tidings.x.r.".len() + 32);
        assert_ne!(subject, names.resource(&ResourceUri::new("demo://A").unwrap()));
    }

    #[test]
    fn chunk_has_the_whole_hash_of_the_body() {
        let names = LogNames::new("x");
        let subject = names.chunk(&[0xaf; 32], 7);
        assert_eq!(subject, format!("tidings.x.b.{}.7", "af".repeat(32)));
        assert_eq!(names.body_of(&subject), Some([0xaf; 32]));
        assert_eq!(names.chunks(&[0xaf; 32]), subject.replace(".7", ".*"));
        for other in ["", "tidings.y.b.af.7", "tidings.x.b.af.7", "tidings.x.r.af"] {
            assert_eq!(names.body_of(other), None, "{other}");
        }
    }
}
