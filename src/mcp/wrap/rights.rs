//! The rights of a caller at a wrapped server. The bus judges its own items; those of the server are judged
//! here. What the caller may not see is answered by the bus, which does not know it.

use std::sync::Arc;

use rmcp::model::{Prompt, Resource, ResourceTemplate, Tool};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};

use super::wrapped::Wrapped;
use crate::ResourceUri;
use crate::auth::{Object, Right};
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
}
