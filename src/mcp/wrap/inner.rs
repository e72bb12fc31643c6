//! The wrapped handler, as it is asked when no client's request is at hand.
//!
//! Owns: the object-safe view of a `ServerHandler`, the gathering of pages, and the patience with it. Never: remembers
//! answers.

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

/// Pages that are gathered of one list; a server that has more is taken to go round in circles.
const PAGES_MAX: usize = 1_000;

/// How long the wrapped server may take to answer what no client of its asked for.
const PATIENCE: Duration = Duration::from_secs(10);

/// A list that a server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Part {
    Resources,
    Templates,
    Tools,
    Prompts,
}

impl Part {
    pub(super) const ALL: [Part; 4] = [Part::Resources, Part::Templates, Part::Tools, Part::Prompts];

    /// The kind whose notification tells of it.
    pub(super) fn kind(self) -> ListKind {
        match self {
            Part::Resources | Part::Templates => ListKind::Resources,
            Part::Tools => ListKind::Tools,
            Part::Prompts => ListKind::Prompts,
        }
    }
}

type Context = RequestContext<RoleServer>;

/// What can be asked of a wrapped handler.
trait Inner: Send + Sync {
    fn read(&self, uri: String, context: Context) -> BoxFuture<Result<ReadResourceResult, ErrorData>>;

    /// Every item of a list, as JSON.
    fn list(&self, part: Part, context: Context) -> BoxFuture<Result<Vec<Value>, ErrorData>>;
}

struct InnerOf<H>(Arc<H>);

/// A wrapped handler and the client in whose name it is asked.
#[derive(Clone)]
pub(super) struct Live {
    inner: Arc<dyn Inner>,
    context: Context,
}

impl Live {
    /// Asks `handler` in the name of the client that sent a request.
    pub(super) fn new<H: ServerHandler>(handler: &Arc<H>, context: &Context) -> Live {
        Live::of_parts(
            handler,
            context.peer.clone(),
            context.meta.clone(),
            context.extensions.clone(),
        )
    }

    /// Asks `handler` in the name of `peer`, with what came beside its last message.
    pub(super) fn of_parts<H: ServerHandler>(
        handler: &Arc<H>,
        peer: Peer<RoleServer>,
        meta: RequestMetaObject,
        extensions: Extensions,
    ) -> Live {
        let mut context = RequestContext::new(NumberOrString::Number(0), peer);
        (context.meta, context.extensions) = (meta, extensions);
        // What is asked on our own account is no part of that request's progress.
        context.meta.0.0.remove("progressToken");
        Live {
            inner: Arc::new(InnerOf(handler.clone())),
            context,
        }
    }

    /// Whether its client is still connected.
    pub(super) fn is_connected(&self) -> bool {
        !self.context.peer.is_transport_closed()
    }

    pub(super) async fn read(&self, uri: &str) -> Result<ReadResourceResult, ErrorData> {
        patiently(self.inner.read(uri.to_owned(), self.context.clone())).await
    }

    pub(super) async fn list(&self, part: Part) -> Result<Vec<Value>, ErrorData> {
        patiently(self.inner.list(part, self.context.clone())).await
    }
}

async fn patiently<T>(answer: BoxFuture<Result<T, ErrorData>>) -> Result<T, ErrorData> {
    let late = |_| ErrorData::internal_error(format!("no answer within {} s", PATIENCE.as_secs()), None);
    tokio::time::timeout(PATIENCE, answer).await.map_err(late)?
}

impl<H: ServerHandler> Inner for InnerOf<H> {
    fn read(&self, uri: String, context: Context) -> BoxFuture<Result<ReadResourceResult, ErrorData>> {
        let handler = self.0.clone();
        Box::pin(async move {
            let request = ReadResourceRequestParams::new(uri);
            match handler.read_resource(request, context).await? {
                ReadResourceResponse::Complete(result) => Ok(result),
                _ => Err(ErrorData::internal_error(
                    "the resource asks its reader for input",
                    None,
                )),
            }
        })
    }

    fn list(&self, part: Part, context: Context) -> BoxFuture<Result<Vec<Value>, ErrorData>> {
        let handler = self.0.clone();
        Box::pin(async move {
            let (mut items, mut cursor) = (Vec::new(), None);
            if !declares(&*handler, part) {
                return Ok(items);
            }
            for _ in 0..PAGES_MAX {
                let page = cursor
                    .take()
                    .map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
                let (found, next) = list_page(&*handler, part, page, context.clone()).await?;
                items.extend(found);
                cursor = next;
                if cursor.is_none() {
                    break;
                }
            }
            Ok(items)
        })
    }
}

async fn list_page<H: ServerHandler>(
    handler: &H,
    part: Part,
    page: Option<PaginatedRequestParams>,
    context: Context,
) -> Result<(Vec<Value>, Option<String>), ErrorData> {
    Ok(match part {
        Part::Resources => {
            let page = handler.list_resources(page, context).await?;
            (as_json(&page.resources), page.next_cursor)
        }
        Part::Templates => {
            let page = handler.list_resource_templates(page, context).await?;
            (as_json(&page.resource_templates), page.next_cursor)
        }
        Part::Tools => {
            let page = handler.list_tools(page, context).await?;
            (as_json(&page.tools), page.next_cursor)
        }
        Part::Prompts => {
            let page = handler.list_prompts(page, context).await?;
            (as_json(&page.prompts), page.next_cursor)
        }
    })
}

/// Whether a server declares that it has such a list; one that does not is not asked for it.
pub(super) fn declares<H: ServerHandler>(handler: &H, part: Part) -> bool {
    let capabilities = handler.get_info().capabilities;
    match part.kind() {
        ListKind::Resources => capabilities.resources.is_some(),
        ListKind::Tools => capabilities.tools.is_some(),
        ListKind::Prompts => capabilities.prompts.is_some(),
    }
}

pub(super) fn as_json<T: Serialize>(items: &[T]) -> Vec<Value> {
    items
        .iter()
        .filter_map(|item| serde_json::to_value(item).ok())
        .collect()
}

/// The digest of what a read answered, `_meta` aside: that is about the answer rather than about the resource.
pub(super) fn digest(result: &ReadResourceResult) -> Digest {
    let mut contents = as_json(&result.contents);
    for content in contents.iter_mut().filter_map(Value::as_object_mut) {
        content.remove("_meta");
    }
    Digest::of_json(&Value::Array(contents))
}

/// The first content of a read as a body.
pub(super) fn body(result: &ReadResourceResult) -> Option<Body> {
    match result.contents.first()? {
        ResourceContents::TextResourceContents { text, .. } => Some(Body::text(text.as_str())),
        ResourceContents::BlobResourceContents { blob, .. } => STANDARD.decode(blob).ok().map(Body::blob),
        _ => None,
    }
}

/// The media type of a read's first content.
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
    async fn a_server_that_never_answers_is_waited_for_ten_seconds() {
        let begin = tokio::time::Instant::now();
        let never: BoxFuture<Result<(), ErrorData>> = Box::pin(std::future::pending());
        assert!(patiently(never).await.is_err());
        assert_eq!(begin.elapsed(), PATIENCE);
    }
}
