//! The endpoint of an issuer that says whether a token is active (RFC 7662).
//!
//! It is found by the metadata of the issuer. Errors name addresses and files, never a token, a secret or
//! what an answer says.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::Client;
use serde_json::Value;
use tokio::time::Instant;
use tracing::warn;

use super::discovery;
use crate::file_watch::FileStamp;
use crate::http_client;
use crate::small_file;

/// Most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Most bytes of the file with the credentials.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// The time for which the metadata of the issuer is used.
const METADATA_AGE: Duration = Duration::from_secs(60 * 60);
/// The least time between two looks for the endpoint, of which a failed one counts.
const METADATA_INTERVAL: Duration = Duration::from_secs(5);

/// The error of a file of `auth.issuer.introspect` that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the file {} of auth.issuer.introspect {reason}", file.display())]
pub struct IntrospectionFault {
    /// The file.
    pub file: PathBuf,
    /// The mistake and the remedy.
    pub reason: String,
}

/// The endpoint of one issuer, with the credentials that it asks of this service.
pub(super) struct IntrospectionEndpoint {
    issuer: String,
    file: PathBuf,
    credentials: Arc<Mutex<ClientFile>>,
    /// ClientFile by the one look for the endpoint that is under way.
    found: tokio::sync::Mutex<Lookup>,
}

/// The credentials as they were read last.
struct ClientFile {
    header: HeaderValue,
    stamp: Option<FileStamp>,
}

#[derive(Default)]
struct Lookup {
    endpoint: Option<FoundEndpoint>,
    /// The time of the last look for it.
    looked: Option<Instant>,
}

#[derive(Clone)]
struct FoundEndpoint {
    url: String,
    client: Client,
}

impl IntrospectionEndpoint {
    /// Reads the credentials.
    ///
    /// # Errors
    /// The file cannot be used.
    pub(super) fn new(issuer: &str, file: &Path) -> Result<IntrospectionEndpoint, IntrospectionFault> {
        let held = ClientFile {
            stamp: FileStamp::at(file),
            header: read_credentials(file)?,
        };
        Ok(IntrospectionEndpoint {
            issuer: issuer.to_owned(),
            file: file.to_owned(),
            credentials: Arc::new(Mutex::new(held)),
            found: tokio::sync::Mutex::default(),
        })
    }

    pub(super) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Asks for the state of a token, which the answer tells with a member `active` that is true or false.
    ///
    /// # Errors
    /// The reason, for the log.
    pub(super) async fn ask(&self, token: &str) -> Result<Value, String> {
        let endpoint = self.endpoint().await?;
        let answer = self.post(&endpoint, token).await;
        if answer.is_err() {
            self.forget(&endpoint).await;
        }
        answer
    }

    async fn post(&self, endpoint: &FoundEndpoint, token: &str) -> Result<Value, String> {
        let url = &endpoint.url;
        let form = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("token", token)
            .append_pair("token_type_hint", "access_token")
            .finish();
        let request = endpoint
            .client
            .post(url)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(AUTHORIZATION, self.credentials().await?)
            .body(form);
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => return Err(format!("{url} cannot be reached: {}", error.without_url())),
        };
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => {
                return Err(format!(
                    "{url} refuses the client of {} (401)",
                    self.file.display()
                ));
            }
            // A redirect could lead to an address that the operator did not name.
            status => return Err(format!("{url} answered {status}")),
        }
        let text = discovery::body_of(answer, url, ANSWER_BYTES_MAX).await?;
        // The error of the parser may quote the answer.
        let answer: Value = serde_json::from_slice(&text).map_err(|_| format!("{url} answered no JSON"))?;
        match answer.get("active") {
            Some(Value::Bool(_)) => Ok(answer),
            _ => Err(format!("{url} did not answer whether the token is active")),
        }
    }

    /// Returns the endpoint; looks for it if it is not known.
    async fn endpoint(&self) -> Result<FoundEndpoint, String> {
        let mut found = self.found.lock().await;
        let age = found.looked.map(|looked| looked.elapsed());
        match (&found.endpoint, age) {
            (Some(endpoint), Some(age)) if age < METADATA_AGE => return Ok(endpoint.clone()),
            (None, Some(age)) if age < METADATA_INTERVAL => {
                return Err("its endpoint is not known, and was looked for a moment ago".into());
            }
            _ => {}
        }
        // Before the request: an attempt that is given up for its length counts, too.
        found.looked = Some(Instant::now());
        found.endpoint = None;
        let metadata = discovery::metadata(&self.issuer).await?;
        let Some(url) = metadata.get("introspection_endpoint").and_then(Value::as_str) else {
            return Err("its metadata names no introspection_endpoint".into());
        };
        let endpoint = FoundEndpoint {
            url: url.to_owned(),
            client: discovery::client(url)?,
        };
        found.endpoint = Some(endpoint.clone());
        Ok(endpoint)
    }

    /// Has an endpoint that failed looked for again: it may have moved.
    async fn forget(&self, failed: &FoundEndpoint) {
        let mut found = self.found.lock().await;
        if let (Some(endpoint), Some(looked)) = (&found.endpoint, found.looked)
            && endpoint.url == failed.url
            && looked.elapsed() >= METADATA_INTERVAL
        {
            *found = Lookup::default();
        }
    }

    /// Returns the header with the credentials, which are read again if their file has changed.
    async fn credentials(&self) -> Result<HeaderValue, String> {
        let held = self.credentials.clone();
        let file = self.file.clone();
        // On a thread of its own: the file may be on a disk that does not answer.
        let read = tokio::task::spawn_blocking(move || {
            let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
            let stamp = FileStamp::at(&file);
            if stamp != held.stamp {
                // Noted with a mistake, too, so that it is reported once.
                held.stamp = stamp;
                match read_credentials(&file) {
                    Ok(header) => held.header = header,
                    Err(error) => warn!(%error, "the credentials from before stay in use"),
                }
            }
            held.header.clone()
        });
        read.await.map_err(|error| error.to_string())
    }
}

/// Reads the header with the credentials of a file.
fn read_credentials(file: &Path) -> Result<HeaderValue, IntrospectionFault> {
    let fault = |reason: String| IntrospectionFault {
        file: file.to_owned(),
        reason,
    };
    let read = small_file::read_text(file, FILE_BYTES_MAX);
    let text = read.map_err(|error| fault(format!("cannot be read: {error}")))?;
    let (id, secret) = lines_of(&text).map_err(fault)?;
    http_client::basic(id, secret).ok_or_else(|| fault("has an id and a secret that make no header".into()))
}

/// Returns the id and the secret of the client.
fn lines_of(text: &str) -> Result<(&str, &str), String> {
    let mut id = None;
    let mut secret = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = || {
            let number = index + 1;
            format!(
                "has a wrong line {number}: expected client_id = ID, or client_secret = SECRET, each once"
            )
        };
        let (name, value) = line.split_once('=').ok_or_else(wrong)?;
        let place = match name.trim() {
            "client_id" => &mut id,
            "client_secret" => &mut secret,
            _ => return Err(wrong()),
        };
        let value = value.trim();
        if value.is_empty() || place.replace(value).is_some() {
            return Err(wrong());
        }
    }
    match (id, secret) {
        (Some(id), Some(secret)) => Ok((id, secret)),
        (None, _) => Err("has no line client_id = ID; add it".into()),
        (_, None) => Err("has no line client_secret = SECRET; add it".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_has_an_id_and_a_secret() {
        for (text, expected) in [
            ("client_id = a\nclient_secret = b\n", ("a", "b")),
            (
                "# ours\n\nclient_secret=b=c==\r\n client_id =a d ",
                ("a d", "b=c=="),
            ),
        ] {
            assert_eq!(lines_of(text), Ok(expected));
        }
        for (text, reason) in [
            ("", "no line client_id"),
            ("client_id = a", "no line client_secret"),
            ("client_secret = s3cr3t", "no line client_id"),
            ("client_id = a\nclient_id = b\nclient_secret = s3cr3t", "line 2"),
            ("client_id = a\nclient_secret =", "line 2"),
            ("client_id = a\ns3cr3t", "line 2"),
            ("client_id = a\nsecret = s3cr3t", "line 2"),
        ] {
            let refused = lines_of(text).unwrap_err();
            assert!(
                refused.contains(reason) && !refused.contains("s3cr3t"),
                "{refused}"
            );
        }
    }

    #[test]
    fn unusable_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("client");
        let fault = |text: Option<&str>| {
            if let Some(text) = text {
                std::fs::write(&file, text).unwrap();
            }
            let made = IntrospectionEndpoint::new("https://as.example", &file);
            made.err().map(|fault| fault.to_string())
        };
        assert!(
            fault(None)
                .unwrap()
                .contains("client of auth.issuer.introspect cannot be read")
        );
        assert!(fault(Some(&"#".repeat(70_000))).unwrap().contains("65536 bytes"));
        assert_eq!(fault(Some("client_id = a\nclient_secret = b")), None);
    }
}
