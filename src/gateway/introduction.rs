//! The gateway's end of a connection, as the server is to see it.

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{ClientConfig, ProtocolVersion};
use rmcp::service::RequestContext;

use super::capabilities::client_of;
use super::change_notices::ChangeNotices;
use super::one_client::OneClient;

/// The revisions that a connection may speak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Handshake {
    /// The newest one that the server knows.
    Newest,
    /// One of those that begin with `initialize`, this one at best.
    Initialize(ProtocolVersion),
}

/// One end of a connection, as the server is to see it.
pub(super) struct Introduction {
    pub(super) client: ClientConfig,
    pub(super) handshake: Handshake,
    /// Gets the announcements of changes, if the connection is for them.
    pub(super) signals: Option<Arc<ChangeNotices>>,
    /// True if the server has to be able to send messages beside its answers from the first request on.
    pub(super) needs_stream: bool,
    /// True if the connection is not a single client's.
    pub(super) is_shared: bool,
    /// The only client, if it can be reached while none of its requests is under way.
    pub(super) one_client: Option<Arc<OneClient>>,
}

impl Introduction {
    /// Introduces the client of a request, for a connection of its own.
    pub(super) fn of_client(context: &RequestContext<RoleServer>, handshake: Handshake) -> Introduction {
        Introduction {
            client: client_of(context),
            handshake,
            signals: None,
            needs_stream: false,
            is_shared: false,
            one_client: None,
        }
    }
}
