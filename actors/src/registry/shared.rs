//! The changes of a bus whose order is a log that several nodes share.
//!
//! A change is judged on what this node has applied, and the catalog is left as it is. What it would make is
//! proposed to the log, and takes effect when the log tells it (`records`), which is the same way for the
//! changes of other nodes. Of the changes of one URI, the next is judged when the one before has ended.

mod batches;
mod doubts;
mod floors;
mod history;
mod judgement;
mod proposals;
mod records;
mod requests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{ActorContext as _, Context, Handler};
use tokio::sync::mpsc;

use super::Registry;
use crate::messages::{HeardBatch, LogEnded, RegistryRequest};
use crate::model::Line;
use crate::model::{Change, Condition, Etag, Outcome, Owner, PublishError, Resource, ResourceUri, UriMap};
use crate::runtime::Reply;
use crate::shared_log::{
    AskNewest, Heard, LogEntry, LogState, LogStatus, LoggedResource, OperationId, Proposal,
};
use crate::versions::Ledger;
use batches::{Batch, ListEnd};
use doubts::Doubts;

/// The most proposals in flight; changes beyond that wait. The log may have a smaller limit of its own.
pub(crate) const PROPOSALS_MAX: usize = 4_096;

/// The interval in which changes that wait for the log to be read, and lists that were not told, are looked
/// at.
const CHECK: Duration = Duration::from_millis(500);

/// The state of the changes of a bus with a shared log.
pub(crate) struct SharedOrder {
    proposals: mpsc::Sender<Proposal>,
    status: Arc<LogStatus>,
    state: LogState,
    /// The lines of all applied records.
    ledger: Ledger,
    /// The newest record of each URI in the history that is read.
    places: UriMap<Place>,
    /// The URIs of the newest floor whose records may still be in the log, with their sequence numbers.
    forgotten: UriMap<u64>,
    /// The sequence number of the newest floor, 0 before there is one.
    floor: u64,
    /// The URIs that were not heard again, while the log is read once more.
    unheard: UriMap<()>,
    /// What another history has of URIs of which this node has a higher version.
    newer: UriMap<LoggedResource>,
    /// The URIs with changes that have not ended.
    queues: UriMap<Queue>,
    /// The URIs whose next change waits for a place among the proposals.
    ready: VecDeque<ResourceUri>,
    doubts: Doubts,
    /// The aims of the proposals in flight, by their numbers.
    in_flight: HashMap<u64, Aim>,
    batches: HashMap<u64, Batch>,
    next_batch: u64,
    /// The time of the last change of the resource list that was left to the end of a batch.
    unannounced_since: Option<Instant>,
    /// The URIs that each owner has published at this node. Changes of the API are not among them: it never
    /// says that it has published all.
    published: HashMap<Owner, HashSet<ResourceUri>>,
    /// Changes that came before the log was read.
    early: Vec<(Instant, RegistryRequest)>,
    node: u64,
    proposed: u64,
    timeout: Duration,
}

/// The newest record of a URI.
struct Place {
    sequence: u64,
    /// The proposals that made it and those before it, the newest first.
    operations: Vec<OperationId>,
}

/// The changes of one URI that have not ended, in their order.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Intent>,
    /// The change that is judged again when this node has more of the log.
    doubted: Option<Intent>,
    sent: Option<(Intent, Sent)>,
}

impl Queue {
    /// Returns true if the next change waits for the end of another one.
    fn is_held_up(&self) -> bool {
        self.sent.is_some() || self.doubted.is_some()
    }
}

/// A change that has not ended.
struct Intent {
    wish: Wish,
    condition: Condition,
    owner: Owner,
    /// Seconds since 1970, for the etag.
    now: u64,
    expires: Instant,
    /// The time at which it came; none for one of which this node has the record that came first.
    came: Option<Instant>,
    /// False for a change of a batch, which tells the resource list at its end.
    announces: bool,
    answer: Answer,
}

enum Wish {
    Change(Change),
    /// Moves a member of the changed template with this text to a new version.
    Member(ResourceUri, String),
    /// Puts into another history what this node has.
    Restate(ResourceUri),
}

impl Wish {
    fn uri(&self) -> &ResourceUri {
        match self {
            Wish::Change(change) => change.uri(),
            Wish::Member(uri, _) | Wish::Restate(uri) => uri,
        }
    }
}

/// The publisher that waits for a change.
enum Answer {
    One(Reply<Result<Outcome, PublishError>>),
    /// The change at this place of a batch.
    OfBatch(u64, usize),
    Silent,
}

impl Answer {
    fn at(&self) -> Option<Instant> {
        match self {
            Answer::One(reply) => Some(reply.at()),
            _ => None,
        }
    }
}

/// A proposal of a change, with its answer once the log has taken it.
struct Sent {
    operation: OperationId,
    outcome: Outcome,
    /// The resource, whose reader no record has.
    resource: Option<Arc<Resource>>,
    /// The sequence number that the newest record of the URI must have.
    expected: u64,
}

/// The part that a proposal in flight has in this node.
enum Aim {
    Resource(ResourceUri),
    List(ListEnd),
    Floor,
}

/// The result of judging a change.
enum Judgement {
    Unchanged(Outcome),
    Proposed {
        logged: Box<LoggedResource>,
        outcome: Outcome,
        resource: Option<Arc<Resource>>,
    },
}

impl SharedOrder {
    /// Creates the state of a node with this random number, before it has read anything.
    pub(crate) fn new(
        proposals: mpsc::Sender<Proposal>,
        status: Arc<LogStatus>,
        mut ledger: Ledger,
        (node, timeout): (u64, Duration),
        ask: Option<AskNewest>,
    ) -> SharedOrder {
        ledger.follow_log();
        SharedOrder {
            proposals,
            status,
            state: LogState::default(),
            ledger,
            places: UriMap::default(),
            forgotten: UriMap::default(),
            floor: 0,
            unheard: UriMap::default(),
            newer: UriMap::default(),
            queues: UriMap::default(),
            ready: VecDeque::new(),
            doubts: Doubts::new(ask),
            in_flight: HashMap::new(),
            batches: HashMap::new(),
            next_batch: 0,
            unannounced_since: None,
            published: HashMap::new(),
            early: Vec::new(),
            node,
            proposed: 0,
            timeout,
        }
    }

    /// Returns the etag of a registered resource as far as it is applied.
    pub(super) fn etag(&self, uri: &ResourceUri) -> Etag {
        self.ledger.etag(uri)
    }

    pub(super) fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// Returns the line of `uri` if it belongs to the history that is read.
    fn current_line(&self, uri: &ResourceUri) -> Option<&Line> {
        let begins = self.state.history?.offset(0);
        self.ledger.line(uri).filter(|line| line.offset >= begins)
    }

    /// Sends a proposal. Returns its identity; none if the log has ended.
    fn propose(
        &mut self,
        entry: LogEntry,
        expected: u64,
        (expires, aim): (Instant, Aim),
    ) -> Option<OperationId> {
        self.proposed += 1;
        let operation = OperationId {
            node: self.node,
            number: self.proposed,
        };
        let proposal = Proposal {
            operation,
            expected,
            entry,
            expires,
        };
        // The channel has room for all proposals that may be in flight.
        self.proposals.try_send(proposal).ok()?;
        self.in_flight.insert(operation.number, aim);
        Some(operation)
    }

    fn show(&mut self) {
        self.state.in_flight = self.in_flight.len();
        self.status.set(self.state);
    }
}

impl Handler<HeardBatch> for Registry {
    type Result = ();

    fn handle(&mut self, HeardBatch(heard): HeardBatch, ctx: &mut Context<Self>) {
        self.hear_batch(heard);
        self.ask_in_doubt(ctx);
        self.continue_walks(ctx);
    }
}

impl Handler<LogEnded> for Registry {
    type Result = ();

    /// Stops, which ends everything that waits for a record: none comes any more.
    fn handle(&mut self, _: LogEnded, ctx: &mut Context<Self>) {
        ctx.stop();
    }
}

impl Registry {
    fn hear_batch(&mut self, heard: Vec<Heard>) {
        let now = Instant::now();
        for heard in heard {
            self.hear(heard, now);
        }
        // Once per batch: a cold start hears a hundred thousand records.
        self.metrics.set_registered(self.catalog.counts());
        self.judge_ready();
        self.judge_cleared();
        // What waits in the inbox joins: publishers that were answered together also ask together.
        self.decide_waiting();
        self.send_decided();
        if let Some(shared) = &mut self.shared {
            shared.show();
        }
    }

    fn hear(&mut self, heard: Heard, now: Instant) {
        match heard {
            Heard::Opened(history) => self.open_history(history),
            Heard::Record {
                sequence,
                operation,
                entry,
            } => self.hear_record(sequence, operation, entry, now),
            Heard::CaughtUp => self.caught_up(),
            Heard::Ended(operation, verdict) => self.end_proposal(operation, verdict),
            Heard::Health(health) => {
                if let Some(shared) = &mut self.shared {
                    shared.state.health = health;
                }
            }
        }
    }

    /// Lets a change wait for those before it of its URI, and judges it if there is none.
    fn intend(&mut self, intent: Intent) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        // Before the judgement: what a source publishes again unchanged is not to be removed, either.
        shared.note_published(&intent);
        let uri = intent.wish.uri().clone();
        let queue = shared.queues.entry(uri.clone()).or_default();
        queue.waiting.push_back(intent);
        if !queue.is_held_up() && queue.waiting.len() == 1 {
            self.judge_next(uri);
        }
    }

    /// Judges the changes that waited for a place among the proposals.
    fn judge_ready(&mut self) {
        while let Some(shared) = &mut self.shared
            && shared.in_flight.len() < PROPOSALS_MAX
            && let Some(uri) = shared.ready.pop_front()
        {
            self.judge_next(uri);
        }
    }

    /// Judges the changes of a URI until one of them is proposed.
    fn judge_next(&mut self, uri: ResourceUri) {
        loop {
            let Some(shared) = &mut self.shared else {
                return;
            };
            let queue = shared.queues.get_mut(&uri);
            let Some(queue) = queue.filter(|queue| !queue.is_held_up()) else {
                return;
            };
            if queue.waiting.is_empty() {
                shared.queues.swap_remove(&uri);
                return;
            }
            if shared.in_flight.len() >= PROPOSALS_MAX {
                return shared.ready.push_back(uri);
            }
            let Some(intent) = queue.waiting.pop_front() else {
                return;
            };
            let judged = self.judge(&intent);
            if let Some(shared) = &mut self.shared
                && shared.doubts(&intent, &judged)
            {
                return shared.hold(intent);
            }
            match judged {
                Ok(Judgement::Unchanged(outcome)) => self.end_unproposed(intent.answer, Ok(outcome)),
                Err(error) => self.end_unproposed(intent.answer, Err(error)),
                Ok(Judgement::Proposed {
                    logged,
                    outcome,
                    resource,
                }) => return self.send_proposal(intent, *logged, (outcome, resource)),
            }
        }
    }
}

/// The error of a change that the log did not take.
fn unavailable(unknown: bool, reason: &str) -> PublishError {
    PublishError::LogUnavailable {
        unknown,
        full: false,
        reason: reason.into(),
    }
}
