//! The JSON messages of `/v1/ws`, in both directions.
//!
//! A notice is encoded once for all connections, and its frame is kept with it.

use std::collections::BTreeMap;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::auth::{Caller, EventId, EventIds};
use crate::http::notice_body::{NoticeBodies, NoticeFrame};
use crate::{Cause, ListKind, Notice};

/// The slot of this transport among the frames that a notice keeps; MCP uses the others.
const SLOT: usize = 3;

/// The number of names that one request may have.
pub(super) const NAMES_MAX: usize = 1_000;

/// A request of a client.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(in crate::http) enum ClientMessage {
    /// Begin to send changes.
    Subscribe {
        #[serde(default)]
        id: Value,
        #[serde(default)]
        uris: Vec<String>,
        #[serde(default)]
        lists: Vec<String>,
        /// URIs, prefixes that end with `*`, and RFC 6570 templates, as `/v1/events` takes them. The etags of
        /// their resources are not told.
        #[serde(default)]
        patterns: Vec<String>,
        /// Further URIs, with the etags that the client has. A resource that is at another one is sent at
        /// once, and one that does not exist is waited for.
        #[serde(default)]
        known: BTreeMap<String, Option<String>>,
    },
    /// Send no more changes.
    Unsubscribe {
        #[serde(default)]
        id: Value,
        #[serde(default)]
        uris: Vec<String>,
        #[serde(default)]
        lists: Vec<String>,
        #[serde(default)]
        patterns: Vec<String>,
    },
    /// Answer, to show that the connection works.
    Ping {
        #[serde(default)]
        id: Value,
    },
}

impl ClientMessage {
    /// Reads a request.
    ///
    /// # Errors
    /// The message to send back.
    pub(super) fn parse(text: &str) -> Result<ClientMessage, Message> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| failed(&Value::Null, &format!("no JSON: {error}")))?;
        let id = value.get("id").cloned().unwrap_or_default();
        let request: ClientMessage = serde_json::from_value(value).map_err(|error| {
            let error = error.to_string();
            // An unknown type is answered with the list of those that exist already.
            let hint = match error.contains("expected one of") {
                true => "",
                false => "; see subscribe, unsubscribe and ping",
            };
            failed(&id, &format!("no request: {error}{hint}"))
        })?;
        // Bounded, as one request is carried out as a whole before the next is read.
        match request.names() {
            0..=NAMES_MAX => Ok(request),
            names => Err(failed(
                &id,
                &format!("the request has {names} names; send {NAMES_MAX} at most, and several requests"),
            )),
        }
    }

    /// Returns the id by which the client knows the answer.
    pub(super) fn id(&self) -> &Value {
        match self {
            ClientMessage::Subscribe { id, .. }
            | ClientMessage::Unsubscribe { id, .. }
            | ClientMessage::Ping { id } => id,
        }
    }

    fn names(&self) -> usize {
        match self {
            ClientMessage::Subscribe {
                uris,
                lists,
                patterns,
                known,
                ..
            } => uris.len() + lists.len() + patterns.len() + known.len(),
            ClientMessage::Unsubscribe {
                uris,
                lists,
                patterns,
                ..
            } => uris.len() + lists.len() + patterns.len(),
            ClientMessage::Ping { .. } => 0,
        }
    }
}

/// The answer to a request.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(tag = "type", rename = "ack")]
pub(in crate::http) struct Ack {
    pub(super) id: Value,
    /// The URIs, with the etags after which changes are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subscribed: Option<BTreeMap<String, String>>,
    /// The URIs whose changes are no longer sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unsubscribed: Option<Vec<String>>,
    /// The lists whose changes are sent from now on.
    pub(super) lists: Vec<&'static str>,
    /// The patterns whose resources are told of from now on.
    pub(super) patterns: Vec<String>,
    /// The names that were refused, with the reasons.
    pub(super) refused: BTreeMap<String, String>,
}

impl Ack {
    /// Makes the answer to the request with this id.
    pub(super) fn to(id: Value) -> Ack {
        Ack { id, ..Ack::default() }
    }

    pub(super) fn refuse(&mut self, name: &str, reason: String) {
        self.refused.insert(name.to_owned(), reason);
    }

    pub(super) fn message(&self) -> Message {
        text(json!(self).to_string())
    }
}

/// Encodes the change or the removal of a resource.
pub(super) fn notice(notice: &Notice, ids: EventIds<'_>) -> Message {
    text_of(notice_frame(notice, ids))
}

/// Encodes the change or the removal of a resource, the former with its content.
pub(super) fn notice_with_content(
    notice: &Notice,
    ids: EventIds<'_>,
    (bodies, caller): (&NoticeBodies, &Caller),
) -> Message {
    let frame = notice_frame(notice, ids);
    if notice.cause == Cause::Removed {
        return text_of(frame);
    }
    let notice = NoticeFrame {
        uri: &notice.uri,
        etag: notice.etag,
        frame: &frame,
        tail: 1,
    };
    text_of(bodies.frame(caller, &notice))
}

/// Encodes a notice; its frame is shared by the clients that may know its position.
fn notice_frame(notice: &Notice, ids: EventIds<'_>) -> Bytes {
    match ids.are_plain() {
        true => notice.frame(SLOT, |notice| new_frame(notice, EventId::Plain(notice.position))),
        false => new_frame(notice, ids.of_notice(notice.position)),
    }
}

fn new_frame(notice: &Notice, position: EventId) -> Bytes {
    let kind = match notice.cause {
        Cause::Updated => "updated",
        Cause::Removed => "removed",
    };
    let uri = json!(notice.uri.as_str());
    let etag = notice.etag;
    Bytes::from(format!(
        "{{\"type\":\"{kind}\",\"uri\":{uri},\"etag\":\"{etag}\",\"position\":\"{position}\"}}"
    ))
}

fn text_of(frame: Bytes) -> Message {
    Message::Text(Utf8Bytes::try_from(frame).unwrap_or_default())
}

/// Encodes a gap: so many changes of resources that match patterns are not told, because too many waited.
pub(super) fn gap(missed: u64) -> Message {
    text(json!({ "type": "gap", "missed": missed }).to_string())
}

/// Encodes the change of a list.
pub(super) fn list_changed(list: ListKind, position: EventId) -> Message {
    let list = list.name();
    text(format!(
        "{{\"type\":\"list_changed\",\"list\":\"{list}\",\"position\":\"{position}\"}}"
    ))
}

/// Encodes the answer to a ping.
pub(super) fn pong(id: &Value) -> Message {
    text(json!({ "type": "pong", "id": id }).to_string())
}

/// Encodes the error of a request that was not carried out.
pub(super) fn failed(id: &Value, message: &str) -> Message {
    text(json!({ "type": "error", "id": id, "message": message }).to_string())
}

fn text(json: String) -> Message {
    Message::Text(json.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Etag, Position, ResourceUri};
    use std::time::Instant;

    fn sent(message: &Message) -> Value {
        serde_json::from_str(message.to_text().unwrap()).unwrap()
    }

    #[test]
    fn invalid_request_is_answered_with_its_fault() {
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
            let error = sent(&ClientMessage::parse(text).unwrap_err());
            assert_eq!((&error["type"], &error["id"]), (&json!("error"), &id), "{text}");
            assert!(error["message"].as_str().unwrap().contains(named), "{error}");
        }
        let many = json!({ "type": "subscribe", "uris": vec!["demo://a"; NAMES_MAX + 1] });
        assert!(ClientMessage::parse(&many.to_string()).is_err());
        let enough = json!({ "type": "subscribe", "uris": vec!["demo://a"; NAMES_MAX] });
        assert!(ClientMessage::parse(&enough.to_string()).is_ok());
    }

    #[test]
    fn notice_carries_its_position() {
        let uri = ResourceUri::new("demo://a").unwrap();
        let position = Position { epoch: 10, offset: 3 };
        for (cause, kind) in [(Cause::Updated, "updated"), (Cause::Removed, "removed")] {
            let updated = Notice::new(uri.clone(), Etag::UNKNOWN, cause, position, Instant::now());
            assert_eq!(
                sent(&notice(&updated, EventIds::plain())),
                json!({ "type": kind, "uri": "demo://a", "etag": Etag::UNKNOWN.to_string(), "position": "a-3" })
            );
        }
    }
}
