//! The log level that a client with a session has set, and the connection that was told of it.
//!
//! The revisions with sessions have a request for it. In 2026-07-28 each request names its level instead,
//! which the sender of a request takes from here.

#![expect(
    deprecated,
    reason = "rmcp marks logging for a later revision; all five of ours have it"
)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rmcp::model::{LoggingLevel, SetLevelRequestParams};

use super::connection::UpstreamConnection;

/// The time that the server may take to set a level. Calls do not wait longer for it.
const SET_TIMEOUT: Duration = Duration::from_secs(2);

/// The log level of one client.
#[derive(Default)]
pub(super) struct ClientLogLevel(Mutex<WantedLevel>);

#[derive(Default)]
struct WantedLevel {
    level: Option<LoggingLevel>,
    /// The connection on which the server has it.
    told: Weak<UpstreamConnection>,
}

impl ClientLogLevel {
    fn lock(&self) -> MutexGuard<'_, WantedLevel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The level, if the client has set one.
    pub(super) fn wanted(&self) -> Option<LoggingLevel> {
        self.lock().level
    }

    /// Returns the level of one request.
    pub(super) fn of_request(level: LoggingLevel) -> ClientLogLevel {
        let of_request = ClientLogLevel::default();
        of_request.set(level);
        of_request
    }

    /// Takes note of the level.
    pub(super) fn set(&self, level: LoggingLevel) {
        *self.lock() = WantedLevel {
            level: Some(level),
            told: Weak::new(),
        };
    }

    /// Sets the level on a connection of the client's own, unless it is set there.
    pub(super) async fn tell(&self, connection: &Arc<UpstreamConnection>) {
        let level = {
            let mut wanted = self.lock();
            if connection.is_stateless()
                || connection.info().capabilities.logging.is_none()
                || std::ptr::eq(wanted.told.as_ptr(), Arc::as_ptr(connection))
            {
                return;
            }
            let Some(level) = wanted.level else { return };
            // Before the answer, so that a server that gives none is asked once.
            wanted.told = Arc::downgrade(connection);
            level
        };
        let setting = connection.peer().set_level(SetLevelRequestParams::new(level));
        match tokio::time::timeout(SET_TIMEOUT, setting).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the log level of a client could not be set"),
            Err(_) => {
                tracing::debug!("the server does not say that the log level of a client is set");
            }
        }
    }
}
