//! The look at the rights of all subscribers of a shard after a policy changed.

use actix::{Context, Handler};

use super::Publisher;
use crate::messages::RightsChanged;

impl Handler<RightsChanged> for Publisher {
    type Result = ();

    fn handle(&mut self, RightsChanged(reply): RightsChanged, _: &mut Context<Self>) {
        self.table.members().for_each(|(_, outbox)| outbox.recheck());
        reply.answer(());
    }
}
