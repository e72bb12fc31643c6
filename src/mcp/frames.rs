//! The bus's notices as messages of MCP: the encoded frames of HTTP streams, and rmcp's types for other
//! transports.
//!
//! A frame that is the same for many streams is encoded once and kept with its notice.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use rmcp::model::{
    NotificationMetaObject, PromptListChangedNotification, ResourceListChangedNotification,
    ResourceUpdatedNotification, ResourceUpdatedNotificationParam, ServerNotification,
    ToolListChangedNotification,
};
use serde_json::json;

use super::convert::etag_meta;
use super::listen_id::ListenId;
use super::revision::{ETAG_META_KEY, Revision};
use crate::auth::{EventId, EventIds, Grant};
use crate::wire::protocol::SUBSCRIPTION_ID_META_KEY;
use crate::{Etag, ListKind, Notice, OutboxEntry, Position, ResourceUri};

/// The cache slots of a notice that MCP's frames use. Each transport has slots of its own: two kinds of
/// frames in one slot would be sent for each other.
mod slot {
    pub(super) const SESSION: usize = 0;
    pub(super) const SESSION_WITH_ID: usize = 1;
    pub(super) const LISTEN: usize = 2;
}

/// A comment that keeps a silent stream open.
pub(crate) const KEEP_ALIVE: Bytes = Bytes::from_static(b":\n\n");

/// The format of a stream's events.
#[derive(Debug)]
pub(crate) enum FrameFormat {
    /// The GET stream of a session. Its events carry positions as ids, for `Last-Event-ID`, in the form that
    /// the rights of the session call for; without rights as they are.
    Session(Revision, Option<Arc<Grant>>),
    /// A listen stream. Every message is tagged with the subscription id, in the JSON type that the client
    /// used.
    Listen(ListenId),
}

impl FrameFormat {
    /// Returns the first bytes of a session's stream.
    pub(crate) fn first_frame(&self, position: Position) -> Bytes {
        match self {
            FrameFormat::Session(revision, grant) if revision.rules().primes_streams => {
                let id = event_ids(grant.as_deref()).of_place(position);
                Bytes::from(format!("id: {id}\nretry: 3000\ndata: \n\n"))
            }
            // Something must be written, or the client does not see the headers.
            _ => KEEP_ALIVE,
        }
    }

    /// Appends one write for all of `entries` to `out`; a client that has read it has everything up to
    /// `position`.
    pub(crate) fn append(&self, entries: &[OutboxEntry], position: Position, out: &mut Vec<u8>) {
        let last = entries.len().saturating_sub(1);
        for (index, entry) in entries.iter().enumerate() {
            match self {
                // Only the last event carries an id: after an earlier one, part of the entries before the
                // position is still unsent, and a client that resumed there would lose it.
                FrameFormat::Session(..) if index < last => {
                    append_session_event(entry, out);
                    out.push(b'\n');
                }
                FrameFormat::Session(_, grant) => {
                    append_last_session_event(entry, position, event_ids(grant.as_deref()), out);
                }
                FrameFormat::Listen(id) => append_listen_event(entry, id, out),
            }
        }
    }
}

/// Returns the form of ids for a session with these rights.
pub(crate) fn event_ids(grant: Option<&Grant>) -> EventIds<'_> {
    match grant {
        Some(grant) => grant.event_ids(),
        None => EventIds::plain(),
    }
}

/// Appends a session's event without its final empty line.
fn append_session_event(entry: &OutboxEntry, out: &mut Vec<u8>) {
    match entry {
        OutboxEntry::Updated(notice) => notice.append_frame(slot::SESSION, session_frame, out),
        // List changes are rare, so their frames are not kept.
        OutboxEntry::ListChanged(kind) => append_data(&list_changed(*kind, None), out),
    }
}

/// Appends a session's event with the id to resume from, usually the position of its own notice.
fn append_last_session_event(entry: &OutboxEntry, position: Position, ids: EventIds<'_>, out: &mut Vec<u8>) {
    let id = match entry {
        OutboxEntry::Updated(notice) if notice.position == position => {
            if ids.are_plain() {
                // The usual case has a slot of its own, since all streams that are up to date send the same
                // id.
                return notice.append_frame(slot::SESSION_WITH_ID, session_frame_with_id, out);
            }
            ids.of_notice(position)
        }
        _ => ids.of_place(position),
    };
    append_session_event(entry, out);
    append_id(id, out);
}

/// Appends the event of a listen stream.
fn append_listen_event(entry: &OutboxEntry, id: &ListenId, out: &mut Vec<u8>) {
    match entry {
        OutboxEntry::Updated(notice) => {
            // The subscription id stands last, so everything before it is the same for all streams.
            notice.append_frame(slot::LISTEN, listen_frame, out);
            out.extend_from_slice(id.as_bytes());
            out.extend_from_slice(b"}}}\n");
        }
        OutboxEntry::ListChanged(kind) => append_data(&list_changed(*kind, Some(id)), out),
    }
    out.push(b'\n');
}

fn append_data(json: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(json.as_bytes());
    out.push(b'\n');
}

fn append_id(id: EventId, out: &mut Vec<u8>) {
    write!(out, "id: {id}\n\n").expect("a vector takes every byte");
}

/// Encodes a session's event, without id and final empty line.
fn session_frame(notice: &Notice) -> Bytes {
    // Written as text, since a tree of JSON values would cost more than the rest. Only the URI may need
    // escapes.
    let uri = json!(notice.uri.as_str());
    let etag = notice.etag;
    Bytes::from(format!(
        "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/updated\",\
         \"params\":{{\"uri\":{uri},\"_meta\":{{\"{ETAG_META_KEY}\":\"{etag}\"}}}}}}\n"
    ))
}

/// Encodes a session's event whose id is the notice's own position.
fn session_frame_with_id(notice: &Notice) -> Bytes {
    let mut frame = session_frame(notice).to_vec();
    append_id(EventId::Plain(notice.position), &mut frame);
    frame.into()
}

/// Encodes a listen stream's event up to the subscription id.
fn listen_frame(notice: &Notice) -> Bytes {
    let uri = json!(notice.uri.as_str());
    let etag = notice.etag;
    Bytes::from(format!(
        "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/updated\",\
         \"params\":{{\"uri\":{uri},\"_meta\":{{\"{ETAG_META_KEY}\":\"{etag}\",\"{SUBSCRIPTION_ID_META_KEY}\":"
    ))
}

fn list_changed(kind: ListKind, subscription: Option<&ListenId>) -> String {
    let method = format!("notifications/{}/list_changed", kind.name());
    match subscription {
        None => format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\"}}"),
        Some(id) => format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\
             \"params\":{{\"_meta\":{{\"{SUBSCRIPTION_ID_META_KEY}\":{}}}}}}}",
            id.text()
        ),
    }
}

/// Returns rmcp's notification of a resource's new version.
pub(crate) fn updated(uri: &ResourceUri, etag: Etag) -> ServerNotification {
    let mut params = ResourceUpdatedNotificationParam::new(uri.as_str());
    params.meta = Some(NotificationMetaObject(etag_meta(etag)));
    ServerNotification::ResourceUpdatedNotification(ResourceUpdatedNotification::new(params))
}

/// Returns an entry as rmcp's notification, for transports whose bytes rmcp writes.
pub(crate) fn notification(entry: &OutboxEntry) -> ServerNotification {
    match entry {
        OutboxEntry::Updated(notice) => updated(&notice.uri, notice.etag),
        OutboxEntry::ListChanged(ListKind::Resources) => {
            ServerNotification::ResourceListChangedNotification(ResourceListChangedNotification::default())
        }
        OutboxEntry::ListChanged(ListKind::Tools) => {
            ServerNotification::ToolListChangedNotification(ToolListChangedNotification::default())
        }
        OutboxEntry::ListChanged(ListKind::Prompts) => {
            ServerNotification::PromptListChangedNotification(PromptListChangedNotification::default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cause;
    use serde_json::value::RawValue;
    use std::time::Instant;

    fn updated_entry(uri: &str, offset: u64) -> OutboxEntry {
        let uri = ResourceUri::new(uri).unwrap();
        let etag = Etag {
            version: 2,
            updated_at: 7,
            life: 0,
        };
        let notice = Notice::new(uri, etag, Cause::Updated, at(offset), Instant::now());
        OutboxEntry::Updated(Arc::new(notice))
    }

    fn at(offset: u64) -> Position {
        Position { epoch: 10, offset }
    }

    fn written(format: &FrameFormat, entries: &[OutboxEntry], position: Position) -> String {
        let mut out = Vec::new();
        format.append(entries, position, &mut out);
        String::from_utf8(out).unwrap()
    }

    const UPDATED: &str = r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"demo://a","_meta":{"io.github.tidings/etag":"v2-7"}}}"#;

    #[test]
    fn session_event_id_is_safe_resume_position() {
        let format = FrameFormat::Session(Revision::R2025_06_18, None);
        assert_eq!(
            written(&format, &[updated_entry("demo://a", 3)], at(3)),
            format!("data: {UPDATED}\nid: a-3\n\n")
        );
        assert_eq!(
            written(&format, &[updated_entry("demo://a", 3)], at(2)),
            format!("data: {UPDATED}\nid: a-2\n\n")
        );
    }

    #[test]
    fn several_session_events_only_last_has_id() {
        let format = FrameFormat::Session(Revision::R2025_11_25, None);
        let entries = [
            OutboxEntry::ListChanged(ListKind::Tools),
            updated_entry("demo://a", 3),
        ];
        let list = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        assert_eq!(
            written(&format, &entries, at(3)),
            format!("data: {list}\n\ndata: {UPDATED}\nid: a-3\n\n")
        );
    }

    #[test]
    fn listen_event_id_keeps_its_json_type() {
        for id in ["7", "\"listen:0\"", "\"quo\\\"te\""] {
            let format = FrameFormat::Listen(ListenId::new(&RawValue::from_string(id.into()).unwrap()));
            let entries = [
                updated_entry("demo://\"q", 3),
                OutboxEntry::ListChanged(ListKind::Prompts),
            ];
            let frames = written(&format, &entries, at(3));
            let events: Vec<serde_json::Value> = frames
                .split_terminator("\n\n")
                .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
                .collect();
            let expected: serde_json::Value = serde_json::from_str(id).unwrap();
            for event in &events {
                assert_eq!(event["params"]["_meta"][SUBSCRIPTION_ID_META_KEY], expected);
            }
            assert_eq!(events[0]["params"]["uri"], "demo://\"q");
            assert_eq!(events[0]["params"]["_meta"][ETAG_META_KEY], "v2-7");
            assert_eq!(events[1]["method"], "notifications/prompts/list_changed");
        }
    }

    #[test]
    fn first_frame_is_primed_on_2025_11_25_only() {
        let primed = Revision::ALL.map(|revision| {
            FrameFormat::Session(revision, None)
                .first_frame(at(5))
                .starts_with(b"id: a-5")
        });
        assert_eq!(primed, [false, false, false, true, false]);
    }
}
