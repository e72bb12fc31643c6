//! The state of this node that outlives a connection, shared by the parts that run beside each other on the
//! thread of the log.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidings_actors::shared_log::{Heard, LogEntry, LogHealth, OperationId, Proposal, Verdict};
use tokio::sync::{Notify, mpsc};

use super::bodies::{BodyQueue, NamedBodies, WaitingBody};
use super::identity::KnownLog;
use super::in_flight::{InFlight, RecordToSend};
use super::names::LogNames;
use super::record::{self, LogRecord};
use super::settings::ClusterSettings;
use crate::metrics::ClusterMetrics;

/// The bytes of a message that its headers and its subject may take.
const HEADER_BYTES: usize = 1_024;

/// The most records that are told at once.
const TOLD_AT_ONCE_MAX: usize = 64;

/// The end of the log: the node has closed one of the channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stopped;

/// The state of this node.
pub(super) struct NodeState {
    pub(super) settings: ClusterSettings,
    pub(super) names: LogNames,
    /// Random for each start, so that the consumers of two starts have different names.
    pub(super) boot: u32,
    heard: mpsc::Sender<Heard>,
    /// What the node is told next, once its channel has room. A part that tells something may be ended while
    /// it waits for that, so the others go on with it.
    untold: RefCell<VecDeque<Heard>>,
    health: Cell<Option<LogHealth>>,
    pub(super) in_flight: RefCell<InFlight>,
    /// The proposals whose bodies are stored first.
    pub(super) bodies: RefCell<BodyQueue>,
    /// Told when a body may be stored.
    pub(super) body_wake: Notify,
    /// The bodies that the newest records name.
    pub(super) named: NamedBodies,
    /// Told when a proposal may be sent.
    pub(super) wake: Notify,
    /// Told when a proposal must be looked at earlier than before.
    pub(super) timer: Notify,
    /// Told when a server reports a newest record that is older than one heard here.
    pub(super) doubt: Notify,
    /// The log that is read; none before it is opened.
    pub(super) known: RefCell<Option<KnownLog>>,
    /// The newest record that was told, and its proposal.
    pub(super) newest: Cell<Option<(u64, OperationId)>>,
    pub(super) is_caught_up: Cell<bool>,
    /// The sequence number of the newest delivery.
    pub(super) delivered: Cell<u64>,
    /// The newest floor that was heard, 0 before there is one.
    pub(super) floor: Cell<u64>,
    /// The newest sequence number of the log when its reading began from its first record.
    pub(super) began_at: Cell<u64>,
    /// True if the log must be read from its first record again.
    pub(super) must_read_all: Cell<bool>,
    /// The last time at which a server was left that took no change.
    left: Cell<Option<Instant>>,
    /// False while the log may not be written: it was not opened yet, or cannot be read.
    is_writable: Cell<bool>,
    /// The reason for which no proposal is taken.
    halted: RefCell<Option<Arc<str>>>,
    /// The largest message that the server takes.
    pub(super) payload_max: Cell<usize>,
    /// The number of consumers that were made.
    pub(super) consumers: Cell<u64>,
    pub(super) metrics: ClusterMetrics,
}

impl NodeState {
    pub(super) fn new(
        settings: ClusterSettings,
        boot: u32,
        (heard, named): (mpsc::Sender<Heard>, NamedBodies),
    ) -> NodeState {
        let metrics = ClusterMetrics::new();
        NodeState {
            names: LogNames::new(&settings.namespace),
            in_flight: RefCell::new(InFlight::new(metrics.clone(), Instant::now())),
            bodies: RefCell::default(),
            body_wake: Notify::new(),
            named,
            settings,
            boot,
            heard,
            untold: RefCell::default(),
            health: Cell::new(None),
            wake: Notify::new(),
            timer: Notify::new(),
            doubt: Notify::new(),
            known: RefCell::new(None),
            newest: Cell::new(None),
            is_caught_up: Cell::new(false),
            delivered: Cell::new(0),
            floor: Cell::new(0),
            began_at: Cell::new(0),
            must_read_all: Cell::new(false),
            left: Cell::new(None),
            is_writable: Cell::new(false),
            halted: RefCell::new(None),
            payload_max: Cell::new(1 << 20),
            consumers: Cell::new(0),
            metrics,
        }
    }

    /// Tells the node, once it has room.
    pub(super) async fn tell(&self, heard: Heard) -> Result<(), Stopped> {
        self.untold.borrow_mut().push_back(heard);
        self.tell_untold().await
    }

    /// Tells the node several things in their order.
    pub(super) async fn tell_all(&self, heard: Vec<Heard>) -> Result<(), Stopped> {
        self.untold.borrow_mut().extend(heard);
        self.tell_untold().await
    }

    /// Tells the node what it could not be told yet.
    pub(super) async fn tell_untold(&self) -> Result<(), Stopped> {
        while !self.untold.borrow().is_empty() {
            let permit = self.heard.reserve().await.map_err(|_| Stopped)?;
            // Another part may have told the last one while this one waited.
            if let Some(heard) = self.untold.borrow_mut().pop_front() {
                permit.send(heard);
            }
        }
        Ok(())
    }

    /// Tells the node of its connection, if it changed.
    pub(super) async fn tell_health(&self, health: LogHealth) -> Result<(), Stopped> {
        let is_connected = health != LogHealth::Disconnected;
        self.metrics.connected.set(if is_connected { 1.0 } else { 0.0 });
        let has_quorum = health == LogHealth::Connected;
        self.metrics.quorum.set(if has_quorum { 1.0 } else { 0.0 });
        if self.health.replace(Some(health)) == Some(health) {
            return self.tell_untold().await;
        }
        match health {
            LogHealth::Connected => tracing::info!("the shared log takes changes"),
            LogHealth::NoQuorum => tracing::warn!("the shared log takes no changes: it has no leader"),
            LogHealth::Disconnected => tracing::warn!("no server of the shared log is connected"),
        }
        self.tell(Heard::Health(health)).await
    }

    /// Takes a proposal: keeps it until it has an end, or refuses it at once.
    pub(super) async fn propose(&self, mut proposal: Proposal) -> Result<(), Stopped> {
        let halted = self.halted.borrow().clone();
        if let Some(reason) = halted {
            return self.refuse(proposal.operation, reason).await;
        }
        let now = Instant::now();
        // A proposal that never ends would keep its place in the table.
        proposal.expires = proposal.expires.min(now + self.settings.publish_timeout);
        // The client would not send a larger one, and no answer would ever come.
        let max = self.payload_max.get().saturating_sub(HEADER_BYTES);
        let inline_max = self.settings.inline_bytes_max;
        let mut encoded = record::encode(proposal.operation, &proposal.entry, inline_max);
        if encoded.bytes.len() > max {
            encoded = record::encode(proposal.operation, &proposal.entry, 0);
        }
        if encoded.bytes.len() > max {
            let reason = format!(
                "the change takes {} bytes, and the servers of the shared log take {max}; shorten it, or raise \
                 max_payload of the servers",
                encoded.bytes.len()
            );
            return self.refuse(proposal.operation, reason.into()).await;
        }
        let subject = match &proposal.entry {
            LogEntry::Resource(logged) => self.names.resource(&logged.uri),
            LogEntry::ResourceList => self.names.list(),
            LogEntry::Floor { .. } => self.names.floor(),
        };
        let subject = subject.into();
        let frame = encoded.bytes.into();
        match encoded.body {
            Some(hash) => {
                self.bodies.borrow_mut().add(proposal, subject, frame, hash);
                self.body_wake.notify_one();
            }
            None => {
                let has_body_apart = false;
                let record = RecordToSend {
                    subject,
                    frame,
                    has_body_apart,
                };
                self.in_flight.borrow_mut().add(proposal, record, now);
            }
        }
        Ok(())
    }

    /// Lets the record of a stored body be sent.
    pub(super) fn send_record(&self, stored: WaitingBody) {
        let record = RecordToSend {
            subject: stored.subject,
            frame: stored.frame,
            has_body_apart: true,
        };
        self.in_flight
            .borrow_mut()
            .add(stored.proposal, record, Instant::now());
        self.wake.notify_one();
        self.timer.notify_one();
    }

    async fn refuse(&self, operation: OperationId, reason: Arc<str>) -> Result<(), Stopped> {
        let full = false;
        self.tell(Heard::Ended(operation, Verdict::Refused { full, reason }))
            .await
    }

    /// The most records that can be told at once.
    pub(super) fn told_at_once_max(&self) -> usize {
        // Half of the channel, so that what else is told finds room beside them.
        (self.heard.max_capacity() / 2).clamp(1, TOLD_AT_ONCE_MAX)
    }

    /// Tells the node records, at most [`told_at_once_max`](Self::told_at_once_max), and everything that is
    /// due before and after each. Their places are taken at once, so that the node wakes once for all. A
    /// place of the log without a record is one that was replaced before its body could be read.
    pub(super) async fn tell_records(
        &self,
        records: impl ExactSizeIterator<Item = (u64, Option<LogRecord>)>,
    ) -> Result<(), Stopped> {
        // The history that they belong to may be among it.
        self.tell_untold().await?;
        let permits = self.heard.reserve_many(records.len()).await;
        let mut permits = permits.map_err(|_| Stopped)?;
        for ((sequence, record), permit) in records.zip(&mut permits) {
            self.tell_own(|in_flight| in_flight.has_overtaken(sequence))
                .await?;
            if self.is_told(sequence) {
                continue;
            }
            let Some(record) = record else {
                drop(permit);
                self.skip_record(sequence).await?;
                continue;
            };
            // With its place in the channel, so that no verdict of another part comes before the record.
            let ended = self
                .in_flight
                .borrow_mut()
                .told(sequence, record.operation, &record.entry);
            permit.send(Heard::Record {
                sequence,
                operation: record.operation,
                entry: record.entry,
            });
            self.newest.set(Some((sequence, record.operation)));
            self.passed(sequence, ended).await?;
        }
        self.tell_acknowledged().await
    }

    /// True if the record at `sequence` was told, or replaced before it could be.
    pub(super) fn is_told(&self, sequence: u64) -> bool {
        sequence <= self.in_flight.borrow().told_sequence()
    }

    /// Tells the node the records of its own that the servers have stored, as far as their places in the log
    /// come next. Their deliveries, which are still on their way, add nothing.
    pub(super) async fn tell_acknowledged(&self) -> Result<(), Stopped> {
        self.tell_own(InFlight::has_next).await
    }

    /// Tells the node the first stored records of its own, as long as they are due.
    async fn tell_own(&self, is_due: impl Fn(&InFlight) -> bool) -> Result<(), Stopped> {
        while is_due(&self.in_flight.borrow()) {
            let permit = self.heard.reserve().await.map_err(|_| Stopped)?;
            // Another part may have told it while this one waited.
            let is_still_due = is_due(&self.in_flight.borrow());
            if !is_still_due {
                break;
            }
            let Some(own) = self.in_flight.borrow_mut().take_stored() else {
                break;
            };
            permit.send(Heard::Record {
                sequence: own.sequence,
                operation: own.operation,
                entry: own.entry,
            });
            self.newest.set(Some((own.sequence, own.operation)));
            self.passed(own.sequence, own.ended).await?;
        }
        Ok(())
    }

    /// Notes that the record at `sequence` was replaced before its body could be read.
    async fn skip_record(&self, sequence: u64) -> Result<(), Stopped> {
        let ended = self.in_flight.borrow_mut().skipped(sequence);
        self.passed(sequence, ended).await
    }

    async fn passed(&self, sequence: u64, ended: Vec<Heard>) -> Result<(), Stopped> {
        if let Some(known) = &mut *self.known.borrow_mut() {
            known.heard = sequence;
        }
        self.metrics.applied.set(sequence as f64);
        // A place in the table may have become free.
        if self.in_flight.borrow().has_waiting() {
            self.wake.notify_one();
        }
        self.tell_all(ended).await
    }

    /// Returns a name for a consumer that no other one has.
    pub(super) fn next_consumer(&self) -> String {
        let number = self.consumers.get() + 1;
        self.consumers.set(number);
        format!("{}-{:08x}-{number}", self.settings.node_name(), self.boot)
    }

    /// Notes that a server is left because it took no change.
    pub(super) fn leave(&self, now: Instant) {
        self.left.set(Some(now));
    }

    /// True since a server was left that took no change, until another one takes any.
    pub(super) fn is_searching(&self) -> bool {
        match self.left.get() {
            Some(left) => !self.in_flight.borrow().is_decided_since(left),
            None => false,
        }
    }

    /// True while proposals may be sent.
    pub(super) fn is_writable(&self) -> bool {
        self.is_writable.get()
    }

    /// Lets proposals be sent, or keeps them.
    pub(super) fn set_writable(&self, is_writable: bool) {
        self.is_writable.set(is_writable);
        if is_writable {
            *self.halted.borrow_mut() = None;
            self.wake.notify_one();
            self.body_wake.notify_one();
        }
    }

    /// Refuses all proposals from now on: the node cannot apply what it would write. Returns true if the
    /// reason is a new one.
    pub(super) fn halt(&self, reason: &str) -> bool {
        self.set_writable(false);
        let before = self.halted.replace(Some(reason.into()));
        before.as_deref() != Some(reason)
    }
}

/// The time since 1970 in milliseconds.
pub(super) fn now_millis() -> u64 {
    // A clock before 1970 counts as 1970; epochs grow all the same.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a duration between `least` and `most` milliseconds, so that nodes do not act at the same moment.
pub(super) fn spread(least: u64, most: u64) -> Duration {
    // Without random numbers the middle is as good.
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    let width = most.saturating_sub(least) as f64;
    let part = width * f64::from(random) / f64::from(u32::MAX);
    Duration::from_millis(least) + Duration::from_secs_f64(part / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn verdict_of_an_ended_part_is_told_by_others() {
        let (heard, mut told) = mpsc::channel(1);
        let node = NodeState::new(ClusterSettings::default(), 1, (heard, NamedBodies::default()));
        let operation = OperationId { node: 1, number: 7 };
        node.tell(Heard::CaughtUp).await.unwrap();
        // The channel is full, and the part that waits for room is ended.
        let verdict = node.tell(Heard::Ended(operation, Verdict::Lost));
        assert!(verdict.now_or_never().is_none());
        let mut next = async || format!("{:?}", told.recv().await.unwrap());
        assert_eq!(next().await, format!("{:?}", Heard::CaughtUp));
        let (others, told) = tokio::join!(node.tell_health(LogHealth::NoQuorum), async {
            [next().await, next().await]
        });
        others.unwrap();
        assert_eq!(
            told,
            [
                format!("{:?}", Heard::Ended(operation, Verdict::Lost)),
                format!("{:?}", Heard::Health(LogHealth::NoQuorum)),
            ]
        );
    }
}
