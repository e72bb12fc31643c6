//! The port by which a program follows the subscriptions of clients.

use std::sync::{Arc, OnceLock};

use super::Wrap;
use crate::{BoxFuture, PublishError, ResourceUri};

/// Is told of the resources that a client is about to subscribe to.
#[cfg_attr(not(feature = "service"), allow(dead_code, reason = "the gateway follows"))]
pub(crate) trait FollowSubscriptions: Send + Sync {
    /// Takes note of resources. The client is subscribed once the future has ended.
    fn follow(&self, uris: Vec<ResourceUri>) -> BoxFuture<()>;
}

/// The follower of a wrapper, if there is one.
pub(super) type FollowerSlot = OnceLock<Arc<dyn FollowSubscriptions>>;

impl Wrap {
    /// Has `follower` be told of every resource that a client subscribes to. The first one stays.
    #[cfg(feature = "service")]
    pub(crate) fn follow_subscriptions(&self, follower: Arc<dyn FollowSubscriptions>) {
        self.state.follower.get_or_init(|| follower);
    }

    /// Tells the follower of resources that a client is about to subscribe to.
    pub(super) async fn tell_follower(&self, uris: &[String]) {
        if let Some(follower) = self.state.follower.get() {
            let uris: Vec<ResourceUri> = uris.iter().flat_map(|uri| ResourceUri::new(uri).ok()).collect();
            if !uris.is_empty() {
                follower.follow(uris).await;
            }
        }
    }

    /// Reads resources of the wrapped server again, and notifies subscribers of those that differ now.
    /// Those that no client has read or subscribed to are left out.
    ///
    /// # Errors
    /// [`PublishError::Closed`] when the bus has stopped.
    #[cfg(feature = "service")]
    pub(crate) async fn refresh_resources(&self, uris: Vec<ResourceUri>) -> Result<(), PublishError> {
        let Some(client) = self.oldest_client() else {
            return Ok(());
        };
        let mut known = Vec::new();
        for uri in uris {
            if self.is_known(&uri).await {
                known.push(uri);
            }
        }
        self.learn_all(&client, known).await
    }
}
