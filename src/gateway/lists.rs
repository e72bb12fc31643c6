//! The lists of the server, whole: the gateway reads every page and answers all items at once.

use rmcp::model::{PaginatedRequestParams, Prompt, Resource, ResourceTemplate, Tool};
use rmcp::service::{Peer, ServiceError};
use rmcp::{ErrorData, RoleClient};

use super::failure::{self, UpstreamFailure};
use super::upstream::Upstream;

/// The parameters of a list.
pub(super) type Page = Option<PaginatedRequestParams>;

/// Pages and items of one list. A server with more is taken to go round in circles, or to be hostile.
const PAGES_MAX: usize = 1_000;
const ITEMS_MAX: usize = 10_000;

/// The time that the server may take for one list.
const LIST_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

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

/// Makes a function that returns all items of a list.
macro_rules! whole_list {
    ($($name:ident: $item:ty = $method:ident.$items:ident;)+) => {
        $(
            /// Returns all items of the list.
            ///
            /// # Errors
            /// The server refused, is not there, or has too many.
            pub(super) async fn $name(upstream: &Upstream) -> Result<Vec<$item>, ErrorData> {
                gather(upstream, async |peer: Peer<RoleClient>, page| {
                    let page = peer.$method(page).await?;
                    Ok((page.$items, page.next_cursor))
                })
                .await
            }
        )+
    };
}

whole_list! {
    resources: Resource = list_resources.resources;
    templates: ResourceTemplate = list_resource_templates.resource_templates;
    tools: Tool = list_tools.tools;
    prompts: Prompt = list_prompts.prompts;
}

/// Reads all pages of a list; once more if the connection ends meanwhile.
async fn gather<T, F>(
    upstream: &Upstream,
    page: impl Fn(Peer<RoleClient>, Page) -> F,
) -> Result<Vec<T>, ErrorData>
where
    F: Future<Output = Result<(Vec<T>, Option<String>), ServiceError>>,
{
    let mut is_second = false;
    loop {
        let connection = upstream.connection().await?;
        // One limit for all pages, so that many slow ones are not waited for without an end.
        let gathering = tokio::time::timeout(LIST_TIMEOUT, pages(connection.peer(), &page));
        let gathered = tokio::select! {
            gathered = gathering => gathered,
            () = connection.lost().wait() => Ok(Err(ServiceError::TransportClosed)),
        };
        if let Ok(Err(error)) = &gathered {
            connection.note(error);
        }
        match gathered {
            Ok(Ok(Some(items))) => return Ok(items),
            Ok(Ok(None)) => {
                let text =
                    format!("the list of the server has more than {ITEMS_MAX} items or {PAGES_MAX} pages");
                return Err(ErrorData::internal_error(text, None));
            }
            Ok(Err(error)) if failure::ends_connection(&error) && !is_second => is_second = true,
            Ok(Err(error)) => return Err(failure::answer_of(error)),
            Err(_) => return Err(UpstreamFailure::TimedOut(LIST_TIMEOUT).answer()),
        }
    }
}

/// Returns all items; none if there are too many.
async fn pages<T, F>(
    peer: &Peer<RoleClient>,
    page: &impl Fn(Peer<RoleClient>, Page) -> F,
) -> Result<Option<Vec<T>>, ServiceError>
where
    F: Future<Output = Result<(Vec<T>, Option<String>), ServiceError>>,
{
    let mut items = Vec::new();
    let mut next = None;
    for _ in 0..PAGES_MAX {
        let (found, cursor) = page(peer.clone(), next.take()).await?;
        items.extend(found);
        // Counted here as well as by pages: one page may have a million items.
        if items.len() > ITEMS_MAX {
            return Ok(None);
        }
        match cursor {
            Some(cursor) => next = Some(PaginatedRequestParams::default().with_cursor(Some(cursor))),
            None => return Ok(Some(items)),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_of_others_is_refused() {
        assert!(refuse_cursor(None).is_ok());
        assert!(refuse_cursor(Some(PaginatedRequestParams::default())).is_ok());
        let page = PaginatedRequestParams::default().with_cursor(Some("x".into()));
        let refusal = refuse_cursor(Some(page)).unwrap_err();
        assert!(refusal.message.contains("\"x\""), "{refusal}");
    }
}
