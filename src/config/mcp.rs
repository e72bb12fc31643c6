//! The MCP server as its clients see it, and their sessions.

use super::bounded::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidings_actors::Limits;

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
    /// Longest time of one call of a tool, prompt or reader of the library, or of a wrapped server; 0s is no
    /// limit. A tool may have its own. The tools of a folder have `tools.timeout`.
    /// At the limit: The handler is stopped, and the client gets an error that names the limit; over the HTTP
    /// API 504.
    handler_timeout: Option<Duration> = Some(Duration::from_secs(300)), "Checked::<OrNone<Time<0, { 24 * HOUR }>>>";
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

table! { SessionConfig = "Connected MCP clients, and the limits of each.";
    /// Sessions at a time.
    /// At the limit: The oldest session whose client never sent `notifications/initialized` is ended for a
    /// new one. Without any, further `initialize` and `subscriptions/listen` requests get an error with
    /// status 503.
    max: usize = Limits::default().sessions_max, "Checked::<Count<1, 1_000_000>>";
    /// Subscriptions of one session or of one listen stream.
    /// At the limit: Further ones get an error that names the limit.
    subscriptions_max: usize = Limits::default().subscriptions_max, "Checked::<Count<1, 100_000>>";
    /// Subscriptions of one session or listen stream to resources that do not exist, held for a client that
    /// says which etag it knows; 0 holds none.
    /// At the limit: Further ones are refused like any resource that does not exist.
    pending_subscriptions: usize = Limits::default().pending_subscriptions, "Checked::<Count<0, 100_000>>";
    /// Time a session lives with neither an open stream nor a request.
    /// At the limit: The session ends and its next request gets 404.
    idle_timeout: Duration = Duration::from_secs(300), "Checked::<Time<{ 10 * SECOND }, { 24 * HOUR }>>";
    /// Time a session with an open stream may read none of its pending notices; 0s is no limit, since their
    /// number is bounded by its subscriptions.
    /// At the limit: It ends and its connection is cut; the next request gets 404 with the reason.
    stall_timeout: Option<Duration> = None, "Checked::<OrNone<Time<0, { 24 * HOUR }>>>";
    /// Greatest age of a session or listen stream; 0s is no limit. Each ends up to a tenth earlier, so that
    /// clients that connected together do not reconnect together.
    /// At the limit: It gets its pending notices and ends; the next request of a session gets 404 with the
    /// reason, a listen stream its result.
    age_max: Option<Duration> = None, "Checked::<OrNone<Time<0, { 30 * 24 * HOUR }>>>";
    /// Sessions, listen streams, streams of `/v1/events` and connections of `/v1/ws` of one IP address, or of
    /// one /64 of IPv6, together; 0 is no limit. Behind a proxy all clients are one address. Unless set, it
    /// is 1000 when `http.listen` is an address that other machines can reach.
    /// At the limit: A request that opens a further one gets an error with status 429.
    per_peer_max: Option<usize> = None, "Checked::<OrNone<Count<0, 1_000_000>>>";
    /// Sends a new session one list change for every list that is not empty.
    announce_on_connect: bool = true;
    /// Open streams in all. At the limit: A request for a further stream gets 503.
    streams_max: usize = 20_000, "Checked::<Count<1, 1_000_000>>";
}
