//! The options of the MCP side of a server.

use crate::config::{HttpConfig, McpConfig, SessionConfig};

/// The presentation of a server to its clients, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct McpOptions {
    /// The server's name, its lists and its tools, as clients see them.
    pub mcp: McpConfig,
    /// The limits of each session and stream. The bus counts sessions, so `max` has no effect here: see
    /// [`Limits::sessions_max`](crate::Limits::sessions_max). On stdio, which has one client, neither has
    /// a timeout, `age_max` or `per_peer_max`.
    pub session: SessionConfig,
    /// Bytes of one POST body (default 4 MiB). Larger ones are answered 413.
    pub body_bytes_max: usize,
    /// Messages of one batch of 2025-03-26 (default 100). Larger ones are answered 400. A batch is answered
    /// with one array of answers, so the progress and the log messages of tools that it calls are left out.
    pub batch_max: usize,
}

impl Default for McpOptions {
    fn default() -> McpOptions {
        McpOptions {
            mcp: McpConfig::default(),
            session: SessionConfig::default(),
            body_bytes_max: HttpConfig::default().body_bytes_max,
            batch_max: 100,
        }
    }
}
