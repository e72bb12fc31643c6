//! The text of every event of `/v1/events`.
//!
//! Notices are encoded once, by the recorder, for all streams.

use std::fmt;
use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::json;

use super::history::{Incomplete, Resumption};
use crate::{ListKind, Notice, NoticeKind};

/// A comment that keeps the connection alive.
pub(super) const KEEP_ALIVE: Bytes = Bytes::from_static(b":\n\n");

/// The end of a notice, from the end of its JSON object on.
pub(super) const NOTICE_TAIL: &str = "}\n\n";

/// The bytes of a notice beside its URI, unless the URI needs escapes.
const NOTICE_BYTES: usize = 160;

/// Encodes the change of a resource.
pub(super) fn notice(notice: &Notice) -> Bytes {
    let kind = NoticeKind::from(notice.cause).name();
    let time = milliseconds(SystemTime::now(), notice.at.elapsed());
    let Notice {
        uri,
        position,
        etag,
        replaced,
        ..
    } = notice;
    let mut text = Vec::with_capacity(NOTICE_BYTES + uri.as_str().len());
    write_text(
        &mut text,
        format_args!("id: {position}\nevent: {kind}\ndata: {{\"kind\":\"{kind}\",\"uri\":"),
    );
    serde_json::to_writer(&mut text, uri.as_str()).expect("a buffer that grows takes any text");
    write_text(&mut text, format_args!(",\"etag\":\"{etag}\",\"time\":{time}"));
    if *replaced > 0 {
        write_text(&mut text, format_args!(",\"replaced\":{replaced}"));
    }
    text.extend_from_slice(NOTICE_TAIL.as_bytes());
    // A copy, because the history keeps the frame and must not keep the room that was left.
    Bytes::copy_from_slice(&text)
}

fn write_text(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a buffer that grows takes any text");
}

/// Encodes the change of a list.
pub(super) fn list(list: ListKind, id: impl fmt::Display) -> Bytes {
    let kind = NoticeKind::List(list).name();
    let time = milliseconds(SystemTime::now(), Duration::ZERO);
    let list = list.name();
    Bytes::from(format!(
        "id: {id}\nevent: {kind}\ndata: {{\"kind\":\"{kind}\",\"list\":\"{list}\",\"time\":{time}}}\n\n"
    ))
}

/// Encodes a gap: `missed` events are missing, and the stream continues after `from`. None is for a client
/// with rights: events that it may not see are among them, and their number is not told.
pub(super) fn gap(missed: Option<u64>, reason: Incomplete, from: impl fmt::Display) -> Bytes {
    let missed = json!(missed);
    let reason = reason.name();
    Bytes::from(format!(
        "id: {from}\nevent: gap\n\
         data: {{\"missed\":{missed},\"from\":\"{from}\",\"reason\":\"{reason}\"}}\n\n"
    ))
}

/// Encodes the first event of a stream, which continues after `from`.
pub(super) fn resumed(resumption: &Resumption, from: impl fmt::Display, retry: Duration) -> Bytes {
    let Resumption {
        complete,
        missed,
        reason,
        ..
    } = resumption;
    let missed = json!(missed);
    let reason = match reason {
        Some(reason) => format!(",\"reason\":\"{}\"", reason.name()),
        None => String::new(),
    };
    let retry = retry.as_millis();
    Bytes::from(format!(
        "retry: {retry}\nid: {from}\nevent: resumed\n\
         data: {{\"complete\":{complete},\"from\":\"{from}\",\"missed\":{missed}{reason}}}\n\n"
    ))
}

/// Encodes the last event of a stream that the service ends.
pub(super) fn end(reason: &str) -> Bytes {
    Bytes::from(format!("event: end\ndata: {{\"reason\":\"{reason}\"}}\n\n"))
}

/// Encodes a keep-alive that moves the client's last event id, for a client whose filter has let no event
/// pass for a while. It has no data, so browsers dispatch no event.
pub(super) fn progress(id: impl fmt::Display) -> Bytes {
    Bytes::from(format!("id: {id}\n\n"))
}

/// Returns a frame with another id in its first line.
pub(super) fn with_id(frame: &[u8], id: impl fmt::Display) -> Bytes {
    let mut text = format!("id: {id}").into_bytes();
    // Every frame of the history begins with its id.
    let end = frame.iter().position(|byte| *byte == b'\n');
    text.extend_from_slice(&frame[end.unwrap_or(frame.len())..]);
    text.into()
}

fn milliseconds(now: SystemTime, ago: Duration) -> u128 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.saturating_sub(ago).as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cause, Etag, Position, ResourceUri};
    use std::time::Instant;

    const AT: Position = Position { epoch: 10, offset: 3 };

    #[test]
    fn notice_with_quotes_in_uri_is_one_event() {
        let uri = ResourceUri::new("demo://a?q=\"x\"").unwrap();
        let etag = Etag {
            version: 2,
            updated_at: 7,
            life: 0,
        };
        let frame = notice(&Notice::new(uri, etag, Cause::Removed, AT, Instant::now()));
        let text = std::str::from_utf8(&frame).unwrap();
        let data = text.strip_prefix("id: a-3\nevent: removed\ndata: ").unwrap();
        let data: serde_json::Value = serde_json::from_str(data.strip_suffix("\n\n").unwrap()).unwrap();
        assert_eq!(
            (&data["uri"], &data["etag"], &data["kind"]),
            (&json!("demo://a?q=\"x\""), &json!("v2-7"), &json!("removed"))
        );
        assert!(data["time"].as_u64().unwrap() > 1_700_000_000_000);
    }

    fn text(frame: &Bytes) -> String {
        String::from_utf8(frame.to_vec()).unwrap()
    }

    #[test]
    fn other_events_have_documented_text() {
        assert_eq!(
            text(&gap(Some(7), Incomplete::Forgotten, AT)),
            "id: a-3\nevent: gap\ndata: {\"missed\":7,\"from\":\"a-3\",\"reason\":\"forgotten\"}\n\n"
        );
        assert_eq!(
            text(&end("shutdown")),
            "event: end\ndata: {\"reason\":\"shutdown\"}\n\n"
        );
        assert_eq!(text(&progress(AT)), "id: a-3\n\n");
        let unknown = Resumption {
            complete: false,
            from: AT,
            missed: None,
            reason: Some(Incomplete::AnotherHistory),
        };
        assert_eq!(
            text(&resumed(&unknown, AT, Duration::from_secs(3))),
            "retry: 3000\nid: a-3\nevent: resumed\ndata: {\"complete\":false,\"from\":\"a-3\",\"missed\":null,\"reason\":\"another history\"}\n\n"
        );
        assert_eq!(text(&with_id(&progress(AT), "sealed")), "id: sealed\n\n");
        let listed = text(&list(ListKind::Tools, AT));
        assert!(listed.starts_with(
            "id: a-3\nevent: tools_list_changed\ndata: {\"kind\":\"tools_list_changed\",\"list\":\"tools\",\"time\":"
        ));
    }
}
