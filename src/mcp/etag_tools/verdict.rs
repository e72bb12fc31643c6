//! The answers of the etag tools about a resource: its etag, and the staleness of the client's.

use serde::Serialize;

use crate::Etag;

/// The answer about one of several resources.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum ItemVerdict<'a> {
    Found(EtagVerdict<'a>),
    Failed(ItemError<'a>),
}

impl ItemVerdict<'_> {
    /// True if the client's etag is not the current one.
    pub(super) fn is_stale(&self) -> bool {
        match self {
            ItemVerdict::Found(verdict) => verdict.stale_for_client,
            ItemVerdict::Failed(failed) => failed.stale_for_client,
        }
    }
}

/// The answer about a resource that has no etag.
#[derive(Debug, Serialize)]
pub(super) struct ItemError<'a> {
    pub(super) error: String,
    pub(super) stale_for_client: bool,
    pub(super) uri: &'a str,
    pub(super) version: u64,
}

/// The answer to a poll of one resource. The fields stand in the order of `serde_json`'s maps, so that the
/// fast path writes the same bytes as a [`Value`](serde_json::Value) would.
#[derive(Debug, Serialize)]
pub(crate) struct EtagVerdict<'a> {
    etag_encoded: String,
    stale_for_client: bool,
    uri: &'a str,
    version: u64,
}

impl EtagVerdict<'_> {
    /// Compares the etag that the client holds with the current one.
    pub(super) fn new<'a>(uri: &'a str, client_etag: Option<&str>, etag: Etag) -> EtagVerdict<'a> {
        EtagVerdict {
            etag_encoded: etag.to_string(),
            stale_for_client: etag.is_stale(client_etag),
            uri,
            version: etag.version,
        }
    }
}
