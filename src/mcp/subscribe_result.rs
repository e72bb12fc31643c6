//! The result of `resources/subscribe` with the current etag, for which rmcp's handlers have no room.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use rmcp::model::{
    ClientNotification, ClientRequest, CustomResult, InitializeResult, ProtocolVersion, ServerResult,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler, Service};
use serde_json::{Value, json};

use super::convert::etag_meta;
use crate::Etag;

/// The place beside a request where the handler leaves the current etag, for a client that said which one it
/// holds. Others get the empty result that strict clients expect.
#[derive(Clone, Default)]
pub(super) struct CurrentEtag(Arc<OnceLock<Etag>>);

impl CurrentEtag {
    pub(super) fn set(&self, etag: Etag) {
        self.0.get_or_init(|| etag);
    }

    /// Returns the result of the request; none if it is the empty one or an error.
    pub(super) fn result(&self) -> Option<Value> {
        let etag = self.0.get()?;
        Some(json!({ "_meta": etag_meta(*etag) }))
    }
}

/// The handler of a connection whose bytes rmcp writes.
pub(super) struct ConnectionHandler<H>(pub(super) H);

impl<H: ServerHandler> Service<RoleServer> for ConnectionHandler<H> {
    async fn handle_request(
        &self,
        request: ClientRequest,
        mut context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        if !matches!(request, ClientRequest::SubscribeRequest(_)) {
            return self.0.handle_request(request, context).await;
        }
        let current = CurrentEtag::default();
        context.extensions.insert(current.clone());
        let result = self.0.handle_request(request, context).await?;
        Ok(match current.result() {
            Some(result) => ServerResult::CustomResult(CustomResult(result)),
            None => result,
        })
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.0.handle_notification(notification, context).await
    }

    fn get_info(&self) -> InitializeResult {
        Service::get_info(&self.0)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Service::supported_protocol_versions(&self.0)
    }
}
