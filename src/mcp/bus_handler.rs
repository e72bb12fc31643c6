//! The rmcp handlers that answer for a bus: its own, and that of a wrapped server beside it. The transports
//! are written for either.

use std::sync::Arc;

use rmcp::model::{RequestMetaObject, SubscriptionFilter};
use rmcp::{ErrorData, ServerHandler};

use super::handler::Handler;

/// An rmcp handler that answers for a bus.
pub(crate) trait BusHandler: ServerHandler {
    /// Returns the bus's own handler, whose sessions and options are those of the client.
    fn of_bus(&self) -> &Handler;

    /// Makes the bus know what a client wants to listen to, before it is subscribed. `meta` is that of its
    /// request.
    ///
    /// # Errors
    /// A bus that has stopped.
    fn before_listen(
        &self,
        requested: &SubscriptionFilter,
        meta: RequestMetaObject,
    ) -> impl Future<Output = Result<(), ErrorData>> + Send;
}

impl BusHandler for Handler {
    fn of_bus(&self) -> &Handler {
        self
    }

    async fn before_listen(&self, _: &SubscriptionFilter, _: RequestMetaObject) -> Result<(), ErrorData> {
        // It knows everything that there is.
        Ok(())
    }
}

impl<H: BusHandler> BusHandler for Arc<H> {
    fn of_bus(&self) -> &Handler {
        (**self).of_bus()
    }

    async fn before_listen(
        &self,
        requested: &SubscriptionFilter,
        meta: RequestMetaObject,
    ) -> Result<(), ErrorData> {
        (**self).before_listen(requested, meta).await
    }
}
