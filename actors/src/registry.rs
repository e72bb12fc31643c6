//! The Registry actor: what exists, and whether a change is one. First on the way of every request.
//!
//! Owns: the [`Catalog`]. Never: knows versions or subscribers, waits, or asks an actor further down the way.
//! Receives from the bus and from sessions; sends to the Etag actor.

mod catalog;

use std::sync::Arc;

use actix::{Actor, Addr, Context, Handler};

use crate::messages::{
    AttachQueue, Effect, GetEtags, Known, Lookup, PageResources, Publish, PublishList, Read, Route, Stamp,
    StampEtags, StampList, StampPage, StampRead, StampSubscribe, StampWatchLists, Subscribe, WatchLists,
};
use crate::metrics::Metrics;
use crate::model::ListOutcome;
use crate::runtime::{CoreGuard, mailbox};
use crate::versions::{EtagActor, EtagIndex};
pub(crate) use catalog::Catalog;

/// What exists.
pub(crate) struct Registry {
    /// All the truth this actor has.
    pub(crate) catalog: Catalog,
    /// Where changes of tools show.
    pub(crate) etag_index: Arc<EtagIndex>,
    /// Next on the way.
    pub(crate) etag: Addr<EtagActor>,
    pub(crate) metrics: Arc<Metrics>,
    /// Makes this actor's death the bus's.
    pub(crate) _guard: CoreGuard,
}

impl Actor for Registry {
    type Context = Context<Self>;
}

impl Registry {
    fn known(&self, uri: &crate::model::ResourceUri) -> Known {
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
                    self.metrics.set_registered(self.catalog.counts());
                }
                let stamp = Stamp {
                    decision,
                    now: publish.now,
                    reply: publish.reply,
                };
                mailbox::send(&self.etag, stamp, &self.metrics);
            }
            Err(error) => {
                self.metrics.count_refusal(&error);
                publish.reply.answer(Err(error));
            }
        }
    }
}

impl Handler<PublishList> for Registry {
    type Result = ();

    fn handle(&mut self, publish: PublishList, _: &mut Context<Self>) {
        let reply = publish.reply;
        let of_tools = publish.change.is_of_tools();
        let applied = self.catalog.apply_list(publish.change, publish.now);
        if of_tools {
            // Also when the list looks the same: another tool may answer under the same item.
            self.etag_index.tools_changed();
        }
        self.metrics.set_registered(self.catalog.counts());
        match applied {
            Ok(Some(list)) => mailbox::send(&self.etag, StampList { list, reply }, &self.metrics),
            Ok(None) => {
                self.metrics.unchanged.add(1);
                reply.answer(Ok(ListOutcome {
                    changed: false,
                    notified: 0,
                }));
            }
            Err(error) => {
                self.metrics.count_refusal(&error);
                reply.answer(Err(error));
            }
        }
    }
}

impl Handler<Read> for Registry {
    type Result = ();

    fn handle(&mut self, Read { uri, reply }: Read, _: &mut Context<Self>) {
        let found = self.catalog.find(&uri);
        mailbox::send(&self.etag, StampRead { uri, found, reply }, &self.metrics);
    }
}

impl Handler<GetEtags> for Registry {
    type Result = ();

    fn handle(&mut self, GetEtags { uris, reply }: GetEtags, _: &mut Context<Self>) {
        let known = |uri: crate::model::ResourceUri| {
            let known = self.known(&uri);
            (uri, known)
        };
        let uris = uris.into_iter().map(known).collect();
        mailbox::send(&self.etag, StampEtags { uris, reply }, &self.metrics);
    }
}

impl Handler<PageResources> for Registry {
    type Result = ();

    fn handle(&mut self, page: PageResources, _: &mut Context<Self>) {
        let resources = self.catalog.resources_after(page.after.as_deref(), page.limit);
        mailbox::send(
            &self.etag,
            StampPage {
                resources,
                reply: page.reply,
            },
            &self.metrics,
        );
    }
}

impl Handler<Lookup> for Registry {
    type Result = ();

    fn handle(&mut self, find: Lookup, _: &mut Context<Self>) {
        let catalog = &self.catalog;
        match find {
            Lookup::Tools { after, limit, reply } => {
                reply.answer(catalog.tools_after(after.as_deref(), limit));
            }
            Lookup::Prompts { after, limit, reply } => {
                reply.answer(catalog.prompts_after(after.as_deref(), limit));
            }
            Lookup::Templates(reply) => reply.answer(catalog.templates()),
            Lookup::Tool(name, reply) => reply.answer(catalog.tool(&name)),
            Lookup::Prompt(name, reply) => reply.answer(catalog.prompt(&name)),
            Lookup::Subscribable(uri, reply) => reply.answer(catalog.subscribable(&uri, false).map(drop)),
            Lookup::Counts(reply) => reply.answer(catalog.counts()),
        }
    }
}

impl Handler<Subscribe> for Registry {
    type Result = ();

    fn handle(&mut self, subscribe: Subscribe, _: &mut Context<Self>) {
        let verdict = |uri: crate::model::ResourceUri| {
            let since = self.catalog.subscribable(&uri, subscribe.trusted)?;
            Ok((uri, since.map_or(Known::Registered, Known::Member)))
        };
        let verdicts = subscribe.uris.into_iter().map(verdict).collect();
        let Subscribe {
            outbox, max, reply, ..
        } = subscribe;
        mailbox::send(
            &self.etag,
            StampSubscribe {
                outbox,
                verdicts,
                max,
                reply,
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
            reply,
            ..
        } = watch;
        mailbox::send(
            &self.etag,
            StampWatchLists {
                outbox,
                lists,
                announce,
                reply,
            },
            &self.metrics,
        );
    }
}

impl Handler<AttachQueue> for Registry {
    type Result = ();

    fn handle(&mut self, attach: AttachQueue, _: &mut Context<Self>) {
        mailbox::send(&self.etag, attach, &self.metrics);
    }
}

impl Handler<Route> for Registry {
    type Result = ();

    fn handle(&mut self, route: Route, _: &mut Context<Self>) {
        mailbox::send(&self.etag, route, &self.metrics);
    }
}
