//! The names of subscribers and the types that describe their state.

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

/// The number of pending URIs of one subscriber that a listing names; the rest is counted.
pub(crate) const PENDING_URIS_MAX: usize = 32;

/// The name of a subscriber, unique for the life of the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriberId(pub u64);

impl fmt::Display for SubscriberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

/// The error of a text that is not the name of a subscriber.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no subscriber's name; write one as the survey names it, such as s12")]
pub struct InvalidSubscriberId(pub String);

impl FromStr for SubscriberId {
    type Err = InvalidSubscriberId;

    /// Reads the form that [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<SubscriberId, InvalidSubscriberId> {
        match text.strip_prefix('s').map(str::parse) {
            // The parser of integers accepts a leading `+`, which is never written.
            Some(Ok(number)) if !text.starts_with("s+") => Ok(SubscriberId(number)),
            _ => Err(InvalidSubscriberId(text.chars().take(40).collect())),
        }
    }
}

/// The kind of a subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SubscriberKind {
    /// A connected client.
    Session,
    /// A stream whose subscriptions end with it.
    Stream,
    /// Code of the same process.
    Local,
    /// An attached [`Subscriber`](crate::attach::Subscriber) of the class *latest*.
    Attached,
}

impl SubscriberKind {
    /// The kind as written in labels and logs.
    pub fn name(self) -> &'static str {
        match self {
            SubscriberKind::Session => "session",
            SubscriberKind::Stream => "stream",
            SubscriberKind::Local => "local",
            SubscriberKind::Attached => "attached",
        }
    }
}

/// The state of a subscriber at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriberInfo {
    /// Its name.
    pub id: SubscriberId,
    /// Its kind.
    pub kind: SubscriberKind,
    /// The label given when it was opened, for example the revision and transport of a session.
    pub label: Arc<str>,
    /// The name that its client gives itself, at most 200 characters of it. It proves nothing.
    pub client: Option<Arc<str>>,
    /// Its protocol, for example an MCP revision.
    pub protocol: &'static str,
    /// Its transport.
    pub transport: &'static str,
    /// The entries that wait for it.
    pub pending: Pending,
    /// The entries that it took.
    pub progress: Progress,
}

impl SubscriberInfo {
    /// The longest time that something has waited for it, by which listings are sorted.
    pub fn slowness(&self) -> Option<Duration> {
        // `None` is less than any time, so this is the longer of those that exist.
        self.pending.oldest.max(self.progress.untaken)
    }
}

/// The pending entries of a subscriber at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Number of subscriptions.
    pub subscriptions: usize,
    /// Number of pending entries, lists included.
    pub entries: usize,
    /// The pending URIs, oldest first, at most 32.
    pub uris: Vec<ResourceUri>,
    /// Number of pending URIs beyond those.
    pub uris_more: usize,
    /// Time for which the oldest entry has been pending.
    pub oldest: Option<Duration>,
    /// Per list kind, the hash of the last notification.
    pub lists_notified: [Option<ListHash>; 3],
    /// Number of open streams.
    pub streams: usize,
}

/// The entries that a subscriber took, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Time since it was opened.
    pub age: Duration,
    /// Number of entries handed to its streams.
    pub notified: u64,
    /// Number of entries that a newer one replaced before they were handed out.
    pub conflated: u64,
    /// Number of bytes taken by the connections of its streams; 0 if the transport does not count them.
    pub bytes: u64,
    /// Time since it last took something; none if it never did.
    pub last: Option<Duration>,
    /// Time for which it has taken nothing of the pending entries although a stream is open; none if nothing
    /// is pending.
    pub untaken: Option<Duration>,
    /// True once `untaken` reaches [`Limits::stalled_after`](crate::Limits::stalled_after).
    pub stalled: bool,
}

/// The subscribers that a listing is about; the default are all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriberFilter {
    /// Those of this resource; none for those of any.
    pub uri: Option<ResourceUri>,
    /// Those whose name, label or client's name has this text in it, in capitals or not; empty for all.
    pub text: String,
    /// Only those that are stalled.
    pub stalled: bool,
}

impl SubscriberFilter {
    /// All subscribers, or those of one resource.
    pub fn of_uri(uri: Option<ResourceUri>) -> SubscriberFilter {
        SubscriberFilter {
            uri,
            ..SubscriberFilter::default()
        }
    }
}

/// A listing of live subscribers, the slowest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubscriberPage {
    /// Number of live subscribers that the filter accepts.
    pub total: usize,
    /// The slowest of them, as many as were requested.
    pub subscribers: Vec<SubscriberInfo>,
}

/// A subscriber that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedSubscriber {
    /// Its name.
    pub id: SubscriberId,
    /// Its kind.
    pub kind: SubscriberKind,
    /// The label given when it was opened.
    pub label: Arc<str>,
    /// The reason of its end.
    pub reason: EndReason,
    /// Time since its end.
    pub ended: Duration,
    /// Number of entries that were pending when it ended.
    pub pending: usize,
}

/// A subscriber looked up by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubscriberState {
    /// It is open.
    Live(Box<SubscriberInfo>),
    /// It ended recently.
    Ended(EndedSubscriber),
}

/// The reason for which a subscriber was or was not notified of the newest version of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeliveryStatus {
    /// It is not subscribed. The error, if any, is the one that a client would get if it subscribed now.
    NotSubscribed(Option<SubscribeError>),
    /// Nothing changed since it subscribed.
    Unchanged {
        /// The version at the time of the subscription.
        version: u64,
    },
    /// It was notified.
    Notified {
        /// The newest version.
        etag: Etag,
        /// The position of the change.
        position: Position,
        /// Time since the change.
        changed: Duration,
    },
    /// The notice is pending.
    Pending {
        /// The newest version.
        etag: Etag,
        /// The position of the newest change.
        position: Position,
        /// Time since the newest change.
        changed: Duration,
        /// The reason of the delay.
        reason: DelayReason,
    },
    /// It has ended.
    Ended(EndedSubscriber),
}

/// The reason for which an entry is still pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DelayReason {
    /// The stream is open and will take it shortly.
    OnItsWay,
    /// The subscriber never opened a stream.
    NeverRead,
    /// The subscriber has no open stream.
    NoStream,
    /// The stream of the subscriber takes nothing.
    Stalled,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_round_trips_and_rejects_other_text() {
        assert_eq!(SubscriberId(12).to_string().parse(), Ok(SubscriberId(12)));
        for wrong in ["", "s", "12", "s-1", "s+1", "s1 ", "S1", "s18446744073709551616"] {
            assert_eq!(
                wrong.parse::<SubscriberId>(),
                Err(InvalidSubscriberId(wrong.to_owned()))
            );
        }
    }
}
