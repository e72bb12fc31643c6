//! Reads records from the servers that keep the log, without a consumer.
//!
//! A consumer is made by the leader of all streams. While that one is being elected, the log may have a
//! leader and take changes, and what it takes is read in this way.

use std::time::{Duration, SystemTime};

use async_nats::header::NATS_LAST_SEQUENCE;
use async_nats::jetstream::message::StreamMessage;
use async_nats::{Client, HeaderMap, Message, Subject, SubscribeError, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::json;

/// The header with the number of records that are there after a record.
const NUM_PENDING: &str = "Nats-Num-Pending";

/// The time for which the next record of an answer is waited for.
const NEXT_TIMEOUT: Duration = Duration::from_millis(300);

/// The bytes of records that are asked for at once.
const BATCH_BYTES: usize = 4 << 20;

/// A record as it came, from a consumer or from a server that keeps the log.
pub(super) struct Delivery {
    pub(super) sequence: u64,
    pub(super) subject: Subject,
    pub(super) payload: Bytes,
    pub(super) published: SystemTime,
    /// The number of records after it that the log had.
    pub(super) pending: u64,
}

/// Requests for records to any server that keeps the log.
pub(super) struct DirectReader {
    client: Client,
    subject: String,
    inbox: String,
    answers: Subscriber,
    /// The number of requests so far, which names the answers of each.
    asked: u64,
}

impl DirectReader {
    /// Begins to take answers about a stream.
    pub(super) async fn start(client: Client, stream: &str) -> Result<DirectReader, SubscribeError> {
        let inbox = client.new_inbox();
        Ok(DirectReader {
            subject: format!("$JS.API.DIRECT.GET.{stream}"),
            answers: client.subscribe(format!("{inbox}.*")).await?,
            inbox,
            client,
            asked: 0,
        })
    }

    /// Returns at most `max` records after the place `heard`, in their order. None come if there are none, or
    /// if the server that was asked does not answer.
    pub(super) async fn next(&mut self, heard: u64, max: usize) -> Vec<Delivery> {
        self.asked += 1;
        let answers = format!("{}.{}", self.inbox, self.asked);
        let request = json!({ "seq": heard + 1, "batch": max, "max_bytes": BATCH_BYTES });
        let request = request.to_string().into();
        let sent = self
            .client
            .publish_with_reply(self.subject.clone(), answers.clone(), request);
        if sent.await.is_err() {
            return Vec::new();
        }
        let mut records = Vec::new();
        // The client ends with its connection, and so do the answers.
        while let Ok(Some(message)) = tokio::time::timeout(NEXT_TIMEOUT, self.answers.next()).await {
            // A late one, to a request before.
            if message.subject.as_str() != answers {
                continue;
            }
            let before = records.last().map(|record: &Delivery| record.sequence);
            match read(message, before) {
                Some(record) if record.sequence > heard => records.push(record),
                _ => break,
            }
        }
        records
    }
}

/// Reads a record that follows the one at `before`; none at the end of an answer, or if one is missing.
fn read(message: Message, before: Option<u64>) -> Option<Delivery> {
    // The end has a status, and so has an answer without records.
    if message.status.is_some() {
        return None;
    }
    let pending = number(message.headers.as_ref()?, NUM_PENDING)?;
    let last = number(message.headers.as_ref()?, NATS_LAST_SEQUENCE.as_ref())?;
    if last != before.unwrap_or(0) {
        return None;
    }
    let record = StreamMessage::try_from(message).ok()?;
    Some(Delivery {
        sequence: record.sequence,
        subject: record.subject,
        payload: record.payload,
        published: record.time.into(),
        pending,
    })
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get_last(name)?.as_str().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_nats::StatusCode;

    fn message(headers: &[(&str, &str)], status: Option<StatusCode>) -> Message {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, *value);
        }
        Message {
            subject: "inbox.1".into(),
            reply: None,
            payload: Bytes::from_static(b"body"),
            headers: Some(map),
            status,
            description: None,
            length: 0,
        }
    }

    fn record(sequence: &'static str, last: &'static str) -> Message {
        let headers = [
            ("Nats-Sequence", sequence),
            ("Nats-Last-Sequence", last),
            ("Nats-Num-Pending", "3"),
            ("Nats-Subject", "tidings.x.r.1"),
            ("Nats-Time-Stamp", "2026-11-27T15:00:00.000000001Z"),
        ];
        message(&headers, None)
    }

    #[test]
    fn records_are_read_as_far_as_none_is_missing() {
        let first = read(record("7", "0"), None).unwrap();
        assert_eq!((first.sequence, first.pending), (7, 3));
        assert_eq!(first.subject.as_str(), "tidings.x.r.1");
        assert_eq!(first.payload, "body");
        assert_eq!(read(record("9", "7"), Some(7)).unwrap().sequence, 9);
        assert!(read(record("11", "9"), Some(7)).is_none());
        assert!(read(record("x", "7"), Some(7)).is_none());
        for status in [StatusCode::from_u16(204), StatusCode::from_u16(404)] {
            assert!(read(message(&[], Some(status.unwrap())), None).is_none());
        }
        assert!(read(message(&[], None), None).is_none());
    }
}
