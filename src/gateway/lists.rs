//! The lists of the server, whole: the gateway reads every page and answers all items at once.
//!
//! A server that does not answer is answered for, by its list as it was last.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{PaginatedRequestParams, Prompt, Resource, ResourceTemplate, Tool};
use rmcp::service::{Peer, ServiceError};
use rmcp::{ErrorData, RoleClient};
use serde::Serialize;

use super::failure::{self, UpstreamFailure};
use super::foreign_etags;
use super::known_lists::KnownLists;
use super::upstream::Upstream;

/// The parameters of a list.
pub(super) type Page = Option<PaginatedRequestParams>;

/// Pages and items of one list. A server with more is taken to go round in circles, or to be hostile.
const PAGES_MAX: usize = 1_000;
const ITEMS_MAX: usize = 10_000;

/// Bytes of JSON of one list, as many as one message may have.
const BYTES_MAX: usize = 16 << 20;

/// The same of a list that only some clients are shown, which is kept for each of up to 200 connections.
pub(super) const DISTINCT_BYTES_MAX: usize = 2 << 20;

/// The time that the server may take for one list.
pub(super) const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// The same where there are other servers, whose items would wait for it, and a list to answer with.
const PATIENCE: Duration = Duration::from_secs(2);

/// Refuses cursors: the gateway answers lists whole, so none is its own.
///
/// # Errors
/// -32602 for a page with a cursor.
pub(super) fn refuse_cursor(page: Page) -> Result<(), ErrorData> {
    match page {
        Some(PaginatedRequestParams {
            cursor: Some(cursor), ..
        }) => {
            let text = format!("the cursor {cursor:?} is not of this server; list again without a cursor");
            Err(ErrorData::invalid_params(text, None))
        }
        _ => Ok(()),
    }
}

/// Returns the items of a list; none of one that is not known.
pub(super) fn known_or_none<T: Clone>(known: Option<Arc<[T]>>) -> Vec<T> {
    known.unwrap_or_default().to_vec()
}

/// Makes a function that returns all items of a list.
macro_rules! whole_list {
    ($($name:ident: $item:ty = $method:ident.$items:ident, $note:ident;)+) => {
        $(
            /// Returns all items of the list.
            ///
            /// # Errors
            /// The server refused or has too many; or it is not there, and its list is not known.
            pub(super) async fn $name(upstream: &Upstream) -> Result<Vec<$item>, ErrorData> {
                if upstream.connected_now().is_none()
                    && let Some(known) = upstream.lists.$name()
                {
                    return Ok(known.to_vec());
                }
                let is_known = upstream.lists.$name().is_some();
                let gathered = gather(upstream, is_known, async |peer: Peer<RoleClient>, page| {
                    let page = peer.$method(page).await?;
                    Ok((page.$items, page.next_cursor))
                });
                match gathered.await {
                    Ok(mut items) => {
                        $note(upstream, &upstream.lists, &mut items);
                        Ok(items)
                    }
                    // The items of the other servers do not depend on this one.
                    Err(error) if upstream.is_one_of_several() => {
                        tracing::debug!(upstream = upstream.label(), %error, "a list could not be read");
                        Ok(known_or_none(upstream.lists.$name()))
                    }
                    Err(error) => match upstream.lists.$name() {
                        Some(known) if failure::is_restart(&error) => Ok(known.to_vec()),
                        _ => Err(error),
                    },
                }
            }
        )+
    };
}

whole_list! {
    resources: Resource = list_resources.resources, note_resources;
    templates: ResourceTemplate = list_resource_templates.resource_templates, note_templates;
    tools: Tool = list_tools.tools, note_tools;
    prompts: Prompt = list_prompts.prompts, note_prompts;
}

fn note_resources(_: &Upstream, lists: &KnownLists, resources: &mut [Resource]) {
    foreign_etags::remove_from_list(resources);
    lists.note_resources(resources);
}

fn note_templates(_: &Upstream, lists: &KnownLists, templates: &mut [ResourceTemplate]) {
    lists.note_templates(templates);
}

/// Takes note of tools in `lists`. Those that clients are not to see leave the list.
pub(super) fn note_tools(upstream: &Upstream, lists: &KnownLists, tools: &mut Vec<Tool>) {
    foreign_etags::remove_tools(&upstream.info().capabilities, tools);
    lists.note_tools(tools);
}

/// Takes note of prompts in `lists`.
pub(super) fn note_prompts(_: &Upstream, lists: &KnownLists, prompts: &mut [Prompt]) {
    lists.note_prompts(prompts);
}

/// Reads every list that the server has.
pub(super) async fn renew(upstream: &Upstream) {
    let info = upstream.info();
    let capabilities = &info.capabilities;
    let mut refusals = Vec::new();
    if capabilities.resources.is_some() {
        refusals.push(resources(upstream).await.err());
        refusals.push(templates(upstream).await.err());
    }
    if capabilities.tools.is_some() {
        refusals.push(tools(upstream).await.err());
    }
    if capabilities.prompts.is_some() {
        refusals.push(prompts(upstream).await.err());
    }
    for error in refusals.into_iter().flatten() {
        tracing::debug!(upstream = upstream.label(), %error, "a list of the server is not known");
    }
}

/// Reads all pages of a list; once more if the connection ends meanwhile and the list is not known.
async fn gather<T, F>(
    upstream: &Upstream,
    is_known: bool,
    page: impl Fn(Peer<RoleClient>, Page) -> F,
) -> Result<Vec<T>, ErrorData>
where
    T: Serialize,
    F: Future<Output = Result<(Vec<T>, Option<String>), ServiceError>>,
{
    let patience = match upstream.is_one_of_several() && is_known {
        true => PATIENCE,
        false => LIST_TIMEOUT,
    };
    // What is known is answered at once, rather than after the wait for another connection.
    let mut may_retry = !is_known;
    loop {
        let connection = upstream.connection().await?;
        // One limit for all pages, so that many slow ones are not waited for without an end.
        let gathering = pages(|at| page(connection.peer().clone(), at), BYTES_MAX);
        let gathering = tokio::time::timeout(patience, gathering);
        let gathered = tokio::select! {
            gathered = gathering => gathered,
            () = connection.lost().wait() => Ok(Err(ServiceError::TransportClosed)),
        };
        if let Ok(Err(error)) = &gathered {
            connection.note(error);
        }
        match gathered {
            Ok(Ok(Some(items))) => return Ok(items),
            Ok(Ok(None)) => return Err(too_long()),
            Ok(Err(error)) if failure::ends_connection(&error) && may_retry => may_retry = false,
            Ok(Err(error)) => return Err(failure::answer_of(error)),
            Err(_) => return Err(UpstreamFailure::TimedOut(patience).answer()),
        }
    }
}

/// Returns the error for a list with more items, pages or bytes than one may have.
fn too_long() -> ErrorData {
    let text = format!("the list of the server has more than {ITEMS_MAX} items, {PAGES_MAX} pages or 16 MiB");
    ErrorData::internal_error(text, None)
}

/// Reads all pages of a list that only some clients are shown, over one connection.
///
/// # Errors
/// The server refused, has too many items, or is too slow; the connection ended.
pub(super) async fn distinct_pages<T, F>(page: impl Fn(Page) -> F) -> Result<Vec<T>, ErrorData>
where
    T: Serialize,
    F: Future<Output = Result<(Vec<T>, Option<String>), ServiceError>>,
{
    match tokio::time::timeout(LIST_TIMEOUT, pages(page, DISTINCT_BYTES_MAX)).await {
        Ok(Ok(Some(items))) => Ok(items),
        Ok(Ok(None)) => Err(too_long()),
        Ok(Err(error)) => Err(failure::answer_of(error)),
        Err(_) => Err(UpstreamFailure::TimedOut(LIST_TIMEOUT).answer()),
    }
}

/// Returns all items; none if there are too many.
async fn pages<T, F>(page: impl Fn(Page) -> F, bytes_max: usize) -> Result<Option<Vec<T>>, ServiceError>
where
    T: Serialize,
    F: Future<Output = Result<(Vec<T>, Option<String>), ServiceError>>,
{
    let mut items = Vec::new();
    let mut bytes = 0;
    let mut next = None;
    for _ in 0..PAGES_MAX {
        let (found, cursor) = page(next.take()).await?;
        // Counted here as well as by pages: one page may have a million items, or a very long one.
        if items.len() + found.len() > ITEMS_MAX {
            return Ok(None);
        }
        bytes = json_length(&found).saturating_add(bytes);
        if bytes > bytes_max {
            return Ok(None);
        }
        items.extend(found);
        match cursor {
            Some(cursor) => next = Some(PaginatedRequestParams::default().with_cursor(Some(cursor))),
            None => return Ok(Some(items)),
        }
    }
    Ok(None)
}

/// Returns the bytes of a value as JSON.
fn json_length(value: &impl Serialize) -> usize {
    let mut count = CountedBytes(0);
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        // It came as JSON, so this is a value that cannot be passed on either.
        Err(_) => usize::MAX,
    }
}

/// Counts the bytes that are written to it.
struct CountedBytes(usize);

impl std::io::Write for CountedBytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_list_of_some_clients_is_not_read() {
        for (page_bytes, is_read) in [(DISTINCT_BYTES_MAX / 2, true), (DISTINCT_BYTES_MAX, false)] {
            let read = distinct_pages(async |page: Page| {
                let is_last = page.is_some();
                let items = vec!["x".repeat(page_bytes / 2)];
                Ok((items, (!is_last).then(|| "next".to_owned())))
            });
            assert_eq!(read.await.is_ok(), is_read, "{page_bytes}");
        }
    }

    #[test]
    fn cursor_of_others_is_refused() {
        assert!(refuse_cursor(None).is_ok());
        assert!(refuse_cursor(Some(PaginatedRequestParams::default())).is_ok());
        let page = PaginatedRequestParams::default().with_cursor(Some("x".into()));
        let refusal = refuse_cursor(Some(page)).unwrap_err();
        assert!(refusal.message.contains("\"x\""), "{refusal}");
    }
}
