//! Requests about lists: the templates, tools and prompts. Listers run on the task of the caller.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::debug;

use super::Bus;
use crate::messages::{ListMembers, Lookup, MembersChanged, PublishList};
use crate::model::{
    Audience, Closed, Descriptor, Digest, Etag, ListChange, ListKind, ListOutcome, MemberList, Prompt,
    PublishError, ResourceTemplate, ResourceUri, Tool, run_callback,
};

impl Bus {
    /// Runs the listers of all templates and returns their members with etags, in the order of the
    /// templates. A set that differs from the one before counts as one change of the resource list.
    ///
    /// # Errors
    /// [`PublishError::Lister`] if a lister fails; [`Closed`].
    pub async fn listed_members(&self) -> Result<Vec<(Descriptor, Etag)>, PublishError> {
        self.members_shown(None).await
    }

    /// Runs the listers of all templates like [`listed_members`](Self::listed_members), and returns the
    /// members that an audience sees. A lister that fails is an error to those who see its template; to
    /// others its members are not there.
    ///
    /// # Errors
    /// Those of `listed_members`.
    pub async fn members_shown(
        &self,
        audience: Option<&Arc<dyn Audience>>,
    ) -> Result<Vec<(Descriptor, Etag)>, PublishError> {
        let mut members = Vec::new();
        for template in self.templates().await? {
            let name = template.uri_template().as_str().to_owned();
            let (descriptors, listed) = match self.list_members(&template).await {
                Ok(Some(listed)) => listed,
                Ok(None) => continue,
                // The error names the template, and any other one would tell that there is one.
                Err(error) if hides(audience, &name) => {
                    // Not louder: each call of such a caller would write a line.
                    debug!(%error, "a list was made without the members of a template");
                    continue;
                }
                Err(error) => return Err(error),
            };
            let shown = descriptors.into_iter().filter(|member| match audience {
                Some(audience) => audience.shows_resource(&member.uri),
                None => true,
            });
            members.extend(shown);
            self.change_list(ListChange::Listed(name, listed)).await?;
        }
        let uris = members.iter().map(|member| member.uri.clone()).collect();
        let etags = self.etags(uris).await?;
        let mut with_etags = Vec::with_capacity(members.len());
        for (member, etag) in std::iter::zip(members, etags) {
            with_etags.push((member, etag.unwrap_or(Etag::UNKNOWN)));
        }
        Ok(with_etags)
    }

    /// Returns all templates, ordered by their texts.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn templates(&self) -> Result<Vec<Arc<ResourceTemplate>>, Closed> {
        self.ask(Lookup::Templates).await
    }

    /// Returns the tool with this name.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn tool(&self, name: &str) -> Result<Option<Arc<Tool>>, Closed> {
        self.ask(|reply| Lookup::Tool(name.to_owned(), reply)).await
    }

    /// The number of changes of the tools so far, including every change that was answered. While it stays
    /// the same, a result of [`tool`](Self::tool) stays valid.
    pub fn tool_changes(&self) -> u64 {
        self.inner.etag_index.tool_changes()
    }

    /// Returns the prompt with this name.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn prompt(&self, name: &str) -> Result<Option<Arc<Prompt>>, Closed> {
        self.ask(|reply| Lookup::Prompt(name.to_owned(), reply)).await
    }

    /// Adds a tool, or replaces the one with its name.
    ///
    /// # Errors
    /// [`PublishError::TooMany`] at the limit; [`Closed`].
    pub async fn add_tool(&self, tool: Tool) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::PutTool(Arc::new(tool))).await
    }

    /// Replaces all tools as one change. Clients are notified only if the list differs.
    ///
    /// # Errors
    /// [`PublishError::TooMany`] at the limit; [`Closed`].
    pub async fn replace_tools(&self, tools: Vec<Tool>) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::ReplaceTools(
            tools.into_iter().map(Arc::new).collect(),
        ))
        .await
    }

    /// Removes a tool. Without a tool of this name nothing changes.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn remove_tool(&self, name: &str) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::RemoveTool(name.to_owned())).await
    }

    /// Removes the tools named in `removes`, then puts `puts`, as one change that is made completely or not
    /// at all. Other tools stay, so several publishers can share the list; a tool whose list item stays the
    /// same is exchanged without a notification.
    ///
    /// # Errors
    /// [`PublishError::TooMany`] at the limit; [`Closed`].
    pub async fn change_tools(
        &self,
        puts: Vec<Tool>,
        removes: Vec<String>,
    ) -> Result<ListOutcome, PublishError> {
        let puts = puts.into_iter().map(Arc::new).collect();
        self.change_list(ListChange::ChangeTools { puts, removes }).await
    }

    /// Adds a prompt, or replaces the one with its name.
    ///
    /// # Errors
    /// [`PublishError::TooMany`] at the limit; [`Closed`].
    pub async fn add_prompt(&self, prompt: Prompt) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::PutPrompt(Arc::new(prompt))).await
    }

    /// Replaces all prompts as one change. Clients are notified only if the list differs.
    ///
    /// # Errors
    /// [`PublishError::TooMany`] at the limit; [`Closed`].
    pub async fn replace_prompts(&self, prompts: Vec<Prompt>) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::ReplacePrompts(
            prompts.into_iter().map(Arc::new).collect(),
        ))
        .await
    }

    /// Removes a prompt. Without a prompt of this name nothing changes.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn remove_prompt(&self, name: &str) -> Result<ListOutcome, PublishError> {
        self.change_list(ListChange::RemovePrompt(name.to_owned())).await
    }

    /// Removes the prompts named in `removes`, then puts `puts`, as one change that is made completely or
    /// not at all. Other prompts stay.
    ///
    /// # Errors
    /// [`PublishError::TooMany`] at the limit; [`Closed`].
    pub async fn change_prompts(
        &self,
        puts: Vec<Prompt>,
        removes: Vec<String>,
    ) -> Result<ListOutcome, PublishError> {
        let puts = puts.into_iter().map(Arc::new).collect();
        self.change_list(ListChange::ChangePrompts { puts, removes })
            .await
    }

    /// Adds a resource template, or replaces the one with its text. Runs its lister once. Subscribers of
    /// members are notified if the template is new or has another reader.
    ///
    /// # Errors
    /// [`PublishError::Lister`] if the lister fails, [`PublishError::TooMany`] at the limit; [`Closed`].
    pub async fn add_template(&self, template: ResourceTemplate) -> Result<ListOutcome, PublishError> {
        // Listed before it is registered, so that the list of the first client does not look like a change.
        let listed = self.list_members(&template).await?.map(|(_, listed)| listed);
        let template = Arc::new(template);
        let before = self.template(template.uri_template().as_str()).await?;
        let outcome = self
            .change_list(ListChange::PutTemplate(template.clone(), listed))
            .await?;
        match before {
            // The same reader returns the same content.
            Some(before) if Arc::ptr_eq(before.reader(), template.reader()) => {}
            _ => self.notify_members(template).await?,
        }
        Ok(outcome)
    }

    /// Removes a resource template. Subscribers of its members get one last notice each. Without this
    /// template nothing changes.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn remove_template(&self, uri_template: &str) -> Result<ListOutcome, PublishError> {
        let before = self.template(uri_template).await?;
        let outcome = self
            .change_list(ListChange::RemoveTemplate(uri_template.to_owned()))
            .await?;
        if let Some(template) = before {
            self.notify_members(template).await?;
        }
        Ok(outcome)
    }

    /// Returns the template with this text.
    async fn template(&self, text: &str) -> Result<Option<Arc<ResourceTemplate>>, Closed> {
        let mut templates = self.templates().await?.into_iter();
        Ok(templates.find(|template| template.uri_template().as_str() == text))
    }

    /// Notifies the subscribers of a changed template's members.
    async fn notify_members(&self, template: Arc<ResourceTemplate>) -> Result<(), Closed> {
        // The shards know who is subscribed, and only the Registry knows which template a URI belongs to. The
        // list of URIs enters as a new request, so that no actor asks one before it.
        let mut uris = BTreeSet::new();
        for publisher in &self.inner.actors.publishers {
            let template = template.clone();
            uris.extend(
                self.ask_at(publisher, |reply| ListMembers { template, reply })
                    .await?,
            );
        }
        if uris.is_empty() {
            return Ok(());
        }
        let now = (self.inner.clock)();
        let template = template.uri_template().as_str().to_owned();
        self.ask(|reply| MembersChanged {
            template,
            uris,
            now,
            reply,
        })
        .await?;
        Ok(())
    }

    /// Sets the digest of the items of this kind that another server of the process lists; none if it lists
    /// none. The digest is part of the list hash, so clients are notified when it changes.
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
        let admission = &self.inner.admission;
        let permit = match change {
            // Part of a read, which must not wait for a place behind changes.
            ListChange::Listed(..) => admission.enter().await?,
            _ => admission.enter_change().await?,
        };
        self.ask_with(permit, |reply| PublishList {
            change,
            now,
            reply: Some(reply),
        })
        .await?
    }

    /// Runs the lister of `template`. Returns the members; none without a lister.
    async fn list_members(
        &self,
        template: &ResourceTemplate,
    ) -> Result<Option<(Vec<Descriptor>, MemberList)>, PublishError> {
        let Some(lister) = template.lister() else {
            return Ok(None);
        };
        // Taken before the lister looks at anything: of two runs, the later one has seen the newer members.
        let run = self.inner.lister_runs.fetch_add(1, Ordering::Relaxed);
        let mut members = match run_callback(|| lister.list()).await {
            Ok(members) => members,
            Err(error) => return Err(lister_failed(template, error.to_string())),
        };
        let max = self.inner.limits.list_items_max;
        if members.len() > max {
            let message = format!("it lists {} members and the limit is {max}", members.len());
            return Err(lister_failed(template, message));
        }
        // A lister may return its members in any order, and another order is no change.
        members.sort_by(|a, b| a.uri.cmp(&b.uri));
        let shares: Arc<[(ResourceUri, Digest)]> = members
            .iter()
            .map(|member| (member.uri.clone(), member.digest()))
            .collect();
        let digests: Vec<[u8; 16]> = shares.iter().map(|(_, digest)| digest.0.to_le_bytes()).collect();
        let parts: Vec<&[u8]> = digests.iter().map(<[u8; 16]>::as_slice).collect();
        let listed = MemberList {
            digest: Digest::of(&parts),
            members: shares,
            run,
        };
        Ok(Some((members, listed)))
    }
}

/// Returns true if lists show no template with this text.
fn hides(audience: Option<&Arc<dyn Audience>>, uri_template: &str) -> bool {
    match audience {
        Some(audience) => !audience.shows_template(uri_template),
        None => false,
    }
}

fn lister_failed(template: &ResourceTemplate, message: String) -> PublishError {
    PublishError::Lister {
        template: template.uri_template().as_str().to_owned(),
        message,
    }
}
