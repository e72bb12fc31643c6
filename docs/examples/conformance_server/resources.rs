//! The suite's resources: two that never change, one to subscribe to, and a template.

use rmcp::ErrorData;
use rmcp::model::{ReadResourceResponse, ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::json;

use crate::answers::PNG;

pub(crate) fn list() -> Vec<Resource> {
    vec![
        Resource::new("test://static-text", "static-text").with_mime_type("text/plain"),
        Resource::new("test://static-binary", "static-binary").with_mime_type("image/png"),
        Resource::new("test://watched-resource", "watched-resource").with_mime_type("text/plain"),
    ]
}

pub(crate) fn templates() -> Vec<ResourceTemplate> {
    vec![ResourceTemplate::new("test://template/{id}/data", "template").with_mime_type("application/json")]
}

/// Returns the id in the URI of a member of the template.
fn template_id(uri: &str) -> Option<&str> {
    uri.strip_prefix("test://template/")?.strip_suffix("/data")
}

pub(crate) fn read(uri: &str) -> Result<ReadResourceResponse, ErrorData> {
    let contents = match uri {
        "test://static-text" => {
            ResourceContents::text("This is the content of the static text resource.", uri)
        }
        "test://static-binary" => ResourceContents::blob(PNG, uri).with_mime_type("image/png"),
        "test://watched-resource" => ResourceContents::text("watched", uri),
        _ => {
            let Some(id) = template_id(uri) else {
                let data = json!({ "uri": uri });
                return Err(ErrorData::resource_not_found("Resource not found", Some(data)));
            };
            let text = json!({ "id": id, "data": format!("Data for ID: {id}") }).to_string();
            ResourceContents::text(text, uri).with_mime_type("application/json")
        }
    };
    Ok(ReadResourceResult::new(vec![contents]).into())
}
