//! The port by which a program follows the subscriptions of clients, and keeps the lists known by itself.

use std::sync::{Arc, OnceLock};

use super::Wrap;
use super::client_view::ClientView;
use crate::{BoxFuture, ResourceUri};

/// Is told of the resources that a client is about to subscribe to.
#[cfg_attr(not(feature = "service"), allow(dead_code, reason = "the gateway follows"))]
pub(crate) trait FollowSubscriptions: Send + Sync {
    /// Takes note of resources. The client is subscribed once the future has ended.
    fn follow(&self, uris: Vec<ResourceUri>) -> BoxFuture<()>;
}

/// A follower, and the wrapped server as it asks it.
struct Followed {
    follower: Arc<dyn FollowSubscriptions>,
    view: ClientView,
}

/// The follower of a wrapper, if there is one.
#[derive(Default)]
pub(super) struct FollowerSlot(OnceLock<Followed>);

impl FollowerSlot {
    /// Returns the wrapped server as the follower asks it, which needs no client to be connected.
    pub(super) fn view(&self) -> Option<ClientView> {
        Some(self.0.get()?.view.clone())
    }
}

impl Wrap {
    /// Has `follower` be told of every resource that a client subscribes to. From then on `server` is asked
    /// wherever no client is meant, and the lists are learned by [`refresh_lists`](Self::refresh_lists)
    /// alone, which the follower has to call. The first follower stays.
    #[cfg(feature = "service")]
    pub(crate) fn follow_subscriptions<H: rmcp::ServerHandler>(
        &self,
        follower: Arc<dyn FollowSubscriptions>,
        server: H,
    ) {
        let view = self.absent_view(&Arc::new(server), Default::default());
        let followed = Followed { follower, view };
        self.state.follower.0.get_or_init(|| followed);
    }

    /// Returns true if a follower keeps the lists known.
    pub(super) fn is_followed(&self) -> bool {
        self.state.follower.0.get().is_some()
    }

    /// Tells the follower of resources that a client is about to subscribe to.
    pub(super) async fn tell_follower(&self, uris: &[String]) {
        if let Some(followed) = self.state.follower.0.get() {
            let uris: Vec<ResourceUri> = uris.iter().flat_map(|uri| ResourceUri::new(uri).ok()).collect();
            if !uris.is_empty() {
                followed.follower.follow(uris).await;
            }
        }
    }

    /// Notifies all clients that lists of this kind changed, where the follower's own are what they were: it
    /// shows clients different ones.
    ///
    /// # Errors
    /// [`PublishError::Closed`](crate::PublishError::Closed) when the bus has stopped.
    #[cfg(feature = "service")]
    pub(crate) async fn tell_list_changed(&self, kind: crate::ListKind) -> Result<(), crate::PublishError> {
        let mut listed = self.state.listed.lock().await;
        listed.note_unseen(kind);
        let whole = listed.of_kind(kind);
        self.state.bus.set_foreign_list(kind, whole).await?;
        self.state.list_changes[kind as usize].fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok(())
    }

    /// Reads resources of the wrapped server again, and notifies subscribers of those that differ now.
    /// Those that no client has read or subscribed to are left out.
    ///
    /// # Errors
    /// [`PublishError::Closed`](crate::PublishError::Closed) when the bus has stopped.
    #[cfg(feature = "service")]
    pub(crate) async fn refresh_resources(&self, uris: Vec<ResourceUri>) -> Result<(), crate::PublishError> {
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
