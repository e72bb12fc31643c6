//! Names of MCP that both sides of a connection use: revisions, headers, `_meta` keys and methods.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The `_meta` key of an etag (key rules: basic/index, section `_meta`; the prefix is a domain we may use).
pub const ETAG_META_KEY: &str = "io.github.tidings/etag";
/// The `_meta` key that tags the messages of a listen stream (2026-07-28, basic/patterns/subscriptions).
pub const SUBSCRIPTION_ID_META_KEY: &str = "io.modelcontextprotocol/subscriptionId";
/// The `_meta` key of the revision of a request of 2026-07-28.
pub const REVISION_META_KEY: &str = "io.modelcontextprotocol/protocolVersion";
/// The `_meta` key of the client's capabilities in a request of 2026-07-28.
pub const CAPABILITIES_META_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
/// The `_meta` key of the client's name and version in a request of 2026-07-28.
pub const CLIENT_INFO_META_KEY: &str = "io.modelcontextprotocol/clientInfo";

/// The header of a session's id.
pub const SESSION_HEADER: &str = "Mcp-Session-Id";
/// The header of the revision that a request is written in.
pub const REVISION_HEADER: &str = "MCP-Protocol-Version";
/// The header of a request's method (2026-07-28).
pub const METHOD_HEADER: &str = "Mcp-Method";
/// The header of the tool, prompt or resource that a request is about (2026-07-28).
pub const NAME_HEADER: &str = "Mcp-Name";
/// The value of the `Accept` header of every POST.
pub const ACCEPT_BOTH: &str = "application/json, text/event-stream";

/// The notification that a resource changed.
pub const RESOURCE_UPDATED: &str = "notifications/resources/updated";
/// The first message of a listen stream.
pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// A revision of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// 2024-11-05.
    R2024_11_05,
    /// 2025-03-26: clients may send batches; lists that change are not announced.
    R2025_03_26,
    /// 2025-06-18.
    R2025_06_18,
    /// 2025-11-25: streams begin with a priming event.
    R2025_11_25,
    /// 2026-07-28: no sessions; streams are opened by `subscriptions/listen`.
    R2026_07_28,
}

impl Revision {
    /// All revisions, oldest first.
    pub const ALL: [Revision; 5] = [
        Revision::R2024_11_05,
        Revision::R2025_03_26,
        Revision::R2025_06_18,
        Revision::R2025_11_25,
        Revision::R2026_07_28,
    ];

    /// Returns the revision of that date.
    pub fn parse(date: &str) -> Option<Revision> {
        Revision::ALL
            .into_iter()
            .find(|revision| revision.as_str() == date)
    }

    /// Its date, as it is written on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Revision::R2024_11_05 => "2024-11-05",
            Revision::R2025_03_26 => "2025-03-26",
            Revision::R2025_06_18 => "2025-06-18",
            Revision::R2025_11_25 => "2025-11-25",
            Revision::R2026_07_28 => "2026-07-28",
        }
    }

    /// Returns true if requests belong to no session (2026-07-28).
    pub fn is_stateless(self) -> bool {
        self >= Revision::R2026_07_28
    }

    /// Returns true if requests name the revision in a header.
    pub fn has_revision_header(self) -> bool {
        self >= Revision::R2025_06_18
    }
}

/// Encodes a name or a URI for a header: plain ASCII as it is, everything else in base64 (2026-07-28,
/// basic/transports/streamable-http, `Mcp-Name`).
pub fn header_value(name: &str) -> String {
    let is_plain = !name.is_empty()
        && name.bytes().all(|byte| (b'!'..=b'~').contains(&byte))
        && !name.starts_with("=?base64?");
    if is_plain {
        name.to_owned()
    } else {
        format!("=?base64?{}?=", STANDARD.encode(name))
    }
}
