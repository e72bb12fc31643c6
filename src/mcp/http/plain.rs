//! The parts that plain requests have in common: requests that can be answered without rmcp, because every
//! field of them is known here and has its usual form.

use std::sync::Arc;

use rmcp::model::ClientCapabilities;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::mcp::revision::Revision;

/// The number of digits up to which any integer fits into 64 bits.
const ID_DIGITS_MAX: usize = 18;

/// The `_meta` of a plain request of 2026-07-28. Objects are read in full, so that a request which rmcp
/// cannot read is not accepted here either.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlainMeta<'a> {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: &'a str,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Map<String, Value>,
    #[serde(default, rename = "io.modelcontextprotocol/clientInfo")]
    client: Option<Map<String, Value>>,
    /// The etags that the client of a listen request holds; no part of other requests.
    #[serde(default, rename = "io.github.tidings/etag", deserialize_with = "present")]
    pub(super) etags: Option<Value>,
}

/// Reads a value that is there; null is one too.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(value).map(Some)
}

impl PlainMeta<'_> {
    /// Returns the name that the client gives itself.
    pub(super) fn client_name(&self) -> Option<Arc<str>> {
        Some(self.client.as_ref()?.get("name")?.as_str()?.into())
    }

    /// Returns true when rmcp would accept this `_meta` of a request of 2026-07-28.
    pub(super) fn is_plain(&self) -> bool {
        self.version == Revision::STATELESS.as_str()
            // Most clients declare nothing, and reading capabilities costs more than this look.
            && (self.capabilities.is_empty() || ClientCapabilities::deserialize(&self.capabilities).is_ok())
    }
}

/// Returns true when an id is written as rmcp would write it back.
pub(super) fn is_plain_id(id: &str) -> bool {
    match id.strip_prefix('"') {
        // An escape could be written in several ways; rmcp writes one of them.
        Some(text) => text
            .trim_end_matches('"')
            .bytes()
            .all(|byte| matches!(byte, b' '..=b'~') && byte != b'\\'),
        None => id.len() <= ID_DIGITS_MAX && id.bytes().all(|byte| byte.is_ascii_digit()),
    }
}
