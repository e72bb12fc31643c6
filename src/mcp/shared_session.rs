//! A session whose record other nodes can read: when the record is written, and under which condition.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Mutex, mpsc};

use super::session::McpSession;
use super::session_record::{RecordHead, SessionRecord, has_room_for};
use super::session_records::{RecordError, SessionRecords};
use crate::metrics::{self, Limit};
use crate::{EndReason, Session};

/// The tries to write a record that other nodes try to take, and the pause before the second; it grows.
const WRITE_TRIES: u32 = 12;
const WRITE_PAUSE: Duration = Duration::from_millis(10);

/// A task of the keeper of records.
pub(crate) enum KeeperTask {
    /// Writes the record of a session that changed.
    Save(Weak<McpSession>),
    /// Deletes the record of a session that ended.
    Ended(Arc<SharedSession>),
}

/// The reason for which a record does not show what its session is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SaveProblem {
    /// The subscriptions do not fit into a record.
    TooLarge,
    /// Another node has the session.
    Moved,
    /// The records are not reached, or have no room.
    Unavailable(String),
}

/// The record of a session that this node has.
pub(crate) struct SharedSession {
    id: String,
    pub(crate) head: RecordHead,
    records: Arc<dyn SessionRecords>,
    keeper: mpsc::Sender<KeeperTask>,
    ttl: Duration,
    is_ready: AtomicBool,
    /// True while the keeper is to write the record.
    is_due: AtomicBool,
    /// The number of requests to write it.
    wanted: AtomicU64,
    /// The time of the last write, in seconds since 1970.
    written_at: AtomicU64,
    /// One write at a time, since each is made under the condition of the one before.
    written: Mutex<WrittenRecord>,
}

/// The record as it was written last.
struct WrittenRecord {
    revision: u64,
    /// The number of the newest request that it covers.
    covers: u64,
    is_deleted: bool,
}

impl std::fmt::Debug for SharedSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The id is a secret of the client.
        f.debug_struct("SharedSession").finish_non_exhaustive()
    }
}

/// The place and the life of the records of one endpoint.
#[derive(Clone)]
pub(crate) struct RecordPlace {
    pub(crate) records: Arc<dyn SessionRecords>,
    pub(crate) keeper: mpsc::Sender<KeeperTask>,
    /// The time after which a record ends that is not written again.
    pub(crate) ttl: Duration,
}

impl SharedSession {
    /// Makes the state of a record that was written with this revision.
    pub(crate) fn new(
        id: &str,
        head: RecordHead,
        place: &RecordPlace,
        revision: u64,
        is_ready: bool,
    ) -> Arc<SharedSession> {
        Arc::new(SharedSession {
            id: id.to_owned(),
            head,
            records: place.records.clone(),
            keeper: place.keeper.clone(),
            ttl: place.ttl,
            is_ready: AtomicBool::new(is_ready),
            is_due: AtomicBool::new(false),
            wanted: AtomicU64::new(0),
            written_at: AtomicU64::new(now()),
            written: Mutex::new(WrittenRecord {
                revision,
                covers: 0,
                is_deleted: false,
            }),
        })
    }

    /// The time after which the record ends that is not written again.
    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Notes that the client takes notifications.
    pub(crate) fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
    }

    /// Has the keeper write the record soon: changes that come meanwhile are written together.
    pub(crate) fn save_soon(&self, session: &Arc<McpSession>) {
        if !self.is_due.swap(true, Ordering::AcqRel) {
            let task = KeeperTask::Save(Arc::downgrade(session));
            if !self.tell_keeper(task) {
                // The next change, or the age of the record, has it written.
                self.is_due.store(false, Ordering::Release);
            }
        }
    }

    /// Hands a task to the keeper. Returns false if more wait than it takes, or the server is stopping.
    fn tell_keeper(&self, task: KeeperTask) -> bool {
        let told = self.keeper.try_send(task);
        if let Err(TrySendError::Full(_)) = &told {
            metrics::limit_reached(Limit::SessionRecordsDue);
        }
        told.is_ok()
    }

    /// Notes that the keeper has the session in its list.
    pub(crate) fn mark_due(&self) {
        self.is_due.store(true, Ordering::Release);
    }

    /// Returns true if the record was written longer than `age` seconds ago.
    pub(crate) fn is_older_than(&self, age: u64) -> bool {
        now().saturating_sub(self.written_at.load(Ordering::Relaxed)) >= age
    }

    /// Writes what the session is now. Requests that wait for the write before are served by one.
    ///
    /// # Errors
    /// [`SaveProblem`]. A session that moved is given up.
    pub(crate) async fn save(&self, session: &McpSession, is_last: bool) -> Result<(), SaveProblem> {
        let number = self.wanted.fetch_add(1, Ordering::AcqRel) + 1;
        let mut written = self.written.lock().await;
        // The write that this request waited for may have covered it.
        if written.is_deleted || (written.covers >= number && !is_last) {
            return Ok(());
        }
        // Before the session is looked at: a change that comes now asks for another write.
        self.is_due.store(false, Ordering::Release);
        let covers = self.wanted.load(Ordering::Acquire);
        let told = session.session.told();
        if !has_room_for(&told) {
            metrics::limit_reached(Limit::SessionRecord);
            return Err(SaveProblem::TooLarge);
        }
        let is_ready = self.is_ready.load(Ordering::Relaxed);
        let mut record = self.head.record(&told, is_ready, session.log_threshold.place());
        // Only then: a node that is asked while it runs may have told more than its record says.
        record.is_released = is_last;
        match self.write(&mut written, &record).await {
            Ok(()) => {
                written.covers = covers;
                self.written_at.store(now(), Ordering::Relaxed);
                Ok(())
            }
            Err(RecordError::Conflict) => {
                // Its question or its note may come later than this. Until then, both would tell.
                session.session.give_up();
                Err(SaveProblem::Moved)
            }
            Err(error) => Err(SaveProblem::Unavailable(error.to_string())),
        }
    }

    async fn write(&self, written: &mut WrittenRecord, record: &SessionRecord) -> Result<(), RecordError> {
        let value = record.text();
        for number in 0..WRITE_TRIES {
            tokio::time::sleep(WRITE_PAUSE * number).await;
            let expected = Some(written.revision);
            let tried = self
                .records
                .write(&self.id, value.clone(), expected, self.ttl)
                .await;
            match tried {
                Ok(revision) => {
                    written.revision = revision;
                    return Ok(());
                }
                // The answer to an own write may have been lost, or the write of another node be under way,
                // which refuses this one until it is decided.
                Err(RecordError::Conflict) => written.revision = self.own_revision().await?,
                Err(error) => return Err(error),
            }
        }
        Err(RecordError::Unavailable(
            "another node tries to take the session".to_owned(),
        ))
    }

    /// Returns the revision of the record, if this node wrote it for this generation.
    async fn own_revision(&self) -> Result<u64, RecordError> {
        let found = self.records.load(&self.id).await?;
        let found = found.ok_or(RecordError::Conflict)?;
        match SessionRecord::read(&found.value) {
            Some(record) if record.generation == self.head.generation && record.owner == self.head.owner => {
                Ok(found.revision)
            }
            _ => Err(RecordError::Conflict),
        }
    }

    /// Deletes the record, so that no node revives the session.
    ///
    /// # Errors
    /// [`RecordError::Unavailable`]; the record ends by itself then.
    pub(crate) async fn delete(&self) -> Result<(), RecordError> {
        let mut written = self.written.lock().await;
        if written.is_deleted {
            return Ok(());
        }
        // Under the condition of the last write: another node may have the session by now.
        let mut deleted = self.records.delete(&self.id, written.revision).await;
        if deleted == Err(RecordError::Conflict) {
            deleted = match self.own_revision().await {
                Ok(own) => self.records.delete(&self.id, own).await,
                // Gone, or another node's.
                Err(RecordError::Conflict) => Ok(()),
                Err(error) => Err(error),
            };
        }
        written.is_deleted = deleted.is_ok();
        deleted
    }
}

/// Tells the keeper that a session has ended, when the session drops it.
pub(crate) struct EndOfShared {
    pub(crate) shared: Arc<SharedSession>,
    pub(crate) session: Weak<Session>,
}

impl Drop for EndOfShared {
    fn drop(&mut self) {
        let ended = self.session.upgrade().and_then(|session| session.ended());
        // A session that another node has or will have keeps its record.
        if let Some(EndReason::Moved | EndReason::Shutdown | EndReason::Failed) = ended {
            return;
        }
        let task = KeeperTask::Ended(self.shared.clone());
        if !self.shared.tell_keeper(task) {
            tracing::debug!("the record of a session that ended is left to its own end");
        }
    }
}

/// The time in seconds since 1970.
pub(crate) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}
