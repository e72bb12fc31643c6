//! The sessions of the older revisions, by the id that their clients repeat. The bus decides when a session
//! ends; the table notices it when it is swept.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ::http::HeaderValue;

use crate::EndReason;
use crate::auth::Caller;
use crate::http::Place;
use crate::mcp::session::McpSession;

/// The number of ended sessions whose reason is remembered.
const ENDED_MAX: usize = 1_024;

/// The table of sessions.
#[derive(Default)]
pub(super) struct Sessions {
    table: RwLock<SessionTable>,
}

#[derive(Default)]
struct SessionTable {
    open: HashMap<String, Arc<McpSession>>,
    ended: VecDeque<(String, EndReason)>,
}

impl SessionTable {
    fn remember(&mut self, key: String, reason: EndReason) {
        // Bounded, as clients open and end sessions at will. Older ends are answered without their reason.
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((key, reason));
    }
}

impl Sessions {
    fn read(&self) -> RwLockReadGuard<'_, SessionTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, SessionTable> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a session with its place among those of its caller. Returns its id: 128 bits from the system's
    /// generator, in hexadecimal.
    ///
    /// # Errors
    /// A system that gives no random bytes.
    pub(super) fn insert(
        &self,
        session: Arc<McpSession>,
        place: Option<Place>,
    ) -> Result<HeaderValue, Box<dyn std::error::Error>> {
        // The id is all that a request shows of its session, so it must not be guessable.
        let mut random = [0u8; 16];
        getrandom::fill(&mut random).map_err(|error| error.to_string())?;
        let key = format!("{:032x}", u128::from_le_bytes(random));
        let value = HeaderValue::from_str(&key)?;
        if let Some(place) = place {
            // Not beside it in the table, where a session that an operator ended stays until the next sweep.
            session.session.hold(place);
        }
        self.write().open.insert(key, session);
        Ok(value)
    }

    /// Returns the session of this id, if it belongs to the caller. One of another principal is as unknown as
    /// one that never was.
    ///
    /// # Errors
    /// The reason why it ended, if it is still remembered.
    pub(super) fn get(
        &self,
        key: &str,
        caller: Option<&Caller>,
    ) -> Result<Arc<McpSession>, Option<EndReason>> {
        let table = self.read();
        if let Some(session) = table.open.get(key) {
            if !session.admits(caller) {
                return Err(None);
            }
            // An ended session may stand here until the next sweep.
            return match session.session.ended() {
                Some(reason) => Err(Some(reason)),
                None => Ok(session.clone()),
            };
        }
        let ended = table.ended.iter().rev().find(|(ended, _)| ended == key);
        Err(ended.map(|(_, reason)| *reason))
    }

    /// Removes a session that its client ended.
    pub(super) fn remove(&self, key: &str) {
        let mut table = self.write();
        if table.open.remove(key).is_some() {
            table.remember(key.to_owned(), EndReason::Closed);
        }
    }

    /// Removes the sessions that have ended, and remembers why.
    pub(super) fn sweep(&self) {
        let mut table = self.write();
        let mut ended = Vec::new();
        for (key, session) in &table.open {
            if let Some(reason) = session.session.ended() {
                ended.push((key.clone(), reason));
            }
        }
        for (key, reason) in ended {
            table.open.remove(&key);
            table.remember(key, reason);
        }
    }
}
