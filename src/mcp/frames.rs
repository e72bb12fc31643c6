//! The five revisions, and what each of them looks like on the wire. Everything else is blind to revisions.
//!
//! Owns: [`Revision`], the `_meta` keys, and the frames of streams. Never: decides who is told (the bus does) or
//! writes to a socket. A frame that is the same for many streams is encoded once and kept with its notice.

use bytes::Bytes;
use serde_json::json;
use serde_json::value::RawValue;

use super::revision::Revision;
pub use crate::wire::dialect::ETAG_META_KEY;
use crate::wire::dialect::SUBSCRIPTION_ID_META_KEY;
use crate::{ListKind, Notice, OutboxEntry, Position};

/// The slots of a notice's shared frames. Number 3 is the WebSocket's, in `sink/ws/message`.
mod slot {
    pub(super) const SESSION: usize = 0;
    pub(super) const SESSION_WITH_ID: usize = 1;
    pub(super) const LISTEN: usize = 2;
}

/// A comment that keeps a silent stream open.
pub(crate) const KEEP_ALIVE: Bytes = Bytes::from_static(b":\n\n");

/// What a stream speaks.
#[derive(Debug)]
pub(crate) enum Wire {
    /// The GET stream of a session. Its events carry positions as ids, for `Last-Event-ID`.
    Session(Revision),
    /// A listen stream: every message is tagged with the subscription id, in its own JSON type.
    Listen(Box<RawValue>),
}

impl Wire {
    /// What the stream begins with.
    pub(crate) fn hello(&self, position: Position) -> Bytes {
        match self {
            Wire::Session(revision) if revision.primes_streams() => {
                Bytes::from(format!("id: {position}\nretry: 3000\ndata: \n\n"))
            }
            // Something must be written for the client to see the headers.
            _ => KEEP_ALIVE,
        }
    }

    /// Appends one write for all of `entries` to `out`; a client that has read it has everything up to `position`.
    pub(crate) fn append(&self, entries: &[OutboxEntry], position: Position, out: &mut Vec<u8>) {
        let last = entries.len().saturating_sub(1);
        for (index, entry) in entries.iter().enumerate() {
            match self {
                // Only the last event may carry an id: before it, not everything up to the position was sent.
                Wire::Session(_) if index < last => {
                    append_session(entry, out);
                    out.push(b'\n');
                }
                Wire::Session(_) => append_last(entry, position, out),
                Wire::Listen(id) => append_listen(entry, id, out),
            }
        }
    }
}

/// The event of a session, without its final empty line.
fn append_session(entry: &OutboxEntry, out: &mut Vec<u8>) {
    match entry {
        OutboxEntry::Updated(notice) => notice.append_frame(slot::SESSION, session_frame, out),
        OutboxEntry::ListChanged(kind) => append_data(&list_changed(*kind, None), out),
    }
}

/// The event of a session with the id to resume from, in the rule the position of its own notice.
fn append_last(entry: &OutboxEntry, position: Position, out: &mut Vec<u8>) {
    if let OutboxEntry::Updated(notice) = entry
        && notice.position == position
    {
        let with_id = |notice: &Notice| {
            let mut frame = session_frame(notice).to_vec();
            append_id(position, &mut frame);
            frame.into()
        };
        return notice.append_frame(slot::SESSION_WITH_ID, with_id, out);
    }
    append_session(entry, out);
    append_id(position, out);
}

/// The event of a listen stream.
fn append_listen(entry: &OutboxEntry, id: &RawValue, out: &mut Vec<u8>) {
    match entry {
        OutboxEntry::Updated(notice) => {
            notice.append_frame(slot::LISTEN, listen_frame, out);
            out.extend_from_slice(id.get().as_bytes());
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

fn append_id(position: Position, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("id: {position}\n\n").as_bytes());
}

/// The event of a session, without id and final empty line.
fn session_frame(notice: &Notice) -> Bytes {
    let (uri, etag) = (json!(notice.uri.as_str()), notice.etag);
    Bytes::from(format!(
        "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/updated\",\
         \"params\":{{\"uri\":{uri},\"_meta\":{{\"{ETAG_META_KEY}\":\"{etag}\"}}}}}}\n"
    ))
}

/// The event of a listen stream up to where the subscription id follows.
fn listen_frame(notice: &Notice) -> Bytes {
    let (uri, etag) = (json!(notice.uri.as_str()), notice.etag);
    Bytes::from(format!(
        "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/updated\",\
         \"params\":{{\"uri\":{uri},\"_meta\":{{\"{ETAG_META_KEY}\":\"{etag}\",\"{SUBSCRIPTION_ID_META_KEY}\":"
    ))
}

fn list_changed(kind: ListKind, subscription: Option<&RawValue>) -> String {
    let method = format!("notifications/{}/list_changed", kind.name());
    match subscription {
        None => format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\"}}"),
        Some(id) => format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\
             \"params\":{{\"_meta\":{{\"{SUBSCRIPTION_ID_META_KEY}\":{}}}}}}}",
            id.get()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cause, Etag, ResourceUri};
    use std::sync::Arc;
    use std::time::Instant;

    fn updated(uri: &str, offset: u64) -> OutboxEntry {
        let (uri, etag) = (
            ResourceUri::new(uri).unwrap(),
            Etag {
                version: 2,
                updated_at: 7,
            },
        );
        let position = Position { epoch: 10, offset };
        OutboxEntry::Updated(Arc::new(Notice::new(
            uri,
            etag,
            Cause::Updated,
            position,
            Instant::now(),
        )))
    }

    fn at(offset: u64) -> Position {
        Position { epoch: 10, offset }
    }

    fn written(wire: &Wire, entries: &[OutboxEntry], position: Position) -> String {
        let mut out = Vec::new();
        wire.append(entries, position, &mut out);
        String::from_utf8(out).unwrap()
    }

    const UPDATED: &str = r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"demo://a","_meta":{"io.github.tidings/etag":"v2-7"}}}"#;

    #[test]
    fn a_sessions_event_carries_the_position_it_is_safe_to_resume_from() {
        let wire = Wire::Session(Revision::R2025_06_18);
        assert_eq!(
            written(&wire, &[updated("demo://a", 3)], at(3)),
            format!("data: {UPDATED}\nid: a-3\n\n")
        );
        assert_eq!(
            written(&wire, &[updated("demo://a", 3)], at(2)),
            format!("data: {UPDATED}\nid: a-2\n\n")
        );
    }

    #[test]
    fn of_several_events_only_the_last_has_an_id() {
        let wire = Wire::Session(Revision::R2025_11_25);
        let entries = [OutboxEntry::ListChanged(ListKind::Tools), updated("demo://a", 3)];
        let list = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        assert_eq!(
            written(&wire, &entries, at(3)),
            format!("data: {list}\n\ndata: {UPDATED}\nid: a-3\n\n")
        );
    }

    #[test]
    fn a_listen_streams_event_is_tagged_with_the_id_in_its_own_type() {
        for id in ["7", "\"listen:0\"", "\"quo\\\"te\""] {
            let wire = Wire::Listen(RawValue::from_string(id.into()).unwrap());
            let entries = [
                updated("demo://\"q", 3),
                OutboxEntry::ListChanged(ListKind::Prompts),
            ];
            let frames = written(&wire, &entries, at(3));
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
    fn only_2025_11_25_is_primed_and_only_2025_03_26_is_silent_and_batched() {
        let primed = |revision| Wire::Session(revision).hello(at(5)).starts_with(b"id: a-5");
        assert_eq!(Revision::ALL.map(primed), [false, false, false, true, false]);
        assert_eq!(
            Revision::ALL.map(Revision::tells_lists),
            [true, false, true, true, false]
        );
        assert_eq!(
            Revision::ALL.map(Revision::takes_batches),
            [false, true, false, false, false]
        );
        assert!(
            Revision::ALL
                .iter()
                .all(|revision| Revision::parse(revision.as_str()) == Some(*revision))
        );
    }
}
