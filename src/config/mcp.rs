//! The MCP server as its clients see it.

use super::bounded::{Checked, Count, HOUR, OrNone, SECOND, Text, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The presentation of the server, its lists and its tools to MCP clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpConfig {
    /// Items on one page of a list.
    /// At the limit: The rest follows under a cursor.
    #[serde(with = "Checked::<Count<1, 1000>>")]
    pub page_size: usize,
    /// Time clients of revision 2026-07-28 may keep a result without asking again (`ttlMs`).
    #[serde(with = "Checked::<Time<0, { 24 * HOUR }>>")]
    pub ttl: Duration,
    /// The caches that may keep a result: one user's, or a shared one.
    pub cache_scope: CacheScope,
    /// Longest wait of one `wait_for_resource_change` call; hosts cut longer calls.
    /// At the limit: A call that asks for more waits this long and answers that nothing changed.
    #[serde(with = "Checked::<Time<SECOND, { 25 * SECOND }>>")]
    pub wait_max: Duration,
    /// Items of one `get_resource_etags` or `wait_for_resource_change` call.
    /// At the limit: A call with more gets a tool error that names the limit.
    #[serde(with = "Checked::<Count<1, 1000>>")]
    pub items_max: usize,
    /// Name of the server, as clients show it.
    #[serde(with = "Checked::<Text<1, 256>>")]
    pub name: String,
    /// Instructions for a model about the use of the server; empty sends none.
    #[serde(with = "Checked::<OrNone<Text<0, 65_536>>>")]
    pub instructions: Option<String>,
}

impl Default for McpConfig {
    fn default() -> McpConfig {
        McpConfig {
            page_size: 100,
            ttl: Duration::ZERO,
            cache_scope: CacheScope::Private,
            wait_max: Duration::from_secs(25),
            items_max: 100,
            name: "tidings".to_owned(),
            instructions: None,
        }
    }
}

/// The caches that may keep a result, as clients of revision 2026-07-28 are told (SEP-2549).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheScope {
    /// Only the cache of the user who asked.
    Private,
    /// Any cache on the way.
    Public,
}
