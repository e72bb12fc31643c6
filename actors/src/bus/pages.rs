//! Pages of the lists, of everything or of the part that one audience sees.

use std::cmp::Reverse;
use std::sync::Arc;

use super::Bus;
use crate::messages::{Lookup, Scanned};
use crate::model::{Audience, Closed, Etag, ListQuery, Prompt, Resource, ResourceTemplate, Tool};
use crate::runtime::Reply;

/// One page of a list.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The items, ordered by name.
    pub items: Vec<T>,
    /// The `after` of the next page; none on the last page.
    pub next: Option<String>,
}

impl Bus {
    /// Returns at most `limit` resources after `after`, with their etags.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn resources(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> Result<Page<(Arc<Resource>, Etag)>, Closed> {
        self.resources_page(ListQuery::of_all(after, limit)).await
    }

    /// Returns a page of the resources that an audience sees, with their etags. It is full if there are
    /// enough of them, and names none of the others.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn resources_page(&self, query: ListQuery) -> Result<Page<(Arc<Resource>, Etag)>, Closed> {
        self.page(query, Lookup::ResourcePage, |(resource, _)| {
            resource.uri().as_str().to_owned()
        })
        .await
    }

    /// Returns all listed resources with their etags, the one that changed last first. It asks no actor, and
    /// takes time that grows with their number, so call it where a thread may be held up.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn resources_by_change(&self) -> Result<Vec<(Arc<Resource>, Etag)>, Closed> {
        if !self.inner.admission.is_open() {
            return Err(Closed);
        }
        let mut all = self.inner.etag_index.all();
        // Before the sort, which takes most of the time.
        all.retain(|entry| entry.resource.descriptor().listed);
        // Etags tell seconds; generations order the changes within one.
        all.sort_unstable_by_key(|entry| Reverse((entry.etag.updated_at, entry.generation)));
        let found = all.into_iter().map(|entry| (entry.resource, entry.etag));
        Ok(found.collect())
    }

    /// Returns at most `limit` tools after `after`.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn tools(&self, after: Option<String>, limit: usize) -> Result<Page<Arc<Tool>>, Closed> {
        self.tools_page(ListQuery::of_all(after, limit)).await
    }

    /// Returns a page of the tools that an audience sees, like [`resources_page`](Self::resources_page).
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn tools_page(&self, query: ListQuery) -> Result<Page<Arc<Tool>>, Closed> {
        self.page(query, Lookup::Tools, |tool| tool.name().to_owned())
            .await
    }

    /// Returns at most `limit` prompts after `after`.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn prompts(&self, after: Option<String>, limit: usize) -> Result<Page<Arc<Prompt>>, Closed> {
        self.prompts_page(ListQuery::of_all(after, limit)).await
    }

    /// Returns a page of the prompts that an audience sees, like [`resources_page`](Self::resources_page).
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn prompts_page(&self, query: ListQuery) -> Result<Page<Arc<Prompt>>, Closed> {
        self.page(query, Lookup::Prompts, |prompt| prompt.name().to_owned())
            .await
    }

    /// Returns the templates that an audience sees, ordered by their texts.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn templates_shown(
        &self,
        audience: Option<&Arc<dyn Audience>>,
    ) -> Result<Vec<Arc<ResourceTemplate>>, Closed> {
        let mut templates = self.templates().await?;
        if let Some(audience) = audience {
            templates.retain(|template| audience.shows_template(template.uri_template().as_str()));
        }
        Ok(templates)
    }

    /// Asks for the parts of a page until it is full, so that no request holds up the others for long.
    async fn page<T>(
        &self,
        query: ListQuery,
        lookup: impl Fn(ListQuery, Reply<Scanned<T>>) -> Lookup,
        name: impl Fn(&T) -> String,
    ) -> Result<Page<T>, Closed> {
        let limit = query.limit.max(1);
        // One more shows that there is a next page.
        let wanted = limit.saturating_add(1);
        let mut after = query.after;
        let mut items = Vec::new();
        loop {
            let part = ListQuery {
                after,
                limit: wanted - items.len(),
                audience: query.audience.clone(),
            };
            let Scanned { found, go_on } = self.ask(|reply| lookup(part, reply)).await?;
            items.extend(found);
            if go_on.is_none() || items.len() >= wanted {
                break;
            }
            after = go_on;
        }
        let more = items.len() > limit;
        items.truncate(limit);
        let next = if more { items.last().map(name) } else { None };
        Ok(Page { items, next })
    }
}
