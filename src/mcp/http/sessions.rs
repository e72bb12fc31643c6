//! The sessions of the older revisions, by the id their clients repeat.
//!
//! Owns: the table and its keys, and for a while why a session is no longer in it. Never: decides when a session ends;
//! what ended is swept.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ::http::HeaderValue;

use super::peers::PeerPlace;
use crate::EndReason;
use crate::mcp::handler::McpSession;

/// Of how many sessions it is remembered why they ended.
const ENDED_MAX: usize = 1_024;

/// Session id → session.
#[derive(Default)]
pub(super) struct Sessions {
    table: RwLock<Table>,
}

#[derive(Default)]
struct Table {
    open: HashMap<String, Held>,
    ended: VecDeque<(String, EndReason)>,
}

struct Held {
    session: Arc<McpSession>,
    _place: Option<PeerPlace>,
}

impl Table {
    fn remember(&mut self, key: String, reason: EndReason) {
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((key, reason));
    }
}

impl Sessions {
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a session, with its place among those of its peer; answers its id: 128 bits from the system's
    /// generator, in hexadecimal.
    pub(super) fn insert(
        &self,
        session: Arc<McpSession>,
        place: Option<PeerPlace>,
    ) -> Result<HeaderValue, Box<dyn std::error::Error>> {
        let mut random = [0u8; 16];
        getrandom::fill(&mut random).map_err(|error| error.to_string())?;
        let key = format!("{:032x}", u128::from_le_bytes(random));
        let value = HeaderValue::from_str(&key)?;
        let held = Held {
            session,
            _place: place,
        };
        self.write().open.insert(key, held);
        Ok(value)
    }

    /// The session of this id.
    ///
    /// # Errors
    /// Why it ended, if that was not long ago.
    pub(super) fn get(&self, key: &str) -> Result<Arc<McpSession>, Option<EndReason>> {
        let table = self.read();
        if let Some(held) = table.open.get(key) {
            let ended = held.session.session.ended();
            return ended.map_or_else(|| Ok(held.session.clone()), |reason| Err(Some(reason)));
        }
        let ended = table.ended.iter().rev().find(|(ended, _)| ended == key);
        Err(ended.map(|(_, reason)| *reason))
    }

    /// Forgets a session that its client ended.
    pub(super) fn remove(&self, key: &str) {
        let mut table = self.write();
        if table.open.remove(key).is_some() {
            table.remember(key.to_owned(), EndReason::Closed);
        }
    }

    /// Forgets the sessions that have ended, except why.
    pub(super) fn sweep(&self) {
        let mut table = self.write();
        let table = &mut *table;
        let gone = table.open.iter().filter_map(|(key, held)| {
            let reason = held.session.session.ended()?;
            Some((key.clone(), reason))
        });
        let gone: Vec<_> = gone.collect();
        for (key, reason) in gone {
            table.open.remove(&key);
            table.remember(key, reason);
        }
    }
}
