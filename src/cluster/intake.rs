//! Takes the proposals of the node, and ends those that no server answers in time. It goes on while no server
//! is connected.

use std::time::Instant;

use tidings_actors::shared_log::Proposal;
use tokio::sync::mpsc;

use super::node_state::{NodeState, Stopped};

/// The most proposals that are taken at once.
const BATCH: usize = 256;

/// Takes proposals until the node closes one of the channels.
pub(super) async fn run(node: &NodeState, mut proposals: mpsc::Receiver<Proposal>) -> Stopped {
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let held = node.bodies.borrow().len();
        let room = node.in_flight.borrow().room().saturating_sub(held).min(BATCH);
        let due = [node.in_flight.borrow().due(), node.bodies.borrow().due()];
        let due = due.into_iter().flatten().min();
        let step = tokio::select! {
            count = proposals.recv_many(&mut batch, room), if room > 0 => match count {
                0 => Err(Stopped),
                _ => take(node, &mut batch).await,
            },
            () = reached(due) => look_at_due(node).await,
            // Another time is due.
            () = node.timer.notified() => Ok(()),
        };
        if let Err(stopped) = step {
            return stopped;
        }
    }
}

async fn take(node: &NodeState, batch: &mut Vec<Proposal>) -> Result<(), Stopped> {
    for proposal in batch.drain(..) {
        node.propose(proposal).await?;
    }
    node.wake.notify_one();
    Ok(())
}

async fn look_at_due(node: &NodeState) -> Result<(), Stopped> {
    let now = Instant::now();
    let mut ended = node.in_flight.borrow_mut().tick(now);
    ended.extend(node.bodies.borrow_mut().expire(now));
    if node.in_flight.borrow().has_waiting() {
        node.wake.notify_one();
    }
    node.tell_all(ended).await
}

/// Waits for a time; for ever if there is none.
async fn reached(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
