//! A delivery as a JSON object: a line of a journal, and the data of a webhook.

use std::time::SystemTime;

use serde::Serialize;
use tidings_actors::attach::Delivery;

use crate::timestamp;

/// The beginning of every line: `time` is the first field, so a torn line is recognized as one of ours.
pub(super) const LINE_START: &[u8] = b"{\"time\":\"";

/// The kind of a record that stands for lost deliveries.
pub(super) const GAP: &str = "gap";

/// A delivery as a JSON object. The order of the fields is that in the output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Record {
    /// The time at which the change was admitted, of a change before a restart that of its etag; for a list
    /// or a gap, the time of the delivery.
    pub(super) time: String,
    /// The number of the record, counted per sink.
    pub(super) seq: u64,
    /// The name of the kind, or `gap`.
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) etag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) position: Option<String>,
    /// The older changes of the resource that this one has replaced in the log of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replaced: Option<u64>,
    /// The number of deliveries that were lost before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lost: Option<u64>,
}

impl Record {
    /// Returns the record of `delivery`, or `None` for a trace.
    pub(super) fn of(delivery: &Delivery, seq: u64) -> Option<Record> {
        let now = SystemTime::now();
        let mut record = Record {
            time: String::new(),
            seq,
            kind: match delivery.kind() {
                Some(kind) => kind.name(),
                None => GAP,
            },
            uri: None,
            etag: None,
            position: None,
            replaced: None,
            lost: None,
        };
        let mut at = now;
        match delivery {
            Delivery::Notice(notice) => {
                // The bus keeps monotonic times, so the calendar time is that of now less the age.
                at = now.checked_sub(notice.at.elapsed()).unwrap_or(now);
                record.uri = Some(notice.uri.to_string());
                record.etag = Some(notice.etag.to_string());
                record.position = Some(notice.position.to_string());
                record.replaced = (notice.replaced > 0).then_some(notice.replaced);
            }
            Delivery::List(_, position) => record.position = Some(position.to_string()),
            Delivery::Gap(gap) => {
                record.lost = Some(gap.lost);
                record.position = gap.position.map(|position| position.to_string());
            }
            Delivery::Trace(_) => return None,
        }
        record.time = timestamp::utc_millis(at);
        Some(record)
    }

    /// Returns the record as a line.
    pub(super) fn line(&self) -> Vec<u8> {
        line(self)
    }
}

/// Returns `value` as a line of JSON, with its line feed.
pub(super) fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("records hold only texts and numbers");
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
        assert!(line.starts_with(LINE_START) && line.ends_with(b"}\n"));
        let text = String::from_utf8(line).unwrap();
        // The time differs from run to run but has a fixed length.
        format!("{}…{}", &text[..9], &text[33..].trim_end())
    }

    #[test]
    fn deliveries_have_their_fields_in_order() {
        let uri = ResourceUri::new("demo://a").unwrap();
        let etag = Etag {
            version: 2,
            updated_at: 9,
            life: 0,
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
                Delivery::Gap(Gap {
                    lost: 4,
                    position: Some(POSITION),
                }),
                r#"{"time":"…","seq":3,"kind":"gap","position":"1f-7","lost":4}"#,
            ),
        ] {
            assert_eq!(text(&delivery), expected);
        }
    }

    #[test]
    fn time_is_that_of_the_change() {
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
