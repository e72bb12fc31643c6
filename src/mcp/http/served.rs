//! The server behind an endpoint: the bus alone, or wrapped servers beside it. An endpoint is compiled for
//! each of them, so one costs the other nothing.

use std::any::Any;
use std::sync::Arc;

use rmcp::model::{Implementation, SubscriptionFilter};
use rmcp::transport::streamable_http_server::SessionManager;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::{ErrorData, ServerHandler};
use serde_json::value::RawValue;

use super::own_messages::OwnMessages;
use crate::SubscriberId;
use crate::mcp::handler::Handler;

/// A value that is dropped when the session or the stream ends that it was kept for.
pub(crate) type Kept = Box<dyn Any + Send>;

/// The server behind an [`Endpoint`](super::Endpoint). This crate alone implements it.
pub trait EndpointServer: Clone + Send + Sync + 'static {
    /// The rmcp handler of one client.
    type Handler: ServerHandler;

    /// The sessions of the clients that have one handler each, as rmcp asks for them.
    type Sessions: SessionManager;

    /// True when a client has one handler for its whole session: the handler has a state of its own, and may
    /// ask its client.
    const KEEPS_SESSIONS: bool;

    /// Makes the handler of one client.
    fn handler(&self) -> Self::Handler;

    /// Returns these sessions.
    fn sessions(&self) -> Arc<Self::Sessions>;

    /// Returns the name and version that clients see.
    fn implementation(&self) -> Implementation;

    /// Makes the bus know what a client wants to listen to, before it is subscribed. Returns a value to be
    /// kept for as long as the stream is open.
    ///
    /// # Errors
    /// A bus that has stopped.
    fn before_listen(
        &self,
        requested: &SubscriptionFilter,
        params: Option<&RawValue>,
    ) -> impl Future<Output = Result<Option<Kept>, ErrorData>> + Send;

    /// Makes the bus know the state of a resource before a plain poll of its etag is answered, in the name of
    /// a session's client or of the one that sent `body`. Returns false when rmcp has to answer the poll.
    fn before_poll(
        &self,
        uri: &str,
        session: Option<SubscriberId>,
        body: &[u8],
    ) -> impl Future<Output = bool> + Send;

    /// Keeps the server's part of a session. Returns the value that ends that part when it is dropped.
    fn keep_session(&self, key: &str) -> Option<Kept>;

    /// Returns the messages that the server sends a session beside its answers and beside the bus.
    fn own_messages(&self, key: &str) -> Option<Arc<OwnMessages>>;
}

/// The bus alone, as the server behind an endpoint.
#[derive(Clone)]
pub struct BusServer {
    handler: Handler,
}

impl BusServer {
    pub(super) fn new(handler: Handler) -> BusServer {
        BusServer { handler }
    }
}

impl EndpointServer for BusServer {
    type Handler = Handler;
    type Sessions = NeverSessionManager;

    const KEEPS_SESSIONS: bool = false;

    fn handler(&self) -> Handler {
        self.handler.clone()
    }

    fn sessions(&self) -> Arc<NeverSessionManager> {
        Arc::default()
    }

    fn implementation(&self) -> Implementation {
        self.handler.server.server_info()
    }

    async fn before_listen(
        &self,
        _: &SubscriptionFilter,
        _: Option<&RawValue>,
    ) -> Result<Option<Kept>, ErrorData> {
        Ok(None)
    }

    #[inline]
    async fn before_poll(&self, _: &str, _: Option<SubscriberId>, _: &[u8]) -> bool {
        true
    }

    fn keep_session(&self, _: &str) -> Option<Kept> {
        None
    }

    fn own_messages(&self, _: &str) -> Option<Arc<OwnMessages>> {
        None
    }
}
