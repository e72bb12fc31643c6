//! The documents of an authorization server: its metadata (RFC 8414, OpenID Connect Discovery) and its keys.

use std::path::Path;
use std::time::Duration;

use http::StatusCode;
use http::header::CACHE_CONTROL;
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};
use serde_json::Value;

use crate::hosts;
use crate::http_client;
use crate::small_file;

/// Most bytes of a document.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;
/// The time for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The least and the most time for which a document is used before it is fetched again.
const AGE_MIN: Duration = Duration::from_secs(5 * 60);
pub(super) const AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A document that was fetched.
pub(super) struct Document {
    pub(super) text: Vec<u8>,
    /// The time for which it may be used.
    pub(super) age: Duration,
}

/// Returns the addresses at which the metadata of an issuer may be, in the order in which they are tried.
pub(super) fn metadata_urls(issuer: &str) -> Vec<String> {
    let issuer = issuer.trim_end_matches('/');
    let authority = issuer.find("://").unwrap_or(0) + 3;
    let authority = authority.min(issuer.len());
    let path = issuer[authority..].find('/').map(|at| authority + at);
    let (origin, path) = issuer.split_at(path.unwrap_or(issuer.len()));
    let mut urls = vec![
        format!("{origin}/.well-known/oauth-authorization-server{path}"),
        format!("{origin}/.well-known/openid-configuration{path}"),
    ];
    // OpenID Connect appends its path, while RFC 8414 puts it before the one of the issuer.
    if !path.is_empty() {
        urls.push(format!("{issuer}/.well-known/openid-configuration"));
    }
    urls
}

/// Fetches the metadata of an issuer.
///
/// # Errors
/// The reason, for the log.
pub(super) async fn metadata(issuer: &str) -> Result<Value, String> {
    // All of them are kept, since the log must help with each form of address.
    let mut reasons = Vec::new();
    for url in metadata_urls(issuer) {
        let document = match fetch(&url).await {
            Ok(document) => document,
            Err(reason) => {
                reasons.push(reason);
                continue;
            }
        };
        let Ok(metadata) = serde_json::from_slice::<Value>(&document.text) else {
            reasons.push(format!("{url} is no JSON"));
            continue;
        };
        // RFC 8414, section 3.3: metadata of another issuer must not be used.
        if metadata.get("issuer").and_then(Value::as_str) == Some(issuer) {
            return Ok(metadata);
        }
        reasons.push(format!("{url} names another issuer"));
    }
    Err(reasons.join("; "))
}

/// Fetches a document.
///
/// # Errors
/// The reason, for the log.
pub(super) async fn fetch(url: &str) -> Result<Document, String> {
    let client = client(url)?;
    let answer = match client.get(url).header("accept", "application/json").send().await {
        Ok(answer) => answer,
        Err(error) => return Err(format!("{url} cannot be reached: {}", error.without_url())),
    };
    if answer.status() != StatusCode::OK {
        // A redirect could lead to an address that the operator did not name.
        return Err(format!("{url} answered {}", answer.status()));
    }
    let age = age_of(
        answer
            .headers()
            .get(CACHE_CONTROL)
            .and_then(|value| value.to_str().ok()),
    );
    let text = body_of(answer, url, DOCUMENT_BYTES_MAX).await?;
    Ok(Document { text, age })
}

/// Reads the body of an answer, of at most `max` bytes.
///
/// # Errors
/// The reason, for the log.
pub(super) async fn body_of(mut answer: Response, url: &str, max: usize) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    loop {
        match answer.chunk().await {
            Ok(Some(chunk)) if text.len() + chunk.len() <= max => text.extend_from_slice(&chunk),
            // Counted while it arrives, as an answer may name no length or a wrong one.
            Ok(Some(_)) => return Err(format!("{url} answered with more than {max} bytes")),
            Ok(None) => return Ok(text),
            Err(error) => return Err(format!("{url} was cut off: {}", error.without_url())),
        }
    }
}

/// Reads a document from a file, on a thread of its own: the file may be on a disk that does not answer.
///
/// # Errors
/// The reason, for the log.
pub(super) async fn read_file(path: &Path) -> Result<Document, String> {
    let path = path.to_owned();
    match tokio::task::spawn_blocking(move || read_file_now(&path)).await {
        Ok(read) => Ok(Document {
            text: read?,
            age: AGE_MIN,
        }),
        Err(error) => Err(format!("a file cannot be read: {error}")),
    }
}

/// Reads a document from a file. Blocks while it reads.
///
/// # Errors
/// The reason, for a person.
pub(super) fn read_file_now(path: &Path) -> Result<Vec<u8>, String> {
    let read = small_file::read(path, DOCUMENT_BYTES_MAX as u64);
    read.map_err(|error| format!("{} cannot be read: {error}", path.display()))
}

/// Returns a client for an address that is https or on this machine.
pub(super) fn client(url: &str) -> Result<Client, String> {
    let parsed = Url::parse(url).map_err(|error| format!("{url} is no address: {error}"))?;
    http_client::accept_url(&parsed).map_err(|reason| format!("{url}: {reason}"))?;
    // In the form in which it is asked, so that no other spelling is judged.
    if !hosts::is_https_or_here(parsed.as_str()) {
        return Err(format!("{url} is neither https nor on this machine"));
    }
    let builder = http_client::builder(url)
        .redirect(Policy::none())
        .timeout(REQUEST_TIMEOUT);
    builder.build().map_err(|error| error.to_string())
}

/// Returns the time for which a document may be used.
fn age_of(cache_control: Option<&str>) -> Duration {
    let directives = cache_control.unwrap_or_default().split(',');
    let max_age = directives.filter_map(|directive| directive.trim().strip_prefix("max-age="));
    let seconds = max_age.filter_map(|seconds| seconds.parse().ok()).next();
    Duration::from_secs(seconds.unwrap_or(0)).clamp(AGE_MIN, AGE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_looked_for_where_it_may_be() {
        let base = "https://as.example";
        let bare = [
            format!("{base}/.well-known/oauth-authorization-server"),
            format!("{base}/.well-known/openid-configuration"),
        ];
        assert_eq!(metadata_urls(base), bare);
        assert_eq!(metadata_urls("https://as.example/"), bare);
        let tenant = [
            format!("{base}/.well-known/oauth-authorization-server/a/b"),
            format!("{base}/.well-known/openid-configuration/a/b"),
            format!("{base}/a/b/.well-known/openid-configuration"),
        ];
        assert_eq!(metadata_urls("https://as.example/a/b"), tenant);
    }

    #[test]
    fn age_is_within_bounds() {
        for (header, seconds) in [
            (None, 300),
            (Some("no-store"), 300),
            (Some("max-age=1"), 300),
            (Some("public, max-age=3600"), 3600),
            (Some("max-age=99999999"), 86_400),
            (Some("max-age=x"), 300),
        ] {
            assert_eq!(age_of(header), Duration::from_secs(seconds), "{header:?}");
        }
    }

    #[test]
    fn only_https_or_loopback_is_fetched() {
        for url in [
            "http://as.example/",
            "http://10.0.0.1/",
            "ftp://127.0.0.1/",
            "file:///etc/passwd",
            "x",
        ] {
            assert!(client(url).is_err(), "{url}");
        }
        assert!(client("http://127.0.0.1:1/").is_ok());
        assert!(client("http://[::1]:1/").is_ok());
    }
}
