//! The wrapped handler, as it is asked when no client's request is at hand.
//!
//! Owns: the object-safe view of a `ServerHandler` and the gathering of pages. Never: remembers answers.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{
    NumberOrString, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, ResourceContents,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};
use serde::Serialize;
use serde_json::Value;

use crate::{Body, BoxFuture, ListKind};

/// Pages that are gathered of one list; a server that has more is taken to go round in circles.
const PAGES_MAX: usize = 1_000;

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

/// What can be asked of a wrapped handler.
pub(super) trait Inner: Send + Sync {
    fn read(&self, uri: String, peer: Peer<RoleServer>) -> BoxFuture<Result<ReadResourceResult, ErrorData>>;

    /// Every item of a list, as JSON.
    fn list(&self, part: Part, peer: Peer<RoleServer>) -> BoxFuture<Result<Vec<Value>, ErrorData>>;
}

pub(super) struct InnerOf<H>(pub(super) Arc<H>);

impl<H: ServerHandler> Inner for InnerOf<H> {
    fn read(&self, uri: String, peer: Peer<RoleServer>) -> BoxFuture<Result<ReadResourceResult, ErrorData>> {
        let handler = self.0.clone();
        Box::pin(async move {
            match handler
                .read_resource(ReadResourceRequestParams::new(uri), context(peer))
                .await?
            {
                ReadResourceResponse::Complete(result) => Ok(result),
                _ => Err(ErrorData::internal_error(
                    "the resource asks its reader for input",
                    None,
                )),
            }
        })
    }

    fn list(&self, part: Part, peer: Peer<RoleServer>) -> BoxFuture<Result<Vec<Value>, ErrorData>> {
        let handler = self.0.clone();
        Box::pin(async move {
            let (mut items, mut cursor) = (Vec::new(), None);
            for _ in 0..PAGES_MAX {
                let page = cursor
                    .take()
                    .map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
                let context = context(peer.clone());
                cursor = match part {
                    Part::Resources => {
                        let page = handler.list_resources(page, context).await?;
                        items.extend(as_json(&page.resources));
                        page.next_cursor
                    }
                    Part::Templates => {
                        let page = handler.list_resource_templates(page, context).await?;
                        items.extend(as_json(&page.resource_templates));
                        page.next_cursor
                    }
                    Part::Tools => {
                        let page = handler.list_tools(page, context).await?;
                        items.extend(as_json(&page.tools));
                        page.next_cursor
                    }
                    Part::Prompts => {
                        let page = handler.list_prompts(page, context).await?;
                        items.extend(as_json(&page.prompts));
                        page.next_cursor
                    }
                };
                if cursor.is_none() {
                    break;
                }
            }
            Ok(items)
        })
    }
}

/// A request of our own, in the name of a client.
fn context(peer: Peer<RoleServer>) -> RequestContext<RoleServer> {
    RequestContext::new(NumberOrString::Number(0), peer)
}

pub(super) fn as_json<T: Serialize>(items: &[T]) -> Vec<Value> {
    items
        .iter()
        .filter_map(|item| serde_json::to_value(item).ok())
        .collect()
}

/// The first content of a read as a body.
pub(super) fn body(result: &ReadResourceResult) -> Option<Body> {
    match result.contents.first()? {
        ResourceContents::TextResourceContents { text, .. } => Some(Body::text(text.as_str())),
        ResourceContents::BlobResourceContents { blob, .. } => STANDARD.decode(blob).ok().map(Body::blob),
        _ => None,
    }
}
