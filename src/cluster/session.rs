//! The work with one server: opening the log, reading it, writing to it, and watching over both.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use async_nats::jetstream::Context;
use async_nats::jetstream::context::ContextBuilder;
use tidings_actors::shared_log::LogHealth;

use super::bodies;
use super::identity::Recognition;
use super::node_state::{NodeState, Stopped, spread};
use super::opening::{self, NotOpened};
use super::publisher;
use super::reader::{LogReader, ReadEnd};
use super::servers::{REQUEST_TIMEOUT, ServerConnection};

/// The failures in a row after which another server is tried.
const FAILURES_MAX: u32 = 3;

/// The pause before the log is read anew, for each failure in a row. Nodes spread it, so that all of them do
/// not ask for consumers at once.
const READ_PAUSE: Duration = Duration::from_millis(100);

/// The interval at which the log is looked at, also while nothing happens.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// The time that each further server gets after one that took no change.
const SEARCH_TIME: Duration = Duration::from_millis(500);

/// The pause before a log that cannot be used is tried again.
const UNFIT_PAUSE: Duration = Duration::from_secs(2);

/// The end of the work with a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SessionEnd {
    /// The node has ended.
    Stopped,
    /// The connection is lost.
    Lost,
    /// Another server may do better, for this reason.
    Leave(String),
}

impl From<Stopped> for SessionEnd {
    fn from(_: Stopped) -> SessionEnd {
        SessionEnd::Stopped
    }
}

/// Works with the server of `connection` until it must be left.
pub(super) async fn run(node: &NodeState, connection: &ServerConnection) -> SessionEnd {
    let client = &connection.client;
    node.payload_max.set(client.max_payload());
    let context = ContextBuilder::new()
        .timeout(REQUEST_TIMEOUT)
        .build(client.clone());
    // In one task: they share the state of the node, and none of them computes for long.
    tokio::select! {
        end = follow(node, &context) => end,
        end = publisher::run(node, client) => end,
        end = bodies::upload(node, &context) => end,
        end = stuck(node) => end,
        () = connection.lost.notified() => SessionEnd::Lost,
    }
}

/// Opens the log and reads it, again and again, until the server fails too often.
async fn follow(node: &NodeState, context: &Context) -> SessionEnd {
    let mut failures = 0;
    loop {
        let problem = match opening::open(node, context).await {
            Ok(head) => {
                let read = read(node, context, head).await;
                // A consumer that has delivered is not one that the server keeps failing to make.
                if read.progress {
                    failures = 0;
                }
                match read.end {
                    ReadEnd::Stopped => return SessionEnd::Stopped,
                    ReadEnd::Broken(problem) => problem,
                    ReadEnd::Unreadable(problem) => {
                        node.metrics.unreadable.increment(1);
                        if let Err(Stopped) = halt(node, &problem).await {
                            return SessionEnd::Stopped;
                        }
                        continue;
                    }
                }
            }
            Err(NotOpened::Stopped) => return SessionEnd::Stopped,
            Err(NotOpened::Unavailable(problem)) => {
                if let Err(Stopped) = node.tell_health(LogHealth::NoQuorum).await {
                    return SessionEnd::Stopped;
                }
                problem
            }
            Err(NotOpened::Unfit(error)) => {
                if let Err(Stopped) = halt(node, &error.to_string()).await {
                    return SessionEnd::Stopped;
                }
                continue;
            }
        };
        // A server that was just elected, or lost its leader, is given some tries.
        failures += 1;
        node.metrics.restarts.increment(1);
        tracing::debug!(%problem, failures, "the shared log is read anew");
        if failures >= FAILURES_MAX {
            return SessionEnd::Leave(problem);
        }
        tokio::time::sleep(READ_PAUSE.mul_f64(f64::from(failures)) + spread(0, 200)).await;
    }
}

/// The end of a consumer, and whether it did its work before.
struct ReadPass {
    end: ReadEnd,
    progress: bool,
}

/// Reads the log through one consumer, beside a watch over its identity.
async fn read(node: &NodeState, context: &Context, head: u64) -> ReadPass {
    let mut reader = LogReader::new(node, context, head);
    node.set_writable(true);
    let end = tokio::select! {
        end = reader.read() => end,
        Err(end) = watch(node, context) => end,
    };
    ReadPass {
        end,
        progress: reader.has_read,
    }
}

/// Looks at the log from time to time, and ends when it must be opened again.
async fn watch(node: &NodeState, context: &Context) -> Result<Infallible, ReadEnd> {
    let mut failures = 0;
    loop {
        tokio::select! {
            () = tokio::time::sleep(WATCH_INTERVAL) => {}
            () = node.doubt.notified() => {}
        }
        // Those that come while the answer is on its way are settled by the next one.
        let doubted = node.in_flight.borrow().doubted();
        match opening::find(node, context).await {
            Ok(Some(there)) if opening::recognition(node, &there.found) == Recognition::Same => {
                failures = 0;
                node.metrics.head.set(there.found.last as f64);
                node.tell_health(there.health()).await?;
                let ended = node.in_flight.borrow_mut().settle(&doubted);
                node.tell_all(ended).await?;
            }
            Ok(_) => return Err(ReadEnd::Broken("the log has another history".to_owned())),
            Err(NotOpened::Stopped) => return Err(ReadEnd::Stopped),
            Err(NotOpened::Unfit(error)) => return Err(ReadEnd::Broken(error.to_string())),
            Err(NotOpened::Unavailable(problem)) => {
                failures += 1;
                node.tell_health(LogHealth::NoQuorum).await?;
                if failures >= FAILURES_MAX {
                    return Err(ReadEnd::Broken(problem));
                }
            }
        }
    }
}

/// Ends when the server has taken no proposal for too long.
async fn stuck(node: &NodeState) -> SessionEnd {
    // Sent again to the same server, the same would happen: one that is cut off does not know it for long.
    // The next one may be cut off, too, while the others elect, so it gets less time.
    loop {
        let limit = match node.is_searching() {
            true => SEARCH_TIME,
            false => node.settings.leave_after,
        };
        tokio::time::sleep(limit / 4).await;
        let now = Instant::now();
        if node.is_writable() && node.in_flight.borrow().is_stuck(limit, now) {
            node.leave(now);
            return SessionEnd::Leave(format!("it took no change for {} ms", limit.as_millis()));
        }
    }
}

/// Says loudly that the log cannot be used, and waits before it is tried again.
async fn halt(node: &NodeState, problem: &str) -> Result<(), Stopped> {
    if node.halt(problem) {
        tracing::error!(%problem, "the shared log cannot be used; this node takes no changes until it can");
    }
    node.tell_health(LogHealth::NoQuorum).await?;
    tokio::time::sleep(UNFIT_PAUSE).await;
    Ok(())
}
