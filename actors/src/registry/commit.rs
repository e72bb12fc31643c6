//! The changes on their way to the store: which requests wait for them, and their end when the store fails.
//!
//! One batch of changes at a time is not durable. Requests for further changes wait here until the store's
//! thread has reported it, so a failure takes back that batch alone, and all other requests are answered at
//! once from the state before it.

use std::sync::Arc;
use std::time::Duration;

use actix::{AsyncContext, Context, Handler};

use super::{Registry, answer_list};
use crate::messages::{BatchStored, EtagRequest, Publish, PublishMany, RegistryRequest, RemoveUnclaimed};
use crate::model::{ListChange, ListHash, ListKind, Owner, PublishError, StoreError};
use crate::versions::StoreHealth;

/// The pause before a store that failed is tried again. It doubles up to [`RETRY_MAX`].
pub(super) const RETRY_MIN: Duration = Duration::from_millis(50);

const RETRY_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// All changes are durable.
    Idle,
    /// Changes were decided that the Etag actor has not got yet.
    Deciding,
    /// The store writes the changes.
    InFlight,
}

/// The state of the changes of a bus with a store.
pub(super) struct Commit {
    health: Arc<StoreHealth>,
    phase: Phase,
    /// True if the batch has more than attached subscribers.
    has_changes: bool,
    /// The hashes of the lists without the changes that are not durable.
    visible: [ListHash; 3],
    /// The resource list before the bursts that changed it, as it was before the batch.
    unannounced: Option<ListHash>,
    /// Requests that wait for the batch in flight. Each has a permit or is one of a few of the bus.
    held: Vec<RegistryRequest>,
    /// The owners whose unclaimed resources the batch in flight removes.
    finished: Vec<(Owner, u64)>,
    /// The error of a store that keeps nothing now.
    failure: Option<StoreError>,
    /// The pause before the next try.
    retry: Duration,
}

impl Commit {
    pub(super) fn new(health: Arc<StoreHealth>) -> Commit {
        Commit {
            health,
            phase: Phase::Idle,
            has_changes: false,
            visible: [ListHash::EMPTY; 3],
            unannounced: None,
            held: Vec::new(),
            finished: Vec::new(),
            failure: None,
            retry: RETRY_MIN,
        }
    }
}

impl Handler<BatchStored> for Registry {
    type Result = ();

    fn handle(&mut self, BatchStored(stored): BatchStored, ctx: &mut Context<Self>) {
        self.settle(stored, ctx);
        // What came meanwhile joins the next batch.
        self.decide_waiting();
        self.send_decided();
        self.continue_walks(ctx);
    }
}

impl RegistryRequest {
    fn is_attach(&self) -> bool {
        matches!(self, RegistryRequest::AttachQueue(_))
    }

    /// Returns true for requests that wait for the changes before them to become durable.
    fn is_change(&self) -> bool {
        match self {
            RegistryRequest::Publish(_)
            | RegistryRequest::PublishMany(_)
            | RegistryRequest::AnnounceList(_)
            | RegistryRequest::MembersChanged(_)
            | RegistryRequest::PublishList(_)
            | RegistryRequest::RemoveUnclaimed(_)
            | RegistryRequest::FinishStart(_)
            | RegistryRequest::Cursors(_)
            | RegistryRequest::AttachQueue(_) => true,
            RegistryRequest::Lookup(_) | RegistryRequest::Route(_) | RegistryRequest::ForgetRemoved(_) => {
                false
            }
        }
    }
}

/// Answers a request that is part of a read: a template's lister found other members. The change of the list
/// that it causes may wait, but not the read.
fn answered_early(mut request: RegistryRequest) -> RegistryRequest {
    if let RegistryRequest::PublishList(publish) = &mut request
        && let ListChange::Listed(..) = publish.change
    {
        answer_list(publish.reply.take(), Ok(true));
    }
    request
}

impl Registry {
    /// Returns the request if it may be decided now. Otherwise it waits, or is refused.
    pub(super) fn admit(&mut self, request: RegistryRequest) -> Option<RegistryRequest> {
        let Some(commit) = &mut self.commit else {
            return Some(request);
        };
        if !request.is_change() {
            return Some(request);
        }
        let attaches = request.is_attach();
        if commit.phase == Phase::InFlight || (attaches && commit.has_changes) {
            // Deciding it now would build on changes that may be taken back.
            commit.held.push(answered_early(request));
            return None;
        }
        if let Some(error) = &commit.failure {
            let error = PublishError::from(error);
            return self.admit_without_store(request, error);
        }
        self.begin_changes(!attaches);
        Some(request)
    }

    /// Returns the request if it needs no store.
    fn admit_without_store(
        &mut self,
        request: RegistryRequest,
        error: PublishError,
    ) -> Option<RegistryRequest> {
        match request {
            RegistryRequest::Publish(Publish { reply, .. }) => {
                self.metrics.count_refusal(&error);
                reply.answer(Err(error));
                None
            }
            RegistryRequest::PublishMany(PublishMany { changes, reply, .. }) => {
                let mut results = Vec::with_capacity(changes.len());
                for _change in changes {
                    self.metrics.count_refusal(&error);
                    results.push(Err(error.clone()));
                }
                reply.answer(results);
                None
            }
            RegistryRequest::RemoveUnclaimed(RemoveUnclaimed { owner, now, reply }) => {
                // Done when the store works again; the source that asked has nothing to add.
                if let Some(reply) = reply {
                    reply.answer(self.catalog.unclaimed().count_owned(&owner));
                }
                if let Some(commit) = &mut self.commit {
                    let reply = None;
                    let request = RemoveUnclaimed { owner, now, reply };
                    commit.held.push(RegistryRequest::RemoveUnclaimed(request));
                }
                None
            }
            RegistryRequest::MembersChanged(changed) => {
                // The template changed all the same: a failing store must not hold up the one who
                // registers it. Reads and polls show the members as they are.
                changed.reply.answer(Vec::new());
                None
            }
            // Tools, prompts and templates are registered anew in each life.
            request => Some(request),
        }
    }

    /// Returns true while changes of resources can be decided. Notes that one is.
    pub(super) fn may_change(&mut self) -> bool {
        match &self.commit {
            Some(commit) if commit.phase == Phase::InFlight || commit.failure.is_some() => false,
            Some(_) => {
                self.begin_changes(true);
                true
            }
            None => true,
        }
    }

    fn begin_changes(&mut self, has_changes: bool) {
        let Some(commit) = &mut self.commit else {
            return;
        };
        commit.has_changes |= has_changes;
        if commit.phase == Phase::Idle {
            commit.phase = Phase::Deciding;
            // Once per batch: each hash is a sum that is kept up to date anyway.
            commit.visible = ListKind::ALL.map(|kind| self.catalog.hash(kind));
            commit.unannounced = self.unannounced;
            self.audiences.note_visible(&mut self.catalog);
        }
    }

    /// Returns true while there are changes that are not durable.
    pub(super) fn has_unsettled_batch(&self) -> bool {
        matches!(&self.commit, Some(commit) if commit.phase != Phase::Idle)
    }

    /// Remembers that the batch removes the unclaimed resources of `owner`.
    pub(super) fn note_finished(&mut self, owner: Owner, now: u64) {
        if let Some(commit) = &mut self.commit {
            commit.finished.push((owner, now));
        }
    }

    /// The hash of a list without the changes that are not durable.
    pub(super) fn visible_hash(&self, kind: ListKind) -> ListHash {
        match &self.commit {
            Some(commit) if commit.phase != Phase::Idle => commit.visible[kind.index()],
            _ => self.catalog.hash(kind),
        }
    }

    /// Ends the batch before it is sent, if it has changes.
    pub(super) fn end_batch(&mut self) {
        if let Some(commit) = &mut self.commit
            && commit.phase == Phase::Deciding
        {
            commit.phase = Phase::InFlight;
            self.decided.push(EtagRequest::Commit);
        }
    }

    /// Takes the report of the store's thread, and decides the requests that waited for it.
    fn settle(&mut self, stored: Result<(), StoreError>, ctx: &mut Context<Registry>) {
        let Some(commit) = &mut self.commit else {
            return;
        };
        commit.phase = Phase::Idle;
        commit.has_changes = false;
        let visible = commit.visible;
        let held = std::mem::take(&mut commit.held);
        let finished = std::mem::take(&mut commit.finished);
        // Before all that is decided from here on, so that both actors agree on what is visible.
        self.decided.push(EtagRequest::Stored(stored.clone()));
        match stored {
            Ok(()) => {
                commit.retry = RETRY_MIN;
                if commit.failure.take().is_some() {
                    commit.health.recovered();
                }
                self.catalog.keep();
            }
            Err(error) => self.fail_store(error, visible, finished, ctx),
        }
        // Subscribers first: they go on from what is durable, in front of all changes that are not.
        let (attached, others): (Vec<_>, Vec<_>) = held.into_iter().partition(RegistryRequest::is_attach);
        for request in attached.into_iter().chain(others) {
            self.decide(request);
        }
    }

    /// Takes back the changes of the batch that the store could not keep.
    fn fail_store(
        &mut self,
        error: StoreError,
        visible: [ListHash; 3],
        finished: Vec<(Owner, u64)>,
        ctx: &mut Context<Registry>,
    ) {
        self.catalog.undo();
        self.metrics.set_registered(self.catalog.counts());
        let Some(commit) = &mut self.commit else {
            return;
        };
        // Before the refusals are sent: a publisher that gets one finds the reason in the state.
        commit.health.failed(&error);
        let first = commit.failure.replace(error).is_none();
        if first {
            self.unannounced = commit.unannounced;
        }
        ctx.run_later(commit.retry, |registry, _| registry.try_store());
        commit.retry = (commit.retry * 2).min(RETRY_MAX);
        for (owner, now) in finished {
            let reply = None;
            let request = RemoveUnclaimed { owner, now, reply };
            commit.held.push(RegistryRequest::RemoveUnclaimed(request));
        }
        // Changes of lists need no store. Their notices were dropped with the batch, so they are sent again.
        if first && !self.is_starting() {
            for kind in ListKind::ALL {
                let now = (kind, self.catalog.hash(kind));
                self.show_list(kind);
                self.decided.push(match visible[kind.index()] == now.1 {
                    true => EtagRequest::SameList(now),
                    false => EtagRequest::StartedList(now),
                });
            }
        }
    }

    /// Hands the cursors that have moved to the store, with the changes of this turn if there are any.
    pub(super) fn keep_cursors(&mut self) {
        if self.may_change() {
            self.send_decided();
        }
    }

    /// Lets the Etag actor try the store again.
    fn try_store(&mut self) {
        self.decided.push(EtagRequest::TryStore);
        self.send_decided();
    }
}
