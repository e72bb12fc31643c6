//! Wrapped servers behind the project's own endpoint. rmcp keeps a session for each client that has one, so
//! that its handler lives as long and may ask its client; the bus decides when that session ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use rmcp::model::{Implementation, RequestMetaObject, SubscriptionFilter};
use rmcp::transport::streamable_http_server::SessionManager;
use rmcp::transport::streamable_http_server::session::SessionId;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::{ErrorData, ServerHandler};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::client_view::{ClientView, ServerList};
use super::{Wrap, Wrapped};
use crate::mcp::bus_handler::BusHandler;
use crate::mcp::etag_tools::GetResourceEtag;
use crate::mcp::handler::Handler;
use crate::mcp::http::{EndpointServer, Kept, OwnMessages};
use crate::mcp::session::McpContext;
use crate::{PublishError, ResourceUri, SubscriberId};

/// The servers of a [`Wrap`], one per client, behind an [`Endpoint`](crate::mcp::Endpoint).
pub struct WrappedServers<H> {
    wrap: Wrap,
    server: McpContext,
    make: Arc<dyn Fn() -> H + Send + Sync>,
    /// The name and version of the first server, which is made for this alone.
    implementation: Implementation,
    sessions: Arc<LocalSessionManager>,
    own_messages: Arc<MessagesOfSessions>,
}

/// The messages that the servers send their sessions of their own accord, by the id of the session.
#[derive(Default)]
struct MessagesOfSessions(Mutex<HashMap<SessionId, Arc<OwnMessages>>>);

impl MessagesOfSessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<OwnMessages>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H> Clone for WrappedServers<H> {
    fn clone(&self) -> WrappedServers<H> {
        WrappedServers {
            wrap: self.wrap.clone(),
            server: self.server.clone(),
            make: self.make.clone(),
            implementation: self.implementation.clone(),
            sessions: self.sessions.clone(),
            own_messages: self.own_messages.clone(),
        }
    }
}

impl<H: ServerHandler> WrappedServers<H> {
    pub(super) fn new(
        wrap: Wrap,
        server: McpContext,
        make: impl Fn() -> H + Send + Sync + 'static,
    ) -> WrappedServers<H> {
        let mut sessions = LocalSessionManager::default();
        // The bus ends sessions by the limits of the endpoint.
        sessions.session_config.keep_alive = None;
        // No client resumes rmcp's streams: those of the endpoint have the ids of the bus.
        sessions.session_config.sse_retry = None;
        WrappedServers {
            wrap,
            server,
            implementation: make().get_info().server_info,
            make: Arc::new(make),
            sessions: Arc::new(sessions),
            own_messages: Arc::default(),
        }
    }

    /// Returns the client of a session or of a request, as the wrapped server sees it.
    fn view(&self, session: Option<SubscriberId>, body: &[u8]) -> Option<ClientView> {
        let Some(session) = session else {
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
    type Handler = Wrapped<H>;
    type Sessions = LocalSessionManager;

    const KEEPS_SESSIONS: bool = true;

    fn handler(&self) -> Wrapped<H> {
        let bus_handler = Handler {
            server: self.server.clone(),
            own_session: None,
        };
        self.wrap.handler_over(bus_handler, Arc::new((self.make)()))
    }

    fn sessions(&self) -> Arc<LocalSessionManager> {
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
        let id = SessionId::from(key);
        let messages = Arc::<OwnMessages>::default();
        self.own_messages.lock().insert(id.clone(), messages.clone());
        let runtime = tokio::runtime::Handle::current();
        // It ends with rmcp's session.
        drop(runtime.spawn(gather(self.sessions.clone(), id.clone(), messages)));
        Some(Box::new(SessionOfRmcp {
            sessions: self.sessions.clone(),
            own_messages: self.own_messages.clone(),
            id,
            runtime,
        }))
    }

    fn own_messages(&self, key: &str) -> Option<Arc<OwnMessages>> {
        self.own_messages.lock().get(key).cloned()
    }
}

/// Takes a server's own messages from rmcp's session as they come, until it ends.
async fn gather(sessions: Arc<LocalSessionManager>, id: SessionId, messages: Arc<OwnMessages>) {
    // One stream of rmcp's for the whole session: it would hold the session up for a stream that is not read,
    // and repeat the last messages on each new one.
    let stream = match sessions.create_standalone_stream(&id).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "the session of a wrapped server ended before its first message");
            return;
        }
    };
    let mut stream = std::pin::pin!(stream);
    while let Some(event) = stream.next().await {
        let Some(message) = event.message else {
            continue;
        };
        match serde_json::to_vec(&*message) {
            Ok(json) => messages.push(json.into()),
            Err(error) => tracing::warn!(%error, "a message of a wrapped server is no JSON and was not sent"),
        }
    }
}

/// A session that rmcp keeps; closed when dropped.
struct SessionOfRmcp {
    sessions: Arc<LocalSessionManager>,
    own_messages: Arc<MessagesOfSessions>,
    id: SessionId,
    runtime: tokio::runtime::Handle,
}

impl Drop for SessionOfRmcp {
    fn drop(&mut self) {
        self.own_messages.lock().remove(&self.id);
        let sessions = self.sessions.clone();
        let id = self.id.clone();
        // A task of its own: the session at the bus may end on any thread.
        drop(self.runtime.spawn(async move {
            if let Err(error) = sessions.close_session(&id).await {
                tracing::debug!(%error, "the session of a wrapped server had ended before");
            }
        }));
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
