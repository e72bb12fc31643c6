//! The client of a request that rmcp does not see. A handler is asked in the name of a peer, so there must be
//! one even where rmcp has no connection; what a handler sends to it is refused.

use std::io;
use std::sync::Arc;

use rmcp::model::{Extensions, RequestMetaObject};
use rmcp::service::{RunningService, RxJsonRpcMessage, TxJsonRpcMessage, serve_directly};
use rmcp::transport::Transport;
use rmcp::{RoleServer, ServerHandler};

use super::Wrap;
use super::client_view::ClientView;

/// A service of rmcp without a connection, which lends its peer.
pub(super) struct AbsentClient(RunningService<RoleServer, NoServer>);

struct NoServer;

impl ServerHandler for NoServer {}

struct NoConnection;

impl Transport<RoleServer> for NoConnection {
    type Error = io::Error;

    fn send(
        &mut self,
        _: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let text = "the request of the client is not open, so nothing can be sent to it";
        std::future::ready(Err(io::Error::new(io::ErrorKind::NotConnected, text)))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        std::future::pending().await
    }

    async fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AbsentClient {
    /// Starts the service, which ends with this value.
    pub(super) fn start() -> AbsentClient {
        AbsentClient(serve_directly(NoServer, NoConnection, None))
    }
}

impl Wrap {
    /// Returns a wrapped server as a client sees it whose request rmcp does not see.
    pub(super) fn absent_view<H: ServerHandler>(
        &self,
        handler: &Arc<H>,
        meta: RequestMetaObject,
    ) -> ClientView {
        let peer = self.state.absent_client.0.peer().clone();
        ClientView::of_peer(handler, peer, meta, Extensions::default())
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{PingRequest, ServerRequest};

    use super::*;

    #[tokio::test]
    async fn requests_to_absent_client_are_refused_at_once() {
        let absent = AbsentClient::start();
        let peer = absent.0.peer().clone();
        assert!(!peer.is_transport_closed());
        let asked = peer.send_request(ServerRequest::PingRequest(PingRequest::default()));
        let answer = tokio::time::timeout(std::time::Duration::from_secs(5), asked).await;
        assert!(answer.expect("refused in time").is_err());
        drop(absent);
    }
}
