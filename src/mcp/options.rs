//! The options of the MCP side of a server.

use std::time::Duration;

use rmcp::model::{Icon, Implementation};

use crate::config::{HttpConfig, McpConfig, SessionConfig};

/// The presentation of a server to its clients, and its limits.
///
/// ```
/// use tidings::mcp::McpOptions;
/// let options = McpOptions::default()
///     .name("clock")
///     .version("1.4.0")
///     .title("The clock of the tower")
///     .website("https://clock.example")
///     .icon("https://clock.example/icon.svg", Some("image/svg+xml"));
/// assert_eq!(options.mcp.name, "clock");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct McpOptions {
    /// The version of the server, as clients show it (default: that of this library).
    pub version: String,
    /// The name of the server for people; none for its plain name.
    pub title: Option<String>,
    /// The address of a page about the server.
    pub website: Option<String>,
    /// The icons of the server, of which a client shows one that it can.
    pub icons: Vec<Icon>,
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
            version: env!("CARGO_PKG_VERSION").to_owned(),
            title: None,
            website: None,
            icons: Vec::new(),
            mcp: McpConfig::default(),
            session: SessionConfig::default(),
            body_bytes_max: HttpConfig::default().body_bytes_max,
            batch_max: 100,
        }
    }
}

impl McpOptions {
    /// Sets the name by which clients know the server.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> McpOptions {
        self.mcp.name = name.into();
        self
    }

    /// Sets the version of the server.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> McpOptions {
        self.version = version.into();
        self
    }

    /// Sets the name of the server for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> McpOptions {
        self.title = Some(title.into());
        self
    }

    /// Sets the address of a page about the server.
    #[must_use]
    pub fn website(mut self, url: impl Into<String>) -> McpOptions {
        self.website = Some(url.into());
        self
    }

    /// Adds an icon by its address, an https or a data URI. Without a media type the client guesses it.
    #[must_use]
    pub fn icon(mut self, src: impl Into<String>, media_type: Option<&str>) -> McpOptions {
        let mut icon = Icon::new(src);
        icon.mime_type = media_type.map(str::to_owned);
        self.icons.push(icon);
        self
    }

    /// Sets the instructions for a model about the use of the server.
    #[must_use]
    pub fn instructions(mut self, text: impl Into<String>) -> McpOptions {
        self.mcp.instructions = Some(text.into());
        self
    }

    /// Sets the longest time of one call of a handler; none for no limit.
    #[must_use]
    pub fn handler_timeout(mut self, timeout: Option<Duration>) -> McpOptions {
        self.mcp.handler_timeout = timeout;
        self
    }

    /// Returns the server's description of itself.
    pub(super) fn implementation(&self) -> Implementation {
        let mut info = Implementation::new(&self.mcp.name, &self.version);
        info.title.clone_from(&self.title);
        info.website_url.clone_from(&self.website);
        info.icons = Some(self.icons.clone()).filter(|icons| !icons.is_empty());
        info
    }
}
