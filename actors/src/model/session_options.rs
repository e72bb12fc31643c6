//! The settings with which a session is opened.

use std::sync::Arc;
use std::time::Duration;

use super::list::ListKind;
use super::subscriber::SubscriberKind;

/// How a session is opened.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// What it is.
    pub kind: SubscriberKind,
    /// What surveys call it, such as its revision and transport; no secrets.
    pub label: Arc<str>,
    /// What it speaks, such as the revision of a protocol (default `none`). A label of metrics: one of few words.
    pub protocol: &'static str,
    /// What carries what it is told, such as `http` (default `local`). A label of metrics: one of few words.
    pub transport: &'static str,
    /// Which lists it is told of once it is [`ready`](Session::ready). Lists left out keep no memory.
    pub lists: Vec<ListKind>,
    /// Whether every list that is not empty is due as soon as it is ready.
    pub announce: bool,
    /// How many subscriptions it may have (default: as many as the bus allows). Beyond, subscribing answers `TooMany`.
    pub subscriptions_max: usize,
    /// Whether it may subscribe to what clients may not (default: no).
    pub trusted: bool,
    /// How long it may have neither a reader nor [activity](Session::active) before it is ended; none: for ever.
    pub idle_timeout: Option<Duration>,
    /// How long it may take nothing of what waits for it though a reader is open before it is ended; none: for ever.
    /// What waits is bounded by its subscriptions, however long it takes.
    pub stall_timeout: Option<Duration>,
    /// How old it may grow before it is ended; none: as old as the bus. Each session ends at an age of its own, up to
    /// a tenth less than this, so that sessions that came together do not come back together.
    pub age_max: Option<Duration>,
}

impl SessionOptions {
    /// A session called `label` that is told of no lists and lives as long as its handle.
    pub fn new(kind: SubscriberKind, label: impl Into<Arc<str>>) -> SessionOptions {
        SessionOptions {
            kind,
            label: label.into(),
            protocol: "none",
            transport: "local",
            lists: Vec::new(),
            announce: false,
            subscriptions_max: usize::MAX,
            trusted: false,
            idle_timeout: None,
            stall_timeout: None,
            age_max: None,
        }
    }
}
