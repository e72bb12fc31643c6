//! The records of sessions in the shared state of the cluster.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tracing::debug;

use crate::cluster::{Expected, SharedState, StateError, StateKey, StateKind};
use crate::mcp::{OwnedSessions, RecordError, RecordFuture, RecordOwner, SessionRecords, StoredRecord};

/// The time for which a note waits for a node that does not answer.
const NOTE_TTL: Duration = Duration::from_secs(3_600);

/// The records of sessions.
pub(super) struct StateRecords {
    state: SharedState,
    owned: Mutex<Option<Arc<dyn OwnedSessions>>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl StateRecords {
    pub(super) fn new(state: SharedState) -> StateRecords {
        StateRecords {
            state,
            owned: Mutex::default(),
            tasks: Mutex::default(),
        }
    }

    /// Writes down how far the sessions of this node are, and leaves them to the others.
    pub(super) async fn leave(&self) {
        let owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(owned) = owned {
            owned.release().await;
        }
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            task.abort();
        }
    }
}

fn key(id: &str) -> StateKey {
    StateKey::new(StateKind::Session, id)
}

fn error_of(error: StateError) -> RecordError {
    match error {
        StateError::Conflict => RecordError::Conflict,
        StateError::Refused(reason) => RecordError::Refused(format!("{reason}, or raise cluster.max_bytes")),
        other => RecordError::Unavailable(other.to_string()),
    }
}

impl SessionRecords for StateRecords {
    fn node(&self) -> RecordOwner {
        RecordOwner {
            node: self.state.node().to_owned(),
            boot: self.state.boot(),
        }
    }

    fn load<'a>(&'a self, id: &'a str) -> RecordFuture<'a, Result<Option<StoredRecord>, RecordError>> {
        Box::pin(async move {
            let found = self.state.load(&key(id)).await.map_err(error_of)?;
            Ok(found.map(|entry| StoredRecord {
                value: entry.value,
                revision: entry.revision,
            }))
        })
    }

    fn write<'a>(
        &'a self,
        id: &'a str,
        value: Bytes,
        expected: Option<u64>,
        ttl: Duration,
    ) -> RecordFuture<'a, Result<u64, RecordError>> {
        let expected = match expected {
            Some(revision) => Expected::Revision(revision),
            None => Expected::Absent,
        };
        Box::pin(async move {
            let written = self.state.write(&key(id), value, expected, Some(ttl)).await;
            written.map_err(error_of)
        })
    }

    fn delete<'a>(&'a self, id: &'a str, revision: u64) -> RecordFuture<'a, Result<(), RecordError>> {
        Box::pin(async move {
            let deleted = self.state.delete(&key(id), Expected::Revision(revision)).await;
            deleted.map_err(error_of)
        })
    }

    fn ask<'a>(&'a self, owner: &'a RecordOwner, question: Bytes) -> RecordFuture<'a, Option<Bytes>> {
        Box::pin(self.state.ask(owner.boot, question))
    }

    fn leave_note<'a>(
        &'a self,
        owner: &'a RecordOwner,
        id: &'a str,
        generation: u64,
    ) -> RecordFuture<'a, Result<(), RecordError>> {
        Box::pin(async move {
            let key = StateKey::new(StateKind::Moved, &format!("{:08x}.{id}", owner.boot));
            let text = generation.to_string().into();
            let left = self.state.write(&key, text, Expected::Any, Some(NOTE_TTL)).await;
            left.map(drop).map_err(error_of)
        })
    }

    fn serve(&self, sessions: Arc<dyn OwnedSessions>) {
        let answers = tokio::spawn(answer(self.state.clone(), sessions.clone()));
        let notes = tokio::spawn(follow_notes(self.state.clone(), sessions.clone()));
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.extend([answers, notes]);
        *self.owned.lock().unwrap_or_else(PoisonError::into_inner) = Some(sessions);
    }
}

/// Answers the questions of other nodes.
async fn answer(state: SharedState, sessions: Arc<dyn OwnedSessions>) {
    let Some(mut questions) = state.questions() else {
        return;
    };
    while let Some(question) = questions.recv().await {
        let sessions = sessions.clone();
        // Bounded by the time for which the other node waits, and by the queue that it came from.
        tokio::spawn(async move {
            if let Some(answer) = sessions.answer(question.text).await
                && question.answer.send(answer).is_err()
            {
                debug!("a node was answered after its connection had ended");
            }
        });
    }
}

/// Ends the sessions that moved while this node did not answer.
async fn follow_notes(state: SharedState, sessions: Arc<dyn OwnedSessions>) {
    let mut changes = state.changes();
    loop {
        for (name, heard) in state.heard_of(StateKind::Moved, NOTE_TTL) {
            let generation = std::str::from_utf8(&heard.entry.value).map(str::parse);
            if let Some((_, id)) = name.split_once('.')
                && let Ok(Ok(generation)) = generation
            {
                sessions.moved(id, generation);
            }
            // Deleted at once, so that the notes of a node that comes and goes do not gather.
            let key = StateKey::new(StateKind::Moved, &name);
            let deleted = state.delete(&key, Expected::Revision(heard.entry.revision)).await;
            if let Err(error) = deleted {
                debug!(%error, "the note of a session that moved ends by itself");
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}
