//! A delivery as a JSON object: the line of a journal, and the data of a webhook.
//!
//! Owns: the names of the fields and their order; `time` comes first, by which a torn line is known as one of ours.
//! Never: writes anything. Pure, but for the clock that turns the bus's time into the calendar's.

use std::time::SystemTime;

use serde::Serialize;
use tidings_actors::NoticeKind;
use tidings_actors::attach::Delivery;

use crate::timestamp;

/// How every line of ours begins.
pub(super) const BEGINS: &[u8] = b"{\"time\":\"";

/// The kind of a record that stands for what is missing.
pub(super) const GAP: &str = "gap";

/// A delivery in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Record {
    /// When the change passed the door; for a list or a gap, when it was handed over.
    pub(super) time: String,
    /// Counts the records of one sink.
    pub(super) seq: u64,
    /// The name of the kind, or `gap`.
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) etag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) position: Option<String>,
    /// How many deliveries are missing here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lost: Option<u64>,
}

impl Record {
    /// The record of `delivery`; none for a trace.
    pub(super) fn of(delivery: &Delivery, seq: u64) -> Option<Record> {
        let now = SystemTime::now();
        let mut record = Record {
            time: String::new(),
            seq,
            kind: delivery.kind().map_or(GAP, NoticeKind::name),
            uri: None,
            etag: None,
            position: None,
            lost: None,
        };
        let mut at = now;
        match delivery {
            Delivery::Notice(notice) => {
                at = now.checked_sub(notice.at.elapsed()).unwrap_or(now);
                record.uri = Some(notice.uri.to_string());
                record.etag = Some(notice.etag.to_string());
                record.position = Some(notice.position.to_string());
            }
            Delivery::List(_, position) => record.position = Some(position.to_string()),
            Delivery::Gap(gap) => record.lost = Some(gap.lost),
            Delivery::Trace(_) => return None,
        }
        record.time = timestamp::utc_millis(at);
        Some(record)
    }

    /// The record with its line feed.
    pub(super) fn line(&self) -> Vec<u8> {
        line(self)
    }
}

/// `value` as a line of JSON, with its line feed.
pub(super) fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("records hold texts and numbers alone");
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use tidings_actors::attach::Gap;
    use tidings_actors::{Cause, Etag, ListKind, Notice, Position, ResourceUri};

    const POSITION: Position = Position {
        epoch: 0x1f,
        offset: 7,
    };

    fn text(delivery: &Delivery) -> String {
        let line = Record::of(delivery, 3).unwrap().line();
        assert!(line.starts_with(BEGINS) && line.ends_with(b"}\n"));
        let text = String::from_utf8(line).unwrap();
        // What differs from run to run is the time, which has a fixed length.
        format!("{}…{}", &text[..9], &text[33..].trim_end())
    }

    #[test]
    fn each_delivery_has_its_fields_in_their_order() {
        let uri = ResourceUri::new("demo://a").unwrap();
        let etag = Etag {
            version: 2,
            updated_at: 9,
        };
        let notice = Notice::new(uri, etag, Cause::Removed, POSITION, Instant::now());
        for (delivery, expected) in [
            (
                Delivery::Notice(Arc::new(notice)),
                r#"{"time":"…","seq":3,"kind":"removed","uri":"demo://a","etag":"v2-9","position":"1f-7"}"#,
            ),
            (
                Delivery::List(ListKind::Tools, POSITION),
                r#"{"time":"…","seq":3,"kind":"tools_list_changed","position":"1f-7"}"#,
            ),
            (
                Delivery::Gap(Gap { lost: 4 }),
                r#"{"time":"…","seq":3,"kind":"gap","lost":4}"#,
            ),
        ] {
            assert_eq!(text(&delivery), expected);
        }
    }

    #[test]
    fn the_time_is_that_of_the_change() {
        let uri = ResourceUri::new("demo://a").unwrap();
        let Some(at) = Instant::now().checked_sub(Duration::from_secs(60)) else {
            return;
        };
        let notice = Notice::new(uri, Etag::UNKNOWN, Cause::Updated, POSITION, at);
        let record = Record::of(&Delivery::Notice(Arc::new(notice)), 1).unwrap();
        let early = timestamp::utc_millis(SystemTime::now() - Duration::from_secs(30));
        assert!(record.time < early, "{record:?}");
    }
}
