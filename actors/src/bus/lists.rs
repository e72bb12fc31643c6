//! Listing, and changing what is listed: templates, tools and prompts. Listers run here, on the caller's task.

use std::sync::Arc;

use super::Bus;
use crate::messages::{Lookup, PublishList};
use crate::model::{
    Closed, Descriptor, Digest, Etag, ListChange, ListKind, ListOutcome, Prompt, PublishError, Resource,
    ResourceTemplate, Tool, run_callback,
};

/// A page of a list, and where the next one begins.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The items, in the order of their names.
    pub items: Vec<T>,
    /// What to ask for next; none when this was the last page.
    pub next: Option<String>,
}

impl Bus {
    /// A page of resources with their etags: at most `limit`, those after `after` (the `next` of the page before).
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn resources(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> Result<Page<(Arc<Resource>, Etag)>, Closed> {
        let limit = limit.max(1);
        let found = self
            .ask(|reply| Lookup::ResourcePage {
                after,
                limit: limit + 1,
                reply,
            })
            .await?;
        Ok(page(found, limit, |(resource, _)| {
            resource.uri().as_str().to_owned()
        }))
    }

    /// What the templates with a lister list now, with etags, in the order of the templates. Listing again what was
    /// listed before is no change; another set is one change of the resource list.
    ///
    /// # Errors
    /// [`PublishError::Lister`] naming the template whose lister failed; [`Closed`].
    pub async fn listed_members(&self) -> Result<Vec<(Descriptor, Etag)>, PublishError> {
        let mut members = Vec::new();
        for template in self.templates().await? {
            let Some((listed, digest)) = list_members(&template, self.inner.limits.list_items_max).await?
            else {
                continue;
            };
            members.extend(listed);
            let name = template.uri_template().as_str().to_owned();
            self.change_list(ListChange::Listed(name, digest)).await?;
        }
        let uris = members.iter().map(|member| member.uri.clone()).collect();
        let etags = self.etags(uris).await?;
        let with_etag = members
            .into_iter()
            .zip(etags)
            .map(|(member, etag)| (member, etag.unwrap_or(Etag::UNKNOWN)));
        Ok(with_etag.collect())
    }

    /// Every resource template, in the order of their texts.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn templates(&self) -> Result<Vec<Arc<ResourceTemplate>>, Closed> {
        self.ask(Lookup::Templates).await
    }

    /// A page of tools: at most `limit`, those after `after`.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn tools(&self, after: Option<String>, limit: usize) -> Result<Page<Arc<Tool>>, Closed> {
        let limit = limit.max(1);
        let found = self
            .ask(|reply| Lookup::Tools {
                after,
                limit: limit + 1,
                reply,
            })
            .await?;
        Ok(page(found, limit, |tool| tool.name().to_owned()))
    }

    /// A page of prompts: at most `limit`, those after `after`.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn prompts(&self, after: Option<String>, limit: usize) -> Result<Page<Arc<Prompt>>, Closed> {
        let limit = limit.max(1);
        let found = self
            .ask(|reply| Lookup::Prompts {
                after,
                limit: limit + 1,
                reply,
            })
            .await?;
        Ok(page(found, limit, |prompt| prompt.name().to_owned()))
    }

    /// The tool of that name.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn tool(&self, name: &str) -> Result<Option<Arc<Tool>>, Closed> {
        self.ask(|reply| Lookup::Tool(name.to_owned(), reply)).await
    }

    /// How often the tools changed so far: what [`tool`](Self::tool) answers stands as long as this stays the same.
    /// A change that has been answered is counted.
    pub fn tool_changes(&self) -> u64 {
        self.inner.etag_index.tool_changes()
    }

    /// The prompt of that name.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn prompt(&self, name: &str) -> Result<Option<Arc<Prompt>>, Closed> {
        self.ask(|reply| Lookup::Prompt(name.to_owned(), reply)).await
    }

    /// Adds a tool, in place of one of the same name.
    ///
    /// # Errors
    /// [`PublishError::TooMany`] at the limit; [`Closed`].
    pub async fn add_tool(&self, tool: Tool) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::PutTool(Arc::new(tool))).await
    }

    /// Makes these all the tools there are. Clients are told once, and only when the list is another one.
    ///
    /// # Errors
    /// [`PublishError::TooMany`] at the limit; [`Closed`].
    pub async fn replace_tools(&self, tools: Vec<Tool>) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::ReplaceTools(
            tools.into_iter().map(Arc::new).collect(),
        ))
        .await
    }

    /// Removes a tool; removing one that is not there changes nothing.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn remove_tool(&self, name: &str) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::RemoveTool(name.to_owned())).await
    }

    /// Removes the tools named in `removes`, then adds `puts`, each in place of one of the same name: one change,
    /// told once and only when the list is another one. A tool whose item stays the same is exchanged silently.
    /// Tools of others stay, so that several publishers share the list.
    ///
    /// # Errors
    /// [`PublishError::TooMany`] at the limit, and nothing changed; [`Closed`].
    pub async fn change_tools(
        &self,
        puts: Vec<Tool>,
        removes: Vec<String>,
    ) -> Result<ListOutcome, PublishError> {
        let puts = puts.into_iter().map(Arc::new).collect();
        self.change_list(ListChange::ChangeTools { puts, removes }).await
    }

    /// Adds a prompt, in place of one of the same name.
    ///
    /// # Errors
    /// [`PublishError::TooMany`] at the limit; [`Closed`].
    pub async fn add_prompt(&self, prompt: Prompt) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::PutPrompt(Arc::new(prompt))).await
    }

    /// Makes these all the prompts there are. Clients are told once, and only when the list is another one.
    ///
    /// # Errors
    /// [`PublishError::TooMany`] at the limit; [`Closed`].
    pub async fn replace_prompts(&self, prompts: Vec<Prompt>) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::ReplacePrompts(
            prompts.into_iter().map(Arc::new).collect(),
        ))
        .await
    }

    /// Removes a prompt; removing one that is not there changes nothing.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn remove_prompt(&self, name: &str) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::RemovePrompt(name.to_owned())).await
    }

    /// Removes the prompts named in `removes`, then adds `puts`, each in place of one of the same name: one change,
    /// told once and only when the list is another one. Prompts of others stay.
    ///
    /// # Errors
    /// [`PublishError::TooMany`] at the limit, and nothing changed; [`Closed`].
    pub async fn change_prompts(
        &self,
        puts: Vec<Prompt>,
        removes: Vec<String>,
    ) -> Result<ListOutcome, PublishError> {
        let puts = puts.into_iter().map(Arc::new).collect();
        self.change_list(ListChange::ChangePrompts { puts, removes })
            .await
    }

    /// Adds a resource template, in place of the same one. Its lister runs once, here.
    ///
    /// # Errors
    /// [`PublishError::Lister`] when its lister fails, [`PublishError::TooMany`] at the limit; [`Closed`].
    pub async fn add_template(&self, template: ResourceTemplate) -> Result<ListOutcome, PublishError> {
        // Listed before it is registered: the first client's list must not look like a change.
        let listed = list_members(&template, self.inner.limits.list_items_max).await?;
        let digest = listed.map(|(_, digest)| digest);
        self.change_list(ListChange::PutTemplate(Arc::new(template), digest))
            .await
    }

    /// Removes a resource template; removing one that is not there changes nothing.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn remove_template(&self, uri_template: &str) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::RemoveTemplate(uri_template.to_owned()))
            .await
    }

    /// Says that what somebody else lists of this kind, beside the bus's own items, has this digest now (none: there is
    /// nothing). It is part of the list hash, so clients are told when it becomes another one, and only then.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn set_foreign_list(
        &self,
        kind: ListKind,
        digest: Option<Digest>,
    ) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::Foreign(kind, digest)).await
    }

    async fn change_list(&self, change: ListChange) -> Result<ListOutcome, PublishError> {
        let now = (self.inner.clock)();
        self.ask(|reply| PublishList { change, now, reply }).await?
    }
}

/// Runs the lister of `template`, if it has one; answers its members and their digest.
async fn list_members(
    template: &ResourceTemplate,
    max: usize,
) -> Result<Option<(Vec<Descriptor>, Digest)>, PublishError> {
    let Some(lister) = template.lister() else {
        return Ok(None);
    };
    let name = template.uri_template().as_str();
    let failed = |message: String| PublishError::Lister {
        template: name.to_owned(),
        message,
    };
    let listed = run_callback(|| lister.list()).await;
    let mut members = listed.map_err(|error| failed(error.to_string()))?;
    if members.len() > max {
        return Err(failed(format!(
            "it lists {} members and the limit is {max}",
            members.len()
        )));
    }
    members.sort_by(|a, b| a.uri.cmp(&b.uri));
    let digests: Vec<[u8; 16]> = members
        .iter()
        .map(|member| member.digest().0.to_le_bytes())
        .collect();
    let parts: Vec<&[u8]> = digests.iter().map(<[u8; 16]>::as_slice).collect();
    Ok(Some((members, Digest::of(&parts))))
}

/// Cuts the one item too many that tells whether there is a next page.
fn page<T>(mut items: Vec<T>, limit: usize, key: impl Fn(&T) -> String) -> Page<T> {
    let more = items.len() > limit;
    items.truncate(limit);
    let next = if more { items.last().map(key) } else { None };
    Page { items, next }
}
