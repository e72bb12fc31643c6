//! The metadata of the service as a protected resource (RFC 9728), from the configuration alone: a name in a
//! request never gets into it.

use serde_json::json;

use crate::config::AuthConfig;

/// The beginning of the paths of the metadata.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The metadata of a service whose callers have tokens of authorization servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProtectedResource {
    /// The address of the metadata, as challenges name it.
    pub(crate) address: String,
    /// The document.
    pub(crate) text: String,
    /// The path of the address.
    path: String,
}

impl ProtectedResource {
    /// Makes the metadata; none without a resource and an authorization server.
    pub(crate) fn new(config: &AuthConfig) -> Option<ProtectedResource> {
        let resource = config.resource.as_deref()?;
        if config.issuer.is_empty() {
            return None;
        }
        let authority = resource.find("://")? + 3;
        let end = match resource[authority..].find('/') {
            Some(at) => authority + at,
            None => resource.len(),
        };
        let (origin, path) = resource.split_at(end);
        let path = format!("{WELL_KNOWN}{}", path.trim_end_matches('/'));
        let servers: Vec<_> = config.issuer.iter().map(|issuer| &issuer.url).collect();
        let mut document = json!({
            "resource": resource,
            "authorization_servers": servers,
            "bearer_methods_supported": ["header"],
        });
        if !config.scopes.is_empty() {
            document["scopes_supported"] = json!(config.scopes);
        }
        Some(ProtectedResource {
            address: format!("{origin}{path}"),
            text: document.to_string(),
            path,
        })
    }

    /// Returns true for a path of the metadata: that of the address, that of `/mcp`, and the root's.
    pub(crate) fn is_at(&self, path: &str) -> bool {
        match path.strip_prefix(WELL_KNOWN) {
            Some(rest) => matches!(rest, "" | "/mcp") || path == self.path,
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::IssuerConfig;
    use serde_json::Value;

    fn config(resource: &str) -> AuthConfig {
        AuthConfig {
            resource: Some(resource.to_owned()),
            scopes: vec!["read".into()],
            issuer: vec![IssuerConfig {
                url: "https://as.example".into(),
                ..IssuerConfig::default()
            }],
            ..AuthConfig::default()
        }
    }

    #[test]
    fn document_names_the_configured_resource() {
        let metadata = ProtectedResource::new(&config("https://bus.example/mcp")).unwrap();
        assert_eq!(
            metadata.address,
            "https://bus.example/.well-known/oauth-protected-resource/mcp"
        );
        let document: Value = serde_json::from_str(&metadata.text).unwrap();
        assert_eq!(
            document,
            json!({
                "resource": "https://bus.example/mcp",
                "authorization_servers": ["https://as.example"],
                "bearer_methods_supported": ["header"],
                "scopes_supported": ["read"],
            })
        );
        for (path, is_there) in [
            ("/.well-known/oauth-protected-resource", true),
            ("/.well-known/oauth-protected-resource/mcp", true),
            ("/.well-known/oauth-protected-resource/", false),
            ("/.well-known/oauth-protected-resource/other", false),
            ("/mcp", false),
        ] {
            assert_eq!(metadata.is_at(path), is_there, "{path}");
        }
    }

    #[test]
    fn address_has_the_path_of_the_resource() {
        let metadata = ProtectedResource::new(&config("https://bus.example:8443/a/mcp")).unwrap();
        let path = "/.well-known/oauth-protected-resource/a/mcp";
        assert_eq!(metadata.address, format!("https://bus.example:8443{path}"));
        assert!(metadata.is_at(path));
    }

    #[test]
    fn service_without_issuer_has_no_metadata() {
        let mut config = config("https://bus.example/mcp");
        config.issuer.clear();
        assert_eq!(ProtectedResource::new(&config), None);
    }
}
