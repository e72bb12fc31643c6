//! Answers of the server under test, and the errors of a transport that gets none.

use std::fmt;

use serde_json::Value;
use tokio::time::Duration;

use crate::client::CredentialsError;
use crate::credentials::Challenge;

/// The limit on a line, an event, or the body of an answer.
///
/// It keeps a server that never ends its message from filling the memory of the check.
pub(super) const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// An error of the connection to the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TransportError {
    /// The server could not be connected to, or its program could not be started.
    #[error("{0}")]
    Unreachable(String),
    /// The answer did not arrive in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The server refused to open a stream, with this HTTP status.
    #[error("HTTP status {0}")]
    Refused(u16),
    /// The server refused the client.
    #[error("{0}")]
    Denied(Challenge),
    /// The credentials cannot be used.
    #[error(transparent)]
    Credentials(CredentialsError),
    /// The server answered that it does not speak the revision.
    #[error("{0}")]
    NotSpoken(String),
    /// The answer was malformed, or the connection broke off.
    #[error("{0}")]
    Broken(String),
}

/// The answer to one request.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// The HTTP status; none over standard output.
    pub(super) status: Option<u16>,
    /// The JSON-RPC message; null when the body held none.
    pub(super) message: Value,
}

impl Answer {
    /// Returns the result, if the server answered with one.
    pub(super) fn result(&self) -> Option<&Value> {
        self.message.get("result")
    }

    /// Returns the code of the JSON-RPC error, if the server answered with one.
    pub(super) fn error_code(&self) -> Option<i64> {
        self.message["error"]["code"].as_i64()
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.error_code(), self.result()) {
            (Some(_), _) => write!(f, "{}", describe_error(&self.message["error"]))?,
            (None, Some(_)) => f.write_str("a result")?,
            (None, None) => f.write_str("no JSON-RPC message")?,
        }
        match self.status {
            Some(status) if status != 200 => write!(f, " with HTTP status {status}"),
            _ => Ok(()),
        }
    }
}

/// Describes a JSON-RPC error by its code and message.
pub(super) fn describe_error(error: &Value) -> String {
    let text = error["message"].as_str().unwrap_or_default();
    format!("error {} ({text})", error["code"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answer_is_described_by_code_and_status() {
        let describe = |status, message| Answer { status, message }.to_string();
        assert_eq!(describe(None, json!({ "result": {} })), "a result");
        assert_eq!(
            describe(Some(404), json!({ "error": { "code": -32601, "message": "no" } })),
            "error -32601 (no) with HTTP status 404"
        );
        assert_eq!(
            describe(Some(500), Value::Null),
            "no JSON-RPC message with HTTP status 500"
        );
    }
}
