//! What stands on the wire of `/v1/events`.
//!
//! Owns: the text of every event. Never: decides which is due. The recorder has notices encoded once for all streams; a
//! stream has its own verdict, gaps and end encoded.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::json;

use super::history::Verdict;
use crate::{ListKind, Notice, NoticeKind, Position};

/// A comment that shows that the stream is alive.
pub(super) const KEEP_ALIVE: Bytes = Bytes::from_static(b":\n\n");

/// "This resource changed."
pub(super) fn notice(notice: &Notice) -> Bytes {
    let kind = NoticeKind::from(notice.cause).name();
    let time = milliseconds(SystemTime::now(), notice.at.elapsed());
    let (position, uri, etag) = (notice.position, json!(notice.uri.as_str()), notice.etag);
    Bytes::from(format!(
        "id: {position}\nevent: {kind}\n\
         data: {{\"kind\":\"{kind}\",\"uri\":{uri},\"etag\":\"{etag}\",\"time\":{time}}}\n\n"
    ))
}

/// "This list changed."
pub(super) fn list(list: ListKind, position: Position) -> Bytes {
    let kind = NoticeKind::List(list).name();
    let time = milliseconds(SystemTime::now(), Duration::ZERO);
    let list = list.name();
    Bytes::from(format!(
        "id: {position}\nevent: {kind}\ndata: {{\"kind\":\"{kind}\",\"list\":\"{list}\",\"time\":{time}}}\n\n"
    ))
}

/// "Events are missing here; the stream goes on after `from`."
pub(super) fn gap(missed: u64, from: Position) -> Bytes {
    Bytes::from(format!(
        "id: {from}\nevent: gap\ndata: {{\"missed\":{missed},\"from\":\"{from}\"}}\n\n"
    ))
}

/// What a stream begins with.
pub(super) fn verdict(verdict: &Verdict, retry: Duration) -> Bytes {
    let Verdict {
        complete,
        from,
        missed,
    } = verdict;
    let (retry, missed) = (retry.as_millis(), json!(missed));
    Bytes::from(format!(
        "retry: {retry}\nid: {from}\nevent: resumed\n\
         data: {{\"complete\":{complete},\"from\":\"{from}\",\"missed\":{missed}}}\n\n"
    ))
}

/// What a stream ends with when its end is meant.
pub(super) fn end(reason: &str) -> Bytes {
    Bytes::from(format!("event: end\ndata: {{\"reason\":\"{reason}\"}}\n\n"))
}

/// A sign of life that says how far the stream has come, for a client whose filter has let nothing through for a while.
/// It has no data, so the client sees no event.
pub(super) fn progress(position: Position) -> Bytes {
    Bytes::from(format!("id: {position}\n\n"))
}

fn milliseconds(now: SystemTime, ago: Duration) -> u128 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.saturating_sub(ago).as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cause, Etag, ResourceUri};
    use std::time::Instant;

    const AT: Position = Position { epoch: 10, offset: 3 };

    #[test]
    fn a_notice_is_one_event_whatever_its_uri_holds() {
        let uri = ResourceUri::new("demo://a?q=\"x\"").unwrap();
        let etag = Etag {
            version: 2,
            updated_at: 7,
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

    #[test]
    fn the_rest_of_the_vocabulary() {
        let text = |frame: Bytes| String::from_utf8(frame.to_vec()).unwrap();
        assert_eq!(
            text(gap(7, AT)),
            "id: a-3\nevent: gap\ndata: {\"missed\":7,\"from\":\"a-3\"}\n\n"
        );
        assert_eq!(
            text(end("shutdown")),
            "event: end\ndata: {\"reason\":\"shutdown\"}\n\n"
        );
        assert_eq!(text(progress(AT)), "id: a-3\n\n");
        let unknown = Verdict {
            complete: false,
            from: AT,
            missed: None,
        };
        assert_eq!(
            text(verdict(&unknown, Duration::from_secs(3))),
            "retry: 3000\nid: a-3\nevent: resumed\ndata: {\"complete\":false,\"from\":\"a-3\",\"missed\":null}\n\n"
        );
        let listed = text(list(ListKind::Tools, AT));
        assert!(listed.starts_with(
            "id: a-3\nevent: tools_list_changed\ndata: {\"kind\":\"tools_list_changed\",\"list\":\"tools\",\"time\":"
        ));
    }
}
