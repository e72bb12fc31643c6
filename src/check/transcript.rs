//! The transcript of a connection: the messages of the server that answer no request, in the order of
//! arrival.
//!
//! The transports append to it; the checks read the messages after a position, or wait for one of them.

use std::sync::{Mutex, MutexGuard};

use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::wire::dialect::RESOURCE_UPDATED;

/// The limit on messages kept. A server that floods has failed its check long before, so later ones are
/// dropped.
const MESSAGES_MAX: usize = 10_000;

/// The stream that a message arrived on.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum MessageOrigin {
    /// The stream of the session, or standard output.
    Session,
    /// The response to an ordinary request, ahead of its result.
    Response,
    /// The response to the listen request with this id.
    Listen(Value),
}

/// A message of the server.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) origin: MessageOrigin,
    pub(super) message: Value,
}

impl Received {
    /// Returns the method of a notification or request; empty for a response.
    pub(super) fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    /// Returns the kind of list that this message announces as changed: `tools`, `prompts` or `resources`.
    pub(super) fn changed_list(&self) -> Option<&str> {
        self.method()
            .strip_prefix("notifications/")?
            .strip_suffix("/list_changed")
    }

    /// Returns the URI that this message announces as changed.
    pub(super) fn updated_uri(&self) -> Option<&str> {
        match self.method() {
            RESOURCE_UPDATED => self.message["params"]["uri"].as_str(),
            _ => None,
        }
    }

    /// Returns true if this message announces a change of `uri` or of a part of it.
    ///
    /// A server may name a sub-resource of the resource that was subscribed to.
    pub(super) fn announces(&self, uri: &str) -> bool {
        let Some(rest) = self.updated_uri().and_then(|updated| updated.strip_prefix(uri)) else {
            return false;
        };
        rest.is_empty() || uri.ends_with('/') || rest.starts_with(['/', '?', '#'])
    }
}

#[derive(Debug, Default)]
struct Entries {
    messages: Vec<Received>,
    activity: usize,
}

/// The messages of one connection, and a count of everything that arrived on its streams.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    entries: Mutex<Entries>,
    grown: Notify,
}

impl Transcript {
    /// Appends a message.
    pub(super) fn push(&self, origin: MessageOrigin, message: Value) {
        let mut entries = self.lock();
        if entries.messages.len() < MESSAGES_MAX {
            entries.messages.push(Received { origin, message });
        }
        // Released before the waiting tasks wake up and lock it.
        drop(entries);
        self.grown.notify_waiters();
    }

    /// Counts an event on a stream: a message, a comment, or an empty event.
    pub(super) fn record_activity(&self) {
        self.lock().activity += 1;
        self.grown.notify_waiters();
    }

    /// Returns the position after the last message.
    pub(super) fn position(&self) -> usize {
        self.lock().messages.len()
    }

    /// Returns the messages after `position`.
    pub(super) fn since(&self, position: usize) -> Vec<Received> {
        self.lock().messages.iter().skip(position).cloned().collect()
    }

    /// Waits for the first message after `position` that `is_wanted` accepts; none if it does not arrive by
    /// `deadline`.
    pub(super) async fn wait_for(
        &self,
        position: usize,
        deadline: Instant,
        is_wanted: impl Fn(&Received) -> bool,
    ) -> Option<Received> {
        loop {
            // Enabled before the look at the messages, so that one pushed in between still wakes this task.
            let grown = self.grown.notified();
            tokio::pin!(grown);
            grown.as_mut().enable();
            let later = self.since(position);
            if let Some(found) = later.into_iter().find(|received| is_wanted(received)) {
                return Some(found);
            }
            tokio::time::timeout_at(deadline, grown).await.ok()?;
        }
    }

    /// Waits until something arrives on a stream; returns false if nothing does by `deadline`.
    pub(super) async fn wait_for_activity(&self, deadline: Instant) -> bool {
        let before = self.lock().activity;
        loop {
            let grown = self.grown.notified();
            tokio::pin!(grown);
            grown.as_mut().enable();
            if self.lock().activity > before {
                return true;
            }
            if tokio::time::timeout_at(deadline, grown).await.is_err() {
                return false;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries
            .lock()
            .expect("no code panics while it holds the transcript")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    fn is_tools_change(received: &Received) -> bool {
        received.changed_list() == Some("tools")
    }

    #[tokio::test(start_paused = true)]
    async fn wait_looks_at_later_messages_only() {
        let transcript = Transcript::default();
        transcript.push(
            MessageOrigin::Session,
            json!({ "method": "notifications/tools/list_changed" }),
        );
        assert!(transcript.wait_for(0, soon(), is_tools_change).await.is_some());
        let end = transcript.position();
        assert!(transcript.wait_for(end, soon(), is_tools_change).await.is_none());
    }

    #[test]
    fn part_of_a_resource_announces_it() {
        for (updated, announces) in [
            ("demo://a", true),
            ("demo://a/part", true),
            ("demo://a#part", true),
            ("demo://ab", false),
            ("demo://b", false),
        ] {
            let received = Received {
                origin: MessageOrigin::Session,
                message: json!({ "method": RESOURCE_UPDATED, "params": { "uri": updated } }),
            };
            assert_eq!(received.announces("demo://a"), announces, "{updated}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn activity_ends_the_wait_for_it() {
        let transcript = Transcript::default();
        assert!(!transcript.wait_for_activity(soon()).await);
        let record = async { transcript.record_activity() };
        let (alive, ()) = tokio::join!(transcript.wait_for_activity(soon()), record);
        assert!(alive);
    }

    #[test]
    fn flood_is_cut_at_the_limit() {
        let transcript = Transcript::default();
        for _ in 0..MESSAGES_MAX + 5 {
            transcript.push(MessageOrigin::Session, Value::Null);
        }
        assert_eq!(transcript.position(), MESSAGES_MAX);
    }
}
