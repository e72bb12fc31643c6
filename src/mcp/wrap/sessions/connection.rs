//! The connection between rmcp's service of a session and its client.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;

use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{RoleServer, ServerHandler};

use super::session::HandlerSession;

/// The connection of one service of a session.
pub struct SessionConnection<H: ServerHandler> {
    session: Arc<HandlerSession<H>>,
    /// The number of the service among those of the session.
    turn: u64,
}

impl<H: ServerHandler> SessionConnection<H> {
    pub(super) fn new(session: Arc<HandlerSession<H>>, turn: u64) -> SessionConnection<H> {
        SessionConnection { session, turn }
    }
}

impl<H: ServerHandler> Transport<RoleServer> for SessionConnection<H> {
    type Error = Infallible;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        // Here rather than in the future: messages keep the order in which they are sent.
        let untaken = self.session.deliver(message);
        async move {
            if let Some(untaken) = untaken {
                untaken.wait().await;
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        poll_fn(|cx| self.session.poll_message(self.turn, cx)).await
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl<H: ServerHandler> Drop for SessionConnection<H> {
    fn drop(&mut self) {
        self.session.note_end(self.turn);
    }
}
