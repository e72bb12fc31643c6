//! The end of the authorization code flow on this machine: the address that the user opens, and the listener
//! that the browser is sent to.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Url;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::discovery::AuthorizationServer;
use super::grant;
use crate::credentials::{CredentialsError, clean};

/// The limit on the head of a request, in bytes.
const HEAD_MAX: usize = 8 * 1024;

/// The time in which a connection must have sent its head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The connections that are answered; a browser makes a few.
const CONNECTIONS_MAX: usize = 64;

const PATH: &str = "/callback";

/// One authorization: its secrets, and the listener that waits for its end.
pub(super) struct Redirect {
    listener: TcpListener,
    uri: String,
    state: String,
    verifier: String,
    issuer: String,
    names_issuer: bool,
}

impl Redirect {
    /// Listens on any port of this machine.
    pub(super) async fn listen(server: &AuthorizationServer) -> Result<Redirect, CredentialsError> {
        // The protocol requires a client to stop here: a code that is caught could be used by others.
        if !server.has_s256 {
            return Err(grant("the authorization server does not support PKCE with S256"));
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).await;
        let listener =
            listener.map_err(|error| grant(&format!("cannot listen for the redirect: {error}")))?;
        let port = listener.local_addr().map(|address| address.port());
        let port = port.map_err(|error| grant(&format!("cannot listen for the redirect: {error}")))?;
        Ok(Redirect {
            listener,
            uri: format!("http://127.0.0.1:{port}{PATH}"),
            state: random()?,
            verifier: random()?,
            issuer: server.issuer.clone(),
            names_issuer: server.names_issuer,
        })
    }

    pub(super) fn uri(&self) -> &str {
        &self.uri
    }

    pub(super) fn verifier(&self) -> &str {
        &self.verifier
    }

    /// Returns the address that the user opens.
    pub(super) fn address(
        &self,
        server: &AuthorizationServer,
        id: &str,
        scope: &str,
    ) -> Result<String, CredentialsError> {
        let Some(mut address) = server.authorization.clone() else {
            return Err(grant(
                "the authorization server has no place where users authorize",
            ));
        };
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()));
        let mut query = address.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", id)
            .append_pair("redirect_uri", &self.uri)
            .append_pair("state", &self.state)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256")
            .append_pair("resource", &server.resource);
        if !scope.is_empty() {
            query.append_pair("scope", scope);
        }
        drop(query);
        Ok(address.into())
    }

    /// Waits for the redirect and returns its code.
    pub(super) async fn code(&self) -> Result<String, CredentialsError> {
        for _ in 0..CONNECTIONS_MAX {
            let accepted = self.listener.accept().await;
            let (mut stream, _) = accepted.map_err(|error| grant(&format!("no redirect came: {error}")))?;
            let Ok(Some(target)) = tokio::time::timeout(HEAD_TIMEOUT, target(&mut stream)).await else {
                continue;
            };
            let outcome = self.outcome(&target);
            let (status, text) = match &outcome {
                None => ("404 Not Found", "This is not the address of the redirect."),
                Some(Ok(_)) => ("200 OK", "Authorized. You can close this page."),
                Some(Err(_)) => ("400 Bad Request", "Not authorized. The program says why."),
            };
            answer(&mut stream, status, text).await;
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
        Err(grant("too many requests came in place of the redirect"))
    }

    /// Reads a redirect. Returns none for a request without the state, which is not the browser's.
    fn outcome(&self, target: &str) -> Option<Result<String, CredentialsError>> {
        let url = Url::parse(&self.uri).ok()?.join(target).ok()?;
        let value = |name: &str| {
            let mut pairs = url.query_pairs();
            pairs.find_map(|(key, value)| (key == name).then(|| value.into_owned()))
        };
        if url.path() != PATH || value("state").as_ref() != Some(&self.state) {
            return None;
        }
        // RFC 9207: a code of another issuer is not sent to this one.
        match value("iss") {
            Some(issuer) if issuer != self.issuer => {
                return Some(Err(grant("the redirect came from another issuer")));
            }
            None if self.names_issuer => return Some(Err(grant("the redirect does not name its issuer"))),
            _ => {}
        }
        if let Some(error) = value("error") {
            let error = clean(&error);
            let description = clean(&value("error_description").unwrap_or_default());
            return Some(Err(grant(&format!(
                "the user was refused ({error}: {description})"
            ))));
        }
        Some(value("code").ok_or_else(|| grant("the redirect has no code")))
    }
}

/// Reads the head of a request and returns the target of a GET.
async fn target(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut bytes).await.ok()?;
        if count == 0 || head.len() + count > HEAD_MAX {
            return None;
        }
        head.extend_from_slice(&bytes[..count]);
    }
    let text = String::from_utf8(head).ok()?;
    let target = text.strip_prefix("GET ")?.split(' ').next()?;
    // A target with an authority would name another server.
    (target.starts_with('/') && !target.starts_with("//")).then(|| target.to_owned())
}

async fn answer(stream: &mut TcpStream, status: &str, text: &str) {
    let length = text.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{text}"
    );
    if let Err(error) = stream.write_all(answer.as_bytes()).await {
        tracing::debug!(%error, "the browser did not wait for the answer");
    }
}

/// Returns 256 random bits as text.
fn random() -> Result<String, CredentialsError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|_| grant("the system has no source of random numbers"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
