//! The two ways to a server behind one face: messages out, answers back, all else into the log.
//!
//! Owns nothing but the choice. It knows what a message looks like and not what it means.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Duration;

use super::http::HttpWire;
use super::log::Log;
use super::stdio::{Ending, StdioWire};
use crate::client::Target;

/// Nothing larger is read from a server: a line, an event, or the body of an answer.
pub(super) const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Nobody is there.
    Unreachable(String),
    /// There was no answer in time.
    Late(Duration),
    /// What came makes no sense, or the connection broke off.
    Broken(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Unreachable(reason) | Trouble::Broken(reason) => f.write_str(reason),
            Trouble::Late(limit) => write!(f, "no answer within {limit:?}"),
        }
    }
}

/// What was answered to a request.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// The status, over HTTP.
    pub(super) status: Option<u16>,
    /// The message; null when there was none.
    pub(super) message: Value,
}

impl Answer {
    pub(super) fn result(&self) -> Option<&Value> {
        self.message.get("result")
    }

    pub(super) fn code(&self) -> Option<i64> {
        self.message["error"]["code"].as_i64()
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code(), self.result(), self.status) {
            (Some(code), ..) => {
                let text = self.message["error"]["message"].as_str().unwrap_or_default();
                write!(f, "error {code} ({text})")?;
            }
            (None, Some(_), _) => f.write_str("a result")?,
            (None, None, _) => f.write_str("no message")?,
        }
        match self.status {
            Some(status) if status != 200 => write!(f, " with HTTP status {status}"),
            _ => Ok(()),
        }
    }
}

pub(super) enum Wire {
    Http(HttpWire),
    Stdio(Box<StdioWire>),
}

impl Wire {
    pub(super) fn open(target: &Target, log: Arc<Log>, limit: Duration) -> Result<Wire, Trouble> {
        Ok(match target {
            Target::Http(url) => Wire::Http(HttpWire::new(url, log, limit)?),
            Target::Command(command) => Wire::Stdio(Box::new(StdioWire::spawn(command, log, limit)?)),
        })
    }

    pub(super) fn is_http(&self) -> bool {
        matches!(self, Wire::Http(_))
    }

    pub(super) async fn request(&self, id: Value, method: &str, params: Value) -> Result<Answer, Trouble> {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        match self {
            Wire::Http(wire) => wire.request(&message).await,
            Wire::Stdio(wire) => wire.request(&message).await,
        }
    }

    pub(super) async fn notify(&self, method: &str, params: Value) -> Result<(), Trouble> {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        match self {
            Wire::Http(wire) => wire.send(&message).await,
            Wire::Stdio(wire) => wire.send(&message).await,
        }
    }

    /// Sends a listen request, all of whose messages go to the log.
    pub(super) async fn listen(&self, id: Value, params: Value) -> Result<(), Trouble> {
        let message =
            json!({ "jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": params });
        match self {
            Wire::Http(wire) => wire.listen(&message).await,
            Wire::Stdio(wire) => wire.send(&message).await,
        }
    }

    /// Opens the session's stream; answers the status with which it was refused.
    pub(super) async fn open_stream(&self) -> Result<Option<u16>, Trouble> {
        match self {
            Wire::Http(wire) => wire.open_stream().await,
            Wire::Stdio(_) => Ok(None),
        }
    }

    /// From now on requests belong to this session and revision.
    pub(super) fn settle(&self, revision: &str) {
        if let Wire::Http(wire) = self {
            wire.settle(revision);
        }
    }

    /// Ends the process behind it, and says what it took; none over HTTP.
    pub(super) async fn end(&self) -> Option<Ending> {
        match self {
            Wire::Http(_) => None,
            Wire::Stdio(wire) => Some(wire.end().await),
        }
    }
}

/// The answer to a request of the server: pings are answered, all else we cannot do.
pub(super) fn reply(request: &Value) -> Option<Value> {
    let id = request.get("id")?;
    Some(if request.get("method")? == "ping" {
        json!({ "jsonrpc": "2.0", "id": id, "result": {} })
    } else {
        json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "Method not found" } })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_of_the_server_are_answered() {
        let ping = json!({ "id": 4, "method": "ping" });
        assert_eq!(reply(&ping).unwrap()["result"], json!({}));
        let roots = json!({ "id": "r", "method": "roots/list" });
        assert_eq!(reply(&roots).unwrap()["error"]["code"], -32601);
        assert_eq!(reply(&json!({ "method": "notifications/message" })), None);
        assert_eq!(reply(&json!({ "id": 1, "result": {} })), None);
    }

    #[test]
    fn an_answer_says_what_it_is() {
        let answer = |status, message| Answer { status, message }.to_string();
        assert_eq!(answer(None, json!({ "result": {} })), "a result");
        assert_eq!(
            answer(Some(404), json!({ "error": { "code": -32601, "message": "no" } })),
            "error -32601 (no) with HTTP status 404"
        );
        assert_eq!(answer(Some(500), Value::Null), "no message with HTTP status 500");
    }
}
