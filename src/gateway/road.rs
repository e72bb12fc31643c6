//! The connection that a request goes over.

use std::sync::Arc;

use super::connection::UpstreamConnection;
use super::speakers::Speaker;

/// The connection that a request goes over.
pub(super) enum Road {
    /// That of all clients, from which the gateway reads.
    Watcher(Arc<UpstreamConnection>),
    /// That of a client with a session.
    Own(Arc<Speaker>),
    /// One that a client without a session has for this request.
    Leased(Speaker),
}

impl Road {
    pub(super) fn connection(&self) -> &Arc<UpstreamConnection> {
        match self {
            Road::Watcher(connection) => connection,
            Road::Own(speaker) => &speaker.connection,
            Road::Leased(speaker) => &speaker.connection,
        }
    }
}
