//! The events in the life of a server behind the gateway, as its report tells them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::printable;

/// Characters of a text of the server that a report shows.
const SHOWN_MAX: usize = 200;

/// The events that a report tells.
#[derive(Debug, Default)]
pub(super) struct UpstreamHistory {
    restarts: AtomicU64,
    subscriptions: AtomicUsize,
    last_error: Mutex<Option<String>>,
}

impl UpstreamHistory {
    pub(super) fn restarted(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    pub(super) fn announces(&self, subscriptions: usize) {
        self.subscriptions.store(subscriptions, Ordering::Relaxed);
    }

    pub(super) fn subscriptions(&self) -> usize {
        self.subscriptions.load(Ordering::Relaxed)
    }

    pub(super) fn failed(&self, reason: &str) {
        let shown = Some(shown(reason));
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = shown;
    }

    pub(super) fn last_error(&self) -> Option<String> {
        let last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone()
    }
}

/// Returns the beginning of a text for one line, without the secrets of addresses in it.
pub(super) fn shown(text: &str) -> String {
    // Cut last: a secret that the cut would leave without its address could not be told from other text.
    let clean = printable::without_secrets(text);
    printable::line(&clean).chars().take(SHOWN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_error_is_one_short_line_without_secrets() {
        let history = UpstreamHistory::default();
        assert_eq!(history.last_error(), None);
        history.failed("no answer\u{1b}[2J\nfrom http://ann:s3cr3t@h/mcp?key=s3cr3t now");
        let shown = history.last_error().unwrap();
        assert_eq!(shown, "no answer [2J from http://***@h/mcp?*** now");
        history.failed(&"ä".repeat(1_000));
        assert_eq!(history.last_error().unwrap().chars().count(), SHOWN_MAX);
    }
}
