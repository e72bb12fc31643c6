//! The wrapped server as one client sees it, for questions that no request of that client is waiting for.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{
    Extensions, NumberOrString, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, RequestMetaObject, ResourceContents,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};
use serde::Serialize;
use serde_json::Value;

use crate::{Body, BoxFuture, Digest, ListKind};

/// The largest number of pages that are read of one list. A server with more is taken to go round in circles.
const PAGES_MAX: usize = 1_000;

/// The time in which the wrapped server must answer a question that no client of its asked.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A list that a server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ServerList {
    Resources,
    Templates,
    Tools,
    Prompts,
}

impl ServerList {
    pub(super) const ALL: [ServerList; 4] = [
        ServerList::Resources,
        ServerList::Templates,
        ServerList::Tools,
        ServerList::Prompts,
    ];

    /// Returns the kind whose notification announces changes of this list.
    pub(super) fn kind(self) -> ListKind {
        match self {
            ServerList::Resources | ServerList::Templates => ListKind::Resources,
            ServerList::Tools => ListKind::Tools,
            ServerList::Prompts => ListKind::Prompts,
        }
    }
}

type Context = RequestContext<RoleServer>;

/// The questions that a wrapped handler can be asked. Object-safe, unlike `ServerHandler`, so that one map
/// holds the clients of any handler type.
trait WrappedServer: Send + Sync {
    fn read(&self, uri: String, context: Context) -> BoxFuture<Result<ReadResourceResult, ErrorData>>;

    /// Returns true when the server has a tool of that name, as far as it knows without listing them.
    fn has_tool(&self, name: &str) -> bool;

    /// Returns every item of a list, as JSON.
    fn list(&self, list: ServerList, context: Context) -> BoxFuture<Result<Vec<Value>, ErrorData>>;
}

struct ServerOf<H>(Arc<H>);

/// A wrapped handler and the client in whose name it is asked.
#[derive(Clone)]
pub(super) struct ClientView {
    server: Arc<dyn WrappedServer>,
    context: Context,
}

impl ClientView {
    /// Makes the view of the client that sent a request.
    pub(super) fn of_request<H: ServerHandler>(handler: &Arc<H>, context: &Context) -> ClientView {
        ClientView::of_peer(
            handler,
            context.peer.clone(),
            context.meta.clone(),
            context.extensions.clone(),
        )
    }

    /// Makes the view of `peer`, with the metadata that came beside its last message.
    pub(super) fn of_peer<H: ServerHandler>(
        handler: &Arc<H>,
        peer: Peer<RoleServer>,
        meta: RequestMetaObject,
        extensions: Extensions,
    ) -> ClientView {
        let mut context = RequestContext::new(NumberOrString::Number(0), peer);
        context.meta = meta;
        context.extensions = extensions;
        // The wrapper asks for itself: the answers must not report progress to the client's request.
        context.meta.0.0.remove("progressToken");
        ClientView {
            server: Arc::new(ServerOf(handler.clone())),
            context,
        }
    }

    /// Returns true while the client is connected.
    pub(super) fn is_connected(&self) -> bool {
        !self.context.peer.is_transport_closed()
    }

    /// Returns true when the wrapped server has a tool of that name, as far as it knows without listing them.
    pub(super) fn has_tool(&self, name: &str) -> bool {
        self.server.has_tool(name)
    }

    pub(super) async fn read(&self, uri: &str) -> Result<ReadResourceResult, ErrorData> {
        in_time(self.server.read(uri.to_owned(), self.context.clone())).await
    }

    pub(super) async fn list(&self, list: ServerList) -> Result<Vec<Value>, ErrorData> {
        in_time(self.server.list(list, self.context.clone())).await
    }
}

async fn in_time<T>(answer: BoxFuture<Result<T, ErrorData>>) -> Result<T, ErrorData> {
    match tokio::time::timeout(ANSWER_TIMEOUT, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(ErrorData::internal_error(
            format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()),
            None,
        )),
    }
}

impl<H: ServerHandler> WrappedServer for ServerOf<H> {
    fn read(&self, uri: String, context: Context) -> BoxFuture<Result<ReadResourceResult, ErrorData>> {
        let handler = self.0.clone();
        Box::pin(async move {
            let request = ReadResourceRequestParams::new(uri);
            match handler.read_resource(request, context).await? {
                ReadResourceResponse::Complete(result) => Ok(result),
                // Such a resource (2026-07-28) can only be read in a dialogue with the client.
                _ => Err(ErrorData::internal_error(
                    "the resource asks its reader for input",
                    None,
                )),
            }
        })
    }

    fn has_tool(&self, name: &str) -> bool {
        self.0.get_tool(name).is_some()
    }

    fn list(&self, list: ServerList, context: Context) -> BoxFuture<Result<Vec<Value>, ErrorData>> {
        let handler = self.0.clone();
        Box::pin(async move {
            let mut items = Vec::new();
            if !declares(&*handler, list) {
                return Ok(items);
            }
            let mut page = None;
            for _ in 0..PAGES_MAX {
                let (found, next) = list_page(&*handler, list, page.take(), context.clone()).await?;
                items.extend(found);
                let Some(cursor) = next else { break };
                page = Some(PaginatedRequestParams::default().with_cursor(Some(cursor)));
            }
            Ok(items)
        })
    }
}

async fn list_page<H: ServerHandler>(
    handler: &H,
    list: ServerList,
    page: Option<PaginatedRequestParams>,
    context: Context,
) -> Result<(Vec<Value>, Option<String>), ErrorData> {
    Ok(match list {
        ServerList::Resources => {
            let page = handler.list_resources(page, context).await?;
            (as_json(&page.resources), page.next_cursor)
        }
        ServerList::Templates => {
            let page = handler.list_resource_templates(page, context).await?;
            (as_json(&page.resource_templates), page.next_cursor)
        }
        ServerList::Tools => {
            let page = handler.list_tools(page, context).await?;
            (as_json(&page.tools), page.next_cursor)
        }
        ServerList::Prompts => {
            let page = handler.list_prompts(page, context).await?;
            (as_json(&page.prompts), page.next_cursor)
        }
    })
}

/// Returns true when a server declares that it has such a list; a server that does not is not asked for it.
pub(super) fn declares<H: ServerHandler>(handler: &H, list: ServerList) -> bool {
    let capabilities = handler.get_info().capabilities;
    match list.kind() {
        ListKind::Resources => capabilities.resources.is_some(),
        ListKind::Tools => capabilities.tools.is_some(),
        ListKind::Prompts => capabilities.prompts.is_some(),
    }
}

pub(super) fn as_json<T: Serialize>(items: &[T]) -> Vec<Value> {
    items
        .iter()
        .flat_map(|item| serde_json::to_value(item).ok())
        .collect()
}

/// Returns the digest of a read's contents. Their `_meta` is left out: it describes the answer rather than
/// the resource.
pub(super) fn digest(result: &ReadResourceResult) -> Digest {
    let mut contents = as_json(&result.contents);
    for content in &mut contents {
        if let Some(fields) = content.as_object_mut() {
            fields.remove("_meta");
        }
    }
    Digest::of_json(&Value::Array(contents))
}

/// Returns the first content of a read as a body.
pub(super) fn body(result: &ReadResourceResult) -> Option<Body> {
    match result.contents.first()? {
        ResourceContents::TextResourceContents { text, .. } => Some(Body::text(text.as_str())),
        ResourceContents::BlobResourceContents { blob, .. } => STANDARD.decode(blob).ok().map(Body::blob),
        _ => None,
    }
}

/// Returns the media type of a read's first content.
pub(super) fn media_type(result: &ReadResourceResult) -> Option<String> {
    match result.contents.first()? {
        ResourceContents::TextResourceContents { mime_type, .. }
        | ResourceContents::BlobResourceContents { mime_type, .. } => mime_type.clone(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silent_server_times_out_after_ten_seconds() {
        let begin = tokio::time::Instant::now();
        let never: BoxFuture<Result<(), ErrorData>> = Box::pin(std::future::pending());
        assert!(in_time(never).await.is_err());
        assert_eq!(begin.elapsed(), ANSWER_TIMEOUT);
    }
}
