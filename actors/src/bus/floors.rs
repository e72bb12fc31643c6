//! Forgetting removed URIs of a shared log.

use super::Bus;
use crate::messages::ForgetRemoved;
use crate::model::Closed;
use crate::shared_log::FloorStep;

impl Bus {
    /// Takes the next step of forgetting the removed URIs beyond `kept_max`, and returns what is to be done
    /// in the log. `purged` is the floor whose records are purged. For the engine of a shared log, which
    /// calls it again and again on one node at a time; on two at once, none of them does harm.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn forget_removed(&self, kept_max: usize, purged: Option<u64>) -> Result<FloorStep, Closed> {
        self.ask(|reply| ForgetRemoved {
            kept_max,
            purged,
            reply,
        })
        .await
    }
}
