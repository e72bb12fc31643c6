//! Wrapped servers behind the project's own endpoint. A client with a session has one handler for it, which
//! may ask the client; the bus decides when the session ends.

use std::sync::{Arc, Weak};

use rmcp::model::{Implementation, RequestMetaObject, SubscriptionFilter};
use rmcp::transport::streamable_http_server::SessionId;
use rmcp::{ErrorData, ServerHandler};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::client_view::{ClientView, ServerList};
use super::sessions::HandlerSessions;
use super::{Wrap, Wrapped};
use crate::mcp::bus_handler::BusHandler;
use crate::mcp::etag_tools::GetResourceEtag;
use crate::mcp::handler::Handler;
use crate::mcp::http::{EndpointServer, Kept, OwnMessages};
use crate::mcp::session::McpContext;
use crate::{PublishError, ResourceUri, SubscriberId};

/// The servers of a [`Wrap`], one per client, behind an [`Endpoint`](crate::mcp::Endpoint).
pub struct WrappedServers<H: ServerHandler> {
    wrap: Wrap,
    server: McpContext,
    make: Arc<dyn Fn() -> H + Send + Sync>,
    /// The name and version of the first server, which is made for this alone.
    implementation: Implementation,
    sessions: Arc<HandlerSessions<H>>,
}

impl<H: ServerHandler> Clone for WrappedServers<H> {
    fn clone(&self) -> WrappedServers<H> {
        WrappedServers {
            wrap: self.wrap.clone(),
            server: self.server.clone(),
            make: self.make.clone(),
            implementation: self.implementation.clone(),
            sessions: self.sessions.clone(),
        }
    }
}

impl<H: ServerHandler> WrappedServers<H> {
    pub(super) fn new(
        wrap: Wrap,
        server: McpContext,
        make: impl Fn() -> H + Send + Sync + 'static,
    ) -> WrappedServers<H> {
        // A follower is asked wherever no client is meant, and its server speaks to clients only during their
        // requests. Any other handler may keep its peer and use it whenever it likes.
        let sessions = HandlerSessions::new(wrap.is_followed());
        WrappedServers {
            wrap,
            server,
            implementation: make().get_info().server_info,
            make: Arc::new(make),
            sessions: Arc::new(sessions),
        }
    }

    /// Returns the client of a session or of a request, as the wrapped server sees it.
    fn view(&self, session: Option<SubscriberId>, body: &[u8]) -> Option<ClientView> {
        let Some(session) = session.filter(|_| !self.wrap.is_followed()) else {
            let params = serde_json::from_slice::<MessageParams<'_>>(body).ok()?.params;
            return Some(self.wrap.absent_view(&Arc::new((self.make)()), meta_of(params)));
        };
        let handler = self.wrap.handlers_of_sessions().get(&session).copied()?;
        self.wrap.clients().get(&handler).cloned()
    }
}

#[derive(Deserialize)]
struct MessageParams<'a> {
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WithMeta {
    #[serde(rename = "_meta")]
    meta: RequestMetaObject,
}

/// Returns the `_meta` of the parameters of a request.
fn meta_of(params: Option<&RawValue>) -> RequestMetaObject {
    let params = params.map(|params| serde_json::from_str::<WithMeta>(params.get()));
    match params {
        Some(Ok(params)) => params.meta,
        _ => RequestMetaObject::default(),
    }
}

impl<H: ServerHandler> EndpointServer for WrappedServers<H> {
    type Handler = Arc<Wrapped<H>>;
    type Sessions = HandlerSessions<H>;

    const KEEPS_SESSIONS: bool = true;

    fn handler(&self) -> Arc<Wrapped<H>> {
        let bus_handler = Handler {
            server: self.server.clone(),
            own_session: None,
        };
        let inner = Arc::new((self.make)());
        Arc::new_cyclic(|own: &Weak<Wrapped<H>>| self.wrap.handler_over(bus_handler, inner, own.clone()))
    }

    fn sessions(&self) -> Arc<HandlerSessions<H>> {
        self.sessions.clone()
    }

    fn implementation(&self) -> Implementation {
        self.implementation.clone()
    }

    async fn before_listen(
        &self,
        requested: &SubscriptionFilter,
        params: Option<&RawValue>,
    ) -> Result<Option<Kept>, ErrorData> {
        let handler = self.handler();
        handler.before_listen(requested, meta_of(params)).await?;
        if self.wrap.is_followed() {
            return Ok(None);
        }
        // The wrapper may ask the server in this client's name for as long as it listens.
        Ok(Some(Box::new(handler)))
    }

    async fn before_poll(&self, uri: &str, session: Option<SubscriberId>, body: &[u8]) -> bool {
        let Some(client) = self.view(session, body) else {
            return false;
        };
        // A failure is told where all refusals come from.
        self.wrap.prepare_poll(&client, uri).await.unwrap_or(false)
    }

    fn keep_session(&self, key: &str) -> Option<Kept> {
        self.sessions.keep(key);
        Some(Box::new(KeptSession {
            sessions: self.sessions.clone(),
            id: SessionId::from(key),
        }))
    }

    fn own_messages(&self, key: &str) -> Option<Arc<OwnMessages>> {
        self.sessions.own_messages(key)
    }
}

/// A session of a client; ended when dropped.
struct KeptSession<H: ServerHandler> {
    sessions: Arc<HandlerSessions<H>>,
    id: SessionId,
}

impl<H: ServerHandler> Drop for KeptSession<H> {
    fn drop(&mut self) {
        self.sessions.end(&self.id);
    }
}

impl Wrap {
    /// Reads the resource of a poll again if it is the wrapped server's. Returns false if that server has a
    /// tool of its own under the name of the poll.
    async fn prepare_poll(&self, client: &ClientView, uri: &str) -> Result<bool, PublishError> {
        if client.has_tool(GetResourceEtag::NAME)
            || self
                .has_item(client, ServerList::Tools, GetResourceEtag::NAME)
                .await?
        {
            return Ok(false);
        }
        let Ok(uri) = ResourceUri::new(uri) else {
            return Ok(false);
        };
        if self.must_be_read(&uri).await? {
            self.learn_all(client, vec![uri]).await?;
        }
        Ok(true)
    }
}
