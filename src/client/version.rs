//! The version of a resource, as a server reports it or as its contents imply.

use rmcp::model::{MetaObject, ReadResourceResult, ResourceContents};

use serde_json::Value;

use crate::{Digest, printable};

/// The `_meta` key of a resource's etag.
pub(super) const ETAG_KEY: &str = "io.github.tidings/etag";

/// A version of a resource, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Version {
    /// The etag, if the server gives etags.
    pub(super) etag: Option<String>,
    /// The digest of the contents, if they were read.
    pub(super) digest: Option<Digest>,
}

impl Version {
    /// Returns true unless the two are known to be equal.
    pub(super) fn may_differ(&self, other: &Version) -> bool {
        self.differs(other).unwrap_or(true)
    }

    /// Compares the two by etag or else by digest; `None` if they have neither in common.
    pub(super) fn differs(&self, other: &Version) -> Option<bool> {
        match (&self.etag, &other.etag) {
            (Some(one), Some(other)) => Some(one != other),
            _ => Some(self.digest? != other.digest?),
        }
    }
}

/// Returns the etag in `meta`.
pub(super) fn etag_of(meta: &MetaObject) -> Option<String> {
    etag_in(meta.get(ETAG_KEY)?)
}

/// Returns a value if it can be an etag: a text without characters that steer a terminal.
pub(super) fn etag_in(value: &Value) -> Option<String> {
    match value.as_str()? {
        hostile if hostile.contains(printable::steers) => None,
        etag => Some(etag.to_owned()),
    }
}

/// Returns the version that a read returned. The etag is that of the result, or else of its first content.
pub(super) fn version_of(result: &ReadResourceResult) -> Version {
    let mut parts: Vec<&[u8]> = Vec::new();
    for content in &result.contents {
        // Metadata is left out of the digest: it may hold a time of reading.
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
    let metas = [result.meta.as_ref(), result.contents.first().and_then(meta_of)];
    Version {
        etag: metas.into_iter().flatten().find_map(etag_of),
        digest: Some(Digest::of(&parts)),
    }
}

fn meta_of(content: &ResourceContents) -> Option<&MetaObject> {
    match content {
        ResourceContents::TextResourceContents { meta, .. } => meta.as_ref(),
        ResourceContents::BlobResourceContents { meta, .. } => meta.as_ref(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(etag: Option<&str>, content: Option<&str>) -> Version {
        Version {
            etag: etag.map(str::to_owned),
            digest: content.map(|content| Digest::of(&[content.as_bytes()])),
        }
    }

    fn meta(etag: &str) -> MetaObject {
        let mut meta = MetaObject::default();
        meta.insert(ETAG_KEY.to_owned(), etag.into());
        meta
    }

    #[test]
    fn versions_compare_by_etag_then_by_digest() {
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
    fn etag_that_steers_a_terminal_is_none() {
        for etag in ["v5-1\u{1b}[31mRED", "v5\nFAKE", "v5\u{9b}2J", "v5\u{202e}"] {
            assert_eq!(etag_of(&meta(etag)), None, "{etag:?}");
        }
        assert_eq!(etag_of(&meta("v5-1")).as_deref(), Some("v5-1"));
    }

    #[test]
    fn etag_of_a_result_wins_over_its_content() {
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
