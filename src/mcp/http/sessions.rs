//! The sessions of the older revisions, by the id that their clients repeat. The bus decides when a session
//! ends; the table notices it when it is swept.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::served::Kept;
use crate::EndReason;
use crate::auth::Caller;
use crate::http::Place;
use crate::mcp::session::McpSession;
use crate::mcp::shared_session::EndOfShared;
use crate::shared_log::ToldState;

/// The number of ended sessions whose reason is remembered.
const ENDED_MAX: usize = 1_024;

/// The values that a session keeps until it ends.
pub(super) struct HeldBySession {
    place: Option<Place>,
    end: Option<EndOfShared>,
    /// The server's part of the session.
    pub(super) server: Option<Kept>,
}

impl HeldBySession {
    /// Takes the place of a session among those of its caller, and notes its end if it has a record.
    pub(super) fn new(place: Option<Place>, session: &McpSession) -> HeldBySession {
        let end = session.shared.get().map(|shared| EndOfShared {
            shared: shared.clone(),
            session: Arc::downgrade(&session.session),
        });
        HeldBySession {
            place,
            end,
            server: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.place.is_none() && self.end.is_none() && self.server.is_none()
    }
}

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

/// Makes the id of a session: 128 bits from the system's generator, in hexadecimal.
///
/// # Errors
/// A system that gives no random bytes.
pub(super) fn new_id() -> Result<String, getrandom::Error> {
    // The id is all that a request shows of its session, so it must not be guessable.
    let mut random = [0u8; 16];
    getrandom::fill(&mut random)?;
    Ok(format!("{:032x}", u128::from_le_bytes(random)))
}

impl Sessions {
    fn read(&self) -> RwLockReadGuard<'_, SessionTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, SessionTable> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a session.
    pub(super) fn insert_as(&self, key: &str, session: Arc<McpSession>, held: HeldBySession) {
        if !held.is_empty() {
            // Not beside it in the table, where a session that an operator ended stays until the next sweep.
            session.session.hold(held);
        }
        self.write().open.insert(key.to_owned(), session);
    }

    /// Returns true if there is a session of this id, of any principal.
    pub(super) fn has(&self, key: &str) -> bool {
        self.read().open.contains_key(key)
    }

    /// Removes a session that another node has.
    pub(super) fn forget(&self, key: &str) {
        self.write().open.remove(key);
    }

    /// Gives a session up that another node has taken with this generation. Returns what it was told; none
    /// if it is not here, or came here later.
    pub(super) fn give_up(&self, key: &str, generation: u64) -> Option<ToldState> {
        let session = self.read().open.get(key)?.clone();
        if session.shared.get()?.head.generation >= generation {
            return None;
        }
        let told = session.session.give_up();
        self.forget(key);
        told
    }

    /// Returns the sessions that have a record.
    pub(super) fn shared(&self) -> Vec<Arc<McpSession>> {
        let table = self.read();
        let shared = table.open.values().filter(|session| {
            let ended = session.session.ended();
            session.shared.get().is_some() && matches!(ended, None | Some(EndReason::Shutdown))
        });
        shared.cloned().collect()
    }

    /// Has the records written again that are older than this many seconds.
    pub(super) fn note_older_than(&self, age: u64) {
        for session in self.read().open.values() {
            if let Some(shared) = session.shared.get()
                && shared.is_older_than(age)
            {
                shared.save_soon(session);
            }
        }
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
            match session.session.ended() {
                // Another node may still ask what it was told.
                Some(EndReason::Shutdown) if session.shared.get().is_some() => {}
                Some(reason) => ended.push((key.clone(), reason)),
                None => {}
            }
        }
        for (key, reason) in ended {
            table.open.remove(&key);
            // The id is good at another node, and may come back.
            if reason != EndReason::Moved {
                table.remember(key, reason);
            }
        }
    }
}
