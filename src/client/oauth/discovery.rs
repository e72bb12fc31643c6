//! The way from a server to its authorization server: metadata of the resource (RFC 9728), then of the
//! authorization server (RFC 8414, OpenID Connect).

use reqwest::Url;
use serde::Deserialize;

use super::endpoint::TokenEndpoint;
use super::grant;
use crate::credentials::CredentialsError;

/// The metadata of a protected resource.
#[derive(Deserialize)]
struct ResourceMetadata {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

/// The metadata of an authorization server.
#[derive(Deserialize)]
struct ServerMetadata {
    issuer: String,
    token_endpoint: String,
    authorization_endpoint: Option<String>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// An authorization server, and the resource that its tokens are for.
pub(super) struct AuthorizationServer {
    pub(super) issuer: String,
    pub(super) token: Url,
    pub(super) authorization: Option<Url>,
    /// True if it takes the challenge of PKCE as a SHA-256 digest.
    pub(super) has_s256: bool,
    /// True if its redirects name the issuer (RFC 9207).
    pub(super) names_issuer: bool,
    /// True if a secret is sent in the body instead of a header.
    pub(super) secret_in_body: bool,
    /// The identifier of the resource.
    pub(super) resource: String,
    /// The scopes that the resource lists.
    pub(super) scopes: Vec<String>,
}

impl TokenEndpoint {
    /// Finds the authorization server, by the address in a challenge or by the well-known ones.
    pub(super) async fn discover(
        &self,
        challenged: Option<&str>,
    ) -> Result<AuthorizationServer, CredentialsError> {
        let resource = self.resource_metadata(challenged).await?;
        // A token for another resource would be one that this server could use there.
        match Url::parse(&resource.resource) {
            Ok(named) if named.origin() == self.resource.origin() => {}
            _ => {
                let origin = self.resource.origin().ascii_serialization();
                return Err(grant(&format!("the metadata of {origin} name another resource")));
            }
        }
        let Some(issuer) = resource.authorization_servers.first() else {
            return Err(grant("the metadata of the server name no authorization server"));
        };
        let found = self.server_metadata(issuer).await?;
        let authorization = found.authorization_endpoint.as_deref();
        let methods = found.token_endpoint_auth_methods_supported.unwrap_or_default();
        Ok(AuthorizationServer {
            token: endpoint(&found.token_endpoint)?,
            authorization: authorization.map(endpoint).transpose()?,
            has_s256: found
                .code_challenge_methods_supported
                .iter()
                .any(|method| method == "S256"),
            names_issuer: found.authorization_response_iss_parameter_supported,
            secret_in_body: !methods.is_empty()
                && !methods.iter().any(|method| method == "client_secret_basic"),
            issuer: found.issuer,
            resource: resource.resource,
            scopes: resource.scopes_supported,
        })
    }

    async fn resource_metadata(
        &self,
        challenged: Option<&str>,
    ) -> Result<ResourceMetadata, CredentialsError> {
        let mut places = Vec::new();
        // Of another origin, it could describe any other resource.
        if let Some(text) = challenged
            && let Ok(url) = Url::parse(text)
            && url.origin() == self.resource.origin()
        {
            places.push(url);
        }
        let path = self.resource.path().trim_end_matches('/');
        for path in [path, ""] {
            places.push(at(
                &self.resource,
                &format!("/.well-known/oauth-protected-resource{path}"),
            ));
        }
        for place in places {
            if let Some(found) = self.get_json(&place).await? {
                return Ok(found);
            }
        }
        let origin = self.resource.origin().ascii_serialization();
        Err(grant(&format!(
            "{origin} names no authorization server; present a token by a file or a header"
        )))
    }

    async fn server_metadata(&self, issuer: &str) -> Result<ServerMetadata, CredentialsError> {
        let url = endpoint(issuer)?;
        let path = url.path().trim_end_matches('/');
        for place in [
            format!("/.well-known/oauth-authorization-server{path}"),
            format!("/.well-known/openid-configuration{path}"),
            format!("{path}/.well-known/openid-configuration"),
        ] {
            let Some(found) = self.get_json::<ServerMetadata>(&at(&url, &place)).await? else {
                continue;
            };
            // RFC 8414, section 3.3: metadata of another issuer must not be used.
            if found.issuer != issuer {
                return Err(grant(&format!("the metadata of {url} name another issuer")));
            }
            return Ok(found);
        }
        Err(grant(&format!(
            "{url} has no metadata of an authorization server"
        )))
    }
}

/// Returns the address of this path at the origin of `url`.
fn at(url: &Url, path: &str) -> Url {
    let mut at = url.clone();
    at.set_path(path);
    at.set_query(None);
    at.set_fragment(None);
    at
}

/// Reads the address of an endpoint. Secrets go to it, so it is https or on this machine.
fn endpoint(text: &str) -> Result<Url, CredentialsError> {
    let Ok(url) = Url::parse(text) else {
        return Err(grant(
            "the authorization server names an endpoint that is no address",
        ));
    };
    let is_local = match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    };
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_local => Ok(url),
        _ => {
            let origin = url.origin().ascii_serialization();
            Err(grant(&format!("the endpoint at {origin} is not https")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_https_or_local() {
        for text in [
            "https://as.example/token",
            "http://127.0.0.1:1/t",
            "http://[::1]/",
            "http://localhost/",
        ] {
            assert!(endpoint(text).is_ok(), "{text}");
        }
        for text in [
            "http://as.example/token",
            "http://10.0.0.1/",
            "ftp://localhost/",
            "nonsense",
        ] {
            assert!(endpoint(text).is_err(), "{text}");
        }
    }
}
