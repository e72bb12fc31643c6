//! The connection of a client with a session: opened by its first call, and closed while it makes none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::connection::UpstreamConnection;
use super::distinct_lists::DistinctLists;
use super::known_lists::KnownLists;
use super::speakers::Speaker;

/// The connection of one client, if it has one now.
pub(super) struct OwnSpeaker {
    /// Locked while a connection is made, so that two calls at once make one.
    pub(super) slot: tokio::sync::Mutex<Option<Arc<Speaker>>>,
    /// The connection in the slot, to be found while that is locked.
    open: Mutex<Weak<UpstreamConnection>>,
    /// Its tools and prompts.
    pub(super) lists: Arc<DistinctLists>,
    last_call: Mutex<Instant>,
    /// True if the server forgot the client since its last call.
    lost_state: AtomicBool,
}

impl OwnSpeaker {
    pub(super) fn new(lists: KnownLists) -> Arc<OwnSpeaker> {
        Arc::new(OwnSpeaker {
            slot: tokio::sync::Mutex::default(),
            open: Mutex::default(),
            lists: DistinctLists::new(lists),
            last_call: Mutex::new(Instant::now()),
            lost_state: AtomicBool::new(false),
        })
    }

    /// Takes note of a connection that was made.
    pub(super) fn note_open(&self, connection: &Arc<UpstreamConnection>) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(connection);
    }

    /// Returns the connection, if there is one now. It does not wait for one that is being made.
    pub(super) fn opened_now(&self) -> Option<Arc<UpstreamConnection>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        open.filter(|connection| !connection.lost().is_set())
    }

    /// Takes note of a call.
    pub(super) fn used(&self) {
        *self.last_call.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Takes note that the server forgot the client.
    pub(super) fn note_lost_state(&self) {
        self.lost_state.store(true, Ordering::Relaxed);
    }

    /// Returns true, once, if the server forgot the client.
    pub(super) fn take_lost_state(&self) -> bool {
        self.lost_state.swap(false, Ordering::Relaxed)
    }

    /// Closes the connection if no call is under way on it, and none was for this time.
    pub(super) fn close_if_idle(&self, idle: Duration) {
        let last_call = *self.last_call.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked at first, since the slot is locked for as long as a connection is being made.
        if last_call.elapsed() < idle {
            return;
        }
        // One that is being made is not idle.
        if let Ok(mut slot) = self.slot.try_lock()
            && let Some(speaker) = &*slot
            && Arc::strong_count(speaker) == 1
        {
            *slot = None;
            self.note_lost_state();
        }
    }
}
