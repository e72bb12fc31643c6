//! The records of an endpoint's sessions: the task that keeps them, and the questions of other nodes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex as TurnMutex, Semaphore, SemaphorePermit, mpsc};
use tokio::task::JoinSet;

use super::endpoint::EndpointState;
use super::served::EndpointServer;
use crate::mcp::options::McpOptions;
use crate::mcp::session::McpSession;
use crate::mcp::session_record::{MoveAnswer, MoveQuestion, RecordHead, SessionRecord};
use crate::mcp::session_records::{OwnedSessions, RecordError, RecordFuture, RecordOwner, SessionRecords};
use crate::mcp::shared_session::{KeeperTask, RecordPlace, SaveProblem, SharedSession, now};
use crate::metrics::MovedSessionMetrics;
use crate::shared_log::ToldState;

/// The sessions that are taken over at a time. Further ones wait.
const MOVES_MAX: usize = 256;

/// The records that wait for the keeper. A further one is written with the next change of its session, or
/// ends by itself.
const TASKS_MAX: usize = 65_536;

/// The records that are written at a time by the keeper.
const WRITES_MAX: usize = 64;

/// The time between two rounds of the keeper, within which changes are written together.
const KEEP_EVERY: Duration = Duration::from_millis(500);

/// The pause before a record that could not be deleted is tried again.
const DELETE_AGAIN: Duration = Duration::from_secs(5);

/// The longest time that the end of a node waits for its records.
const RELEASE_MAX: Duration = Duration::from_secs(5);

/// The moves within a minute from which on a session is warned of, and the time between two warnings.
const MOVES_MANY: u32 = 10;
const WARN_EVERY: u64 = 60;

/// A lock that one session has while it is taken over.
pub(super) type Turn = Arc<TurnMutex<()>>;

/// The records of an endpoint's sessions.
pub(super) struct SharedSessions {
    pub(super) place: RecordPlace,
    owner: RecordOwner,
    /// The sessions that are being taken over.
    turns: Mutex<HashMap<String, Weak<TurnMutex<()>>>>,
    moves: Semaphore,
    pub(super) metrics: MovedSessionMetrics,
    /// The time of the last warning of a session that moves often.
    warned: Mutex<u64>,
}

impl SharedSessions {
    /// Makes them, with the queue of their keeper.
    pub(super) fn new(
        records: Arc<dyn SessionRecords>,
        options: &McpOptions,
    ) -> (SharedSessions, mpsc::Receiver<KeeperTask>) {
        let (keeper, tasks) = mpsc::channel(TASKS_MAX);
        let idle = options.session.idle_timeout;
        let shared = SharedSessions {
            owner: records.node(),
            place: RecordPlace {
                records,
                keeper,
                // Whenever its node dies, the rest is as long as the session may be idle.
                ttl: idle + renewed_after(idle),
            },
            turns: Mutex::default(),
            moves: Semaphore::new(MOVES_MAX),
            metrics: MovedSessionMetrics::new(),
            warned: Mutex::default(),
        };
        (shared, tasks)
    }

    /// The node that writes the records.
    pub(super) fn owner(&self) -> &RecordOwner {
        &self.owner
    }

    /// Returns the lock of a session that is to be taken over.
    pub(super) fn turn(&self, id: &str) -> Turn {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(id).and_then(Weak::upgrade) {
            return turn;
        }
        // As many as requests are under way, since each holds its turn.
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Turn::default();
        turns.insert(id.to_owned(), Arc::downgrade(&turn));
        turn
    }

    /// Returns the lock of a session that is being taken over.
    fn turn_under_way(&self, id: &str) -> Option<Turn> {
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.get(id).and_then(Weak::upgrade)
    }

    /// Waits for a place among the sessions that are taken over; none at the end.
    pub(super) async fn move_place(&self) -> Option<SemaphorePermit<'_>> {
        self.moves.acquire().await.ok()
    }

    /// Writes the first record of a session.
    pub(super) async fn begin(
        &self,
        id: &str,
        session: &McpSession,
        head: RecordHead,
    ) -> Result<Arc<SharedSession>, RecordError> {
        let told = session.session.told();
        let record = head.record(&told, false, session.log_threshold.place());
        let records = &self.place.records;
        let revision = records.write(id, record.text(), None, self.place.ttl).await?;
        Ok(SharedSession::new(id, head, &self.place, revision, false))
    }

    /// Asks the former owners of a session what they told, after which they tell nothing more. Without an
    /// answer it is what the record says, which may be less; the flag is false then.
    pub(super) async fn told_before(
        &self,
        id: &str,
        record: &SessionRecord,
        generation: u64,
    ) -> (ToldState, bool) {
        let question = MoveQuestion {
            id: id.to_owned(),
            generation,
        };
        let question: Bytes = serde_json::to_vec(&question).unwrap_or_default().into();
        let former = record.former_owners(&self.owner);
        // Without former owners that tell more, the record is their last word.
        let is_sure = record.is_released;
        for owner in &former {
            match self.place.records.ask(owner, question.clone()).await {
                Some(answer) => {
                    let answer = serde_json::from_slice::<MoveAnswer>(&answer).ok();
                    if let Some(told) = answer.and_then(|answer| answer.told()) {
                        return (told, true);
                    }
                }
                None => {
                    // It may be cut off rather than dead, and go on with the session when it is back.
                    let left = self.place.records.leave_note(owner, id, generation).await;
                    if let Err(error) = left {
                        tracing::debug!(node = %owner.node, %error, "the node is not told that a session moved");
                    }
                }
            }
        }
        (record.told(), is_sure)
    }

    /// Counts a move, and warns if the session moves often.
    pub(super) fn count_move(&self, count: u32) {
        self.metrics.moved.increment(1);
        if count < MOVES_MANY {
            return;
        }
        // Once a minute for all sessions: without a sticky balancer, each of them moves.
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now();
        if now.saturating_sub(*warned) >= WARN_EVERY {
            *warned = now;
            tracing::warn!(
                moves = count,
                "a session moved between nodes this often within a minute, and each move costs several round trips; \
                 have the balancer send the requests of a session to one node (docs/cluster.md, Sessions)"
            );
        }
    }
}

/// Returns the age at which a record is written again.
fn renewed_after(idle_timeout: Duration) -> Duration {
    (idle_timeout / 3).max(Duration::from_secs(2))
}

/// Keeps the records for as long as the endpoint lives.
pub(super) async fn keep<S: EndpointServer>(
    endpoint: Weak<EndpointState<S>>,
    mut tasks: mpsc::Receiver<KeeperTask>,
) {
    let Some(age) = endpoint.upgrade().map(|state| {
        let idle = state.server.options.session.idle_timeout;
        renewed_after(idle).as_secs()
    }) else {
        return;
    };
    let mut due = Vec::new();
    let mut rounds = tokio::time::interval(KEEP_EVERY);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            task = tasks.recv() => match task {
                Some(KeeperTask::Save(session)) => due.push(session),
                // A task of its own: it is tried for as long as the record lives.
                Some(KeeperTask::Ended(shared)) => drop(tokio::spawn(delete(shared))),
                None => return,
            },
            _ = rounds.tick() => {
                // Weak until here: the task would otherwise keep an endpoint that its server has dropped.
                let Some(state) = endpoint.upgrade() else { return };
                state.sessions.note_older_than(age);
                save_all(&mut due).await;
            }
        }
    }
}

/// Writes the records of these sessions, and leaves those in the list that could not be written.
async fn save_all(due: &mut Vec<Weak<McpSession>>) {
    let mut writes = JoinSet::new();
    let mut is_reached = true;
    while is_reached && !due.is_empty() {
        while writes.len() < WRITES_MAX
            && let Some(session) = due.pop()
        {
            let Some(session) = session
                .upgrade()
                .filter(|session| session.session.ended().is_none())
            else {
                continue;
            };
            writes.spawn(async move {
                let saved = match session.shared.get() {
                    Some(shared) => shared.save(&session, false).await,
                    None => Ok(()),
                };
                if let (Err(SaveProblem::Unavailable(_)), Some(shared)) = (&saved, session.shared.get()) {
                    shared.mark_due();
                }
                (saved, Arc::downgrade(&session))
            });
        }
        // All of them: while nothing is reached, each takes the whole time of a request.
        while let Some(joined) = writes.join_next().await {
            if let Ok((Err(SaveProblem::Unavailable(error)), session)) = joined {
                tracing::debug!(%error, "a record of a session is written later");
                is_reached = false;
                due.push(session);
            }
        }
    }
}

/// Deletes the record of a session that ended, unless it ends by itself first.
async fn delete(shared: Arc<SharedSession>) {
    let tries = shared.ttl().as_secs() / DELETE_AGAIN.as_secs() + 1;
    for _ in 0..tries {
        match shared.delete().await {
            Ok(()) => return,
            Err(error) => tracing::debug!(%error, "the record of a session that ended is not deleted yet"),
        }
        tokio::time::sleep(DELETE_AGAIN).await;
    }
}

/// The sessions of an endpoint, for the questions of other nodes.
pub(super) struct SessionsOfEndpoint<S: EndpointServer>(pub(super) Arc<EndpointState<S>>);

impl<S: EndpointServer> SessionsOfEndpoint<S> {
    /// Gives a session up that another node has taken with this generation.
    async fn give_up(&self, shared: &SharedSessions, question: &MoveQuestion) -> Option<ToldState> {
        let sessions = &self.0.sessions;
        if let Some(told) = sessions.give_up(&question.id, question.generation) {
            return Some(told);
        }
        // It may be on its way here at the moment, and then goes on from here.
        let turn = shared.turn_under_way(&question.id)?;
        drop(turn.lock().await);
        sessions.give_up(&question.id, question.generation)
    }
}

impl<S: EndpointServer> OwnedSessions for SessionsOfEndpoint<S> {
    fn answer(&self, question: Bytes) -> RecordFuture<'_, Option<Bytes>> {
        Box::pin(async move {
            let question = serde_json::from_slice::<MoveQuestion>(&question).ok()?;
            let shared = self.0.shared.as_ref()?;
            let told = self.give_up(shared, &question).await;
            let answer = serde_json::to_vec(&MoveAnswer::new(told.as_ref())).ok()?;
            Some(answer.into())
        })
    }

    fn moved(&self, id: &str, generation: u64) {
        self.0.sessions.give_up(id, generation);
    }

    fn release(&self) -> RecordFuture<'_, ()> {
        Box::pin(async move {
            let released = tokio::time::timeout(RELEASE_MAX, release(self.0.sessions.shared()));
            if released.await.is_err() {
                tracing::warn!(
                    "not all sessions were written down; clients without Last-Event-ID may be told again"
                );
            }
        })
    }
}

async fn release(sessions: Vec<Arc<McpSession>>) {
    let mut writes = JoinSet::new();
    for session in sessions {
        // Not all at once: the servers would answer the last ones after the time of a request.
        if writes.len() >= WRITES_MAX {
            writes.join_next().await;
        }
        writes.spawn(async move {
            if let Some(shared) = session.shared.get()
                && let Err(problem) = shared.save(&session, true).await
            {
                tracing::debug!(?problem, "a session is not written down");
            }
        });
    }
    while writes.join_next().await.is_some() {}
}
