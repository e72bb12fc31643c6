//! The lists of clients whose capabilities are not those of the watcher.
//!
//! A server may list only the tools and prompts that its client can use, and the watcher has every
//! capability. Clients with others are shown what a connection with theirs lists. It is one for all of them,
//! it is opened for the first of their lists, and it carries nothing else.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{ClientCapabilities, ClientConfig};
use tokio::time::Instant;

use super::change_notices::ChangeNotices;
use super::connect::connect;
use super::connection::UpstreamConnection;
use super::distinct_lists::DistinctLists;
use super::introduction::{Handshake, Introduction};
use super::known_lists::KnownLists;
use super::lists_watch::{Audience, ListsWatch};
use super::upstream::Upstream;
use crate::metrics::{self, GaugePlace, Limit};

/// Sets of capabilities with lists of their own. Clients with others are shown the lists of the watcher.
const VIEWS_MAX: usize = 8;

/// Bytes of the capabilities of a client, as JSON. A client with more is shown the lists of the watcher.
const KEY_MAX: usize = 64 << 10;

/// The time without a list after which a connection is closed, and the set may make room for another one.
const IDLE_TIME: Duration = Duration::from_secs(60);

/// The time that a list waits for its connection, and the time after a failure before the next attempt.
/// Meanwhile the lists of the watcher are shown.
const OPEN_WAIT: Duration = Duration::from_secs(10);
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// The lists of one set of capabilities.
pub(super) struct ListView {
    /// The capabilities, as JSON.
    key: String,
    /// The client as the server is told of it.
    client: ClientConfig,
    pub(super) lists: Arc<DistinctLists>,
    connection: tokio::sync::Mutex<ViewConnection>,
    last_list: Mutex<Instant>,
}

/// Locked while a connection is made, so that two lists at once make one.
#[derive(Default)]
struct ViewConnection {
    open: Option<OpenView>,
    /// The last failure to open one.
    failed: Option<Instant>,
}

struct OpenView {
    connection: Arc<UpstreamConnection>,
    _counted: GaugePlace,
}

impl ListView {
    fn held_last_list(&self) -> MutexGuard<'_, Instant> {
        self.last_list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_idle(&self) -> bool {
        self.held_last_list().elapsed() >= IDLE_TIME
    }

    /// Returns the connection, which is opened if there is none; none if that fails or takes too long.
    pub(super) async fn connection(
        self: &Arc<Self>,
        upstream: &Arc<Upstream>,
    ) -> Option<Arc<UpstreamConnection>> {
        let view = self.clone();
        let upstream = upstream.clone();
        // A task of its own: a client that gives up its request must not end the start of a slow server.
        let opening = tokio::spawn(async move { view.open(&upstream).await });
        match tokio::time::timeout(OPEN_WAIT, opening).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(_)) | Err(_) => None,
        }
    }

    async fn open(&self, upstream: &Arc<Upstream>) -> Option<Arc<UpstreamConnection>> {
        let mut held = self.connection.lock().await;
        if let Some(OpenView { connection, .. }) = &held.open
            && !connection.lost().is_set()
        {
            return Some(connection.clone());
        }
        held.open = None;
        if matches!(held.failed, Some(failed) if failed.elapsed() < RETRY_AFTER) {
            return None;
        }
        let notices = Arc::new(ChangeNotices::default());
        let introduction = Introduction {
            client: self.client.clone(),
            handshake: Handshake::Newest,
            signals: Some(notices.clone()),
            needs_stream: false,
            is_shared: true,
            one_client: None,
        };
        let connection = match connect(upstream, &introduction).await {
            Ok(connection) => Arc::new(connection),
            Err(error) => {
                held.failed = Some(Instant::now());
                tracing::debug!(upstream = upstream.label(), %error, "a connection for lists could not be made");
                return None;
            }
        };
        ListsWatch::begin(upstream, &self.lists, &connection, notices, Audience::All);
        held.failed = None;
        held.open = Some(OpenView {
            connection: connection.clone(),
            _counted: GaugePlace::new(&upstream.metrics().views),
        });
        Some(connection)
    }

    /// Closes the connection if no list was read over it for long.
    fn close_if_idle(&self) {
        if self.is_idle()
            && let Ok(mut held) = self.connection.try_lock()
        {
            held.open = None;
        }
    }
}

/// The lists of all sets of capabilities.
#[derive(Default)]
pub(super) struct ListViews(Mutex<Vec<Arc<ListView>>>);

impl ListViews {
    fn held(&self) -> MutexGuard<'_, Vec<Arc<ListView>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lists for a client; none beyond the limit. `make` makes lists of which nothing is known.
    pub(super) fn of(
        &self,
        client: ClientConfig,
        make: impl FnOnce() -> KnownLists,
    ) -> Option<Arc<ListView>> {
        let key = key_of(&client.capabilities)?;
        let mut held = self.held();
        if let Some(view) = held.iter().find(|view| view.key == key) {
            *view.held_last_list() = Instant::now();
            return Some(view.clone());
        }
        if held.len() == VIEWS_MAX {
            // One in use stays: a client with ever other capabilities would start a program for each list.
            let Some(idle) = held.iter().position(|view| view.is_idle()) else {
                metrics::limit_reached(Limit::Views);
                return None;
            };
            held.remove(idle);
        }
        let view = Arc::new(ListView {
            key,
            client,
            lists: DistinctLists::new(make()),
            connection: tokio::sync::Mutex::default(),
            last_list: Mutex::new(Instant::now()),
        });
        held.push(view.clone());
        Some(view)
    }

    /// Returns the lists for clients with these capabilities, if there are any.
    pub(super) fn known(&self, capabilities: &ClientCapabilities) -> Option<Arc<ListView>> {
        let key = key_of(capabilities)?;
        self.held().iter().find(|view| view.key == key).cloned()
    }

    /// Returns the first result that the known lists of a set have.
    pub(super) fn find<T>(&self, look: impl Fn(&KnownLists) -> Option<T>) -> Option<T> {
        self.held().iter().find_map(|view| look(&view.lists.known))
    }

    /// Does something with the known lists of every set.
    pub(super) fn for_each(&self, act: impl Fn(&KnownLists)) {
        self.held().iter().for_each(|view| act(&view.lists.known));
    }

    /// Closes the connections over which no list was read for long.
    pub(super) fn close_idle(&self) {
        self.held().iter().for_each(|view| view.close_if_idle());
    }
}

fn key_of(capabilities: &ClientCapabilities) -> Option<String> {
    let key = serde_json::to_string(capabilities).ok()?;
    (key.len() <= KEY_MAX).then_some(key)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::capabilities::gateway_name;
    use super::super::prefix::Prefix;
    use super::*;
    use crate::config::ToolPinning;

    fn view(views: &ListViews, capabilities: serde_json::Value) -> Option<Arc<ListView>> {
        let capabilities: ClientCapabilities = serde_json::from_value(capabilities).unwrap();
        let client = ClientConfig::new(capabilities, gateway_name());
        views.of(client, || {
            KnownLists::new(Prefix::new(None), Duration::MAX, ToolPinning::Off)
        })
    }

    fn numbered(views: &ListViews, number: usize) -> Option<Arc<ListView>> {
        view(views, json!({ "experimental": { number.to_string(): {} } }))
    }

    #[tokio::test(start_paused = true)]
    async fn equal_capabilities_are_one_view() {
        let views = ListViews::default();
        let first = view(&views, json!({ "sampling": {} })).unwrap();
        assert!(Arc::ptr_eq(
            &first,
            &view(&views, json!({ "sampling": {} })).unwrap()
        ));
        assert!(!Arc::ptr_eq(&first, &view(&views, json!({})).unwrap()));
    }

    #[tokio::test(start_paused = true)]
    async fn endless_capabilities_have_no_view() {
        let views = ListViews::default();
        let long = "x".repeat(KEY_MAX);
        assert!(view(&views, json!({ "experimental": { "a": { "b": long } } })).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn views_in_use_make_no_room() {
        let views = ListViews::default();
        for number in 0..VIEWS_MAX {
            assert!(numbered(&views, number).is_some());
        }
        assert!(numbered(&views, VIEWS_MAX).is_none());
        tokio::time::advance(IDLE_TIME).await;
        let kept = numbered(&views, 0).unwrap();
        assert!(numbered(&views, VIEWS_MAX).is_some());
        assert!(Arc::ptr_eq(&kept, &numbered(&views, 0).unwrap()));
    }
}
