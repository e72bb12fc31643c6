//! The Registry actor: what exists, and whether a change is one. First on the way of every request.
//!
//! Owns: the [`Catalog`]. Never: knows versions or subscribers, waits, or asks an actor further down the way.
//! Receives from the bus and from sessions; sends to the Etag actor.

use std::sync::Arc;

use actix::{Actor, Addr, Context, Handler};

use crate::board::Board;
use crate::catalog::{Catalog, Effect, Known};
use crate::change::ListOutcome;
use crate::etag_actor::EtagActor;
use crate::message::{
    AttachQueue, Find, Look, PageResources, Publish, PublishList, Read, Route, Stamp, StampList, StampLook,
    StampPage, StampRead, StampSubscribe, StampWatchLists, Subscribe, WatchLists,
};
use crate::metric::Metrics;
use crate::post::{Guard, post};

/// What exists.
pub(crate) struct Registry {
    /// All the truth this actor has.
    pub(crate) catalog: Catalog,
    /// Where changes of tools show.
    pub(crate) board: Arc<Board>,
    /// Next on the way.
    pub(crate) etag: Addr<EtagActor>,
    pub(crate) metrics: Arc<Metrics>,
    /// Makes this actor's death the bus's.
    pub(crate) _guard: Guard,
}

impl Actor for Registry {
    type Context = Context<Self>;
}

impl Registry {
    fn known(&self, uri: &crate::ResourceUri) -> Known {
        self.catalog
            .find(uri)
            .map_or(Known::Nothing, |found| found.known())
    }
}

impl Handler<Publish> for Registry {
    type Result = ();

    fn handle(&mut self, publish: Publish, _: &mut Context<Self>) {
        match self.catalog.apply(publish.change, publish.condition) {
            Ok(decision) => {
                if decision.created || decision.effect == Effect::Removed {
                    self.metrics.holds(self.catalog.counts());
                }
                let stamp = Stamp {
                    decision,
                    now: publish.now,
                    ticket: publish.ticket,
                };
                post(&self.etag, stamp, &self.metrics);
            }
            Err(error) => {
                self.metrics.refuse(&error);
                publish.ticket.answer(Err(error));
            }
        }
    }
}

impl Handler<PublishList> for Registry {
    type Result = ();

    fn handle(&mut self, publish: PublishList, _: &mut Context<Self>) {
        let ticket = publish.ticket;
        let of_tools = publish.change.is_of_tools();
        let applied = self.catalog.apply_list(publish.change, publish.now);
        if of_tools {
            // Also when the list looks the same: another tool may answer under the same item.
            self.board.tools_changed();
        }
        self.metrics.holds(self.catalog.counts());
        match applied {
            Ok(Some(list)) => post(&self.etag, StampList { list, ticket }, &self.metrics),
            Ok(None) => {
                self.metrics.unchanged.add(1);
                ticket.answer(Ok(ListOutcome {
                    changed: false,
                    told: 0,
                }));
            }
            Err(error) => {
                self.metrics.refuse(&error);
                ticket.answer(Err(error));
            }
        }
    }
}

impl Handler<Read> for Registry {
    type Result = ();

    fn handle(&mut self, Read { uri, ticket }: Read, _: &mut Context<Self>) {
        let found = self.catalog.find(&uri);
        post(&self.etag, StampRead { uri, found, ticket }, &self.metrics);
    }
}

impl Handler<Look> for Registry {
    type Result = ();

    fn handle(&mut self, Look { uris, ticket }: Look, _: &mut Context<Self>) {
        let known = |uri: crate::ResourceUri| {
            let known = self.known(&uri);
            (uri, known)
        };
        let uris = uris.into_iter().map(known).collect();
        post(&self.etag, StampLook { uris, ticket }, &self.metrics);
    }
}

impl Handler<PageResources> for Registry {
    type Result = ();

    fn handle(&mut self, page: PageResources, _: &mut Context<Self>) {
        let resources = self.catalog.resources_after(page.after.as_deref(), page.limit);
        post(
            &self.etag,
            StampPage {
                resources,
                ticket: page.ticket,
            },
            &self.metrics,
        );
    }
}

impl Handler<Find> for Registry {
    type Result = ();

    fn handle(&mut self, find: Find, _: &mut Context<Self>) {
        let catalog = &self.catalog;
        match find {
            Find::Tools { after, limit, ticket } => {
                ticket.answer(catalog.tools_after(after.as_deref(), limit));
            }
            Find::Prompts { after, limit, ticket } => {
                ticket.answer(catalog.prompts_after(after.as_deref(), limit));
            }
            Find::Templates(ticket) => ticket.answer(catalog.templates()),
            Find::Tool(name, ticket) => ticket.answer(catalog.tool(&name)),
            Find::Prompt(name, ticket) => ticket.answer(catalog.prompt(&name)),
            Find::Subscribable(uri, ticket) => ticket.answer(catalog.subscribable(&uri, false).map(drop)),
            Find::Counts(ticket) => ticket.answer(catalog.counts()),
        }
    }
}

impl Handler<Subscribe> for Registry {
    type Result = ();

    fn handle(&mut self, subscribe: Subscribe, _: &mut Context<Self>) {
        let verdict = |uri: crate::ResourceUri| {
            let since = self.catalog.subscribable(&uri, subscribe.trusted)?;
            Ok((uri, since.map_or(Known::Registered, Known::Member)))
        };
        let verdicts = subscribe.uris.into_iter().map(verdict).collect();
        let Subscribe {
            outbox, max, ticket, ..
        } = subscribe;
        post(
            &self.etag,
            StampSubscribe {
                outbox,
                verdicts,
                max,
                ticket,
            },
            &self.metrics,
        );
    }
}

impl Handler<WatchLists> for Registry {
    type Result = ();

    fn handle(&mut self, watch: WatchLists, _: &mut Context<Self>) {
        let hashes = self.catalog.hashes();
        let lists = watch
            .kinds
            .into_iter()
            .map(|kind| (kind, hashes[kind.index()]))
            .collect();
        let WatchLists {
            outbox,
            announce,
            ticket,
            ..
        } = watch;
        post(
            &self.etag,
            StampWatchLists {
                outbox,
                lists,
                announce,
                ticket,
            },
            &self.metrics,
        );
    }
}

impl Handler<AttachQueue> for Registry {
    type Result = ();

    fn handle(&mut self, attach: AttachQueue, _: &mut Context<Self>) {
        post(&self.etag, attach, &self.metrics);
    }
}

impl Handler<Route> for Registry {
    type Result = ();

    fn handle(&mut self, route: Route, _: &mut Context<Self>) {
        post(&self.etag, route, &self.metrics);
    }
}
