//! The messages of `/v1/ws`, in both directions.
//!
//! Owns: their JSON. Never: decides what is sent. A notice is encoded once for all connections and kept with it.

use std::collections::BTreeMap;

use axum::extract::ws::{Message, Utf8Bytes};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Cause, Etag, ListKind, Notice, Position};

/// The slot of a notice's frames that is this transport's; the others are MCP's.
const SLOT: usize = 3;

/// Names that one request may have.
pub(super) const NAMES_MAX: usize = 1_000;

/// What a client asks for.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Request {
    /// Begin to tell.
    Subscribe {
        #[serde(default)]
        id: Value,
        #[serde(default)]
        uris: Vec<String>,
        #[serde(default)]
        lists: Vec<String>,
        /// Subscribed to as well; told at once where the etag is another one.
        #[serde(default)]
        known: BTreeMap<String, Option<String>>,
    },
    /// Tell no more.
    Unsubscribe {
        #[serde(default)]
        id: Value,
        #[serde(default)]
        uris: Vec<String>,
        #[serde(default)]
        lists: Vec<String>,
    },
    /// Is anybody there?
    Ping {
        #[serde(default)]
        id: Value,
    },
}

impl Request {
    /// Reads a request; else the error to send.
    pub(super) fn read(text: &str) -> Result<Request, Message> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| failed(&Value::Null, &format!("no JSON: {error}")))?;
        let id = value.get("id").cloned().unwrap_or_default();
        let request: Request = serde_json::from_value(value).map_err(|error| {
            failed(
                &id,
                &format!("no request: {error}; see subscribe, unsubscribe and ping"),
            )
        })?;
        match request.names() {
            0..=NAMES_MAX => Ok(request),
            names => Err(failed(
                &id,
                &format!("the request has {names} names; send {NAMES_MAX} at most, and several requests"),
            )),
        }
    }

    fn names(&self) -> usize {
        match self {
            Request::Subscribe {
                uris, lists, known, ..
            } => uris.len() + lists.len() + known.len(),
            Request::Unsubscribe { uris, lists, .. } => uris.len() + lists.len(),
            Request::Ping { .. } => 0,
        }
    }
}

/// The answer to a request.
#[derive(Debug, Default, Serialize)]
#[serde(tag = "type", rename = "ack")]
pub(super) struct Ack {
    pub(super) id: Value,
    /// From which etags on changes are told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subscribed: Option<BTreeMap<String, String>>,
    /// What is told no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unsubscribed: Option<Vec<String>>,
    /// The lists whose changes are told now.
    pub(super) lists: Vec<&'static str>,
    /// What cannot be, and why.
    pub(super) refused: BTreeMap<String, String>,
}

impl Ack {
    pub(super) fn message(&self) -> Message {
        text(json!(self).to_string())
    }
}

/// "This resource changed", or is gone.
pub(super) fn notice(notice: &Notice) -> Message {
    let frame = notice.frame(SLOT, |notice| {
        let kind = match notice.cause {
            Cause::Updated => "updated",
            Cause::Removed => "removed",
        };
        let (uri, etag, position) = (json!(notice.uri.as_str()), notice.etag, notice.position);
        Bytes::from(format!(
            "{{\"type\":\"{kind}\",\"uri\":{uri},\"etag\":\"{etag}\",\"position\":\"{position}\"}}"
        ))
    });
    Message::Text(Utf8Bytes::try_from(frame).unwrap_or_default())
}

/// "This resource is another one than you know"; no notice of now, so it has no position.
pub(super) fn other(uri: &str, etag: Etag) -> Message {
    text(json!({ "type": "updated", "uri": uri, "etag": etag.to_string() }).to_string())
}

/// "This list changed."
pub(super) fn list_changed(list: ListKind, position: Position) -> Message {
    let list = list.name();
    text(format!(
        "{{\"type\":\"list_changed\",\"list\":\"{list}\",\"position\":\"{position}\"}}"
    ))
}

/// The answer to a ping.
pub(super) fn pong(id: &Value) -> Message {
    text(json!({ "type": "pong", "id": id }).to_string())
}

/// What was wrong with a request; nothing was changed by it.
pub(super) fn failed(id: &Value, message: &str) -> Message {
    text(json!({ "type": "error", "id": id, "message": message }).to_string())
}

fn text(json: String) -> Message {
    Message::Text(json.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ResourceUri;
    use std::time::Instant;

    fn sent(message: &Message) -> Value {
        serde_json::from_str(message.to_text().unwrap()).unwrap()
    }

    #[test]
    fn a_request_that_is_none_is_answered_with_what_is_wrong() {
        for (text, id, named) in [
            ("", json!(null), "no JSON"),
            ("[]", json!(null), "no request"),
            (r#"{"type":"listen","id":7}"#, json!(7), "listen"),
            (
                r#"{"type":"subscribe","id":"a","uri":"demo://a"}"#,
                json!("a"),
                "uri",
            ),
            (
                r#"{"type":"subscribe","id":1,"uris":"demo://a"}"#,
                json!(1),
                "sequence",
            ),
        ] {
            let error = sent(&Request::read(text).unwrap_err());
            assert_eq!((&error["type"], &error["id"]), (&json!("error"), &id), "{text}");
            assert!(error["message"].as_str().unwrap().contains(named), "{error}");
        }
        let many = json!({ "type": "subscribe", "uris": vec!["demo://a"; NAMES_MAX + 1] });
        assert!(Request::read(&many.to_string()).is_err());
        let enough = json!({ "type": "subscribe", "uris": vec!["demo://a"; NAMES_MAX] });
        assert!(Request::read(&enough.to_string()).is_ok());
    }

    #[test]
    fn a_notice_is_told_with_its_position() {
        let uri = ResourceUri::new("demo://a").unwrap();
        let position = Position { epoch: 10, offset: 3 };
        for (cause, kind) in [(Cause::Updated, "updated"), (Cause::Removed, "removed")] {
            let told = Notice::new(uri.clone(), Etag::UNKNOWN, cause, position, Instant::now());
            assert_eq!(
                sent(&notice(&told)),
                json!({ "type": kind, "uri": "demo://a", "etag": Etag::UNKNOWN.to_string(), "position": "a-3" })
            );
        }
    }
}
