//! The port for subscribers that are no sessions: logs, files, webhooks, transports, an embedder's own code.
//!
//! Owns: the trait [`Subscriber`], what is delivered to one, and how it is attached. Never: lets one be noticed by
//! another: each runs on a thread of its own, behind a bounded queue or an outbox of its own, and what it does wrong
//! (fails, panics, stalls, starts slowly, does not end) is counted and logged under its name.
//! Receives notices from the publisher; hands them to subscribers, whose parts stand in the modules below.

mod attachment;
mod feed;
mod queue;
mod worker;

use std::sync::Arc;
use std::time::Duration;

pub use attachment::Attachment;
pub(crate) use attachment::{AttachmentState, Attachments, HeldSession, wait_for_end};
pub(crate) use feed::Feed;
pub(crate) use queue::Queue;
pub(crate) use worker::{Make, Worker};

use crate::model::{Filter, ListKind, Notice, NoticeKind, Position, Trace};

/// Takes what it subscribed to, one delivery after the other. It is made, called and dropped on a thread of its own,
/// so every method may block, and a panic ends nothing but this one: it is made anew.
pub trait Subscriber: 'static {
    /// Takes one delivery.
    ///
    /// # Errors
    /// [`SubscriberError::Again`] keeps the delivery, which is handed over again after a pause that grows to
    /// [`AttachOptions::backoff_max`]; what comes meanwhile waits in the queue or the outbox.
    /// [`SubscriberError::Later`] does so too, and says itself how long the pause is.
    /// [`SubscriberError::Refused`] drops it: it is counted, and told with the next [`Delivery::Gap`].
    fn take(&mut self, delivery: &Delivery) -> Result<(), SubscriberError>;

    /// Nothing waits to be taken, since [`AttachOptions::idle_every`] or since the last delivery: the time to flush.
    ///
    /// # Errors
    /// As [`Subscriber::take`]; it is called again in any case.
    fn idle(&mut self) -> Result<(), SubscriberError> {
        Ok(())
    }

    /// The last call: everything there was has been taken.
    ///
    /// # Errors
    /// Logged.
    fn close(&mut self) -> Result<(), SubscriberError> {
        Ok(())
    }
}

/// Why a subscriber did not take a delivery. The text is shown to operators: no secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubscriberError {
    /// It cannot now and wants it again.
    #[error("{0}")]
    Again(String),
    /// It cannot now and wants it again after this pause, or as soon as it is being detached.
    #[error("{reason}")]
    Later {
        /// How long to wait; it stands for the pause that grows by itself.
        after: Duration,
        /// Why it cannot now.
        reason: String,
    },
    /// It never will.
    #[error("{0}")]
    Refused(String),
}

/// What a subscriber is handed.
#[derive(Debug, Clone)]
pub enum Delivery {
    /// A resource changed.
    Notice(Arc<Notice>),
    /// A list changed; for the class *latest* the position is that of everything handed out so far.
    List(ListKind, Position),
    /// What became of a notice; only with [`AttachOptions::trace`].
    Trace(Arc<Trace>),
    /// Deliveries are missing here: the queue was full, or the subscriber refused them or panicked.
    Gap(Gap),
}

impl Delivery {
    /// What kind of news it is; none for a trace or a gap.
    pub fn kind(&self) -> Option<NoticeKind> {
        match self {
            Delivery::Notice(notice) => Some(notice.cause.into()),
            Delivery::List(kind, _) => Some(NoticeKind::List(*kind)),
            Delivery::Trace(_) | Delivery::Gap(_) => None,
        }
    }
}

/// Deliveries that a subscriber did not get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// How many, since the last delivery.
    pub lost: u64,
}

/// What is kept for a subscriber that is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryClass {
    /// Per resource the newest notice and per list the newest change, so that repeats cost nothing. Resources that wait
    /// at once are bounded by `pending_max` (at least 1); beyond it, those that changed last are dropped, counted and
    /// told as a gap.
    Latest {
        /// How many resources may wait.
        pending_max: usize,
    },
    /// Every notice, in order, in a queue of `capacity` (at least 1). When it is full, `overflow` says what is lost;
    /// the loss is counted and told as a gap where it happened.
    Every {
        /// How many deliveries may wait.
        capacity: usize,
        /// What is lost when the queue is full.
        overflow: Overflow,
    },
}

impl DeliveryClass {
    /// The class as it is written in configuration, labels and logs.
    pub fn name(self) -> &'static str {
        match self {
            DeliveryClass::Latest { .. } => "latest",
            DeliveryClass::Every { .. } => "every",
        }
    }
}

/// What a full queue loses. None of them makes the publisher wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// What has waited longest: the subscriber sees the end of a burst.
    DropOldest,
    /// What came last: the subscriber sees the beginning of a burst.
    DropNewest,
}

impl Overflow {
    /// The policy as it is written in configuration.
    pub fn name(self) -> &'static str {
        match self {
            Overflow::DropOldest => "drop_oldest",
            Overflow::DropNewest => "drop_newest",
        }
    }
}

/// How a subscriber is attached.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AttachOptions {
    /// What metrics, logs and [`Bus::attached`](crate::Bus::attached) call it; unique among those attached.
    pub name: Arc<str>,
    /// What it is handed (default: everything).
    pub filter: Filter,
    /// What is kept for it while it is behind (default: every notice, a queue of 10,000, the oldest dropped).
    pub class: DeliveryClass,
    /// Whether it is also handed what became of notices that its filter wants: of every n-th, counted by position
    /// (default: none). Only for the class *every*; a subscriber that traces is handed traces alone.
    pub trace: Option<u64>,
    /// A call that takes longer counts as a stall: logged, and shown until it returns (default 5 s).
    pub stall_timeout: Duration,
    /// The longest pause before a delivery is handed over again, or a subscriber that panicked or could not be made is
    /// made anew (default 30 s); the first is 100 ms.
    pub backoff_max: Duration,
    /// How often [`Subscriber::idle`] is called while nothing comes (default 1 s, at least 1 ms).
    pub idle_every: Duration,
}

impl AttachOptions {
    /// Everything, each notice, under this name.
    pub fn new(name: impl Into<Arc<str>>) -> AttachOptions {
        AttachOptions {
            name: name.into(),
            filter: Filter::default(),
            class: DeliveryClass::Every {
                capacity: 10_000,
                overflow: Overflow::DropOldest,
            },
            trace: None,
            stall_timeout: Duration::from_secs(5),
            backoff_max: Duration::from_secs(30),
            idle_every: Duration::from_secs(1),
        }
    }

    /// Hands over what `filter` wants.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> AttachOptions {
        self.filter = filter;
        self
    }

    /// Keeps what `class` says.
    #[must_use]
    pub fn class(mut self, class: DeliveryClass) -> AttachOptions {
        self.class = class;
        self
    }
}

/// Why a subscriber was not attached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// Another one has this name.
    #[error("a subscriber named {0:?} is attached already; detach it first or choose another name")]
    NameTaken(Arc<str>),
    /// As many as allowed are attached; see [`Limits::attached_max`](crate::Limits::attached_max).
    #[error("too many attached subscribers: the limit is {0}; detach one or raise the limit")]
    TooMany(usize),
    /// Its thread could not be started.
    #[error("the thread of subscriber {name:?} could not be started: {reason}")]
    Thread {
        /// Whose thread.
        name: Arc<str>,
        /// What the operating system said.
        reason: String,
    },
    /// The bus has stopped, or has no room for another session (class *latest*).
    #[error(transparent)]
    Open(#[from] crate::model::OpenError),
}

impl From<crate::model::Closed> for AttachError {
    fn from(closed: crate::model::Closed) -> AttachError {
        AttachError::Open(closed.into())
    }
}

/// How an attached subscriber fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// It is being made.
    Starting,
    /// It takes what it is handed.
    Running,
    /// It failed, could not be made, or panicked, and is tried again.
    Failing,
    /// One call has taken longer than its stall time-out.
    Stalled,
    /// It has ended.
    Ended,
}

impl Health {
    /// The state as it is written in labels and logs.
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

/// An attached subscriber, as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttachedInfo {
    /// What it is called.
    pub name: Arc<str>,
    /// What is kept for it.
    pub class: DeliveryClass,
    /// How it fares.
    pub health: Health,
    /// Deliveries that wait for it.
    pub pending: usize,
    /// Deliveries it took.
    pub delivered: u64,
    /// Deliveries it did not get, for whatever reason.
    pub lost: u64,
    /// Times that a delivery was handed over again.
    pub retries: u64,
    /// Times it was made anew after a panic.
    pub restarts: u64,
    /// What it last failed with, as long as it fails.
    pub error: Option<Arc<str>>,
}
