//! One client's handler: the wrapped one, and the bus's handler beside it. Dropping it ends the client's
//! session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorCode, JsonObject, MetaObject, PaginatedRequestParams,
    RequestMetaObject, ServerNotification, SubscriptionFilter,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::Serialize;
use serde_json::{Value, json};

use super::client_view::{ClientView, ServerList, as_json, declares};
use super::sessions::OpeningSession;
use super::{CALLING_CLIENT, Wrap, listed};
use crate::config::McpConfig;
use crate::mcp::bus_handler::BusHandler;
use crate::mcp::frames::{notification, updated};
use crate::mcp::handler::Handler;
use crate::mcp::listen::{AcceptedListen, ListenPump, ListenRequest, requested_lists};
use crate::mcp::revision::SERVER_INFO_META_KEY;
use crate::mcp::session::SessionLifetime;
use crate::mcp::{McpOptions, error, lists};
use crate::{Digest, Etag, OutboxEntry, ResourceUri, SubscriberId};

/// The time that the wrapped server may be busy with a new client before that client is sent list changes. A
/// server that sets up its lists then is waited for, one that works for as long as the client stays is not.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(1);

/// A `ServerHandler` with a bus, to be served in place of the one that it wraps, on any transport of rmcp.
///
/// It keeps the behaviour of the wrapped handler and adds: `resources/subscribe` and `unsubscribe`,
/// `subscriptions/listen`, etags in `_meta` of reads and resource lists, the etag tools, list notifications
/// by content, and the items that are registered at the bus itself. A resource has an etag from its first
/// read or subscription on.
///
/// On rmcp's own transports the acknowledgement of `subscriptions/listen` repeats the whole request, unknown
/// URIs included: rmcp's hook for narrowing it can neither wait nor see the client. Nothing is ever sent for
/// a URI that does not exist.
pub struct Wrapped<H: ServerHandler> {
    /// The key of this handler among those that have a client.
    id: u64,
    pub(super) inner: Arc<H>,
    pub(super) bus_handler: Handler,
    pub(super) wrap: Wrap,
    /// The handler itself, which the session keeps that it opens; none where no endpoint keeps sessions.
    own: Weak<Wrapped<H>>,
    /// The digests of the lists that this client got last. A list that is equal to its client's last one is
    /// not learned from: two clients with different lists would otherwise notify each other without end.
    views: Mutex<HashMap<ServerList, Option<Digest>>>,
    /// The session of this client; none before `initialize`, and none on 2026-07-28.
    session: OnceLock<SubscriberId>,
    /// The listen requests that rmcp is acknowledging, with the number of list changes before.
    acknowledging: Mutex<Vec<(SubscriptionFilter, [u64; 3])>>,
}

impl<H: ServerHandler> Drop for Wrapped<H> {
    fn drop(&mut self) {
        self.wrap.clients().remove(&self.id);
        if let Some(session) = self.session.get() {
            self.wrap.handlers_of_sessions().remove(session);
        }
    }
}

impl<H: ServerHandler> Wrapped<H> {
    pub(super) fn new(
        id: u64,
        inner: Arc<H>,
        bus_handler: Handler,
        (wrap, own): (Wrap, Weak<Wrapped<H>>),
    ) -> Wrapped<H> {
        Wrapped {
            id,
            inner,
            bus_handler,
            wrap,
            own,
            views: Mutex::default(),
            session: OnceLock::new(),
            acknowledging: Mutex::default(),
        }
    }

    fn acknowledging(&self) -> MutexGuard<'_, Vec<(SubscriptionFilter, [u64; 3])>> {
        self.acknowledging.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the state of the lists before a listen request is acknowledged.
    pub(super) fn note_acknowledgement(&self, requested: &SubscriptionFilter) {
        self.acknowledging()
            .push((requested.clone(), self.wrap.list_changes()));
    }

    /// Returns the state of the lists before a listen request was acknowledged.
    pub(super) fn changes_at_acknowledgement(&self, requested: &SubscriptionFilter) -> [u64; 3] {
        let mut acknowledging = self.acknowledging();
        match acknowledging.iter().position(|(filter, _)| filter == requested) {
            Some(index) => acknowledging.remove(index).1,
            None => self.wrap.list_changes(),
        }
    }

    /// Subscribes a stream to everything that `request` asks for. Returns also the notifications that the
    /// stream missed since it was acknowledged: the lists that changed since `changes_before`, and the etags
    /// that differ from `etags_before`.
    pub(super) async fn open(
        &self,
        mut request: ListenRequest,
        changes_before: [u64; 3],
        etags_before: &HashMap<String, Option<Etag>>,
    ) -> Result<(ListenPump, Vec<ServerNotification>), ErrorData> {
        let server = &self.bus_handler.server;
        request.narrow(server, &server.caller)?;
        // Locked so that no list changes between the beginning of the stream and the look at earlier changes.
        let unchanging = self.wrap.state.listed.lock().await;
        let accepted =
            AcceptedListen::open(server, request, SessionLifetime::Connection, &server.caller).await?;
        let changes = self.wrap.list_changes();
        drop(unchanging);
        let mut missed = Vec::new();
        for kind in requested_lists(&accepted.filter) {
            if changes[kind as usize] != changes_before[kind as usize] {
                missed.push(notification(&OutboxEntry::ListChanged(kind)));
            }
        }
        missed.extend(missed_updates(&accepted.subscribed, etags_before));
        Ok((ListenPump::new(server, accepted), missed))
    }

    /// Returns the wrapped server as this request's client sees it. From the first request on, the wrapper
    /// may ask the server in this client's name.
    pub(super) fn client_view(&self, context: &RequestContext<RoleServer>) -> ClientView {
        let client = ClientView::of_request(&self.inner, context);
        self.remember(&client);
        client
    }

    /// Notes the client of a request, unless it is known or a follower asks in its place. Most requests need
    /// no view, which is a copy of all that came beside the request.
    pub(super) fn note_client(&self, context: &RequestContext<RoleServer>) {
        if !self.wrap.is_followed() && !self.wrap.clients().contains_key(&self.id) {
            self.client_view(context);
        }
    }

    /// Tells the wrapped server of a new client, and waits a while until the server is done with it. Returns
    /// the server as the client sees it.
    pub(super) async fn settled(&self, context: NotificationContext<RoleServer>) -> ClientView {
        let peer = context.peer.clone();
        let meta = RequestMetaObject::default();
        let client = ClientView::of_peer(&self.inner, peer, meta, context.extensions.clone());
        // A task of its own: rmcp keeps this handler, and with it the session, for as long as the
        // notification is being handled.
        let inner = self.inner.clone();
        let handled = tokio::spawn(async move { inner.on_initialized(context).await });
        if tokio::time::timeout(SETTLE_TIMEOUT, handled).await.is_err() {
            tracing::debug!(
                "the wrapped server is still busy with its new client, which is sent list changes now"
            );
        }
        client
    }

    /// Notes which session of the bus belongs to this handler, and leaves the handler to the session of its
    /// endpoint, if that keeps one.
    pub(super) fn remember_session(&self, session: SubscriberId, opening: Option<OpeningSession<H>>) {
        // A follower asks in place of clients.
        if !self.wrap.is_followed() {
            self.session.get_or_init(|| session);
            self.wrap.handlers_of_sessions().insert(session, self.id);
        }
        if let (Some(opening), Some(own)) = (opening, self.own.upgrade()) {
            opening.keep(own);
        }
    }

    /// Returns the wrapped server as the client of a request sees it that rmcp does not see.
    fn view_past_rmcp(&self, meta: RequestMetaObject) -> ClientView {
        let known = self.wrap.clients().get(&self.id).cloned();
        known.unwrap_or_else(|| {
            let client = self.wrap.absent_view(&self.inner, meta);
            self.remember(&client);
            client
        })
    }

    /// Notes the client in whose name the wrapper may ask the server, unless a follower asks it: a view holds
    /// the peer of its client, and thereby all the room for its messages.
    pub(super) fn remember(&self, client: &ClientView) {
        if self.wrap.is_followed() {
            return;
        }
        self.wrap
            .clients()
            .entry(self.id)
            .or_insert_with(|| client.clone());
    }

    /// Returns the etags of the resources that a list names; none for those without a version.
    pub(super) async fn etags(&self, uris: &[String]) -> Result<Vec<Option<Etag>>, ErrorData> {
        let parsed: Vec<Option<ResourceUri>> = uris.iter().map(|uri| ResourceUri::new(uri).ok()).collect();
        let valid = parsed.iter().flatten().cloned().collect();
        let known = self.bus_handler.server.bus.etags(valid).await;
        let mut known = known.map_err(error::stopping)?.into_iter();
        let mut etags = Vec::with_capacity(parsed.len());
        for uri in parsed {
            // The bus was asked for the valid URIs only.
            etags.push(match uri {
                Some(_) => known.next().flatten(),
                None => None,
            });
        }
        Ok(etags)
    }

    /// Learns from a list if this client was answered all of it at once; a page shows too little.
    pub(super) async fn observe<T: Serialize>(
        &self,
        list: ServerList,
        items: &[T],
        request: Option<&PaginatedRequestParams>,
        next: Option<&String>,
    ) -> Result<(), ErrorData> {
        let is_first_page = !matches!(request, Some(PaginatedRequestParams { cursor: Some(_), .. }));
        // A list that only the bus has items of is one page, so no cursor is its own.
        if !is_first_page && !declares(&*self.inner, list) {
            return Err(lists::invalid_cursor());
        }
        // Behind a follower each client may be shown another list, so none is that of all.
        if !is_first_page || next.is_some() || self.wrap.is_followed() {
            return Ok(());
        }
        let items = as_json(items);
        let digest = listed::digest(&items);
        // Remembered before it is learned from, and the lock is gone before the bus is asked.
        let last = {
            let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
            views.insert(list, digest)
        };
        if last == Some(digest) {
            return Ok(());
        }
        let learned = self.wrap.learn_list(list, &items, digest).await;
        learned.map_err(|failure| error::list(&failure))
    }

    /// Makes the bus know the resources that a client wants to subscribe to.
    pub(super) async fn learn_unknown(
        &self,
        client: &ClientView,
        uris_of_client: &[String],
    ) -> Result<(), ErrorData> {
        let uris: Vec<ResourceUri> = uris_of_client
            .iter()
            .flat_map(|uri| ResourceUri::new(uri).ok())
            .collect();
        let etags = self.bus_handler.server.bus.etags(uris.clone()).await;
        let etags = etags.map_err(error::stopping)?;
        let mut unknown = Vec::new();
        for (index, uri) in uris.into_iter().enumerate() {
            if etags[index].is_none() {
                unknown.push(uri);
            }
        }
        let learned = self.wrap.learn_all(client, unknown).await;
        learned.map_err(|failure| error::list(&failure))?;
        self.wrap.tell_follower(uris_of_client).await;
        Ok(())
    }

    /// Reads the wrapped server's resources that the arguments of an etag tool name. A client that polls then
    /// also sees changes that were never announced.
    async fn renew_named(&self, client: &ClientView, arguments: &JsonObject) -> Result<(), ErrorData> {
        let items = match arguments.get("items") {
            Some(Value::Array(items)) => items.as_slice(),
            _ => &[],
        };
        let named = items.iter().flat_map(|item| item.get("uri"));
        let named = named.chain(arguments.get("uri"));
        let uris = named.flat_map(|uri| ResourceUri::new(uri.as_str()?).ok());
        let mut to_read = Vec::new();
        // The tool refuses more items than this, so more reads would be for nothing.
        for uri in uris.take(McpConfig::default().items_max) {
            if self.wrap.must_be_read(&uri).await.map_err(error::stopping)? {
                to_read.push(uri);
            }
        }
        let learned = self.wrap.learn_all(client, to_read).await;
        learned.map_err(|failure| error::list(&failure))
    }

    /// The options of this server.
    pub(super) fn options(&self) -> &McpOptions {
        &self.bus_handler.server.options
    }

    /// Calls a tool of the bus, which reads the wrapped server's resources in this client's name.
    pub(super) async fn call_bus_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let client = self.client_view(&context);
        if let Some(arguments) = &request.arguments {
            self.renew_named(&client, arguments).await?;
        }
        let call = self.bus_handler.call_tool(request, context);
        let mut answer = CALLING_CLIENT.scope(client, call).await?;
        if let CallToolResponse::Complete(result) = &mut answer {
            self.name_wrapped_server(&mut result.meta);
        }
        Ok(answer)
    }

    /// Puts the wrapped server's name in place of the bus's: clients see one server.
    pub(super) fn name_wrapped_server(&self, meta: &mut Option<MetaObject>) {
        if let Some(meta) = meta
            && let Some(info) = meta.0.get_mut(SERVER_INFO_META_KEY)
        {
            *info = json!(self.inner.get_info().server_info);
        }
    }

    /// Returns true when a tool or prompt belongs to the bus and the wrapped server has none of that name.
    pub(super) async fn is_of_bus(
        &self,
        list: ServerList,
        name: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<bool, ErrorData> {
        let bus = &self.bus_handler.server.bus;
        let held = match list {
            ServerList::Tools => bus.tool(name).await.map(|tool| tool.is_some()),
            _ => bus.prompt(name).await.map(|prompt| prompt.is_some()),
        };
        if !held.map_err(error::stopping)? {
            return Ok(false);
        }
        // The cheap question first: a router knows its tools without listing them.
        if list == ServerList::Tools && self.inner.get_tool(name).is_some() {
            return Ok(false);
        }
        let client = self.client_view(context);
        let has_item = self.wrap.has_item(&client, list, name).await;
        Ok(!has_item.map_err(|failure| error::list(&failure))?)
    }
}

impl<H: ServerHandler> BusHandler for Wrapped<H> {
    fn of_bus(&self) -> &Handler {
        &self.bus_handler
    }

    async fn before_listen(
        &self,
        requested: &SubscriptionFilter,
        meta: RequestMetaObject,
    ) -> Result<(), ErrorData> {
        let uris = requested.resource_subscriptions.as_deref().unwrap_or_default();
        let client = self.view_past_rmcp(meta);
        self.learn_unknown(&client, uris).await?;
        if requested_lists(requested).is_empty() || self.wrap.is_followed() {
            return Ok(());
        }
        // The stream starts from the lists as they are now, so learning them here announces nothing to it.
        let learned = self.wrap.learn_lists(&client).await;
        learned.map_err(|failure| error::list(&failure))
    }
}

/// Returns the updates that a stream missed between its acknowledgement and its subscriptions: the etags that
/// moved since `before`. A resource without an etag before got its first version
/// on the way, which does not count as a change.
fn missed_updates(
    subscribed: &[(ResourceUri, Etag)],
    before: &HashMap<String, Option<Etag>>,
) -> Vec<ServerNotification> {
    let mut missed = Vec::new();
    for (uri, now) in subscribed {
        let moved = match before.get(uri.as_str()) {
            Some(Some(before)) => before != now,
            Some(None) => now.version > 1,
            None => false,
        };
        if moved {
            missed.push(updated(uri, *now));
        }
    }
    missed
}

/// Turns "no such method" into success: the wrapped server leaves that part to the bus.
pub(super) fn if_implemented(answer: Result<(), ErrorData>) -> Result<(), ErrorData> {
    match answer {
        Err(refusal) if refusal.code == ErrorCode::METHOD_NOT_FOUND => Ok(()),
        other => other,
    }
}
