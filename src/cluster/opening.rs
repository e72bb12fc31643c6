//! Opens the log: finds its stream or makes it, and recognizes its history.

use std::time::Duration;

use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{ClusterInfo, Info};
use async_nats::jetstream::{Context, ErrorCode};
use tidings_actors::shared_log::{Heard, LogHealth, LogHistory};

use super::asking::first_end;
use super::error::ClusterError;
use super::identity::{FoundLog, KnownLog, Recognition, next_history, recognize};
use super::node_state::{NodeState, Stopped, now_millis, spread};
use super::stream;

/// The time after which a server is asked once more.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// The time for which the leader of a stream may not have heard another server. They exchange signs of life
/// each second, and elect another leader after four seconds without any.
const HEARD_MAX: Duration = Duration::from_secs(3);

/// The reason for which a log is not open.
#[derive(Debug)]
pub(super) enum NotOpened {
    /// The node has ended.
    Stopped,
    /// The server does not answer, or the log has no leader.
    Unavailable(String),
    /// The log cannot be used as it is.
    Unfit(ClusterError),
}

impl From<Stopped> for NotOpened {
    fn from(_: Stopped) -> NotOpened {
        NotOpened::Stopped
    }
}

/// The stream of a log as a server reports it.
pub(super) struct FoundStream {
    pub(super) info: Info,
    pub(super) found: FoundLog,
}

impl FoundStream {
    /// True if changes can be stored: the stream has a leader that hears most of its servers, or needs none.
    fn has_quorum(&self) -> bool {
        match &self.info.cluster {
            Some(cluster) => has_quorum(cluster),
            None => true,
        }
    }

    /// The health of a log that a server answers for.
    pub(super) fn health(&self) -> LogHealth {
        match self.has_quorum() {
            true => LogHealth::Connected,
            false => LogHealth::NoQuorum,
        }
    }
}

fn has_quorum(cluster: &ClusterInfo) -> bool {
    if cluster.leader.as_deref().unwrap_or_default().is_empty() {
        return false;
    }
    let others = &cluster.replicas;
    let heard = others
        .iter()
        .filter(|other| !other.offline && other.active < HEARD_MAX);
    // The leader is one more of them, and of those that it hears.
    2 * (heard.count() + 1) > others.len() + 1
}

/// Opens the log and returns its newest sequence number. If its history is another one than before, all
/// proposals end and the node is told first.
pub(super) async fn open(node: &NodeState, context: &Context) -> Result<u64, NotOpened> {
    let mut there = match find(node, context).await? {
        Some(there) => there,
        None => make_again(node, context).await?,
    };
    check_place(node, context, &there.found).await;
    if recognition(node, &there.found) == Recognition::Unnamed {
        there = rename(node, context).await?;
    }
    if recognition(node, &there.found) != Recognition::Same || node.must_read_all.get() {
        adopt(node, &there.found).await?;
    }
    node.metrics.head.set(there.found.last as f64);
    node.tell_health(there.health()).await?;
    Ok(there.found.last)
}

/// Compares the log that is there with the one that is read.
pub(super) fn recognition(node: &NodeState, found: &FoundLog) -> Recognition {
    recognize(node.known.borrow().as_ref(), found)
}

/// Finds the stream; none if there is none.
pub(super) async fn find(node: &NodeState, context: &Context) -> Result<Option<FoundStream>, NotOpened> {
    let heard_before = node.known.borrow().map(|known| known.heard).unwrap_or(0);
    let answer = first_end(ASK_AGAIN, || context.get_stream(&node.names.records)).await;
    let info = match answer {
        Ok(stream) => stream.cached_info().clone(),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(refusal) => match refusal.error_code() {
                ErrorCode::STREAM_NOT_FOUND => return Ok(None),
                ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
                    return Err(refused(node, refusal.to_string()));
                }
                _ => return Err(NotOpened::Unavailable(refusal.to_string())),
            },
            _ => return Err(NotOpened::Unavailable(error.to_string())),
        },
    };
    // The history is compared apart.
    let wanted = stream::records(&node.settings, &node.names, LogHistory { epoch: 0, began: 0 });
    let harmless = stream::check(&wanted, &info).map_err(NotOpened::Unfit)?;
    if !harmless.is_empty() && node.known.borrow().is_none() {
        let differences = harmless.join("; ");
        let stream = &node.names.records;
        tracing::warn!(%stream, %differences, "the stream of the shared log differs from the configuration");
    }
    let Some(history) = stream::read_history(&info.config.metadata) else {
        return Err(NotOpened::Unfit(ClusterError::Stream {
            stream: node.names.records.clone(),
            differences: "its metadata has no epoch".to_owned(),
        }));
    };
    let found = FoundLog {
        history,
        created: info.created.unix_timestamp_nanos(),
        last: info.state.last_sequence,
        heard_before,
    };
    let there = FoundStream { info, found };
    // A leader that was cut off goes on to lead what it has until it hears of the next one.
    if recognition(node, &there.found) == Recognition::Unnamed && !there.has_quorum() {
        let problem = "the leader of the stream does not hear the other servers";
        return Err(NotOpened::Unavailable(problem.to_owned()));
    }
    Ok(Some(there))
}

/// Makes the stream, unless it comes back.
async fn make_again(node: &NodeState, context: &Context) -> Result<FoundStream, NotOpened> {
    if let Some(known) = &mut *node.known.borrow_mut() {
        // A stream that comes back is a copy, whatever its metadata say.
        known.is_suspect = true;
    }
    if node.known.borrow().is_some() {
        tracing::warn!(stream = %node.names.records, "the stream of the shared log is missing");
        // Servers that have just started may not know all streams yet.
        tokio::time::sleep(spread(500, 1_000)).await;
        if let Some(there) = find(node, context).await? {
            return Ok(there);
        }
    }
    let before = node.known.borrow().map(|known| known.history);
    let history = next_history(before, now_millis());
    let config = stream::records(&node.settings, &node.names, history);
    match first_end(ASK_AGAIN, || context.create_stream(config.clone())).await {
        Ok(_) => tracing::info!(
            stream = %node.names.records, epoch = history.epoch, "a history of the shared log begins"
        ),
        Err(error) => match error.kind() {
            // Another node was faster.
            CreateStreamErrorKind::JetStream(refusal)
                if refusal.error_code() == ErrorCode::STREAM_NAME_EXIST => {}
            // The account forbids it, or its limits do: waiting does not help.
            CreateStreamErrorKind::JetStream(refusal) if refusal.code() < 500 => {
                return Err(refused(node, refusal.to_string()));
            }
            // Too few servers are there yet, or no leader.
            _ => return Err(NotOpened::Unavailable(error.to_string())),
        },
    }
    found_again(node, context).await
}

async fn found_again(node: &NodeState, context: &Context) -> Result<FoundStream, NotOpened> {
    match find(node, context).await? {
        Some(there) => Ok(there),
        None => Err(NotOpened::Unavailable("the stream is being made".to_owned())),
    }
}

/// Compares the record at the place that this node has heard with the one that was heard. A log that was
/// restored from a copy and has grown again since has another one there.
async fn check_place(node: &NodeState, context: &Context, found: &FoundLog) {
    let Some((sequence, operation)) = node.newest.get() else {
        return;
    };
    if recognition(node, found) != Recognition::Same {
        return;
    }
    let Ok(stream) = context.get_stream_no_info(&node.names.records).await else {
        return;
    };
    // A record that is missing was replaced, which says nothing.
    if let Ok(message) = first_end(ASK_AGAIN, || stream.direct_get(sequence)).await
        && let Ok(record) = super::record::decode(&message.payload)
        && record.operation != operation
        && let Some(known) = &mut *node.known.borrow_mut()
    {
        known.is_suspect = true;
    }
}

/// Gives the history of the log a name of its own, unless another node does.
async fn rename(node: &NodeState, context: &Context) -> Result<FoundStream, NotOpened> {
    // All nodes see it at once, and one name is enough.
    tokio::time::sleep(spread(0, 500)).await;
    let there = found_again(node, context).await?;
    if recognition(node, &there.found) != Recognition::Unnamed {
        return Ok(there);
    }
    let before = node.known.borrow().map(|known| known.history);
    let history = next_history(
        [Some(there.found.history), before].into_iter().flatten(),
        now_millis(),
    );
    let mut config = there.info.config;
    stream::write_history(history, &mut config.metadata);
    // The servers may have no leader of all streams yet, which takes it.
    if let Err(error) = first_end(ASK_AGAIN, || context.update_stream(&config)).await {
        return Err(NotOpened::Unavailable(error.to_string()));
    }
    found_again(node, context).await
}

/// Begins to read a history, from its first record.
async fn adopt(node: &NodeState, found: &FoundLog) -> Result<(), Stopped> {
    let before = node.known.borrow().map(|known| known.history);
    let is_first = before.is_none();
    *node.known.borrow_mut() = Some(KnownLog {
        history: found.history,
        created: found.created,
        heard: 0,
        is_suspect: false,
    });
    node.newest.set(None);
    node.delivered.set(0);
    node.floor.set(0);
    node.began_at.set(found.last);
    node.must_read_all.set(false);
    node.named.clear();
    node.is_caught_up.set(false);
    // The proposals of the first history wait for it; those of another one were judged by what is gone.
    let ended = match is_first {
        true => Vec::new(),
        false => {
            let mut ended = node.in_flight.borrow_mut().end_all();
            ended.extend(node.bodies.borrow_mut().end_all());
            ended
        }
    };
    if before == Some(found.history) {
        tracing::info!(stream = %node.names.records, "the shared log is read from its beginning to find what was removed");
    } else if !is_first {
        node.metrics.epochs.increment(1);
        tracing::warn!(
            stream = %node.names.records,
            epoch = found.history.epoch,
            "the shared log has another history: it was deleted or restored from a copy"
        );
    }
    // First, so that the ends of proposals are judged in the history that they are told in.
    node.tell(Heard::Opened(found.history)).await?;
    node.tell_all(ended).await
}

fn refused(node: &NodeState, reason: String) -> NotOpened {
    NotOpened::Unfit(ClusterError::Refused {
        stream: node.names.records.clone(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state of a stream whose leader has heard other servers this many milliseconds ago.
    fn led(leader: &str, heard: &[u64]) -> ClusterInfo {
        let replicas = heard.iter().map(
            |millis| serde_json::json!({ "name": "other", "current": true, "active": millis * 1_000_000 }),
        );
        let replicas: Vec<_> = replicas.collect();
        serde_json::from_value(serde_json::json!({ "leader": leader, "replicas": replicas })).unwrap()
    }

    #[test]
    fn leader_that_hears_no_majority_has_no_quorum() {
        assert!(has_quorum(&led("n1", &[])));
        assert!(has_quorum(&led("n1", &[0, 900])));
        assert!(has_quorum(&led("n1", &[900, 60_000])));
        assert!(!has_quorum(&led("n1", &[3_000, 60_000])));
        assert!(!has_quorum(&led("n1", &[9_000])));
        assert!(!has_quorum(&led("", &[0, 0])));
        let mut offline = led("n1", &[0, 60_000]);
        offline.replicas[0].offline = true;
        assert!(!has_quorum(&offline));
    }
}
