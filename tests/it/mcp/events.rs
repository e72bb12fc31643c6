//! The reading side of server-sent events: a body is split into events, and every wait has a deadline.

use serde_json::Value;

use super::http::{Incoming, Read, find, within};

/// One event, or a comment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    /// The message; none for comments and priming events.
    pub(crate) message: Option<Value>,
    pub(crate) text: String,
}

impl Event {
    fn parse(text: String) -> Event {
        let data = field(&text, "data").filter(|data| !data.is_empty());
        Event {
            id: field(&text, "id"),
            message: data.map(|data| serde_json::from_str(&data).expect("an event carries JSON")),
            text,
        }
    }

    pub(crate) fn is_comment(&self) -> bool {
        self.text.trim_end().lines().all(|line| line.starts_with(':'))
    }
}

/// Returns the value of an event's field.
fn field(event: &str, name: &str) -> Option<String> {
    let mut lines = event.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

/// An open stream of events.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) incoming: Incoming,
    text: Vec<u8>,
}

impl Events {
    pub(crate) fn new(incoming: Incoming) -> Events {
        Events {
            incoming,
            text: Vec::new(),
        }
    }

    /// Returns the next event or comment; `Err` says how the stream ended.
    pub(crate) async fn event(&mut self) -> Result<Event, Read> {
        within("an event", async {
            loop {
                if let Some(end) = find(&self.text, b"\n\n") {
                    let event = self.text.drain(..end + 2).collect();
                    return Ok(Event::parse(String::from_utf8(event).expect("an event is text")));
                }
                match self.incoming.read(&mut self.text).await {
                    Read::More => {}
                    ended => return Err(ended),
                }
            }
        })
        .await
    }

    /// The next event that carries a message.
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

    /// The next message.
    pub(crate) async fn message(&mut self) -> Value {
        self.next()
            .await
            .message
            .expect("next answers events with a message")
    }

    /// The URI of the next message, which must be an update.
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

/// The URI of an update.
pub(crate) fn updated_uri(message: &Value) -> Option<&str> {
    let updated = message["method"] == "notifications/resources/updated";
    message["params"]["uri"].as_str().filter(|_| updated)
}

/// The etag of an update.
pub(crate) fn updated_etag(message: &Value) -> String {
    let etag = &message["params"]["_meta"]["io.github.tidings/etag"];
    etag.as_str()
        .unwrap_or_else(|| panic!("no etag: {message}"))
        .to_owned()
}

/// The version in an etag.
pub(crate) fn version(etag: &str) -> u64 {
    let etag: tidings::Etag = etag.parse().unwrap_or_else(|error| panic!("{etag}: {error}"));
    etag.version
}
