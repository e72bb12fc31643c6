//! What a subscriber is called, and how it stands.
//!
//! Owns: the words in which sessions and streams are named, surveyed and shown. Never: holds anything for them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{ListHash, ResourceUri};

/// Names one subscriber for the life of the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriberId(pub u64);

impl fmt::Display for SubscriberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

/// What a subscriber is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SubscriberKind {
    /// One connected client.
    Session,
    /// One stream whose subscriptions end with it.
    Stream,
    /// Code of this process.
    Local,
    /// An attached [`Subscriber`](crate::Subscriber) that wants the newest of each resource.
    Attached,
}

impl SubscriberKind {
    /// The kind as it is written in labels and logs.
    pub fn name(self) -> &'static str {
        match self {
            SubscriberKind::Session => "session",
            SubscriberKind::Stream => "stream",
            SubscriberKind::Local => "local",
            SubscriberKind::Attached => "attached",
        }
    }
}

/// One subscriber, as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriberInfo {
    /// Its name for the life of the bus.
    pub id: SubscriberId,
    /// What it is.
    pub kind: SubscriberKind,
    /// What its opener called it: revision and transport of a session, for example.
    pub label: Arc<str>,
    /// What it speaks: a revision of a protocol, or another word where there is none.
    pub protocol: &'static str,
    /// What carries what it is told.
    pub transport: &'static str,
    /// What it has not been told yet.
    pub pending: Pending,
}

/// What a subscriber has not been told yet, as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// How many URIs it subscribed to.
    pub subscriptions: usize,
    /// How many entries wait to be told, lists included.
    pub entries: usize,
    /// The URIs that wait, oldest first.
    pub uris: Vec<ResourceUri>,
    /// How long the oldest resource entry has been waiting since its change passed the door.
    pub oldest: Option<Duration>,
    /// Per list kind the hash it was last told of.
    pub lists_told: [Option<ListHash>; 3],
    /// How many streams read it now.
    pub streams: usize,
}
