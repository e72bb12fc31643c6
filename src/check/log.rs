//! Everything a server said that was not an answer, in the order in which it came.
//!
//! Owns the messages, bounded, and the count of signs of life. The transports write to it; the rounds look at what
//! came since a mark, or wait for what must come. It judges nothing.

use std::sync::{Mutex, MutexGuard};

use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What is kept of a server that floods; what comes after it is dropped.
const MESSAGES_MAX: usize = 10_000;

/// Where a message came from.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Via {
    /// The session's own stream, or standard output.
    Session,
    /// The answer of an ordinary request, ahead of its result.
    Request,
    /// The answer of the listen request with this id.
    Listen(Value),
}

/// One message.
#[derive(Debug, Clone)]
pub(super) struct Heard {
    pub(super) via: Via,
    pub(super) message: Value,
}

impl Heard {
    pub(super) fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    /// The kind of list that is said to have changed: `tools`, `prompts` or `resources`.
    pub(super) fn list(&self) -> Option<&str> {
        self.method()
            .strip_prefix("notifications/")?
            .strip_suffix("/list_changed")
    }

    /// The URI that is said to have changed.
    pub(super) fn updated(&self) -> Option<&str> {
        let uri = self.message["params"]["uri"].as_str();
        uri.filter(|_| self.method() == "notifications/resources/updated")
    }
}

#[derive(Debug, Default)]
struct Kept {
    messages: Vec<Heard>,
    signs: usize,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    kept: Mutex<Kept>,
    grown: Notify,
}

impl Log {
    pub(super) fn push(&self, via: Via, message: Value) {
        let mut kept = self.lock();
        if kept.messages.len() < MESSAGES_MAX {
            kept.messages.push(Heard { via, message });
        }
        drop(kept);
        self.grown.notify_waiters();
    }

    /// Something came on a stream: a message, a comment, or an empty event.
    pub(super) fn sign(&self) {
        self.lock().signs += 1;
        self.grown.notify_waiters();
    }

    pub(super) fn signs(&self) -> usize {
        self.lock().signs
    }

    /// Where the log stands now.
    pub(super) fn mark(&self) -> usize {
        self.lock().messages.len()
    }

    pub(super) fn since(&self, mark: usize) -> Vec<Heard> {
        self.lock().messages.iter().skip(mark).cloned().collect()
    }

    /// The first message since `mark` of which `wanted` holds; none when none comes before `until`.
    pub(super) async fn wait(
        &self,
        mark: usize,
        until: Instant,
        wanted: impl Fn(&Heard) -> bool,
    ) -> Option<Heard> {
        loop {
            let grown = self.grown.notified();
            tokio::pin!(grown);
            grown.as_mut().enable();
            let found = self
                .lock()
                .messages
                .iter()
                .skip(mark)
                .find(|heard| wanted(heard))
                .cloned();
            if found.is_some() {
                return found;
            }
            if tokio::time::timeout_at(until, grown).await.is_err() {
                return None;
            }
        }
    }

    /// Whether a sign of life beyond `count` comes before `until`.
    pub(super) async fn wait_sign(&self, count: usize, until: Instant) -> bool {
        loop {
            let grown = self.grown.notified();
            tokio::pin!(grown);
            grown.as_mut().enable();
            if self.signs() > count {
                return true;
            }
            if tokio::time::timeout_at(until, grown).await.is_err() {
                return false;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("nothing panics while it holds the log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_wait_sees_what_came_since_the_mark_and_ends_at_its_limit() {
        let log = Log::default();
        log.push(
            Via::Session,
            json!({ "method": "notifications/tools/list_changed" }),
        );
        let soon = || Instant::now() + Duration::from_secs(1);
        let any = |heard: &Heard| heard.list() == Some("tools");
        assert!(log.wait(0, soon(), any).await.is_some());
        assert!(log.wait(log.mark(), soon(), any).await.is_none());
        assert!(!log.wait_sign(0, soon()).await);
        log.sign();
        assert!(log.wait_sign(0, soon()).await);
    }

    #[test]
    fn a_flood_is_kept_in_bounds() {
        let log = Log::default();
        for _ in 0..MESSAGES_MAX + 5 {
            log.push(Via::Session, Value::Null);
        }
        assert_eq!(log.mark(), MESSAGES_MAX);
    }
}
