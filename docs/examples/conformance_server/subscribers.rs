//! The clients that are told of changes when the server stands alone. A wrapped one leaves that to its
//! wrapper.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rmcp::service::SubscriptionSink;
use rmcp::{Peer, RoleServer};

/// The lists of the server that change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangingList {
    Tools,
    Prompts,
}

/// The clients of older revisions, and the open listen streams.
#[derive(Default)]
pub(crate) struct Subscribers {
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    peers: Vec<Peer<RoleServer>>,
    streams: HashMap<u64, SubscriptionSink>,
    next_stream: u64,
}

impl Subscribers {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a client of an older revision.
    pub(crate) fn add_peer(&self, peer: Peer<RoleServer>) {
        let mut told = self.told();
        told.peers.retain(|peer| !peer.is_transport_closed());
        told.peers.push(peer);
    }

    /// Adds a listen stream, and returns its number here.
    pub(crate) fn add_stream(&self, sink: SubscriptionSink) -> u64 {
        let mut told = self.told();
        let number = told.next_stream;
        told.next_stream += 1;
        told.streams.insert(number, sink);
        number
    }

    pub(crate) fn remove_stream(&self, number: u64) {
        self.told().streams.remove(&number);
    }

    /// Tells all clients that a list changed.
    pub(crate) async fn tell(&self, list: ChangingList) {
        // Copied, so that no lock is held while they are told.
        let (peers, sinks) = {
            let told = self.told();
            let sinks: Vec<_> = told.streams.values().cloned().collect();
            (told.peers.clone(), sinks)
        };
        // The errors are those of clients that have left, and of streams that did not ask for it.
        for peer in peers {
            match list {
                ChangingList::Tools => peer.notify_tool_list_changed().await.ok(),
                ChangingList::Prompts => peer.notify_prompt_list_changed().await.ok(),
            };
        }
        for sink in sinks {
            match list {
                ChangingList::Tools => sink.notify_tool_list_changed().await.ok(),
                ChangingList::Prompts => sink.notify_prompt_list_changed().await.ok(),
            };
        }
    }
}
