//! Stores the bodies of this node's proposals, after which their records may be sent.

use std::time::Instant;

use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::{Context, ErrorCode};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use tidings_actors::Body;
use tidings_actors::shared_log::{Heard, Verdict};

use super::queue::BodyToStore;
use super::{CHUNK_LEN, CHUNKS_AT_ONCE};
use crate::cluster::names::LogNames;
use crate::cluster::node_state::{NodeState, Stopped, spread};
use crate::cluster::record_answer::{RecordAnswer, refusal};
use crate::cluster::servers::REQUEST_TIMEOUT;
use crate::cluster::session::SessionEnd;
use crate::cluster::settings::ClusterSettings;
use crate::cluster::stream as log_stream;
use crate::store::encoding::BodyHash;

/// The bodies that are stored at a time.
const BODIES_AT_ONCE: usize = 8;

/// The bytes of a message beside a chunk.
const CHUNK_HEAD: usize = 1_024;

/// The result of a try to store a body.
enum UploadEnd {
    /// All of its chunks are acknowledged.
    Stored,
    /// The servers do not take it, now or later.
    Refused(Verdict),
    /// No answer, or no leader.
    Failed(String),
}

/// Stores bodies until the connection or the node ends.
pub(in crate::cluster) async fn run(node: &NodeState, context: &Context) -> SessionEnd {
    let mut failing: Option<Instant> = None;
    let mut is_open = false;
    loop {
        let bodies = node.bodies.borrow().first(BODIES_AT_ONCE);
        if bodies.is_empty() || !node.is_writable() {
            node.body_wake.notified().await;
            continue;
        }
        // Opened once for each connection, because a look costs a round trip.
        // Again after a failure, which may be that of a stream that is gone.
        let opened = match is_open && failing.is_none() {
            true => UploadEnd::Stored,
            false => open(context, &node.settings, &node.names).await,
        };
        let ends = match opened {
            UploadEnd::Stored => {
                is_open = true;
                let names = &node.names;
                join_all(
                    bodies
                        .iter()
                        .map(|body| store(context, names, &body.hash, &body.body)),
                )
                .await
            }
            UploadEnd::Refused(verdict) => bodies
                .iter()
                .map(|_| UploadEnd::Refused(verdict.clone()))
                .collect(),
            UploadEnd::Failed(problem) => vec![UploadEnd::Failed(problem)],
        };
        let problem = match settle(node, &bodies, ends).await {
            Ok(problem) => problem,
            Err(Stopped) => return SessionEnd::Stopped,
        };
        let Some(problem) = problem else {
            failing = None;
            continue;
        };
        tracing::debug!(%problem, "a body is stored again");
        if failing.get_or_insert_with(Instant::now).elapsed() >= node.settings.leave_after {
            return SessionEnd::Leave(format!("it stores no bodies: {problem}"));
        }
        tokio::time::sleep(spread(100, 300)).await;
    }
}

/// Lets the records follow whose bodies are stored, and ends the proposals that are refused. Returns the
/// problem of one that is tried again.
async fn settle(
    node: &NodeState,
    bodies: &[BodyToStore],
    ends: Vec<UploadEnd>,
) -> Result<Option<String>, Stopped> {
    let mut problem = None;
    for (body, end) in bodies.iter().zip(ends) {
        match end {
            UploadEnd::Stored => {
                let stored = node.bodies.borrow_mut().take(body.number);
                if let Some(stored) = stored {
                    node.send_record(stored);
                }
            }
            UploadEnd::Refused(verdict) => {
                let refused = node.bodies.borrow_mut().take(body.number);
                if let Some(refused) = refused {
                    node.tell(Heard::Ended(refused.proposal.operation, verdict))
                        .await?;
                }
            }
            UploadEnd::Failed(failed) => problem = Some(failed),
        }
    }
    Ok(problem)
}

/// Stores a body again that is gone.
///
/// # Errors
/// The servers do not take it.
pub(super) async fn put_back(
    context: &Context,
    settings: &ClusterSettings,
    hash: &BodyHash,
    body: &Body,
) -> Result<(), String> {
    let names = LogNames::new(&settings.namespace);
    let end = match open(context, settings, &names).await {
        UploadEnd::Stored => store(context, &names, hash, body).await,
        not_opened => not_opened,
    };
    match end {
        UploadEnd::Stored => Ok(()),
        UploadEnd::Refused(verdict) => Err(format!("{verdict:?}")),
        UploadEnd::Failed(problem) => Err(problem),
    }
}

/// Finds the stream of the bodies, or makes it.
async fn open(context: &Context, settings: &ClusterSettings, names: &LogNames) -> UploadEnd {
    let max = context.client().max_payload();
    if max < CHUNK_LEN + CHUNK_HEAD {
        return refused(format!(
            "larger bodies are stored in messages of {CHUNK_LEN} bytes, and the servers of the shared log take \
             {max}; raise their max_payload"
        ));
    }
    let wanted = log_stream::bodies(settings, names);
    let problem = match context.get_stream(&wanted.name).await {
        Ok(found) => match log_stream::check(&wanted, found.cached_info()) {
            Ok(_harmless) => return UploadEnd::Stored,
            Err(unfit) => return refused(unfit.to_string()),
        },
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => None,
            _ => Some(error.to_string()),
        },
    };
    if let Some(problem) = problem {
        return UploadEnd::Failed(problem);
    }
    match context.create_stream(wanted).await {
        Ok(_) => UploadEnd::Stored,
        Err(error) => match error.kind() {
            // Another node was faster.
            CreateStreamErrorKind::JetStream(refusal)
                if refusal.error_code() == ErrorCode::STREAM_NAME_EXIST =>
            {
                UploadEnd::Stored
            }
            // The account forbids it, or its limits do: waiting does not help.
            CreateStreamErrorKind::JetStream(refusal) if refusal.code() < 500 => refused(format!(
                "the stream of larger bodies cannot be made: {refusal}; check the limits of the account"
            )),
            _ => UploadEnd::Failed(error.to_string()),
        },
    }
}

fn refused(reason: String) -> UploadEnd {
    UploadEnd::Refused(Verdict::Refused {
        full: false,
        reason: reason.into(),
    })
}

/// Stores the chunks of a body. Those that are there are written again: the newer ones outlive the removal of
/// a body that no record names, which may be under way.
async fn store(context: &Context, names: &LogNames, hash: &BodyHash, body: &Body) -> UploadEnd {
    let bytes = body.as_bytes();
    // By their numbers: the compiler takes a closure over borrowed chunks for one that no task may hold.
    let chunks = (0..bytes.len().div_ceil(CHUNK_LEN)).map(|index| {
        let rest = &bytes[index * CHUNK_LEN..];
        let chunk = &rest[..rest.len().min(CHUNK_LEN)];
        store_chunk(
            context,
            names.chunk(hash, index as u64),
            Bytes::copy_from_slice(chunk),
        )
    });
    let mut ends = stream::iter(chunks).buffer_unordered(CHUNKS_AT_ONCE);
    while let Some(end) = ends.next().await {
        match end {
            UploadEnd::Stored => {}
            other => return other,
        }
    }
    UploadEnd::Stored
}

async fn store_chunk(context: &Context, subject: String, chunk: Bytes) -> UploadEnd {
    let client = context.client();
    let sent = client.request(subject, chunk);
    let answered = match tokio::time::timeout(REQUEST_TIMEOUT, sent).await {
        Ok(Ok(message)) => message,
        Ok(Err(error)) => return UploadEnd::Failed(error.to_string()),
        Err(_late) => return UploadEnd::Failed("no answer in time".to_owned()),
    };
    match RecordAnswer::of(&answered) {
        RecordAnswer::Stored { .. } => UploadEnd::Stored,
        RecordAnswer::Refused { is_full, reason } => UploadEnd::Refused(refusal(is_full, &reason)),
        RecordAnswer::Conflict { .. } | RecordAnswer::InProcess | RecordAnswer::Unavailable => {
            UploadEnd::Failed("the stream of the bodies has no leader".to_owned())
        }
    }
}
