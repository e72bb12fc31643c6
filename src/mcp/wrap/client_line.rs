//! The way to a client outside of its requests.

use std::sync::Arc;

use rmcp::model::{ServerJsonRpcMessage, ServerNotification};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};

use crate::mcp::http::OwnMessages;

/// The way to a client with a session. It lasts as long as that session, while the peer of a request may end
/// with it.
pub(crate) enum ClientLine {
    /// The stream of a session over HTTP.
    Stream(Arc<OwnMessages>),
    /// A connection that has no other client.
    Connection(Peer<RoleServer>),
}

impl ClientLine {
    /// Returns the way to the client of a request.
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> ClientLine {
        match context.extensions.get::<Arc<OwnMessages>>() {
            Some(messages) => ClientLine::Stream(messages.clone()),
            None => ClientLine::Connection(context.peer.clone()),
        }
    }

    /// Returns the peer of a client that can be asked at any time.
    pub(crate) fn peer(&self) -> Option<&Peer<RoleServer>> {
        match self {
            ClientLine::Stream(_) => None,
            ClientLine::Connection(peer) => Some(peer),
        }
    }

    /// Sends the client a notification. On a stream it waits until the client opens one, within the limit of
    /// such messages.
    pub(crate) async fn tell(&self, notice: ServerNotification) {
        match self {
            ClientLine::Stream(messages) => {
                messages.push_message(&ServerJsonRpcMessage::notification(notice));
            }
            ClientLine::Connection(peer) => {
                if let Err(error) = peer.send_notification(notice).await {
                    tracing::debug!(%error, "a notification for a client could not be sent");
                }
            }
        }
    }
}
