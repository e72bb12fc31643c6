//! The requests to a server's metadata and to a token endpoint, none of which follows a redirect.

use std::path::PathBuf;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::discovery::AuthorizationServer;
use super::{Granted, grant};
use crate::credentials::{Challenge, Credentials, CredentialsError, bearer, clean};
use crate::http_client;

/// The time that one request may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The limit on the size of an answer, in bytes.
const BYTES_MAX: usize = 1 << 20;

/// The longest life of a token that is believed.
const LIFE_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The server that tokens are for, and the way to it and to its authorization server.
pub(super) struct TokenEndpoint {
    pub(super) resource: Url,
    authorities: Option<PathBuf>,
}

/// The answer of a token endpoint.
#[derive(Deserialize)]
pub(super) struct TokenAnswer {
    access_token: String,
    token_type: String,
    expires_in: Option<u64>,
    refresh_token: Option<String>,
}

/// The refusal of a token endpoint.
#[derive(Deserialize)]
struct TokenRefusal {
    error: String,
    error_description: Option<String>,
}

impl TokenAnswer {
    /// Returns the token; `refresh` goes on if the answer has no other one.
    pub(super) fn into_granted(self, refresh: Option<String>) -> Result<Granted, CredentialsError> {
        if !self.token_type.eq_ignore_ascii_case("bearer") {
            return Err(grant(
                "the authorization server grants tokens of another type than Bearer",
            ));
        }
        let value = bearer(&self.access_token).map_err(|reason| grant(&format!("the token: {reason}")))?;
        let life = self
            .expires_in
            .map(|seconds| Duration::from_secs(seconds).min(LIFE_MAX));
        Ok(Granted {
            value,
            refresh: self.refresh_token.or(refresh),
            ends_at: life.map(|life| Instant::now() + life),
        })
    }
}

impl TokenEndpoint {
    pub(super) fn new(resource: Url, credentials: &Credentials) -> TokenEndpoint {
        TokenEndpoint {
            resource,
            authorities: credentials.authorities().map(ToOwned::to_owned),
        }
    }

    fn client(&self, url: &Url) -> Result<Client, CredentialsError> {
        let mut credentials = Credentials::default();
        if url.scheme() == "https"
            && let Some(path) = &self.authorities
        {
            credentials = credentials.with_authorities(path);
        }
        let client = http_client::builder_with(url.as_str(), &credentials)?
            .redirect(Policy::none())
            .connect_timeout(TIMEOUT)
            .timeout(TIMEOUT)
            .build();
        client.map_err(|_| grant("no HTTP client can be made"))
    }

    /// Asks the server without a token; returns its challenge, if it answers with one.
    pub(super) async fn probe(&self) -> Result<Option<Challenge>, CredentialsError> {
        let request = self.client(&self.resource)?.get(self.resource.clone());
        let sent = request
            .header(ACCEPT, "application/json, text/event-stream")
            .send();
        match sent.await {
            Ok(response) => Ok(http_client::challenge(&response)),
            // The request that follows reports this with its own words.
            Err(_) => Ok(None),
        }
    }

    /// Reads a document; none if there is no such document.
    pub(super) async fn get_json<T: DeserializeOwned>(
        &self,
        url: &Url,
    ) -> Result<Option<T>, CredentialsError> {
        let request = self
            .client(url)?
            .get(url.clone())
            .header(ACCEPT, "application/json");
        let response = self.send(url, request).await?;
        if !response.status().is_success() {
            return Ok(None);
        }
        Ok(serde_json::from_slice(&body(url, response).await?).ok())
    }

    /// Asks a token endpoint for a token.
    pub(super) async fn token(
        &self,
        server: &AuthorizationServer,
        id: &str,
        secret: Option<&str>,
        parameters: &[(&'static str, String)],
    ) -> Result<TokenAnswer, CredentialsError> {
        let url = &server.token;
        let request = self.token_request(server, id, secret, parameters)?;
        let response = self.send(url, request).await?;
        let status = response.status();
        let body = body(url, response).await?;
        let origin = url.origin().ascii_serialization();
        if status.is_success() {
            // The error of the parser may quote the token.
            return serde_json::from_slice(&body)
                .map_err(|_| grant(&format!("{origin} answers with something else than a token")));
        }
        let Ok(refusal) = serde_json::from_slice::<TokenRefusal>(&body) else {
            return Err(grant(&format!("{origin} answers with HTTP {}", status.as_u16())));
        };
        let error = clean(&refusal.error);
        let description = clean(&refusal.error_description.unwrap_or_default());
        Err(grant(&format!("{origin} refuses it ({error}: {description})")))
    }

    fn token_request(
        &self,
        server: &AuthorizationServer,
        id: &str,
        secret: Option<&str>,
        parameters: &[(&'static str, String)],
    ) -> Result<RequestBuilder, CredentialsError> {
        let url = &server.token;
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in parameters {
            form.append_pair(name, value);
        }
        let mut request = self.client(url)?.post(url.clone());
        match secret {
            Some(secret) if server.secret_in_body => {
                form.append_pair("client_id", id)
                    .append_pair("client_secret", secret);
            }
            Some(secret) => request = request.header(AUTHORIZATION, basic(id, secret)?),
            None => {
                form.append_pair("client_id", id);
            }
        }
        Ok(request
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form.finish()))
    }

    async fn send(&self, url: &Url, request: RequestBuilder) -> Result<Response, CredentialsError> {
        request.send().await.map_err(|error| {
            let reason = if error.is_timeout() {
                "no answer in time"
            } else {
                "no connection"
            };
            grant(&format!("{} gave {reason}", url.origin().ascii_serialization()))
        })
    }
}

async fn body(url: &Url, mut response: Response) -> Result<Vec<u8>, CredentialsError> {
    let origin = url.origin().ascii_serialization();
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= BYTES_MAX => body.extend_from_slice(&chunk),
            Ok(Some(_)) => {
                return Err(grant(&format!(
                    "{origin} answers with more than {BYTES_MAX} bytes"
                )));
            }
            Ok(None) => return Ok(body),
            Err(_) => return Err(grant(&format!("the answer of {origin} broke off"))),
        }
    }
}

fn basic(id: &str, secret: &str) -> Result<HeaderValue, CredentialsError> {
    http_client::basic(id, secret).ok_or_else(|| grant("the client's id and secret make no header"))
}
