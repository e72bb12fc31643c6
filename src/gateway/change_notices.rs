//! The notices of the server, gathered until the watcher looks.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::ServerNotification;
use tokio::sync::Notify;

/// URIs that are kept between two looks. Beyond it every subscribed resource is read, so none is missed.
const NOTICED_MAX: usize = 10_000;

/// The time for which notices are gathered before the gateway looks, so that many of one content are one
/// look.
pub(super) const GATHER_TIME: Duration = Duration::from_millis(100);

/// The resources and lists of which the server has sent notices since the last look.
#[derive(Debug, Default)]
pub(super) struct ChangeNotices {
    noticed: Mutex<Noticed>,
    arrived: Notify,
}

/// Notices, each resource once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Noticed {
    pub(super) uris: BTreeSet<String>,
    /// True if notices of more resources arrived than are kept, or some may have been lost.
    pub(super) is_overfull: bool,
    pub(super) lists: bool,
}

impl ChangeNotices {
    fn lock(&self) -> MutexGuard<'_, Noticed> {
        self.noticed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a notification, if it announces a change.
    pub(super) fn hear(&self, notification: &ServerNotification) {
        let mut noticed = self.lock();
        match notification {
            ServerNotification::ResourceUpdatedNotification(updated) => {
                if noticed.uris.len() < NOTICED_MAX {
                    noticed.uris.insert(updated.params.uri.clone());
                } else {
                    noticed.is_overfull = true;
                }
            }
            ServerNotification::ResourceListChangedNotification(_)
            | ServerNotification::ToolListChangedNotification(_)
            | ServerNotification::PromptListChangedNotification(_) => noticed.lists = true,
            _ => return,
        }
        drop(noticed);
        self.arrived.notify_one();
    }

    /// Takes note that notices may have been lost: everything is to be looked at.
    pub(super) fn may_lack(&self) {
        let mut noticed = self.lock();
        noticed.is_overfull = true;
        noticed.lists = true;
        drop(noticed);
        self.arrived.notify_one();
    }

    /// Waits for a notice.
    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Returns the notices since the last call.
    pub(super) fn take(&self) -> Noticed {
        std::mem::take(&mut *self.lock())
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ResourceUpdatedNotification, ResourceUpdatedNotificationParam};

    use super::*;

    fn updated(uri: &str) -> ServerNotification {
        let params = ResourceUpdatedNotificationParam::new(uri);
        ServerNotification::ResourceUpdatedNotification(ResourceUpdatedNotification::new(params))
    }

    #[test]
    fn notices_of_one_resource_are_one() {
        let signals = ChangeNotices::default();
        for _ in 0..1_000 {
            signals.hear(&updated("test:///a"));
        }
        assert_eq!(signals.take().uris.len(), 1);
        assert_eq!(signals.take(), Noticed::default());
    }

    #[test]
    fn notices_are_bounded() {
        let signals = ChangeNotices::default();
        for number in 0..=NOTICED_MAX {
            signals.hear(&updated(&format!("test:///{number}")));
        }
        let noticed = signals.take();
        assert_eq!(noticed.uris.len(), NOTICED_MAX);
        assert!(noticed.is_overfull);
    }
}
