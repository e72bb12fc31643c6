//! The etags of a server that has a bus of its own, such as another Tidings.
//!
//! The gateway gives every resource an etag of its own, from its first read on. Another one for the same
//! content would be taken for a change, so those of the server end here, and its tools for them too.

use rmcp::model::{MetaObject, ReadResourceResult, Resource, ResourceContents, ServerCapabilities, Tool};

use crate::mcp::{ETAG_META_KEY, etag_tools};

/// Removes the etags from a list of resources.
pub(super) fn remove_from_list(resources: &mut [Resource]) {
    for resource in resources {
        remove(&mut resource.meta);
    }
}

/// Removes the etags from the answer to a read.
pub(super) fn remove_from_read(result: &mut ReadResourceResult) {
    remove(&mut result.meta);
    for contents in &mut result.contents {
        if let ResourceContents::TextResourceContents { meta, .. }
        | ResourceContents::BlobResourceContents { meta, .. } = contents
        {
            remove(meta);
        }
    }
}

fn remove(meta: &mut Option<MetaObject>) {
    if let Some(held) = meta
        && held.0.remove(ETAG_META_KEY).is_some()
        && held.0.is_empty()
    {
        *meta = None;
    }
}

/// Removes the tools for etags, if the server says that it has etags.
pub(super) fn remove_tools(capabilities: &ServerCapabilities, tools: &mut Vec<Tool>) {
    let extensions = capabilities.extensions.as_ref();
    // Other servers may have tools of these names, which are theirs to serve.
    if matches!(extensions, Some(extensions) if extensions.contains_key(ETAG_META_KEY)) {
        tools.retain(|tool| !etag_tools::NAMES.contains(&&*tool.name));
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::JsonObject;
    use serde_json::json;

    use super::*;

    fn meta(value: &serde_json::Value) -> Option<MetaObject> {
        Some(MetaObject(value.as_object().unwrap().clone()))
    }

    #[test]
    fn other_metadata_is_kept() {
        let mut resources = [Resource::new("a://a", "a"), Resource::new("a://b", "b")];
        resources[0].meta = meta(&json!({ ETAG_META_KEY: "v1-1" }));
        resources[1].meta = meta(&json!({ ETAG_META_KEY: "v1-1", "x": 1 }));
        remove_from_list(&mut resources);
        assert_eq!(resources[0].meta, None);
        assert_eq!(resources[1].meta, meta(&json!({ "x": 1 })));
    }

    #[test]
    fn tools_of_servers_without_etags_are_kept() {
        let tool = Tool::new(etag_tools::NAMES[0], "", JsonObject::new());
        let mut capabilities = ServerCapabilities::default();
        let mut tools = vec![tool];
        remove_tools(&capabilities, &mut tools);
        assert_eq!(tools.len(), 1);
        let extension = (ETAG_META_KEY.to_owned(), JsonObject::new());
        capabilities.extensions = Some([extension].into());
        remove_tools(&capabilities, &mut tools);
        assert!(tools.is_empty());
    }
}
