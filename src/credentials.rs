//! The credentials that a client presents to a server: headers, a token, and a certificate.
//!
//! They are sent to the address that the caller named and never to another one. No text that is printed or
//! logged has them.

mod challenge;
mod token_file;

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderName, HeaderValue};

pub(crate) use challenge::{Challenge, clean};
use token_file::TokenFile;
pub(crate) use token_file::read_secret;

/// The number of headers that can be added to each request.
const HEADERS_MAX: usize = 32;

/// The attempts to renew a token for one request: one for a token that ended, one for a scope that it lacks.
pub(crate) const RENEWALS_MAX: usize = 2;

/// Headers that the protocols write themselves.
const RESERVED: [&str; 12] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "te",
    "transfer-encoding",
];

/// The headers of one request.
pub(crate) type HeaderPairs = Vec<(HeaderName, HeaderValue)>;

/// The error of credentials. Its text has no part of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// They cannot be used as given.
    #[error("{0}")]
    Invalid(String),
    /// A file cannot be used.
    #[error("cannot use the {kind} file {}: {reason}", path.display())]
    File {
        /// The content of the file, such as "token".
        kind: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason, with the remedy.
        reason: String,
    },
    /// No token could be obtained.
    #[error("no token was granted: {0}")]
    Grant(String),
}

pub(crate) type TokenFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, CredentialsError>> + Send + 'a>>;

/// A place where tokens come from.
pub(crate) trait TokenSource: Send + Sync {
    /// Returns the value of the `Authorization` header, or none before the server has asked for one.
    fn authorization(&self) -> TokenFuture<'_, Option<HeaderValue>>;

    /// Obtains a token that is missing and that takes longer than a request may: a user may be asked.
    fn prepare(&self) -> TokenFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Obtains a token in place of `rejected`, the value that the server met with `challenge`. Returns true
    /// if there is another one now.
    fn renew<'a>(
        &'a self,
        rejected: Option<&'a HeaderValue>,
        challenge: &'a Challenge,
    ) -> TokenFuture<'a, bool>;
}

#[derive(Clone)]
enum Token {
    Fixed(HeaderValue),
    Source(Arc<dyn TokenSource>),
}

/// The files of a client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// The credentials that a client presents to a server. The default presents none.
///
/// Clones share a token that is renewed.
///
/// ```
/// use tidings::client::Credentials;
/// let credentials = Credentials::default()
///     .with_token_file("/run/secrets/token")
///     .with_header("X-Tenant", "blue")?;
/// # Ok::<(), tidings::client::CredentialsError>(())
/// ```
#[derive(Clone, Default)]
pub struct Credentials {
    headers: HeaderPairs,
    token: Option<Token>,
    certificate: Option<ClientCertificate>,
    authorities: Option<PathBuf>,
}

impl Credentials {
    /// Adds a header to every request.
    ///
    /// # Errors
    /// [`CredentialsError::Invalid`] for a name or a value that HTTP does not allow, a header that the
    /// protocol writes itself, and more than 32 headers.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Credentials, CredentialsError> {
        let Ok(parsed) = name.parse::<HeaderName>() else {
            // The name may be a secret that was written without its name.
            return Err(invalid("a header has no valid name: write it as 'Name: value'"));
        };
        // A second value of such a header would make servers and proxies read different requests.
        if RESERVED.contains(&parsed.as_str()) {
            return Err(invalid(&format!(
                "the header {parsed} is written by the protocol: leave it out"
            )));
        }
        let Ok(mut value) = HeaderValue::from_str(value.trim()) else {
            return Err(invalid(&format!(
                "the value of the header {parsed} has characters that HTTP does not allow: write one line of text"
            )));
        };
        if self.headers.len() == HEADERS_MAX {
            return Err(invalid(&format!(
                "there are more than {HEADERS_MAX} headers: leave some out"
            )));
        }
        value.set_sensitive(true);
        self.headers.push((parsed, value));
        Ok(self)
    }

    /// Presents `token` as a bearer token.
    ///
    /// # Errors
    /// [`CredentialsError::Invalid`] if it is empty or has characters that no token has.
    pub fn with_token(mut self, token: &str) -> Result<Credentials, CredentialsError> {
        let value = bearer(token).map_err(|reason| invalid(&format!("the token is no token: {reason}")))?;
        self.token = Some(Token::Fixed(value));
        Ok(self)
    }

    /// Presents the token in a file, which is read again when it changes, and when the server refuses the
    /// token.
    #[must_use]
    pub fn with_token_file(self, path: impl Into<PathBuf>) -> Credentials {
        self.with_source(Arc::new(TokenFile::new(path.into())))
    }

    /// Presents tokens of this source.
    #[must_use]
    pub(crate) fn with_source(mut self, source: Arc<dyn TokenSource>) -> Credentials {
        self.token = Some(Token::Source(source));
        self
    }

    /// Presents a certificate to servers that speak TLS: a chain and its key, both as PEM. The files are read
    /// for each connection of a watcher, and once by a command.
    #[must_use]
    pub fn with_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Credentials {
        self.certificate = Some(ClientCertificate {
            certificate: certificate.into(),
            key: key.into(),
        });
        self
    }

    /// Trusts the servers that an authority in this PEM file certifies, and no others.
    #[must_use]
    pub fn with_authorities(mut self, path: impl Into<PathBuf>) -> Credentials {
        self.authorities = Some(path.into());
        self
    }

    /// Returns true if the headers of a later request may be others.
    pub(crate) fn may_change(&self) -> bool {
        matches!(self.token, Some(Token::Source(_)))
    }

    /// Returns true if a header or a token says who the client is.
    pub(crate) fn has_authorization(&self) -> bool {
        self.token.is_some() || self.headers.iter().any(|(name, _)| name == AUTHORIZATION)
    }

    pub(crate) fn certificate(&self) -> Option<&ClientCertificate> {
        self.certificate.as_ref()
    }

    pub(crate) fn authorities(&self) -> Option<&Path> {
        self.authorities.as_deref()
    }

    /// Obtains a token that is missing, if that is to be done before the first request.
    pub(crate) async fn prepare(&self) -> Result<(), CredentialsError> {
        match &self.token {
            Some(Token::Source(source)) => source.prepare().await,
            _ => Ok(()),
        }
    }

    /// Returns the headers of a request that is sent now.
    pub(crate) async fn headers(&self) -> Result<HeaderPairs, CredentialsError> {
        let mut headers = self.headers.clone();
        let token = match &self.token {
            None => None,
            Some(Token::Fixed(value)) => Some(value.clone()),
            Some(Token::Source(source)) => source.authorization().await?,
        };
        headers.extend(token.map(|value| (AUTHORIZATION, value)));
        Ok(headers)
    }

    /// Renews the token after a server met a request with these headers with `challenge`. Returns true if the
    /// request is worth another attempt.
    pub(crate) async fn renew(
        &self,
        sent: &HeaderPairs,
        challenge: &Challenge,
    ) -> Result<bool, CredentialsError> {
        let Some(Token::Source(source)) = &self.token else {
            return Ok(false);
        };
        // The source needs it to see that another request has renewed the token meanwhile.
        let rejected = sent.iter().find(|(name, _)| name == AUTHORIZATION);
        source.renew(rejected.map(|(_, value)| value), challenge).await
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names alone: any value may be a secret.
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Credentials")
            .field("headers", &names)
            .field("token", &self.token.is_some())
            .field("certificate", &self.certificate)
            .field("authorities", &self.authorities)
            .finish()
    }
}

/// Equal credentials present the same: sources of tokens are equal if they are one.
impl PartialEq for Credentials {
    fn eq(&self, other: &Credentials) -> bool {
        // Two sources for the same file may hold different tokens, so their settings are not compared.
        let token = match (&self.token, &other.token) {
            (None, None) => true,
            (Some(Token::Fixed(left)), Some(Token::Fixed(right))) => left == right,
            (Some(Token::Source(left)), Some(Token::Source(right))) => Arc::ptr_eq(left, right),
            _ => false,
        };
        token
            && self.headers == other.headers
            && self.certificate == other.certificate
            && self.authorities == other.authorities
    }
}

impl Eq for Credentials {}

fn invalid(reason: &str) -> CredentialsError {
    CredentialsError::Invalid(reason.to_owned())
}

/// Returns the value of the `Authorization` header for a token, or the reason that it is none.
pub(crate) fn bearer(token: &str) -> Result<HeaderValue, &'static str> {
    // Files and variables often end with a line end that is no part of the token.
    let token = token.trim();
    if token.is_empty() {
        return Err("it is empty");
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(
            "it has a space, a line end or another character that no token has; write the token alone",
        );
    }
    let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {token}")) else {
        return Err("HTTP does not allow it");
    };
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "s3cr3t-t0k3n";

    fn all() -> Credentials {
        Credentials::default()
            .with_header("X-Key", SECRET)
            .unwrap()
            .with_token(SECRET)
            .unwrap()
            .with_certificate("client.pem", "client.key")
            .with_authorities("ca.pem")
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", all());
        assert!(shown.contains("x-key") && shown.contains("client.key"), "{shown}");
        assert!(!shown.contains(SECRET), "{shown}");
    }

    #[tokio::test]
    async fn headers_are_sensitive_and_complete() {
        let headers = all().headers().await.unwrap();
        let mut values = Vec::new();
        for (name, value) in &headers {
            assert!(value.is_sensitive(), "{name}");
            assert!(!format!("{headers:?}").contains(SECRET));
            values.push((name.as_str(), value.to_str().unwrap()));
        }
        assert_eq!(
            values,
            [("x-key", SECRET), ("authorization", "Bearer s3cr3t-t0k3n")]
        );
    }

    #[test]
    fn misuse_is_refused_without_the_value() {
        for (name, value, expected) in [
            ("no name", SECRET, "no valid name"),
            ("Mcp-Session-Id", SECRET, "written by the protocol"),
            ("Host", SECRET, "written by the protocol"),
            ("X-Key", "s3cr3t-t0k3n\r\nX: y", "characters"),
        ] {
            let error = Credentials::default().with_header(name, value).unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains(expected) && !text.contains(SECRET),
                "{name}: {text}"
            );
        }
        for (token, expected) in [("", "empty"), (" \n", "empty"), ("Bearer s3cr3t-t0k3n", "space")] {
            let text = Credentials::default().with_token(token).unwrap_err().to_string();
            assert!(text.contains(expected) && !text.contains(SECRET), "{text}");
        }
        let mut many = Credentials::default();
        for _ in 0..HEADERS_MAX {
            many = many.with_header("a", "b").unwrap();
        }
        assert!(many.with_header("a", "b").is_err());
    }

    #[test]
    fn equality_compares_what_is_presented() {
        assert_eq!(all(), all());
        assert_ne!(all(), Credentials::default());
        let file = Credentials::default().with_token_file("a");
        assert_eq!(file, file.clone());
        assert_ne!(file, Credentials::default().with_token_file("a"));
    }
}
