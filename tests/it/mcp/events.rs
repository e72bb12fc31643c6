//! A reader of event streams for tests: every wait has a deadline.

use std::collections::VecDeque;

use serde_json::Value;
use tidings::wire::dialect::{ETAG_META_KEY, RESOURCE_UPDATED};
use tidings::wire::sse::EventReader;

use super::http::{Incoming, Read, within};

/// An event, or a comment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    /// The message; none for comments and priming events.
    pub(crate) message: Option<Value>,
    /// The text of a comment.
    pub(crate) comment: Option<String>,
}

/// An open stream of events.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) incoming: Incoming,
    reader: EventReader,
    /// The events that were read together with an earlier one.
    read: VecDeque<Event>,
}

impl Events {
    pub(crate) fn new(incoming: Incoming) -> Events {
        Events {
            incoming,
            reader: EventReader::default(),
            read: VecDeque::new(),
        }
    }

    /// Returns the next event or comment, or the end of the stream as an error.
    pub(crate) async fn event(&mut self) -> Result<Event, Read> {
        within("an event", async {
            loop {
                if let Some(event) = self.read.pop_front() {
                    return Ok(event);
                }
                let mut body = Vec::new();
                match self.incoming.read(&mut body).await {
                    Read::More => self.split(&body),
                    end => return Err(end),
                }
            }
        })
        .await
    }

    fn split(&mut self, body: &[u8]) {
        let split = self.reader.read(body, |event| {
            let message = match event.data {
                [] => None,
                data => Some(serde_json::from_slice(data).expect("an event carries JSON")),
            };
            self.read.push_back(Event {
                id: event.id.map(str::to_owned),
                message,
                comment: event.comment.map(str::to_owned),
            });
        });
        split.expect("events have less than 4 MiB");
    }

    /// Returns the next event that carries a message.
    pub(crate) async fn next(&mut self) -> Event {
        loop {
            let event = self
                .event()
                .await
                .unwrap_or_else(|ended| panic!("the stream ended: {ended:?}"));
            if event.message.is_some() {
                return event;
            }
        }
    }

    /// Returns the next message.
    pub(crate) async fn message(&mut self) -> Value {
        self.next()
            .await
            .message
            .expect("next returns events with a message")
    }

    /// Returns the URI of the next message, which must be an update.
    pub(crate) async fn updated(&mut self) -> String {
        let message = self.message().await;
        updated_uri(&message)
            .unwrap_or_else(|| panic!("not an update: {message}"))
            .to_owned()
    }

    /// Asserts that the stream ends as its framing promises, with no message before.
    pub(crate) async fn assert_end(&mut self) {
        loop {
            match self.event().await {
                Ok(event) => assert_eq!(event.message, None, "a message before the end"),
                Err(ended) => return assert_eq!(ended, Read::End),
            }
        }
    }
}

/// Returns the URI of an update; none for another message.
pub(crate) fn updated_uri(message: &Value) -> Option<&str> {
    match message["method"] == RESOURCE_UPDATED {
        true => message["params"]["uri"].as_str(),
        false => None,
    }
}

/// Returns the etag of an update.
pub(crate) fn updated_etag(message: &Value) -> String {
    let etag = &message["params"]["_meta"][ETAG_META_KEY];
    etag.as_str()
        .unwrap_or_else(|| panic!("no etag: {message}"))
        .to_owned()
}

/// Returns the version in an etag.
pub(crate) fn version(etag: &str) -> u64 {
    let etag: tidings::Etag = etag.parse().unwrap_or_else(|error| panic!("{etag}: {error}"));
    etag.version
}
