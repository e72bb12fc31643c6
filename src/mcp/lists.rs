//! The pages of the four lists: resources (with the members of templates), templates, tools and prompts.

use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::{
    CacheScope, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    MetaObject, PaginatedRequestParams, Resource,
};
use serde_json::json;

use super::cursor::PageCursor;
use super::revision::SERVER_INFO_META_KEY;
use super::session::McpContext;
use super::{convert, error};
use crate::rights::{Audience, ListQuery};
use crate::{Descriptor, Etag, config};

/// The fields that results of 2026-07-28 carry beside their content; all empty on older revisions.
#[derive(Default)]
pub(crate) struct ResultHints {
    pub(crate) meta: Option<MetaObject>,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) cache_scope: Option<CacheScope>,
}

impl ResultHints {
    /// Returns the hints of a request, which is `stateless` when its revision is.
    pub(crate) fn new(server: &McpContext, stateless: bool) -> ResultHints {
        if !stateless {
            return ResultHints::default();
        }
        let mut meta = MetaObject::default();
        meta.0
            .insert(SERVER_INFO_META_KEY.to_owned(), json!(server.server_info()));
        let options = &server.options.mcp;
        let scope = match options.cache_scope {
            config::CacheScope::Public => CacheScope::Public,
            config::CacheScope::Private => CacheScope::Private,
        };
        ResultHints {
            meta: Some(meta),
            ttl_ms: Some(options.ttl.as_millis() as u64),
            cache_scope: Some(scope),
        }
    }
}

/// A request for a page of a list.
pub(crate) struct ListRequest {
    pub(crate) page: Option<PaginatedRequestParams>,
    pub(crate) hints: ResultHints,
    /// The part of the list that the caller sees; none if it sees everything.
    pub(crate) audience: Option<Arc<dyn Audience>>,
}

/// Makes a list result of its page and its hints. A macro, because rmcp's four result types share fields but
/// no trait.
macro_rules! list_result {
    ($result:ident, $items:expr, $next:expr, $hints:expr) => {{
        let hints: ResultHints = $hints;
        let next: Option<PageCursor> = $next;
        let mut result = $result::with_all_items($items);
        result.next_cursor = next.map(|cursor| cursor.encode());
        result.meta = hints.meta;
        result.ttl_ms = hints.ttl_ms;
        result.cache_scope = hints.cache_scope;
        result
    }};
}

/// Answers `resources/list`.
pub(crate) async fn list_resources(
    server: &McpContext,
    request: ListRequest,
) -> Result<ListResourcesResult, ErrorData> {
    let cursor = requested_cursor(request.page)?;
    let (items, next) = resource_page(server, cursor, request.audience.as_ref()).await?;
    let items = as_resources(&items);
    Ok(list_result!(ListResourcesResult, items, next, request.hints))
}

/// Answers `resources/templates/list`.
pub(crate) async fn list_templates(
    server: &McpContext,
    request: ListRequest,
) -> Result<ListResourceTemplatesResult, ErrorData> {
    let after = requested_name(request.page)?;
    // The bus has no pages of templates: there are few, and it hands them out sorted.
    let shown = server.bus.templates_shown(request.audience.as_ref()).await;
    let mut templates = shown.map_err(error::stopping)?;
    if let Some(after) = after {
        templates.retain(|template| template.uri_template().as_str() > after.as_str());
    }
    let size = server.options.mcp.page_size;
    let more = templates.len() > size;
    templates.truncate(size);
    let next = match templates.last() {
        Some(last) if more => Some(PageCursor::Item(last.uri_template().as_str().to_owned())),
        _ => None,
    };
    let items = templates
        .iter()
        .map(|template| convert::template(template))
        .collect();
    Ok(list_result!(
        ListResourceTemplatesResult,
        items,
        next,
        request.hints
    ))
}

/// Answers `tools/list`.
pub(crate) async fn list_tools(
    server: &McpContext,
    request: ListRequest,
) -> Result<ListToolsResult, ErrorData> {
    let query = item_query(server, request.page, request.audience)?;
    let page = server.bus.tools_page(query).await;
    let page = page.map_err(error::stopping)?;
    let items = convert::tools(&page.items);
    Ok(list_result!(
        ListToolsResult,
        items,
        page.next.map(PageCursor::Item),
        request.hints
    ))
}

/// Answers `prompts/list`.
pub(crate) async fn list_prompts(
    server: &McpContext,
    request: ListRequest,
) -> Result<ListPromptsResult, ErrorData> {
    let query = item_query(server, request.page, request.audience)?;
    let page = server.bus.prompts_page(query).await;
    let page = page.map_err(error::stopping)?;
    let items = convert::prompts(&page.items);
    Ok(list_result!(
        ListPromptsResult,
        items,
        page.next.map(PageCursor::Item),
        request.hints
    ))
}

/// Returns every listed resource of the bus, for a wrapped server whose own list comes first.
pub(crate) async fn all_resources(server: &McpContext) -> Result<Vec<Resource>, ErrorData> {
    let mut items = Vec::new();
    let mut cursor = None;
    loop {
        let (page, next) = resource_page(server, cursor, None).await?;
        items.extend(as_resources(&page));
        if next.is_none() {
            return Ok(items);
        }
        cursor = next;
    }
}

fn as_resources(page: &[(Descriptor, Etag)]) -> Vec<Resource> {
    page.iter()
        .map(|(descriptor, etag)| convert::resource(descriptor, *etag))
        .collect()
}

type ResourcePage = (Vec<(Descriptor, Etag)>, Option<PageCursor>);

/// Returns one page of resources: the registered ones, then the members that templates list.
async fn resource_page(
    server: &McpContext,
    cursor: Option<PageCursor>,
    audience: Option<&Arc<dyn Audience>>,
) -> Result<ResourcePage, ErrorData> {
    let after = match cursor {
        Some(PageCursor::Member(after)) => return member_page(server, Vec::new(), after, audience).await,
        Some(PageCursor::Item(uri)) => Some(uri),
        None => None,
    };
    let query = ListQuery {
        after,
        limit: server.options.mcp.page_size,
        audience: audience.cloned(),
    };
    let page = server.bus.resources_page(query).await.map_err(error::stopping)?;
    let items = page
        .items
        .into_iter()
        .map(|(resource, etag)| (resource.descriptor().clone(), etag))
        .collect();
    match page.next {
        Some(next) => Ok((items, Some(PageCursor::Item(next)))),
        // The last page of registered resources is filled up with members.
        None => member_page(server, items, None, audience).await,
    }
}

/// Fills a page up with the members after this URI.
async fn member_page(
    server: &McpContext,
    mut items: Vec<(Descriptor, Etag)>,
    after: Option<String>,
    audience: Option<&Arc<dyn Audience>>,
) -> Result<ResourcePage, ErrorData> {
    let listed = server.bus.members_shown(audience).await;
    let mut members = listed.map_err(|failure| error::list(&failure))?;
    // Publishers list members in any order, but a cursor needs one that stays from page to page.
    members.sort_by(|(a, _), (b, _)| a.uri.cmp(&b.uri));
    if let Some(after) = &after {
        members.retain(|(member, _)| member.uri.as_str() > after.as_str());
    }
    let room = server.options.mcp.page_size - items.len();
    let more = members.len() > room;
    members.truncate(room);
    let last = match members.last() {
        Some((member, _)) => Some(member.uri.as_str().to_owned()),
        // The page had no room for a member: the next one begins where this one would have.
        None => after,
    };
    items.append(&mut members);
    Ok((items, more.then_some(PageCursor::Member(last))))
}

/// Returns the cursor that a request names.
fn requested_cursor(request: Option<PaginatedRequestParams>) -> Result<Option<PageCursor>, ErrorData> {
    let Some(PaginatedRequestParams {
        cursor: Some(text), ..
    }) = request
    else {
        return Ok(None);
    };
    match PageCursor::decode(&text) {
        Some(cursor) => Ok(Some(cursor)),
        None => Err(invalid_cursor()),
    }
}

/// Returns the question for a page of tools or prompts.
fn item_query(
    server: &McpContext,
    request: Option<PaginatedRequestParams>,
    audience: Option<Arc<dyn Audience>>,
) -> Result<ListQuery, ErrorData> {
    Ok(ListQuery {
        after: requested_name(request)?,
        limit: server.options.mcp.page_size,
        audience,
    })
}

/// Returns the name after which a page of templates, tools or prompts begins.
fn requested_name(request: Option<PaginatedRequestParams>) -> Result<Option<String>, ErrorData> {
    match requested_cursor(request)? {
        None => Ok(None),
        Some(PageCursor::Item(name)) => Ok(Some(name)),
        Some(PageCursor::Member(_)) => Err(invalid_cursor()),
    }
}

pub(super) fn invalid_cursor() -> ErrorData {
    error::invalid_params("invalid cursor; list again from the start")
}
