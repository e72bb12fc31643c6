//! The Registry actor: the catalog of everything registered, and the first actor of every request.
//!
//! It takes all requests in its inbox at once and sends its decisions to the Etag actor as one message, so
//! that a busy bus pays for few messages and few wake-ups.

mod batches;
mod catalog;
mod commit;
mod unclaimed;
mod lists;
mod pages;
mod audiences;
mod resume;
mod rights;
mod resources;
mod restart;
mod shared;

use std::sync::Arc;

use actix::{Actor, Context, Handler, Recipient};

use crate::messages::{
    AcceptedSubscription, Decision, Effect, EtagBatch, EtagRequest, FinishStart, Known, Lookup, Publish,
    PublishList, RegistryRequest, RemoveUnclaimed, Route, SubscriberRequest,
};
use crate::metrics::Metrics;
use crate::model::{
    Change, Condition, Etag, ListHash, ListKind, ListOutcome, Owner, PublishError, SubscribeError,
    SubscriptionRequest, SubscriptionRules,
};
use crate::outbox::Outbox;
use crate::runtime::{CoreGuard, Inbox, InboxReady, Reply, mailbox};
use crate::versions::EtagIndex;
use audiences::Audiences;
pub(crate) use catalog::Catalog;
use commit::Commit;
pub(crate) use restart::Restart;
use rights::{ListRequest, Purpose, WaitingRequest};
pub(crate) use shared::{PROPOSALS_MAX, SharedOrder};

/// The decided requests from which on a batch is sent without another look at the inbox.
const BATCH_MAX: usize = 256;

/// The Registry actor.
pub(crate) struct Registry {
    /// Stops the bus when this actor dies. The first field, so that a caller whose reply is dropped with
    /// the inbox finds the bus stopped.
    _guard: CoreGuard,
    inbox: Inbox<RegistryRequest>,
    catalog: Catalog,
    /// What the audiences of subscribers see of the lists.
    audiences: Audiences,
    /// The requests for lists whose audiences are being walked for: at most one or two per subscriber.
    waiting: Vec<WaitingRequest>,
    /// True if the next step of the walks is on its way.
    walks_later: bool,
    etag_index: Arc<EtagIndex>,
    etag: Recipient<EtagBatch>,
    /// The hash of the resource list before the first change of a burst that was not announced.
    unannounced: Option<ListHash>,
    /// Requests decided in this turn.
    decided: Vec<EtagRequest>,
    /// The state of a life that continues another one; none without a store.
    restart: Option<Restart>,
    /// The changes that are not durable; none without a store.
    commit: Option<Commit>,
    /// The changes of a shared log; none without one.
    shared: Option<Box<SharedOrder>>,
    metrics: Arc<Metrics>,
}

impl Actor for Registry {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.begin_checks(ctx);
        self.begin_shared_checks(ctx);
    }
}

impl Handler<InboxReady> for Registry {
    type Result = ();

    fn handle(&mut self, InboxReady: InboxReady, ctx: &mut Context<Self>) {
        // Requests that come while a batch is decided join it: publishers that are answered together also
        // ask together.
        while self.decide_waiting() && self.decided.len() < BATCH_MAX {}
        self.send_decided();
        self.ask_in_doubt(ctx);
        self.continue_walks(ctx);
    }
}

impl Registry {
    fn send_decided(&mut self) {
        self.end_batch();
        if self.audiences.is_used() {
            self.audiences.follow(&mut self.catalog);
        }
        if !self.decided.is_empty() {
            let decided = std::mem::take(&mut self.decided);
            mailbox::send_to(&self.etag, EtagBatch(decided), &self.metrics);
        }
    }

    pub(crate) fn new(
        inbox: Inbox<RegistryRequest>,
        mut catalog: Catalog,
        etag_index: Arc<EtagIndex>,
        etag: Recipient<EtagBatch>,
        (metrics, guard, restart): (Arc<Metrics>, CoreGuard, Option<Restart>),
    ) -> Registry {
        let mut commit = None;
        if let Some(restart) = &restart {
            catalog.record_changes();
            commit = Some(Commit::new(restart.health.clone()));
        }
        Registry {
            _guard: guard,
            inbox,
            catalog,
            audiences: Audiences::new(metrics.clone()),
            waiting: Vec::new(),
            walks_later: false,
            etag_index,
            etag,
            unannounced: None,
            decided: Vec::new(),
            restart,
            commit,
            shared: None,
            metrics,
        }
    }

    /// Leaves the order of changes to a log that several nodes share.
    pub(crate) fn with_shared_order(mut self, shared: Option<SharedOrder>) -> Registry {
        if shared.is_some() {
            self.catalog.record_changes();
        }
        self.shared = shared.map(Box::new);
        self
    }

    /// Decides the requests in the inbox. Returns false if there were none.
    fn decide_waiting(&mut self) -> bool {
        let mut requests = self.inbox.take();
        let any = !requests.is_empty();
        for request in requests.drain(..) {
            self.decide(request);
        }
        self.inbox.put_back(requests);
        any
    }

    fn decide(&mut self, request: RegistryRequest) {
        // A request is large, and handing it to and fro would copy it each time.
        if self.shared.is_some() {
            if let Some(request) = self.share(request) {
                self.decide_admitted(request);
            }
        } else if self.commit.is_none() {
            self.decide_admitted(request);
        } else if let Some(request) = self.admit(request) {
            self.decide_admitted(request);
        }
    }

    fn decide_admitted(&mut self, request: RegistryRequest) {
        match request {
            RegistryRequest::Publish(publish) => self.publish(publish),
            RegistryRequest::PublishMany(publish) => self.publish_many(publish),
            RegistryRequest::AnnounceList(announce) => self.announce_list(announce),
            RegistryRequest::MembersChanged(changed) => self.change_members(changed),
            RegistryRequest::PublishList(publish) => self.publish_list(publish),
            RegistryRequest::Lookup(lookup) => self.look_up(lookup),
            RegistryRequest::Route(route) => self.route(route),
            RegistryRequest::AttachQueue(attach) => self.decided.push(EtagRequest::AttachQueue(attach)),
            RegistryRequest::Cursors(request) => self.decided.push(EtagRequest::Cursors(request)),
            RegistryRequest::RemoveUnclaimed(RemoveUnclaimed { owner, now, reply }) => {
                let uris = self.catalog.unclaimed().take_owned(&owner);
                self.note_finished(owner, now);
                self.decided.push(EtagRequest::Unclaimed { uris, now, reply });
            }
            RegistryRequest::FinishStart(FinishStart(reply)) => self.finish_start(reply),
            RegistryRequest::ForgetRemoved(forget) => self.forget_removed(forget),
        }
    }

    fn subscribe(
        &self,
        outbox: &Outbox,
        requests: Vec<SubscriptionRequest>,
        rules: SubscriptionRules,
    ) -> Vec<Result<AcceptedSubscription, SubscribeError>> {
        let may_await = rules.trusted || rules.pending_max > 0;
        let mut accepted = Vec::with_capacity(requests.len());
        for SubscriptionRequest { uri, known } in requests {
            if !outbox.may_be_told(&uri) {
                accepted.push(Err(SubscribeError::NotFound(uri)));
                continue;
            }
            let registration = match self.catalog.subscribable(&uri, rules.trusted) {
                Ok(Some(family)) => Ok(Known::Member(family)),
                Ok(None) => Ok(Known::Registered),
                // A subscriber that says what it holds may come back before the publisher does.
                Err(SubscribeError::NotFound(_)) if known.is_some() && may_await => Ok(Known::Absent),
                Err(error) => Err(error),
            };
            accepted.push(match registration {
                Ok(registration) => Ok(AcceptedSubscription {
                    uri,
                    registration,
                    known,
                    resumed: None,
                }),
                Err(error) => Err(error),
            });
        }
        accepted
    }

    fn publish(&mut self, publish: Publish) {
        let Publish {
            change,
            condition,
            owner,
            now,
            reply,
        } = publish;
        let decided = self.decide_change(change, &condition, &owner);
        self.collect_evicted(now);
        match decided {
            Ok(decision) => {
                if decision.created || decision.effect == Effect::Removed {
                    self.metrics.set_registered(self.catalog.counts());
                }
                if decision.list.is_some() {
                    self.show_list(ListKind::Resources);
                    // The new hash covers what a burst has changed so far.
                    self.unannounced = None;
                }
                self.decided.push(EtagRequest::Change { decision, now, reply });
            }
            Err(error) => reply.answer(Err(error)),
        }
    }

    /// Makes a change in the catalog if its condition holds.
    fn decide_change(
        &mut self,
        change: Change,
        condition: &Condition,
        owner: &Owner,
    ) -> Result<Decision, PublishError> {
        let mut decided = match self.check(&change, condition, owner) {
            Ok(()) => self.catalog.apply(change, owner),
            Err(error) => Err(error),
        };
        match &mut decided {
            Ok(decision) if self.is_starting() => decision.list = None,
            Ok(_) => {}
            Err(error) => self.metrics.count_refusal(error),
        }
        decided
    }

    /// Checks the condition of a change at this point in the order of changes.
    fn check(&self, change: &Change, condition: &Condition, owner: &Owner) -> Result<(), PublishError> {
        let Condition::Etag(condition) = condition else {
            return Ok(());
        };
        let uri = change.uri();
        // The index may still show an older version, since changes in this turn are not stamped yet. The
        // generation tells the two apart.
        let generation = self.catalog.generation(uri);
        let exists = generation.is_some() || condition.member.is_some();
        // A request that would fail without its condition fails for that reason first (RFC 9110 13.2.1).
        self.catalog.check_owner(uri, owner)?;
        match change {
            Change::Register(_) if exists => return Err(PublishError::AlreadyExists(uri.clone())),
            Change::Touch(_) if !exists => return Err(PublishError::NotFound(uri.clone())),
            Change::Update(_) | Change::Remove(_) if generation.is_none() => {
                return Err(PublishError::NotFound(uri.clone()));
            }
            _ => {}
        }
        let etag = match generation {
            Some(_) if self.shared.is_some() => self.shared.as_ref().map(|shared| shared.etag(uri)),
            // The Etag actor has not stamped a newer generation yet, so no caller can have named its etag.
            Some(generation) => self.etag_index.etag_at(uri.as_str(), generation),
            None => condition.member,
        };
        if condition.holds(exists, etag) {
            return Ok(());
        }
        let current = match exists {
            true => etag,
            false => Some(Etag::UNKNOWN),
        };
        Err(PublishError::Conflict {
            uri: uri.clone(),
            current,
        })
    }

    fn publish_list(&mut self, publish: PublishList) {
        let reply = publish.reply;
        let of_tools = publish.change.is_of_tools();
        let applied = self.catalog.apply_list(publish.change, publish.now);
        // Before the change of the list: what a client reads because of it has the new versions.
        let families = self.catalog.take_family_changes();
        if let Some(shared) = &mut self.shared {
            for family in &families {
                shared.ledger_mut().change_family(family.clone());
            }
        }
        self.decided.extend(families.into_iter().map(EtagRequest::Family));
        if of_tools {
            // Also when the list looks the same: another tool may answer under the same item.
            self.etag_index.tools_changed();
        }
        self.metrics.set_registered(self.catalog.counts());
        match applied {
            // Announced at the end of the start, if it still differs then.
            Ok(Some(_)) if self.is_starting() => answer_list(reply, Ok(true)),
            Ok(Some(list)) => {
                if list.0 == ListKind::Resources {
                    self.unannounced = None;
                }
                self.show_list(list.0);
                self.decided.push(match reply {
                    Some(reply) => EtagRequest::List { list, reply },
                    None => EtagRequest::StartedList(list),
                });
            }
            Ok(None) => {
                self.metrics.unchanged.add(1);
                answer_list(reply, Ok(false));
            }
            Err(error) => {
                self.metrics.count_refusal(&error);
                answer_list(reply, Err(error));
            }
        }
    }

    fn look_up(&mut self, lookup: Lookup) {
        let catalog = &self.catalog;
        match lookup {
            Lookup::Resources(uris, reply) => {
                let found = uris.into_iter().map(|uri| {
                    let found = catalog.find(&uri);
                    (uri, found)
                });
                let found = found.collect();
                self.decided.push(EtagRequest::Resources { found, reply });
            }
            Lookup::ResourcePage(query, reply) => reply.answer(self.resources_page(&query)),
            Lookup::Tools(query, reply) => reply.answer(self.tools_page(&query)),
            Lookup::Prompts(query, reply) => reply.answer(self.prompts_page(&query)),
            Lookup::Templates(reply) => reply.answer(catalog.templates()),
            Lookup::Tool(name, reply) => reply.answer(catalog.tool(&name)),
            Lookup::Prompt(name, reply) => reply.answer(catalog.prompt(&name)),
            Lookup::Subscribable(uri, reply) => reply.answer(catalog.subscribable(&uri, false).map(drop)),
            Lookup::Counts(reply) => reply.answer(catalog.counts()),
        }
    }

    fn route(&mut self, Route { outbox, request }: Route) {
        let request = match request {
            SubscriberRequest::Subscribe {
                requests,
                rules,
                reply,
            } => {
                let accepted = self.subscribe(&outbox, requests, rules);
                EtagRequest::Subscribe {
                    outbox,
                    accepted,
                    rules,
                    reply,
                }
            }
            SubscriberRequest::Resume { told, is_sure, reply } => {
                let accepted = self.resume(&outbox, told, is_sure);
                EtagRequest::Subscribe {
                    outbox,
                    accepted,
                    rules: SubscriptionRules::RESUMED,
                    reply,
                }
            }
            SubscriberRequest::WatchLists { kinds, start, reply } => {
                let purpose = Purpose::Watch { start, reply };
                return self.ask_for_lists(ListRequest {
                    outbox,
                    kinds,
                    purpose,
                });
            }
            SubscriberRequest::Settle(kinds) => {
                return self.ask_for_lists(ListRequest {
                    outbox,
                    kinds,
                    purpose: Purpose::Settle,
                });
            }
            request => EtagRequest::Route(Route { outbox, request }),
        };
        self.decided.push(request);
    }
}

/// Answers a change of a list that sends no notice; the value is true if the list changed.
fn answer_list(reply: Option<Reply<Result<ListOutcome, PublishError>>>, changed: Result<bool, PublishError>) {
    if let Some(reply) = reply {
        let notified = 0;
        reply.answer(changed.map(|changed| ListOutcome { changed, notified }));
    }
}

#[cfg(test)]
mod tests;
