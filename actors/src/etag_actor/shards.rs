//! The way from the Etag actor to the Publisher shards.
//!
//! Owns: their addresses. Never: decides which shard is meant; an outbox knows its own, and a change goes to all.

use std::sync::Arc;

use actix::{Addr, Handler};

use crate::message::Fan;
use crate::metric::Metrics;
use crate::post::post;
use crate::publisher::Publisher;

/// The publisher shards, as the Etag actor sends to them.
pub(crate) struct Shards {
    pub(crate) addrs: Vec<Addr<Publisher>>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Shards {
    pub(super) fn fan(&self, fan: &Fan) {
        for addr in &self.addrs {
            post(addr, fan.clone(), &self.metrics);
        }
    }

    pub(super) fn send<M>(&self, shard: usize, message: M)
    where
        Publisher: Handler<M>,
        M: actix::Message<Result = ()> + Send + 'static,
    {
        if let Some(addr) = self.addrs.get(shard) {
            post(addr, message, &self.metrics);
        }
    }
}
