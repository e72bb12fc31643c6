//! The requests that become proposals, and their wait until the log was read.

use std::time::Instant;

use actix::{AsyncContext, Context};

use super::{Answer, CHECK, Intent, Wish, unavailable};
use crate::messages::{Publish, RegistryRequest};
use crate::registry::Registry;

impl Registry {
    /// Starts the timer of a bus with a shared log.
    pub(in crate::registry) fn begin_shared_checks(&self, ctx: &mut Context<Registry>) {
        if self.shared.is_some() {
            ctx.run_interval(CHECK, |registry, ctx| {
                registry.refuse_early();
                registry.refuse_late_doubted();
                registry.share_forgotten();
                registry.send_decided();
                registry.ask_in_doubt(ctx);
            });
        }
    }

    /// Returns the request if it is decided as on a bus of its own. A change becomes a proposal, once the log
    /// was read.
    pub(in crate::registry) fn share(&mut self, request: RegistryRequest) -> Option<RegistryRequest> {
        let Some(shared) = &mut self.shared else {
            return Some(request);
        };
        let is_shared = matches!(
            request,
            RegistryRequest::Publish(_)
                | RegistryRequest::PublishMany(_)
                | RegistryRequest::AnnounceList(_)
                | RegistryRequest::MembersChanged(_)
                | RegistryRequest::RemoveUnclaimed(_)
        );
        if !is_shared {
            return Some(request);
        }
        if !shared.state.is_caught_up {
            shared.early.push((Instant::now(), request));
            return None;
        }
        match request {
            RegistryRequest::Publish(publish) => self.share_one(publish),
            RegistryRequest::PublishMany(publish) => self.share_many(publish),
            RegistryRequest::AnnounceList(announce) => self.share_announcement(announce),
            RegistryRequest::MembersChanged(changed) => self.share_members(changed),
            RegistryRequest::RemoveUnclaimed(removal) => self.share_removal(removal),
            request => return Some(request),
        }
        None
    }

    fn share_one(&mut self, publish: Publish) {
        let Publish {
            change,
            condition,
            owner,
            now,
            reply,
        } = publish;
        let Some(shared) = &self.shared else {
            return;
        };
        let intent = Intent {
            wish: Wish::Change(change),
            condition,
            owner,
            now,
            expires: reply.at() + shared.timeout,
            came: Some(reply.at()),
            announces: true,
            answer: Answer::One(reply),
        };
        self.intend(intent);
    }

    /// Refuses the changes that have waited too long for the log to be read.
    fn refuse_early(&mut self) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        let timeout = shared.timeout;
        let late = |(since, _): &mut (Instant, RegistryRequest)| since.elapsed() >= timeout;
        let late: Vec<_> = shared.early.extract_if(.., late).collect();
        for (_, request) in late {
            self.refuse(request);
        }
    }

    fn refuse(&mut self, request: RegistryRequest) {
        let error = unavailable(false, "the log of the cluster was not read yet");
        match request {
            RegistryRequest::Publish(publish) => {
                self.metrics.count_refusal(&error);
                publish.reply.answer(Err(error));
            }
            RegistryRequest::PublishMany(publish) => {
                let refused = vec![Err(error); publish.changes.len()];
                publish.reply.answer(refused);
            }
            RegistryRequest::MembersChanged(changed) => changed.reply.answer(Vec::new()),
            // Dropping a reply tells the caller that the bus cannot answer.
            _ => {}
        }
    }
}
