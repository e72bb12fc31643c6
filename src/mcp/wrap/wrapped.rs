//! One client's handler: the wrapped one, and the bus's part beside it.
//!
//! Owns: the client's session (through its [`Handler`]), and what this client was listed last. Never: answers a request
//! by itself; `forward` does, with what is here. Its end is the end of the session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{
    ErrorCode, JsonObject, MetaObject, PaginatedRequestParams, ServerCapabilities, ServerNotification,
    SubscriptionFilter,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Map, Value, json};

use super::inner::{Live, Part};
use super::{CALLER, Wrap, listed};
use crate::etag_tools::EtagToolLimits;
use crate::mcp::error;
use crate::mcp::frames::ETAG_META_KEY;
use crate::mcp::handler::{Handler, SERVER_INFO_META_KEY};
use crate::mcp::listen::{Listening, lists};
use crate::mcp::revision::Revision;
use crate::mcp::stdio::{notification, updated};
use crate::{Digest, Etag, OutboxEntry, ResourceUri};

/// A `ServerHandler` with a bus: serve it in place of the one it wraps, on any transport of rmcp.
///
/// It keeps all that the wrapped one does, and adds: `resources/subscribe` and `unsubscribe`, `subscriptions/listen`,
/// etags in `_meta` of reads and resource lists, the etag tools, list notifications by content, and whatever is
/// registered at the bus itself. A resource has an etag from its first read or subscription on.
///
/// On a transport of rmcp's own, `subscriptions/listen` is acknowledged as it was asked, unknown URIs included: rmcp's
/// hook for narrowing it can neither wait nor see the client. Nothing is ever sent for a URI that does not exist.
pub struct Wrapped<H: ServerHandler> {
    /// Its place among the handlers that have a client.
    id: u64,
    pub(super) inner: Arc<H>,
    pub(super) ours: Handler,
    pub(super) wrap: Wrap,
    /// What this client was listed last. The same again is no news, even when another client's list looks otherwise:
    /// two clients who see different lists must not tell each other for ever.
    views: Mutex<HashMap<Part, Option<Digest>>>,
    /// Listen requests that rmcp acknowledges now, with how often each kind of list had changed before.
    acknowledging: Mutex<Vec<(SubscriptionFilter, [u64; 3])>>,
}

impl<H: ServerHandler> Drop for Wrapped<H> {
    fn drop(&mut self) {
        self.wrap.lives().remove(&self.id);
    }
}

impl<H: ServerHandler> Wrapped<H> {
    pub(super) fn new(id: u64, inner: H, ours: Handler, wrap: Wrap) -> Wrapped<H> {
        Wrapped {
            id,
            inner: Arc::new(inner),
            ours,
            wrap,
            views: Mutex::default(),
            acknowledging: Mutex::default(),
        }
    }

    fn acknowledging(&self) -> MutexGuard<'_, Vec<(SubscriptionFilter, [u64; 3])>> {
        self.acknowledging.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how the lists stand before a listen request is acknowledged.
    pub(super) fn acknowledge(&self, requested: &SubscriptionFilter) {
        self.acknowledging().push((requested.clone(), self.wrap.moves()));
    }

    /// How the lists stood before a listen request was acknowledged.
    pub(super) fn acknowledged(&self, requested: &SubscriptionFilter) -> [u64; 3] {
        let mut acknowledging = self.acknowledging();
        let place = acknowledging.iter().position(|(filter, _)| filter == requested);
        place.map_or_else(|| self.wrap.moves(), |place| acknowledging.remove(place).1)
    }

    /// Subscribes a stream to what `filter` asks for. Answers what it must be told at once, since it was acknowledged
    /// a while before: the lists that moved since `stood`, and the etags that moved since `begun`.
    pub(super) async fn open(
        &self,
        filter: &mut SubscriptionFilter,
        stood: [u64; 3],
        begun: &HashMap<String, Option<Etag>>,
    ) -> Result<(Arc<Listening>, Vec<ServerNotification>), ErrorData> {
        // No list moves between the beginning of the stream and the look at what moved before.
        let steady = self.wrap.shared.listed.lock().await;
        let listening = Listening::open(&self.ours, filter, false).await?;
        let moves = self.wrap.moves();
        drop(steady);
        let asked = lists(filter).into_iter();
        let moved = asked.filter(|kind| moves[*kind as usize] != stood[*kind as usize]);
        let lists = moved.map(|kind| notification(&OutboxEntry::ListChanged(kind)));
        let missed = lists.chain(missed(&listening.granted, begun)).collect();
        Ok((listening, missed))
    }

    /// The wrapped server as this request's client sees it. From its first request on, the server can be asked in this
    /// client's name.
    pub(super) fn live(&self, context: &RequestContext<RoleServer>) -> Live {
        let live = Live::new(&self.inner, context);
        self.remember(&live);
        live
    }

    pub(super) fn remember(&self, live: &Live) {
        self.wrap.lives().entry(self.id).or_insert_with(|| live.clone());
    }

    /// The etags of what a list names, as far as there are any yet.
    pub(super) async fn etags(&self, uris: &[String]) -> Result<Vec<Option<Etag>>, ErrorData> {
        let parsed: Vec<Option<ResourceUri>> = uris.iter().map(|uri| ResourceUri::new(uri).ok()).collect();
        let known = parsed.iter().flatten().cloned().collect();
        let etags = self.ours.bus.etags(known).await.map_err(error::stopping)?;
        let mut etags = etags.into_iter();
        let etag = |uri: Option<ResourceUri>| uri.and_then(|_| etags.next().flatten());
        Ok(parsed.into_iter().map(etag).collect())
    }

    /// Learns from a list that this client was answered whole.
    pub(super) async fn observe(&self, part: Part, items: &[Value]) -> Result<(), ErrorData> {
        let digest = listed::digest(items);
        let last = {
            let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
            views.insert(part, digest)
        };
        if last == Some(digest) {
            return Ok(());
        }
        let learnt = self.wrap.learn_list(part, items, digest).await;
        learnt.map_err(|failure| error::list(&failure))
    }

    /// Makes sure that the bus knows the resources that a client wants to be told of.
    pub(super) async fn ensure(&self, live: &Live, uris: &[String]) -> Result<(), ErrorData> {
        let uris: Vec<ResourceUri> = uris.iter().filter_map(|uri| ResourceUri::new(uri).ok()).collect();
        let etags = self.ours.bus.etags(uris.clone()).await.map_err(error::stopping)?;
        let unknown = uris.into_iter().zip(etags).filter(|(_, etag)| etag.is_none());
        let learnt = self.wrap.learn_all(live, unknown.map(|(uri, _)| uri).collect());
        learnt.await.map_err(|failure| error::list(&failure))
    }

    /// Reads the wrapped server's resources that arguments of an etag tool name: a client that asks whether its etag is
    /// current is answered by what is there now, also when nobody said that it changed.
    async fn renew_named(&self, live: &Live, arguments: &JsonObject) -> Result<(), ErrorData> {
        let items = arguments.get("items").and_then(Value::as_array);
        let named = items
            .into_iter()
            .flatten()
            .filter_map(|item| item.get("uri"))
            .chain(arguments.get("uri"))
            .filter_map(|uri| ResourceUri::new(uri.as_str()?).ok())
            .take(EtagToolLimits::default().items_max);
        let mut theirs = Vec::new();
        for uri in named {
            if self.wrap.is_theirs(&uri).await.map_err(error::stopping)? {
                theirs.push(uri);
            }
        }
        let learnt = self.wrap.learn_all(live, theirs).await;
        learnt.map_err(|failure| error::list(&failure))
    }

    /// Calls a tool of the bus, which reads the wrapped server's resources in this client's name.
    pub(super) async fn call_ours(
        &self,
        request: rmcp::model::CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<rmcp::model::CallToolResponse, ErrorData> {
        let live = self.live(&context);
        if let Some(arguments) = &request.arguments {
            self.renew_named(&live, arguments).await?;
        }
        let mut answer = CALLER.scope(live, self.ours.call_tool(request, context)).await?;
        if let rmcp::model::CallToolResponse::Complete(result) = &mut answer {
            self.sign(&mut result.meta);
        }
        Ok(answer)
    }

    /// Puts the wrapped server's name in place of the bus's: there is one server, and it is theirs.
    pub(super) fn sign(&self, meta: &mut Option<MetaObject>) {
        if let Some(info) = meta
            .as_mut()
            .and_then(|meta| meta.0.get_mut(SERVER_INFO_META_KEY))
        {
            *info = json!(self.inner.get_info().server_info);
        }
    }

    /// Whether a tool or prompt is one of the bus that the wrapped server does not have.
    pub(super) async fn is_ours(&self, part: Part, name: &str, live: &Live) -> Result<bool, ErrorData> {
        let bus = &self.ours.bus;
        let held = match part {
            Part::Tools => bus.tool(name).await.map(|tool| tool.is_some()),
            _ => bus.prompt(name).await.map(|prompt| prompt.is_some()),
        };
        if !held.map_err(error::stopping)? || (part == Part::Tools && self.inner.get_tool(name).is_some()) {
            return Ok(false);
        }
        let theirs = self.wrap.has(live, part, name).await;
        Ok(!theirs.map_err(|failure| error::list(&failure))?)
    }
}

/// What a stream must be told that was subscribed a while after it was acknowledged: the etags that moved from what they
/// had `begun` with to what they were at the subscription. One that had none had its first version while the stream was
/// on its way, which is no change.
fn missed(granted: &[(ResourceUri, Etag)], begun: &HashMap<String, Option<Etag>>) -> Vec<ServerNotification> {
    let moved = granted.iter().filter(|(uri, now)| match begun.get(uri.as_str()) {
        Some(Some(begun)) => begun != now,
        Some(None) => now.version > 1,
        None => false,
    });
    moved.map(|(uri, now)| updated(uri, *now)).collect()
}

/// Takes "there is no such method" for "does nothing": the wrapped server leaves that part to the bus.
pub(super) fn if_there_is(answer: Result<(), ErrorData>) -> Result<(), ErrorData> {
    match answer {
        Err(refusal) if refusal.code == ErrorCode::METHOD_NOT_FOUND => Ok(()),
        other => other,
    }
}

/// Whether an answer is a whole list rather than a page of one.
pub(super) fn is_whole(request: Option<&PaginatedRequestParams>, next: Option<&String>) -> bool {
    request.is_none_or(|params| params.cursor.is_none()) && next.is_none()
}

/// What the wrapped server can do, and what the bus adds: it may hold items of every kind.
pub(super) fn with_ours(mut capabilities: ServerCapabilities, revision: Revision) -> ServerCapabilities {
    let told = (revision.is_stateless() || revision.tells_lists()).then_some(true);
    let resources = capabilities.resources.get_or_insert_default();
    (resources.subscribe, resources.list_changed) = (Some(true), told);
    capabilities.tools.get_or_insert_default().list_changed = told;
    capabilities.prompts.get_or_insert_default().list_changed = told;
    // The bus's own tools may log.
    capabilities.logging.get_or_insert_default();
    if revision.is_stateless() {
        let extensions = capabilities.extensions.get_or_insert_default();
        extensions.insert(ETAG_META_KEY.to_owned(), Map::new());
    }
    capabilities
}
