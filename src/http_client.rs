//! The HTTP client of every part that sends requests, with TLS if the feature `tls` is on.
//!
//! The cryptography is that of ring, and trusted certificates are the system's, or those of `SSL_CERT_FILE`.

#[cfg(feature = "tls")]
mod tls_config;

use std::borrow::Cow;
#[cfg(feature = "tls")]
use std::path::Path;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{HeaderValue, WWW_AUTHENTICATE};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{ClientBuilder, RequestBuilder, Response, Url};
use tracing::debug;

use crate::credentials::{Challenge, Credentials, CredentialsError, RENEWALS_MAX};
#[cfg(feature = "tls")]
use crate::small_file;
#[cfg(feature = "tls")]
pub(crate) use tls_config::client_config;

/// The redirects of one request that are followed.
const REDIRECTS_MAX: usize = 10;

/// The limit on the size of a file of certificates or keys, in bytes.
#[cfg(feature = "tls")]
const PEM_BYTES_MAX: u64 = 1 << 20;

/// Checks that this build can send requests to addresses with this scheme.
///
/// # Errors
/// The remedy.
pub(crate) fn accept(scheme: &str) -> Result<(), &'static str> {
    match scheme {
        "http" => Ok(()),
        "https" if cfg!(feature = "tls") => Ok(()),
        "https" => {
            Err("this build speaks no TLS: use an http address, or build with tidings' feature \"tls\"")
        }
        _ => Err("expected an address that starts with http:// or https://"),
    }
}

/// Checks that this build can send requests to `url`, and that it has no user name and password: a command
/// line and an address are seen by many.
///
/// # Errors
/// The remedy.
pub(crate) fn accept_url(url: &Url) -> Result<(), &'static str> {
    accept(url.scheme())?;
    if url.username().is_empty() && url.password().is_none() {
        return Ok(());
    }
    Err(
        "an address with a user name or a password is not accepted: present them as a header, such as \
         'Authorization: Basic …'",
    )
}

/// Returns an address as messages show it: without a user name and a password.
pub(crate) fn shown(url: &str) -> Cow<'_, str> {
    // An address that cannot be parsed may have them anywhere before its last @.
    let Some(at) = url.rfind('@') else {
        return Cow::Borrowed(url);
    };
    let start = match url.find("://") {
        Some(scheme) if scheme < at => scheme + 3,
        _ => 0,
    };
    if let Ok(parsed) = Url::parse(url)
        && parsed.has_authority()
        && parsed.username().is_empty()
        && parsed.password().is_none()
    {
        return Cow::Borrowed(url);
    }
    Cow::Owned(format!("{}***{}", &url[..start], &url[at..]))
}

/// Returns the header of a client that authenticates itself (RFC 6749, section 2.3.1); none if its id and
/// secret make none.
pub(crate) fn basic(id: &str, secret: &str) -> Option<HeaderValue> {
    let encode = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let text = STANDARD.encode(format!("{}:{}", encode(id), encode(secret)));
    let mut value = HeaderValue::from_str(&format!("Basic {text}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The error of a request with credentials.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// The request got no answer.
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    /// There are no usable credentials.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// Sends a request with `credentials`, and again with new ones while the server refuses it and there are
/// some.
///
/// A refusal that no new credentials mend is returned like any other response.
pub(crate) async fn send(request: RequestBuilder, credentials: &Credentials) -> Result<Response, SendError> {
    let mut renewals = 0;
    loop {
        let sent = credentials.headers().await?;
        // A body that is a stream could not be sent twice; all of ours are bytes.
        let Some(mut attempt) = request.try_clone() else {
            return Ok(request.send().await?);
        };
        for (name, value) in &sent {
            attempt = attempt.header(name, value);
        }
        let begin = Instant::now();
        let response = attempt.send().await?;
        debug!(url = %response.url(), status = response.status().as_u16(), took = ?begin.elapsed(), "answered");
        let Some(challenge) = challenge(&response) else {
            return Ok(response);
        };
        if renewals == RENEWALS_MAX || !credentials.renew(&sent, &challenge).await? {
            return Ok(response);
        }
        renewals += 1;
    }
}

/// Returns the challenge of a response that refuses the client.
pub(crate) fn challenge(response: &Response) -> Option<Challenge> {
    let header = response.headers().get(WWW_AUTHENTICATE);
    let text = header.and_then(|value| value.to_str().ok());
    Challenge::of(response.status().as_u16(), text)
}

/// Returns a builder of clients that present `credentials` to `url`, whose scheme was accepted. Redirects to
/// another origin are not followed: the credentials are for this one.
///
/// # Errors
/// [`CredentialsError::File`] for a certificate that cannot be used, [`CredentialsError::Invalid`] for one
/// and an address without TLS.
pub(crate) fn builder_with(url: &str, credentials: &Credentials) -> Result<ClientBuilder, CredentialsError> {
    let builder = builder(url).redirect(Policy::custom(|attempt| {
        match attempt.previous().len() <= REDIRECTS_MAX && is_same_origin(&attempt) {
            true => attempt.follow(),
            false => attempt.stop(),
        }
    }));
    if credentials.certificate().is_none() && credentials.authorities().is_none() {
        return Ok(builder);
    }
    if !is_https(url) {
        let reason = "certificates are for an https address: use one, or leave them out";
        return Err(CredentialsError::Invalid(reason.to_owned()));
    }
    with_certificates(builder, credentials)
}

/// Adds the client certificate, and the authorities in place of the system's.
#[cfg(feature = "tls")]
fn with_certificates(
    mut builder: ClientBuilder,
    credentials: &Credentials,
) -> Result<ClientBuilder, CredentialsError> {
    if let Some(client) = credentials.certificate() {
        let mut pem = read_pem("certificate", &client.certificate)?;
        pem.push(b'\n');
        pem.extend(read_pem("key", &client.key)?);
        // The error of the library says no more, and may quote the key.
        let identity = reqwest::Identity::from_pem(&pem).map_err(|_| {
            let reason = "it and its key are no certificate chain and private key in PEM form";
            unusable("certificate", &client.certificate, reason)
        })?;
        builder = builder.identity(identity);
    }
    if let Some(path) = credentials.authorities() {
        let kind = "CA certificate";
        let parsed = reqwest::Certificate::from_pem_bundle(&read_pem(kind, path)?);
        let authorities = match parsed {
            Ok(authorities) if !authorities.is_empty() => authorities,
            _ => return Err(unusable(kind, path, "it has no certificate in PEM form")),
        };
        builder = builder.tls_certs_only(authorities);
    }
    Ok(builder)
}

#[cfg(not(feature = "tls"))]
fn with_certificates(builder: ClientBuilder, _: &Credentials) -> Result<ClientBuilder, CredentialsError> {
    // An https address was refused before.
    Ok(builder)
}

/// Reads a file of certificates or keys.
#[cfg(feature = "tls")]
fn read_pem(kind: &'static str, path: &Path) -> Result<Vec<u8>, CredentialsError> {
    small_file::read(path, PEM_BYTES_MAX).map_err(|error| unusable(kind, path, &error.to_string()))
}

#[cfg(feature = "tls")]
fn unusable(kind: &'static str, path: &Path, reason: &str) -> CredentialsError {
    CredentialsError::File {
        kind,
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}

fn is_https(url: &str) -> bool {
    url.to_ascii_lowercase().starts_with("https:")
}

fn is_same_origin(attempt: &Attempt<'_>) -> bool {
    match attempt.previous().first() {
        Some(first) => first.origin() == attempt.url().origin(),
        None => false,
    }
}

/// Returns a builder of clients for `url`, whose scheme was accepted.
#[cfg(not(feature = "tls"))]
pub(crate) fn builder(_: &str) -> ClientBuilder {
    reqwest::Client::builder()
}

/// Returns a builder of clients for `url`, whose scheme was accepted.
#[cfg(feature = "tls")]
pub(crate) fn builder(url: &str) -> ClientBuilder {
    use rustls::crypto::ring;
    use std::sync::Arc;

    let builder = reqwest::Client::builder();
    if is_https(url) {
        // An embedder may have installed a provider already; that one is used then.
        if ring::default_provider().install_default().is_err() {
            tracing::debug!("the process has a TLS provider already");
        }
        return builder.https_only(true);
    }
    // A client without TLS must not read the system's certificates: that takes time, and fails if there are
    // none.
    let provider = Arc::new(ring::default_provider());
    let without_roots = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has the default versions of TLS")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    builder.tls_backend_preconfigured(without_roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_requires_the_tls_feature() {
        assert_eq!(accept("http"), Ok(()));
        assert!(accept("ftp").is_err());
        let https = accept("https");
        assert_eq!(https.is_ok(), cfg!(feature = "tls"), "{https:?}");
        if let Err(text) = https {
            assert!(text.contains("\"tls\""), "{text}");
        }
    }

    #[test]
    fn user_info_is_refused_and_not_shown() {
        for url in ["http://user:pass@h/mcp", "http://pass@h", "http://:pass@h/"] {
            let parsed = Url::parse(url).unwrap();
            assert!(
                accept_url(&parsed).unwrap_err().contains("Authorization"),
                "{url}"
            );
        }
        assert_eq!(accept_url(&Url::parse("http://h/a@b").unwrap()), Ok(()));
        for (url, expected) in [
            ("http://h/mcp", "http://h/mcp"),
            ("http://h/a@b", "http://h/a@b"),
            ("http://user:pass@h/mcp", "http://***@h/mcp"),
            ("http://user:pa/ss@h:x", "http://***@h:x"),
            ("user:pass@h", "***@h"),
            ("pass@://", "***@://"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }
}
