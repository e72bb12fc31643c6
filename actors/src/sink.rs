//! The port for attached subscribers: logs, files, webhooks, transports and other code without a session.
//!
//! Each runs on a thread of its own, behind a bounded queue or an outbox, so that none can slow down another.
//! Failures, panics and stalls are counted and logged under its name.

mod attachment;
mod ending;
mod feed;
mod queue;
mod state;
mod worker;

use std::sync::Arc;
use std::time::Duration;

pub use attachment::Attachment;
pub(crate) use attachment::{Attachments, HeldSession};
pub(crate) use ending::{EndDeadlines, wait_for_end};
pub(crate) use feed::Feed;
pub(crate) use queue::Queue;
pub(crate) use state::{AttachmentState, Cursor};
pub(crate) use worker::{MakeSubscriber, Worker};

use crate::model::{Closed, Filter, ListKind, Notice, NoticeKind, OpenError, Position, Trace};

/// A subscriber that is called with one delivery after the other.
///
/// It is created, called and dropped on a thread of its own, so every method may block. After a panic it is
/// recreated.
pub trait Subscriber: 'static {
    /// Takes one delivery.
    ///
    /// # Errors
    /// [`SubscriberError::Again`] keeps the delivery, which is repeated after a pause that grows up to
    /// [`AttachOptions::backoff_max`]; newer deliveries wait meanwhile. [`SubscriberError::Later`] does the
    /// same after a given pause. [`SubscriberError::Refused`] drops the delivery, which is counted and
    /// reported with the next [`Delivery::Gap`].
    fn take(&mut self, delivery: &Delivery) -> Result<(), SubscriberError>;

    /// Called when there has been no delivery for [`AttachOptions::idle_every`]. A good time to flush.
    ///
    /// # Errors
    /// As for [`Subscriber::take`]; it is called again in any case.
    fn idle(&mut self) -> Result<(), SubscriberError> {
        Ok(())
    }

    /// Called last, after all deliveries.
    ///
    /// # Errors
    /// An error is logged.
    fn close(&mut self) -> Result<(), SubscriberError> {
        Ok(())
    }
}

/// The error of a subscriber that did not take a delivery. Operators see the text, so it must not contain
/// secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubscriberError {
    /// The delivery is to be repeated after a growing pause.
    #[error("{0}")]
    Again(String),
    /// The delivery is to be repeated after a given pause, or at once when the subscriber is detached.
    #[error("{reason}")]
    Later {
        /// The pause.
        after: Duration,
        /// The reason.
        reason: String,
    },
    /// The delivery is to be dropped.
    #[error("{0}")]
    Refused(String),
}

/// One call of [`Subscriber::take`].
#[derive(Debug, Clone)]
pub enum Delivery {
    /// A resource changed.
    Notice(Arc<Notice>),
    /// A list changed. For the class *latest* the position is that of everything handed out so far.
    List(ListKind, Position),
    /// A step of a notice; only with [`AttachOptions::trace`].
    Trace(Arc<Trace>),
    /// Deliveries are missing here: the queue was full, or the subscriber refused them or panicked.
    Gap(Gap),
}

impl Delivery {
    /// The kind of notice; none for a trace or a gap.
    pub fn kind(&self) -> Option<NoticeKind> {
        match self {
            Delivery::Notice(notice) => Some(notice.cause.into()),
            Delivery::List(kind, _) => Some(NoticeKind::List(*kind)),
            // Filters choose notices by their kind; these two pass by other rules.
            Delivery::Trace(_) | Delivery::Gap(_) => None,
        }
    }

    /// The position in the order of the bus; none for a trace.
    pub fn position(&self) -> Option<Position> {
        match self {
            Delivery::Notice(notice) => Some(notice.position),
            Delivery::List(_, position) => Some(*position),
            Delivery::Gap(gap) => gap.position,
            Delivery::Trace(_) => None,
        }
    }
}

/// A report of missing deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The number of deliveries lost since the last one.
    pub lost: u64,
    /// The position up to which they are lost, by which a repeated gap is recognized. None for the class
    /// *latest* and for traces.
    pub position: Option<Position>,
}

/// The newest changes from before a subscriber was attached; see [`AttachOptions::newest_max`].
#[derive(Debug, Clone, Default)]
pub struct NewestChanges {
    /// The changes, the oldest first.
    pub changes: Vec<Delivery>,
    /// The offset after which `changes` has the newest change of every resource and list.
    pub after: u64,
    /// The offset after which `changes` has every change.
    pub exact_after: u64,
}

/// The way in which deliveries wait for a subscriber that is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryClass {
    /// The newest notice of each resource and the newest change of each list. Repeated changes cost nothing.
    /// If more than `pending_max` resources wait, newly changed ones are dropped, counted and reported as a
    /// gap.
    Latest {
        /// The maximum number of waiting resources (at least 1).
        pending_max: usize,
    },
    /// Every notice in order, in a bounded queue. If it is full, deliveries are dropped as `overflow` says,
    /// counted and reported as a gap in their place.
    Every {
        /// The maximum number of waiting deliveries (at least 1).
        capacity: usize,
        /// The deliveries to drop if the queue is full.
        overflow: Overflow,
    },
}

impl DeliveryClass {
    /// The class as written in configuration, labels and logs.
    pub fn name(self) -> &'static str {
        match self {
            DeliveryClass::Latest { .. } => "latest",
            DeliveryClass::Every { .. } => "every",
        }
    }
}

/// The deliveries that a full queue drops. In no case does the publisher wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// The oldest, so that the subscriber sees the end of a burst.
    DropOldest,
    /// The newest, so that the subscriber sees the beginning of a burst.
    DropNewest,
}

impl Overflow {
    /// The policy as written in configuration.
    pub fn name(self) -> &'static str {
        match self {
            Overflow::DropOldest => "drop_oldest",
            Overflow::DropNewest => "drop_newest",
        }
    }
}

/// The options of an attached subscriber.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AttachOptions {
    /// The name in metrics, logs and [`Bus::attached`](crate::Bus::attached), unique among the attached
    /// subscribers.
    pub name: Arc<str>,
    /// The notices to deliver (default: all).
    pub filter: Filter,
    /// The delivery class (default: every notice, in a queue of 10,000 that drops the oldest).
    pub class: DeliveryClass,
    /// Delivers traces instead of notices: those of every n-th notice that passes the filter (default: none).
    /// Only for the class *every*.
    pub trace: Option<u64>,
    /// Duration of a call after which the subscriber is logged and listed as stalled until the call returns
    /// (default 5 s).
    pub stall_timeout: Duration,
    /// The longest pause before a delivery is repeated or a failed subscriber is recreated (default 30 s).
    /// The first pause is 100 ms, and each one doubles.
    pub backoff_max: Duration,
    /// The interval at which [`Subscriber::idle`] is called without deliveries (default 1 s, at least 1 ms).
    pub idle_every: Duration,
    /// Goes on where the subscriber of this name was (default false), in this life of the bus and, with a
    /// store, after a restart: it gets everything after its cursor, in order. The cursor is behind the last
    /// delivery that it took, and reaches the store at most a second later; after a crash, deliveries are
    /// repeated from there, with the same positions. Changes of which the bus knows only a newer one of the
    /// same resource are reported as a gap. A new name starts at the present. A cursor stays until
    /// [`Bus::forget_cursor`](crate::Bus::forget_cursor), or until a start after which no subscriber has its
    /// name (see [`Bus::finish_start`](crate::Bus::finish_start)). Only for the class *every*.
    pub resume: bool,
    /// The most changes from before the attach that [`Attachment::take_newest`] returns (default 0): of each
    /// resource and list the newest one. Only for the class *every*.
    pub newest_max: usize,
}

impl AttachOptions {
    /// The default options under this name.
    pub fn new(name: impl Into<Arc<str>>) -> AttachOptions {
        AttachOptions {
            name: name.into(),
            filter: Filter::default(),
            // Bounded, so that a subscriber that hangs costs a known amount of memory.
            class: DeliveryClass::Every {
                capacity: 10_000,
                overflow: Overflow::DropOldest,
            },
            trace: None,
            // A healthy call takes milliseconds, so seconds are a sign of a fault and not of load.
            stall_timeout: Duration::from_secs(5),
            // Short enough that deliveries go on soon after the receiver is back.
            backoff_max: Duration::from_secs(30),
            idle_every: Duration::from_secs(1),
            resume: false,
            newest_max: 0,
        }
    }

    /// Sets whether the subscriber resumes.
    #[must_use]
    pub fn resume(mut self, resume: bool) -> AttachOptions {
        self.resume = resume;
        self
    }

    /// Sets the filter.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> AttachOptions {
        self.filter = filter;
        self
    }

    /// Sets the delivery class.
    #[must_use]
    pub fn class(mut self, class: DeliveryClass) -> AttachOptions {
        self.class = class;
        self
    }
}

/// The error of a subscriber that was not attached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// Another attached subscriber has this name.
    #[error("a subscriber named {0:?} is attached already; detach it first or choose another name")]
    NameTaken(Arc<str>),
    /// As many subscribers as allowed are attached; see
    /// [`Limits::attached_max`](crate::Limits::attached_max).
    #[error("too many attached subscribers: the limit is {0}; detach one or raise the limit")]
    TooMany(usize),
    /// The thread of the subscriber could not be started.
    #[error("the thread of subscriber {name:?} could not be started: {reason}")]
    Thread {
        /// The name of the subscriber.
        name: Arc<str>,
        /// The error of the operating system.
        reason: String,
    },
    /// The bus has stopped, or the limit of sessions is reached (class *latest*).
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl From<Closed> for AttachError {
    fn from(closed: Closed) -> AttachError {
        AttachError::Open(closed.into())
    }
}

/// The health of an attached subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// It is being created.
    Starting,
    /// It takes deliveries.
    Running,
    /// It failed, panicked or could not be created, and is tried again.
    Failing,
    /// A call has taken longer than the stall time-out.
    Stalled,
    /// It has ended.
    Ended,
}

impl Health {
    /// All states, in the order of the variants.
    pub(crate) const ALL: [Health; 5] = [
        Health::Starting,
        Health::Running,
        Health::Failing,
        Health::Stalled,
        Health::Ended,
    ];

    /// The state as written in labels and logs.
    pub fn name(self) -> &'static str {
        match self {
            Health::Starting => "starting",
            Health::Running => "running",
            Health::Failing => "failing",
            Health::Stalled => "stalled",
            Health::Ended => "ended",
        }
    }
}

/// The state of an attached subscriber at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttachedInfo {
    /// Its name.
    pub name: Arc<str>,
    /// Its delivery class.
    pub class: DeliveryClass,
    /// Its health.
    pub health: Health,
    /// The number of waiting deliveries.
    pub pending: usize,
    /// The number of deliveries that it took.
    pub delivered: u64,
    /// The number of deliveries lost, for any reason.
    pub lost: u64,
    /// The number of repeated deliveries.
    pub retries: u64,
    /// The number of times that it was recreated after a panic.
    pub restarts: u64,
    /// The last error, while it fails.
    pub error: Option<Arc<str>>,
}
