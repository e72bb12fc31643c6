//! The options of a session.

use std::sync::Arc;
use std::time::Duration;

use super::allowance::SubscriptionAllowance;
use super::list::ListKind;
use super::subscriber::SubscriberKind;
use super::subscription_request::SubscriptionRules;
use super::viewer::Viewer;

/// The options of a session.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// The kind of subscriber.
    pub kind: SubscriberKind,
    /// The name shown in listings and logs, such as revision and transport. Must not contain secrets.
    pub label: Arc<str>,
    /// The name that the client gives itself, for listings alone (default: none). At most 200 characters of
    /// it are kept.
    pub client: Option<Arc<str>>,
    /// The protocol, such as an MCP revision (default `none`). A label of metrics, so it must be one of a few
    /// values.
    pub protocol: &'static str,
    /// The transport, such as `http` (default `local`). A label of metrics, so it must be one of a few
    /// values.
    pub transport: &'static str,
    /// The lists whose changes it is notified of once it is [`ready`](crate::Session::ready). Others take no
    /// memory.
    pub lists: Vec<ListKind>,
    /// Notifies it of each list that is not empty as soon as it is ready.
    pub announce: bool,
    /// Maximum number of subscriptions (default: the limit of the bus). At the limit subscribing fails with
    /// `TooMany`.
    pub subscriptions_max: usize,
    /// Maximum number of them whose resources do not exist yet (default: the limit of the bus). At the limit
    /// subscribing fails with `NotFound`.
    pub pending_subscriptions: usize,
    /// Subscriptions that this session shares with others, besides its own limit (default: none). At the
    /// limit subscribing fails with `TooMany`.
    pub allowance: Option<Arc<SubscriptionAllowance>>,
    /// Allows subscriptions to resources that are not subscribable for clients (default: no).
    pub trusted: bool,
    /// Ends it for another one when the bus is full, unless it is [`ready`](crate::Session::ready) (default:
    /// no). Meant for sessions of clients that are not known.
    pub awaits_ready: bool,
    /// Time without a reader and without [activity](crate::Session::active) after which it is ended (default:
    /// never).
    pub idle_timeout: Option<Duration>,
    /// Time without taking any pending entry, although a reader is open, after which it is ended (default:
    /// never). Memory does not grow meanwhile: there is at most one pending entry per subscription.
    pub stall_timeout: Option<Duration>,
    /// Age at which it is ended (default: never). Each session ends up to a tenth earlier, at an age of its
    /// own, so that sessions opened together do not reconnect together.
    pub age_max: Option<Duration>,
    /// The rights of the subscriber (default: none, it sees everything). They are judged when it subscribes,
    /// when its lists are compared and when an entry is handed out.
    pub viewer: Option<Arc<dyn Viewer>>,
}

impl SessionOptions {
    /// The default options: no lists, no time-outs.
    pub fn new(kind: SubscriberKind, label: impl Into<Arc<str>>) -> SessionOptions {
        SessionOptions {
            kind,
            label: label.into(),
            client: None,
            protocol: "none",
            transport: "local",
            lists: Vec::new(),
            announce: false,
            subscriptions_max: usize::MAX,
            pending_subscriptions: usize::MAX,
            allowance: None,
            trusted: false,
            awaits_ready: false,
            idle_timeout: None,
            stall_timeout: None,
            age_max: None,
            viewer: None,
        }
    }

    pub(crate) fn subscription_rules(&self) -> SubscriptionRules {
        SubscriptionRules {
            max: self.subscriptions_max,
            pending_max: self.pending_subscriptions,
            trusted: self.trusted,
        }
    }
}
