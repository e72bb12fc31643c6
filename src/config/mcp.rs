//! The MCP server as its clients see it.

use super::bounded::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

table! { McpConfig = "The presentation of the server, its lists and its tools to MCP clients.";
    /// Items on one page of a list. At the limit: The rest follows under a cursor.
    page_size: usize = 100, "Checked::<Count<1, 1000>>";
    /// Time clients of revision 2026-07-28 may keep a result without asking again (`ttlMs`).
    ttl: Duration = Duration::ZERO, "Checked::<Time<0, { 24 * HOUR }>>";
    /// The caches that may keep a result: one user's, or a shared one.
    cache_scope: CacheScope = CacheScope::Private;
    /// Longest wait of one `wait_for_resource_change` call; hosts cut longer calls.
    /// At the limit: A call that asks for more waits this long and answers that nothing changed.
    wait_max: Duration = Duration::from_secs(25), "Checked::<Time<SECOND, { 25 * SECOND }>>";
    /// Items of one `get_resource_etags` or `wait_for_resource_change` call.
    /// At the limit: A call with more gets a tool error that names the limit.
    items_max: usize = 100, "Checked::<Count<1, 1000>>";
    /// Name of the server, as clients show it.
    name: String = "tidings".to_owned(), "Checked::<Text<1, 256>>";
    /// Instructions for a model about the use of the server; empty sends none.
    instructions: Option<String> = None, "Checked::<OrNone<Text<0, 65_536>>>";
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
