//! The options of the MCP side of a server: names, page sizes, limits and hints, with their defaults.

use std::time::Duration;

/// The permission to keep an answer, for clients of 2026-07-28 (SEP-2549).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheHint {
    /// The time for which an answer counts as fresh, and so the greatest staleness of a client that lost its
    /// stream.
    pub ttl: Duration,
    /// True when the answer may be kept for other users too.
    pub public: bool,
}

/// The presentation of a server to its clients, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct McpOptions {
    /// The server's name, as clients show it (default `tidings`).
    pub name: String,
    /// The text that a model should know before it uses the server (default none).
    pub instructions: Option<String>,
    /// Items of one page of a list (default 100). A list that is longer has a cursor.
    pub page_size: usize,
    /// The permission to keep answers (default: no time, for the client alone).
    pub cache: CacheHint,
    /// True when a session that begins is sent a list change for every list that is not empty (default true).
    pub announce_on_connect: bool,
    /// Subscriptions of one session or stream (default 1,000). At the limit: error -32602 naming it.
    pub subscriptions_max: usize,
    /// Open streams (default 20,000). At the limit: HTTP 503.
    pub streams_max: usize,
    /// The time for which a session may have neither stream nor request (default 5 minutes). Then it ends;
    /// the next request is answered 404 and the client initialises anew.
    pub idle_timeout: Duration,
    /// The time for which a session or stream may read none of its pending notifications though a stream is
    /// open (default none: for ever; pending notifications are bounded, since repeats become one). Then it
    /// ends. Ignored on stdio.
    pub stall_timeout: Option<Duration>,
    /// The greatest age of a session or stream (default none: as old as the server). Each ends up to a tenth
    /// earlier, so that clients which connected together do not return together. Ignored on stdio.
    pub age_max: Option<Duration>,
    /// Sessions and listen streams of one [`PeerAddress`](crate::http::PeerAddress) (default none: as many as in
    /// all). At the limit: HTTP 429.
    pub per_peer_max: Option<usize>,
    /// Bytes of one POST body (default 4 MiB). Larger ones are answered 413.
    pub body_bytes_max: usize,
    /// Messages of one batch of 2025-03-26 (default 100). Larger ones are answered 400. A batch is answered
    /// with one array of answers, so the progress and the log messages of tools that it calls are left out.
    pub batch_max: usize,
}

impl Default for McpOptions {
    fn default() -> McpOptions {
        McpOptions {
            name: "tidings".into(),
            instructions: None,
            page_size: 100,
            cache: CacheHint {
                ttl: Duration::ZERO,
                public: false,
            },
            announce_on_connect: true,
            subscriptions_max: 1_000,
            streams_max: 20_000,
            idle_timeout: Duration::from_secs(300),
            stall_timeout: None,
            age_max: None,
            per_peer_max: None,
            body_bytes_max: 4 << 20,
            batch_max: 100,
        }
    }
}
