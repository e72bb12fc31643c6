//! What a subscriber is called, and how it stands.
//!
//! Owns: the words in which sessions and streams are named, surveyed and shown. Never: holds anything for them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::end_reason::EndReason;
use super::error::SubscribeError;
use super::etag::Etag;
use super::list::ListHash;
use super::position::Position;
use super::uri::ResourceUri;

/// How many URIs a survey names of what one subscriber has not been told; the rest is counted.
pub(crate) const PENDING_URIS_MAX: usize = 32;

/// Names one subscriber for the life of the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriberId(pub u64);

impl fmt::Display for SubscriberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

/// What was written is no subscriber's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no subscriber's name; write one as the survey names it, such as s12")]
pub struct InvalidSubscriberId(pub String);

impl FromStr for SubscriberId {
    type Err = InvalidSubscriberId;

    /// Reads what [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<SubscriberId, InvalidSubscriberId> {
        let digits = text.strip_prefix('s').filter(|digits| !digits.starts_with('+'));
        let number = digits.and_then(|digits| digits.parse().ok());
        number
            .map(SubscriberId)
            .ok_or_else(|| InvalidSubscriberId(text.chars().take(40).collect()))
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
    /// An attached [`Subscriber`](crate::attach::Subscriber) that wants the newest of each resource.
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
    /// What it took.
    pub progress: Progress,
}

impl SubscriberInfo {
    /// How long it has kept something waiting: by this the slowest come first.
    pub fn slowness(&self) -> Option<Duration> {
        self.pending.oldest.max(self.progress.untaken)
    }
}

/// What a subscriber has not been told yet, as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// How many URIs it subscribed to.
    pub subscriptions: usize,
    /// How many entries wait to be told, lists included.
    pub entries: usize,
    /// The URIs that wait, oldest first, at most [`PENDING_URIS_MAX`] of them.
    pub uris: Vec<ResourceUri>,
    /// How many URIs wait besides those.
    pub uris_more: usize,
    /// How long the oldest entry has been waiting.
    pub oldest: Option<Duration>,
    /// Per list kind the hash it was last told of.
    pub lists_notified: [Option<ListHash>; 3],
    /// How many streams read it now.
    pub streams: usize,
}

/// What a subscriber took, as it stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// How long ago it came.
    pub age: Duration,
    /// Entries handed to its streams.
    pub notified: u64,
    /// Entries that a newer one replaced before they were told.
    pub conflated: u64,
    /// Bytes that its streams' connections took; 0 where the transport does not count them.
    pub bytes: u64,
    /// How long ago it last took something; none when it never did.
    pub last: Option<Duration>,
    /// How long it has taken nothing of what waits for it though a stream is open; none when nothing waits.
    pub untaken: Option<Duration>,
    /// Whether that has gone on for too long to be the way there (see
    /// [`Limits::stalled_after`](crate::Limits::stalled_after)).
    pub stalled: bool,
}

/// Who is there, the slowest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubscriberPage {
    /// How many there are in all.
    pub total: usize,
    /// The slowest of them.
    pub subscribers: Vec<SubscriberInfo>,
}

/// A subscriber that has ended, as it stood then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedSubscriber {
    /// Its name.
    pub id: SubscriberId,
    /// What it was.
    pub kind: SubscriberKind,
    /// What its opener called it.
    pub label: Arc<str>,
    /// Why it ended.
    pub reason: EndReason,
    /// How long ago it ended.
    pub ended: Duration,
    /// How many entries it had not been told.
    pub pending: usize,
}

/// What is known of a subscriber by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubscriberState {
    /// It is there.
    Live(Box<SubscriberInfo>),
    /// It has ended, not long ago.
    Ended(EndedSubscriber),
}

/// Why a subscriber was, or was not, told of a resource's newest version.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeliveryStatus {
    /// It is not subscribed. With an error: neither could a client be now, for this reason.
    NotSubscribed(Option<SubscribeError>),
    /// Nothing changed since it subscribed; changes from this version on will be told.
    Unchanged {
        /// The version it knew when it subscribed.
        version: u64,
    },
    /// It was told.
    Notified {
        /// The version.
        etag: Etag,
        /// The change's place in the order of all changes.
        position: Position,
        /// How long ago the change was made.
        changed: Duration,
    },
    /// It has not been told yet.
    Pending {
        /// The newest version.
        etag: Etag,
        /// The newest change's place in the order of all changes.
        position: Position,
        /// How long ago the newest change was made.
        changed: Duration,
        /// What keeps it.
        reason: DelayReason,
    },
    /// It has ended.
    Ended(EndedSubscriber),
}

/// What keeps an entry from being told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DelayReason {
    /// Nothing: it is on its way.
    OnItsWay,
    /// It never opened a stream.
    NeverRead,
    /// It has no stream open now.
    NoStream,
    /// Its stream takes nothing.
    Stalled,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        assert_eq!(SubscriberId(12).to_string().parse(), Ok(SubscriberId(12)));
        for wrong in ["", "s", "12", "s-1", "s+1", "s1 ", "S1", "s18446744073709551616"] {
            assert_eq!(
                wrong.parse::<SubscriberId>(),
                Err(InvalidSubscriberId(wrong.to_owned()))
            );
        }
    }
}
