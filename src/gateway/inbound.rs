//! The gateway as the server behind it sees it: its capabilities, and the requests that it takes.

use std::sync::Arc;

use rmcp::model::{ClientConfig, ClientResult, ServerNotification, ServerRequest};
use rmcp::service::{NotificationContext, RequestContext, Service};
use rmcp::{ErrorData, RoleClient};

use super::hearing::Hearing;

/// Answers the requests of the server. Its notifications are taken from the transport, where they are in
/// order.
pub(super) struct Inbound {
    pub(super) hearing: Arc<Hearing>,
    /// The name, version and capabilities that the server is told.
    pub(super) client: ClientConfig,
}

impl Service<RoleClient> for Inbound {
    async fn handle_request(
        &self,
        request: ServerRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        if let ServerRequest::PingRequest(_) = request {
            return Ok(ClientResult::empty(()));
        }
        // The client may take minutes, in which the server may lose interest.
        let origin = context.extensions.get();
        tokio::select! {
            answer = self.hearing.ask(request, origin) => answer,
            () = context.ct.cancelled() => {
                Err(ErrorData::internal_error("the server has cancelled its question", None))
            }
        }
    }

    async fn handle_notification(
        &self,
        _: ServerNotification,
        _: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        self.client.clone()
    }
}
