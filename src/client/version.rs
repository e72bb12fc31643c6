//! Which version of a resource a server speaks of.
//!
//! Owns where the etag stands in the protocol's metadata, and when two versions count as different ones. It reads what
//! it is handed and keeps nothing.

use rmcp::model::{MetaObject, ReadResourceResult, ResourceContents};

use crate::Digest;

/// Where the etag of a resource stands in `_meta`.
const ETAG_KEY: &str = "io.github.tidings/etag";

/// Which version of a resource is meant, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Version {
    /// The server's own word.
    pub(super) etag: Option<String>,
    /// The content's digest, for servers that give no etags.
    pub(super) digest: Option<Digest>,
}

impl Version {
    /// Whether the two may be different versions: what cannot be compared may be.
    pub(super) fn may_differ(&self, other: &Version) -> bool {
        self.surely_differs(other).unwrap_or(true)
    }

    /// Whether the two are different versions; none where they have nothing to compare.
    pub(super) fn surely_differs(&self, other: &Version) -> Option<bool> {
        match (&self.etag, &other.etag) {
            (Some(one), Some(other)) => Some(one != other),
            _ => Some(self.digest? != other.digest?),
        }
    }
}

/// The etag that `meta` carries.
pub(super) fn etag_of(meta: &MetaObject) -> Option<String> {
    meta.get(ETAG_KEY)?.as_str().map(str::to_owned)
}

/// The version that a read answered: its etag, of the result or of its first content.
pub(super) fn version_of(result: &ReadResourceResult) -> Version {
    let of_content = |content: &ResourceContents| match content {
        ResourceContents::TextResourceContents { meta, .. } => meta.as_ref().and_then(etag_of),
        ResourceContents::BlobResourceContents { meta, .. } => meta.as_ref().and_then(etag_of),
        _ => None,
    };
    let etag = result.meta.as_ref().and_then(etag_of);
    let mut parts: Vec<&[u8]> = Vec::new();
    for content in &result.contents {
        match content {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                parts.extend([uri.as_bytes(), b"text", text.as_bytes()]);
            }
            ResourceContents::BlobResourceContents { uri, blob, .. } => {
                parts.extend([uri.as_bytes(), b"blob", blob.as_bytes()]);
            }
            _ => parts.push(b"other"),
        }
    }
    Version {
        etag: etag.or_else(|| result.contents.first().and_then(of_content)),
        digest: Some(Digest::of(&parts)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_etag_then_by_content() {
        let version = |etag: Option<&str>, content: Option<&str>| Version {
            etag: etag.map(str::to_owned),
            digest: content.map(|content| Digest::of(&[content.as_bytes()])),
        };
        for (one, other, differ) in [
            (
                version(Some("v1-1"), Some("x")),
                version(Some("v1-1"), Some("y")),
                false,
            ),
            (version(Some("v1-1"), None), version(Some("v2-1"), None), true),
            (version(None, Some("x")), version(None, Some("x")), false),
            (version(None, Some("x")), version(Some("v1-1"), Some("y")), true),
            (version(None, None), version(None, None), true),
            (version(Some("v1-1"), None), version(None, Some("x")), true),
        ] {
            assert_eq!(one.may_differ(&other), differ, "{one:?} {other:?}");
        }
    }

    #[test]
    fn the_etag_of_a_read_is_the_results_or_its_first_contents() {
        let meta = |etag: &str| {
            let mut meta = MetaObject::default();
            meta.insert(ETAG_KEY.to_owned(), etag.into());
            meta
        };
        let content = ResourceContents::TextResourceContents {
            uri: "demo://a".to_owned(),
            mime_type: None,
            text: "body".to_owned(),
            meta: Some(meta("v1-1")),
        };
        let mut result = ReadResourceResult::new(vec![content]);
        assert_eq!(version_of(&result).etag.as_deref(), Some("v1-1"));
        result.meta = Some(meta("v2-2"));
        assert_eq!(version_of(&result).etag.as_deref(), Some("v2-2"));
        let bare = ReadResourceResult::new(vec![ResourceContents::text("body", "demo://a")]);
        assert_eq!(version_of(&bare).etag, None);
        assert_eq!(version_of(&bare).digest, version_of(&result).digest);
    }
}
