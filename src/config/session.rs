//! Connected MCP clients, and the limits of each.

use super::bounded::{Checked, Count, HOUR, OrNone, SECOND, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidings_actors::Limits;

/// Connected MCP clients, and the limits of each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionConfig {
    /// Sessions at a time.
    /// At the limit: Further `initialize` and `subscriptions/listen` requests get an error with status 503.
    #[serde(with = "Checked::<Count<1, 1_000_000>>")]
    pub max: usize,
    /// Subscriptions of one session or of one listen stream.
    /// At the limit: Further ones get an error that names the limit.
    #[serde(with = "Checked::<Count<1, 100_000>>")]
    pub subscriptions_max: usize,
    /// Subscriptions of one session or listen stream to resources that do not exist, held for a client that
    /// says which etag it knows; 0 holds none.
    /// At the limit: Further ones are refused like any resource that does not exist.
    #[serde(with = "Checked::<Count<0, 100_000>>")]
    pub pending_subscriptions: usize,
    /// Time a session lives with neither an open stream nor a request.
    /// At the limit: The session ends and its next request gets 404.
    #[serde(with = "Checked::<Time<{ 10 * SECOND }, { 24 * HOUR }>>")]
    pub idle_timeout: Duration,
    /// Time a session with an open stream may read none of its pending notices; 0s is no limit, since their
    /// number is bounded by its subscriptions.
    /// At the limit: It ends and its connection is cut; the next request gets 404 with the reason.
    #[serde(with = "Checked::<OrNone<Time<0, { 24 * HOUR }>>>")]
    pub stall_timeout: Option<Duration>,
    /// Greatest age of a session or listen stream; 0s is no limit. Each ends up to a tenth earlier, so that
    /// clients that connected together do not reconnect together.
    /// At the limit: It gets its pending notices and ends; the next request of a session gets 404 with the
    /// reason, a listen stream its result.
    #[serde(with = "Checked::<OrNone<Time<0, { 30 * 24 * HOUR }>>>")]
    pub age_max: Option<Duration>,
    /// Sessions and listen streams of one IP address, or of one /64 of IPv6; 0 is no limit. Behind a proxy
    /// all clients are one address.
    /// At the limit: Further `initialize` and `subscriptions/listen` requests get an error with status 429.
    #[serde(with = "Checked::<OrNone<Count<0, 1_000_000>>>")]
    pub per_peer_max: Option<usize>,
    /// Sends a new session one list change for every list that is not empty.
    pub announce_on_connect: bool,
    /// Open streams in all.
    /// At the limit: A request for a further stream gets 503.
    #[serde(with = "Checked::<Count<1, 1_000_000>>")]
    pub streams_max: usize,
}

impl Default for SessionConfig {
    fn default() -> SessionConfig {
        // A bus works without a configuration, so its own defaults are the ones to declare.
        let limits = Limits::default();
        SessionConfig {
            max: limits.sessions_max,
            subscriptions_max: limits.subscriptions_max,
            pending_subscriptions: limits.pending_subscriptions,
            idle_timeout: Duration::from_secs(300),
            stall_timeout: None,
            age_max: None,
            per_peer_max: None,
            announce_on_connect: true,
            streams_max: 20_000,
        }
    }
}
