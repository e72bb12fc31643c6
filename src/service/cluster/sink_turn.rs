//! The turns of the sinks: the node with the lease of a sink delivers, and tells the others its place.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::debug;

use crate::cluster::{Expected, Lease, SharedState, StateError, StateKey, StateKind};
use crate::sink::{MakeTurn, SinkTurn};

/// The time between two reports of the place.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The sinks that deliver on one node at a time.
const KINDS: [&str; 2] = ["webhook/", "journal/"];

/// What the node is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Running,
    /// It stops, and delivers what it is to deliver itself.
    Stopping,
    /// Everything is delivered.
    Leaving,
}

/// The turns of the sinks.
pub(super) struct SinkTurns {
    state: SharedState,
    stage: watch::Sender<Stage>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl SinkTurns {
    pub(super) fn new(state: &SharedState) -> SinkTurns {
        SinkTurns {
            state: state.clone(),
            stage: watch::Sender::new(Stage::Running),
            tasks: Arc::default(),
        }
    }

    /// Returns the function that makes the turn of a sink.
    pub(super) fn maker(&self) -> MakeTurn {
        let state = self.state.clone();
        let stage = self.stage.clone();
        let tasks = self.tasks.clone();
        Arc::new(move |name| {
            if !KINDS.iter().any(|kind| name.starts_with(kind)) {
                return None;
            }
            let turn = SinkTurn::default();
            let follower = TurnFollower {
                lease: Lease::seek(&state, &format!("sink.{name}")),
                key: StateKey::new(StateKind::Cursor, &format!("sink.{name}")),
                state: state.clone(),
                turn: turn.clone(),
                told: 0,
                is_held: false,
            };
            let mut tasks = tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.spawn(follower.run(stage.subscribe()));
            Some(turn)
        })
    }

    /// Leaves the deliveries that wait for another node to the other nodes.
    pub(super) fn stop_waiting(&self) {
        self.stage.send_replace(Stage::Stopping);
    }

    /// Tells how far each sink is, and gives its lease up.
    pub(super) async fn finish(&self) {
        self.stage.send_replace(Stage::Leaving);
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        while tasks.join_next().await.is_some() {}
    }
}

/// Follows the turn of one sink.
struct TurnFollower {
    lease: Lease,
    key: StateKey,
    state: SharedState,
    turn: SinkTurn,
    /// The offset that was told the other nodes.
    told: u64,
    is_held: bool,
}

impl TurnFollower {
    /// Runs until the node leaves its cluster, or the sink is detached.
    async fn run(mut self, mut stage: watch::Receiver<Stage>) {
        let mut turns = self.lease.turns();
        loop {
            tokio::select! {
                _ = turns.changed() => {}
                _ = stage.changed() => {}
                () = tokio::time::sleep(TELL_EVERY) => {}
            }
            let has_lease = turns.borrow_and_update().is_some();
            let stage = *stage.borrow_and_update();
            if self.turn.is_unused() || stage == Stage::Leaving {
                break;
            }
            // The node would otherwise wait for the others until its time to stop is over.
            self.turn.set_waiting(stage == Stage::Running);
            if let Err(error) = self.step(has_lease).await {
                debug!(sink = %self.key, %error, "the place of a sink is not shared at the moment");
            }
        }
        if self.is_held
            && let Err(error) = self.tell().await
        {
            debug!(sink = %self.key, %error, "the next node may deliver again what this one has delivered");
        }
        self.turn.set_held(false);
        self.lease.release().await;
    }

    async fn step(&mut self, has_lease: bool) -> Result<(), StateError> {
        if has_lease && !self.is_held {
            // From the leader: what the other node told last.
            if let Some(entry) = self.state.load(&self.key).await? {
                self.take(&entry.value);
            }
            self.is_held = true;
            self.turn.set_held(true);
        } else if !has_lease && self.is_held {
            self.is_held = false;
            self.turn.set_held(false);
        }
        if self.is_held {
            return self.tell().await;
        }
        if let Some(heard) = self.state.heard(&self.key) {
            self.take(&heard.entry.value);
        }
        Ok(())
    }

    fn take(&mut self, value: &[u8]) {
        if let Ok(text) = std::str::from_utf8(value)
            && let Ok(offset) = text.parse()
        {
            self.turn.set_delivered(offset);
            self.told = self.told.max(offset);
        }
    }

    async fn tell(&mut self) -> Result<(), StateError> {
        let delivered = self.turn.delivered();
        if delivered > self.told {
            let text = delivered.to_string().into();
            self.state.write(&self.key, text, Expected::Any, None).await?;
            self.told = delivered;
        }
        Ok(())
    }
}
