//! The transport to the server under test: HTTP, or the standard input and output of a process.

use std::sync::Arc;

use serde_json::Value;
use tokio::time::Duration;

use super::answer::{Answer, TransportError};
use super::http::HttpTransport;
use super::options::Options;
use super::stdio::{ProcessEnd, StdioTransport};
use super::transcript::Transcript;
use crate::client::Target;
use crate::wire::dialect::{Dialect, Revision};

/// Carries messages to the server; those that answer no request go to the transcript.
pub(super) enum Transport {
    Http(HttpTransport),
    Stdio(Box<StdioTransport>),
}

impl Transport {
    /// Opens a transport whose requests are written in this dialect.
    pub(super) fn open(
        target: &Target,
        options: &Options,
        dialect: Dialect,
        transcript: Arc<Transcript>,
    ) -> Result<Transport, TransportError> {
        match target {
            Target::Http(url) => {
                let http = HttpTransport::new(url, options, dialect, transcript)?;
                Ok(Transport::Http(http))
            }
            Target::Command(command) => {
                let stdio = StdioTransport::spawn(command, options, transcript)?;
                // Boxed, since this variant is much larger than the other one.
                Ok(Transport::Stdio(Box::new(stdio)))
            }
        }
    }

    pub(super) fn is_http(&self) -> bool {
        matches!(self, Transport::Http(_))
    }

    /// Writes further requests in this revision, once the server has chosen it.
    pub(super) fn set_revision(&self, revision: Revision) {
        match self {
            Transport::Http(http) => http.set_revision(revision),
            // On standard input no header names the revision.
            Transport::Stdio(_) => {}
        }
    }

    /// Sends a request and returns its answer, which has to come within `limit`.
    pub(super) async fn request(&self, message: &Value, limit: Duration) -> Result<Answer, TransportError> {
        match self {
            Transport::Http(http) => http.request(message, limit).await,
            Transport::Stdio(stdio) => stdio.request(message, limit).await,
        }
    }

    /// Sends a notification.
    pub(super) async fn notify(&self, message: &Value) -> Result<(), TransportError> {
        match self {
            Transport::Http(http) => http.send(message).await,
            Transport::Stdio(stdio) => stdio.send(message).await,
        }
    }

    /// Sends a listen request. Everything it is answered with goes to the transcript.
    pub(super) async fn listen(&self, message: &Value) -> Result<(), TransportError> {
        match self {
            Transport::Http(http) => http.listen(message).await,
            Transport::Stdio(stdio) => stdio.send(message).await,
        }
    }

    /// Opens the stream of the session; standard output is always open.
    pub(super) async fn open_stream(&self) -> Result<(), TransportError> {
        match self {
            Transport::Http(http) => http.open_stream().await,
            Transport::Stdio(_) => Ok(()),
        }
    }

    /// Ends the process of the server and returns the event that ended it; none over HTTP.
    pub(super) async fn end_process(&self) -> Option<ProcessEnd> {
        match self {
            Transport::Http(_) => None,
            Transport::Stdio(stdio) => Some(stdio.end().await),
        }
    }
}
