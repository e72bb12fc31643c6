//! What one connection heard and the task has not looked at yet.
//!
//! Owns the signals of one connection: the newest update per watched resource, and whether something was missed or
//! everything ended. Written by the transport and by rmcp's tasks, read by the task; it decides nothing but that an
//! older etag never replaces a newer one.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::latest_queue::LatestQueue;
use crate::Etag;

/// What a connection can say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Signal {
    /// This resource changed, and has this etag now where the server gives any.
    Updated(String, Option<String>),
    /// Notifications may have been missed, but the connection holds.
    Gap,
    /// The connection is lost, for this reason.
    Lost(String),
}

/// Not the URI of anything, so that signals of the connection itself cannot meet those of resources.
const GAP: &str = "\0gap";
const LOST: &str = "\0lost";

#[derive(Debug)]
pub(super) struct Inbox {
    signals: LatestQueue<Signal>,
    /// The resources that are listened to; what the server says of others is dropped here, so that no server can
    /// fill the memory.
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

    pub(super) fn watch(&self, uri: &str) {
        self.watched().insert(uri.to_owned());
    }

    pub(super) fn unwatch(&self, uri: &str) {
        self.watched().remove(uri);
        self.signals.forget(uri);
    }

    pub(super) fn updated(&self, uri: &str, etag: Option<String>) {
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

    pub(super) fn gap(&self) {
        self.signals.push(GAP, Signal::Gap);
    }

    /// The first reason stands.
    pub(super) fn lost(&self, reason: impl Into<String>) {
        self.signals.push(LOST, Signal::Lost(reason.into()));
        self.signals.close();
    }

    /// The next signal; [`Signal::Lost`] is the last. May be cancelled.
    pub(super) async fn next(&self) -> Signal {
        match self.signals.next().await {
            Some((_, signal)) => signal,
            None => Signal::Lost("the connection is closed".to_owned()),
        }
    }
}

/// Whether `etag` is surely of an earlier version than `other`: rmcp hands notifications to tasks of their own, which
/// may overtake each other. Etags of other servers say nothing about their order.
pub(super) fn is_older(etag: &str, other: &str) -> bool {
    match (etag.parse::<Etag>(), other.parse::<Etag>()) {
        (Ok(etag), Ok(other)) => etag.version < other.version,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_older_etag_never_replaces_a_newer_one() {
        let inbox = Inbox::new();
        inbox.watch("demo://a");
        for etag in ["v2-5", "v4-6", "v3-5"] {
            inbox.updated("demo://a", Some(etag.to_owned()));
        }
        assert_eq!(
            inbox.next().await,
            Signal::Updated("demo://a".to_owned(), Some("v4-6".to_owned()))
        );
        inbox.updated("demo://a", Some("abc".to_owned()));
        inbox.updated("demo://a", Some("abb".to_owned()));
        assert_eq!(
            inbox.next().await,
            Signal::Updated("demo://a".to_owned(), Some("abb".to_owned()))
        );
    }

    #[tokio::test]
    async fn only_what_is_watched_is_kept_and_the_first_loss_stands() {
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
        assert_eq!(inbox.next().await, Signal::Updated("demo://a".to_owned(), None));
        assert_eq!(inbox.next().await, Signal::Gap);
        assert_eq!(inbox.next().await, Signal::Lost("one".to_owned()));
        assert_eq!(
            inbox.next().await,
            Signal::Lost("the connection is closed".to_owned())
        );
    }
}
