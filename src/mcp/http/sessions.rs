//! The sessions of the older revisions, by the id their clients repeat.
//!
//! Owns: the table and its keys. Never: decides when a session ends (the session's actor does); what ended is swept.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use ::http::HeaderValue;

use crate::mcp::handler::McpSession;

/// Session id → session.
#[derive(Default)]
pub(super) struct Sessions {
    table: RwLock<HashMap<String, Arc<McpSession>>>,
}

impl Sessions {
    /// Takes in a session; answers its id: 128 bits from the system's generator, in hexadecimal.
    pub(super) fn insert(&self, session: Arc<McpSession>) -> Result<HeaderValue, Box<dyn std::error::Error>> {
        let mut random = [0u8; 16];
        getrandom::fill(&mut random).map_err(|error| error.to_string())?;
        let key = format!("{:032x}", u128::from_le_bytes(random));
        let value = HeaderValue::from_str(&key)?;
        self.table
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, session);
        Ok(value)
    }

    /// The session of this id, unless it has ended.
    pub(super) fn get(&self, key: &str) -> Option<Arc<McpSession>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table
            .get(key)
            .filter(|session| session.session.ended().is_none())
            .cloned()
    }

    pub(super) fn remove(&self, key: &str) {
        self.table
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
    }

    /// Forgets the sessions that have ended.
    pub(super) fn sweep(&self) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.retain(|_, session| session.session.ended().is_none());
    }
}
