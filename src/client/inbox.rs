//! The signals of one connection that the watch task has not handled yet.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::latest_queue::LatestQueue;
use crate::{Etag, ListKind};

/// A signal of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Signal {
    /// This resource changed; its etag now, if the server gives etags.
    Updated(String, Option<String>),
    /// A list changed.
    List(ListKind),
    /// The connection holds, but notifications may have been missed.
    Gap,
    /// The connection is lost, for this reason.
    Lost(String),
}

/// Keys of signals that concern no resource; no URI contains a NUL byte.
const GAP: &str = "\0gap";
const LOST: &str = "\0lost";

/// The newest update of each watched resource, a gap, and the loss of the connection.
///
/// The transport and rmcp's tasks write, the watch task reads.
#[derive(Debug)]
pub(crate) struct Inbox {
    signals: LatestQueue<Signal>,
    /// Updates of other resources are dropped on arrival, so that a server cannot fill the memory.
    watched: Mutex<HashSet<String>>,
}

impl Inbox {
    pub(super) fn new() -> Inbox {
        Inbox {
            signals: LatestQueue::new(),
            watched: Mutex::default(),
        }
    }

    fn watched(&self) -> MutexGuard<'_, HashSet<String>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts updates of `uri`.
    pub(super) fn watch(&self, uri: &str) {
        self.watched().insert(uri.to_owned());
    }

    /// Drops updates of `uri`, including one that waits.
    pub(super) fn unwatch(&self, uri: &str) {
        self.watched().remove(uri);
        self.signals.forget(uri);
    }

    /// Puts in an update, unless a newer one of the same resource waits already.
    pub(super) fn updated(&self, uri: &str, etag: Option<String>) {
        // An update may slip in between this check and `unwatch`. The task ignores it, since it no longer
        // knows the resource.
        if !self.watched().contains(uri) {
            return;
        }
        let signal = Signal::Updated(uri.to_owned(), etag);
        self.signals
            .push_unless(uri, signal, |held, new| match (held, new) {
                (Signal::Updated(_, Some(held)), Signal::Updated(_, Some(new))) => is_older(new, held),
                _ => false,
            });
    }

    /// Puts in a change of a list.
    pub(super) fn list_changed(&self, kind: ListKind) {
        let key = format!("\0list {}", kind.name());
        self.signals.push(&key, Signal::List(kind));
    }

    /// Puts in a gap.
    pub(super) fn gap(&self) {
        self.signals.push(GAP, Signal::Gap);
    }

    /// Puts in the loss of the connection. Signals after the first loss are dropped.
    pub(super) fn lost(&self, reason: impl Into<String>) {
        // The first reason is the cause; those after it are consequences.
        self.signals.push(LOST, Signal::Lost(reason.into()));
        self.signals.close();
    }

    /// Waits for the next signal; [`Signal::Lost`] is the last. Cancel safe.
    pub(super) async fn next(&self) -> Signal {
        match self.signals.next().await {
            Some(signal) => signal,
            None => Signal::Lost("the connection is closed".to_owned()),
        }
    }
}

/// Returns true if `etag` is known to be older than `other`. Only our own etags are ordered.
///
/// rmcp hands each notification to a task of its own, so notifications may overtake each other.
pub(super) fn is_older(etag: &str, other: &str) -> bool {
    match (etag.parse::<Etag>(), other.parse::<Etag>()) {
        (Ok(etag), Ok(other)) => etag.version < other.version,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn updated(etag: Option<&str>) -> Signal {
        Signal::Updated("demo://a".to_owned(), etag.map(str::to_owned))
    }

    #[tokio::test]
    async fn older_etag_never_replaces_a_newer_one() {
        let inbox = Inbox::new();
        inbox.watch("demo://a");
        for etag in ["v2-5", "v4-6", "v3-5"] {
            inbox.updated("demo://a", Some(etag.to_owned()));
        }
        assert_eq!(inbox.next().await, updated(Some("v4-6")));
        // Etags of other servers have no order, so the later one wins.
        inbox.updated("demo://a", Some("abc".to_owned()));
        inbox.updated("demo://a", Some("abb".to_owned()));
        assert_eq!(inbox.next().await, updated(Some("abb")));
    }

    #[tokio::test]
    async fn unwatched_updates_and_later_losses_are_dropped() {
        let inbox = Inbox::new();
        inbox.watch("demo://a");
        inbox.watch("demo://b");
        inbox.updated("demo://c", None);
        inbox.updated("demo://b", None);
        inbox.updated("demo://a", None);
        inbox.unwatch("demo://b");
        inbox.gap();
        inbox.lost("one");
        inbox.lost("two");
        assert_eq!(inbox.next().await, updated(None));
        assert_eq!(inbox.next().await, Signal::Gap);
        assert_eq!(inbox.next().await, Signal::Lost("one".to_owned()));
        assert_eq!(
            inbox.next().await,
            Signal::Lost("the connection is closed".to_owned())
        );
    }
}
