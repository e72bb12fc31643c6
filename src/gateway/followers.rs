//! Tells the watcher of each server which of its resources clients subscribe to.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};

use super::upstream::Upstream;
use crate::mcp::FollowSubscriptions;
use crate::{BoxFuture, ResourceUri};

/// The time that a subscription of a client waits until the server has been asked to announce changes.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(2);

/// Resources that a client subscribes to.
pub(super) struct FollowedResources {
    pub(super) uris: Vec<ResourceUri>,
    pub(super) done: oneshot::Sender<()>,
}

/// The way to the watcher of one server.
pub(super) struct Follower {
    pub(super) upstream: Arc<Upstream>,
    pub(super) watcher: mpsc::Sender<FollowedResources>,
}

/// The ways to all watchers.
pub(super) struct Followers(Vec<Follower>);

impl Followers {
    pub(super) fn new(followers: Vec<Follower>) -> Followers {
        Followers(followers)
    }
}

impl FollowSubscriptions for Followers {
    fn follow(&self, uris: Vec<ResourceUri>) -> BoxFuture<()> {
        let mut waits = Vec::new();
        for follower in &self.0 {
            let mut own = uris.clone();
            own.retain(|uri| follower.upstream.owns(uri));
            if own.is_empty() {
                continue;
            }
            let (done, is_done) = oneshot::channel();
            let followed = FollowedResources { uris: own, done };
            // Beyond a full queue the resources are found at the next look.
            if follower.watcher.try_send(followed).is_ok() {
                waits.push(is_done);
            }
        }
        Box::pin(async move {
            if tokio::time::timeout(FOLLOW_TIMEOUT, join_all(waits))
                .await
                .is_err()
            {
                tracing::debug!("a server has not taken a subscription yet; its client is served meanwhile");
            }
        })
    }
}
