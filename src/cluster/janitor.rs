//! Removes from the log what no node needs any more: the records of removed URIs beyond those that are kept,
//! and large bodies that no record names. One node at a time does it. Every node stores large bodies again
//! that another one misses.
//!
//! Each step may end anywhere, also with the node, and another node goes on from what it finds.

mod floors;
mod put_back;
mod sweep;

use std::time::Duration;

use tidings_actors::{Bus, WeakBus};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::bodies::NamedBodies;
use super::lease::Lease;
use super::shared_state::SharedState;
use crate::metrics::JanitorMetrics;
use floors::Floors;
use sweep::Sweep;

/// The name of the lease. It is no source and no sink.
const LEASE: &str = "upkeep";

/// The time between two steps.
const STEP_EVERY: Duration = Duration::from_millis(500);

/// The removal of what no node needs, as long as this node has the lease for it.
#[derive(Debug)]
pub struct Janitor {
    lease: Lease,
    task: JoinHandle<()>,
    /// Answers other nodes.
    puts_back: JoinHandle<()>,
}

impl Janitor {
    /// Seeks the lease, and works while this node has it. It keeps `removed_max` removed URIs, and the bodies
    /// that `named` has.
    pub fn start(state: &SharedState, bus: &Bus, removed_max: usize, named: NamedBodies) -> Janitor {
        let lease = Lease::seek(state, LEASE);
        let metrics = JanitorMetrics::new();
        let puts_back = tokio::spawn(put_back::run(state.clone(), bus.downgrade(), metrics.clone()));
        let work = Work {
            bus: bus.downgrade(),
            turns: lease.turns(),
            floors: Floors::new(state, removed_max, metrics.clone()),
            sweep: Sweep::new(state, named, metrics),
        };
        let task = tokio::spawn(work.run());
        Janitor {
            lease,
            task,
            puts_back,
        }
    }

    /// Stops, and leaves the rest to another node.
    pub async fn stop(self) {
        self.task.abort();
        self.puts_back.abort();
        self.lease.release().await;
    }
}

struct Work {
    bus: WeakBus,
    turns: watch::Receiver<Option<std::time::Instant>>,
    floors: Floors,
    sweep: Sweep,
}

impl Work {
    async fn run(mut self) {
        loop {
            // The lease ends with the janitor.
            if self.turns.wait_for(Option::is_some).await.is_err() {
                return;
            }
            let Ok(bus) = self.bus.upgrade() else { return };
            let problem = match self.floors.step(&bus).await {
                Ok(()) => self.sweep.step().await.err(),
                Err(problem) => Some(problem),
            };
            // The handle would keep the bus running.
            drop(bus);
            if let Some(problem) = problem {
                tracing::debug!(%problem, "the log is tidied up later");
            }
            tokio::time::sleep(STEP_EVERY).await;
        }
    }
}
