//! The rights of a caller at a wrapped server. The bus judges its own items; those of the server are judged
//! here. What the caller may not see is answered by the bus, which does not know it.

use std::sync::Arc;

use rmcp::model::{
    CompleteRequestParams, CompleteResult, CustomRequest, CustomResult, ErrorCode, GetSkillRequestParams,
    GetSkillResult, ListSkillsResult, PaginatedRequestParams, Prompt, ReadResourceDirectoryRequestParams,
    ReadResourceDirectoryResult, Reference, Resource, ResourceTemplate, Skill, Tool,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::wrapped::Wrapped;
use crate::ResourceUri;
use crate::auth::{Caller, Object, Right};
use crate::mcp::revision::Revision;
use crate::mcp::{caller_beside, error, params};
use crate::rights::Audience;

/// The lists that a caller may see; everything without an audience.
pub(super) struct VisibleItems(Option<Arc<dyn Audience>>);

impl VisibleItems {
    pub(super) fn keep_resources(&self, items: &mut Vec<Resource>) {
        if let Some(audience) = &self.0 {
            items.retain(|item| match ResourceUri::new(&item.uri) {
                Ok(uri) => audience.shows_resource(&uri),
                Err(_) => false,
            });
        }
    }

    fn keep_skills(&self, skills: &mut Vec<Skill>) {
        if let Some(audience) = &self.0 {
            skills.retain(|skill| match ResourceUri::new(&skill.uri) {
                Ok(uri) => audience.shows_resource(&uri),
                Err(_) => false,
            });
        }
    }

    pub(super) fn keep_templates(&self, items: &mut Vec<ResourceTemplate>) {
        if let Some(audience) = &self.0 {
            items.retain(|item| audience.shows_template(&item.uri_template));
        }
    }

    pub(super) fn keep_tools(&self, items: &mut Vec<Tool>) {
        if let Some(audience) = &self.0 {
            items.retain(|item| audience.shows_tool(&item.name));
        }
    }

    pub(super) fn keep_prompts(&self, items: &mut Vec<Prompt>) {
        if let Some(audience) = &self.0 {
            items.retain(|item| audience.shows_prompt(&item.name));
        }
    }
}

impl<H: ServerHandler> Wrapped<H> {
    /// Returns true when the caller of a request has a right that the request uses.
    pub(super) fn may(&self, context: &RequestContext<RoleServer>, right: Right, object: Object<'_>) -> bool {
        self.bus_handler.caller(context).may(right, object).is_ok()
    }

    /// Returns the lists that the caller of a request may see.
    pub(super) fn visible(&self, context: &RequestContext<RoleServer>) -> VisibleItems {
        VisibleItems(self.bus_handler.caller(context).audience())
    }

    /// Returns the answer to a request of a method that the protocol does not define.
    ///
    /// # Errors
    /// The refusal of a method that is, to the caller, as if it did not exist, and of parameters that rmcp
    /// cannot read.
    pub(super) async fn permitted_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        // rmcp takes a request whose parameters it cannot read for one of an unknown method. Passed on, it
        // would reach the wrapped server without the judgement that is made for its method.
        let stateless = Revision::negotiated(context.protocol_version().as_ref()).is_stateless();
        if let Some(unread) = params::unread_in_front(&request.method, stateless) {
            return Err(unread);
        }
        // Who knows the id of a task may have its result, as with the other requests for tasks.
        if !params::is_defined(&request.method)
            && !self.may(&context, Right::Call, Object::Method(&request.method))
        {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None));
        }
        self.options()
            .answered(|| self.inner.on_custom_request(request, context))
            .await
    }

    /// Returns true when the sender of a notification that the protocol does not define has the right to it.
    pub(super) fn may_notify(&self, method: &str, context: &NotificationContext<RoleServer>) -> bool {
        let caller = caller_beside(&context.extensions);
        let caller = caller.unwrap_or_else(|| self.bus_handler.server.caller.next_request());
        caller.may(Right::Call, Object::Method(method)).is_ok()
    }

    /// Returns the completions of a prompt that the caller may get, or of a resource template that it may
    /// read.
    ///
    /// # Errors
    /// The refusal of one that is, to the caller, as if it did not exist.
    pub(super) async fn permitted_completion(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        judge_reference(&self.bus_handler.caller(&context), &request.r#ref)?;
        self.options()
            .answered(|| self.inner.complete(request, context))
            .await
    }

    /// Returns a skill, which is a resource that the caller may read.
    ///
    /// # Errors
    /// The refusal of one that is, to the caller, as if it did not exist.
    pub(super) async fn permitted_skill(
        &self,
        request: GetSkillRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        if !self.may(&context, Right::Read, Object::Resource(&request.uri)) {
            return Err(error::invalid_params(format!("Unknown skill: {}", request.uri)));
        }
        self.options()
            .answered(|| self.inner.get_skill(request, context))
            .await
    }

    /// Returns the skills of a page that the caller may see.
    pub(super) async fn visible_skills(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        let visible = self.visible(&context);
        let listed = self
            .options()
            .answered(|| self.inner.list_skills(request, context));
        let mut listed = listed.await?;
        visible.keep_skills(&mut listed.skills);
        Ok(listed)
    }

    /// Returns the resources of a directory that the caller may see.
    ///
    /// # Errors
    /// The refusal of a directory that is, to the caller, as if it did not exist.
    pub(super) async fn visible_directory(
        &self,
        request: ReadResourceDirectoryRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceDirectoryResult, ErrorData> {
        if !self.may(&context, Right::Read, Object::Resource(&request.uri)) {
            return Err(error::invalid_params(format!(
                "Unknown directory: {}",
                request.uri
            )));
        }
        let visible = self.visible(&context);
        let read = self
            .options()
            .answered(|| self.inner.read_resource_directory(request, context));
        let mut read = read.await?;
        visible.keep_resources(&mut read.resources);
        Ok(read)
    }
}

/// Judges the right to what a completion is for.
///
/// # Errors
/// The refusal, which is that of a name that does not exist.
fn judge_reference(caller: &Caller, reference: &Reference) -> Result<(), ErrorData> {
    let unknown = match reference {
        Reference::Prompt(prompt) if caller.may_get_prompt(&prompt.name) => return Ok(()),
        Reference::Prompt(prompt) => format!("Unknown prompt: {}", prompt.name),
        Reference::Resource(template) => {
            // The specification lets a client name a resource here, too. A text with braces is no URI that a
            // rule could name.
            let object = match template.uri.contains('{') {
                true => Object::Template(&template.uri),
                false => Object::Resource(&template.uri),
            };
            if caller.may(Right::Read, object).is_ok() {
                return Ok(());
            }
            format!("Unknown resource template: {}", template.uri)
        }
        // Kinds of later revisions, which no rule can name: only a service without rules passes them on.
        _ if caller.border().is_none() => return Ok(()),
        other => format!("Unknown reference: {}", other.reference_type()),
    };
    Err(error::invalid_params(unknown))
}
