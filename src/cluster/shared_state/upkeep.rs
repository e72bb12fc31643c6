//! Keeps the connection to the shared state, makes its stream, and listens to its entries.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::context::{ContextBuilder, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use async_nats::jetstream::{Context, Message};
use futures_util::StreamExt;
use tokio::time::Instant;

use super::Inner;
use super::entries::SharedEntry;
use super::key::{StateKind, StateStream};
use super::questions;
use crate::cluster::names::LogNames;
use crate::cluster::node_state::spread;
use crate::cluster::servers::{self, REQUEST_TIMEOUT, ServerRing};

/// The format of the stream.
const FORMAT: &str = "1";

/// The key of the format in the stream's metadata.
const FORMAT_KEY: &str = "tidings.format";

/// The bytes that the entries of nodes may take on each server.
const NODES_BYTES_MAX: u64 = 64 << 20;

/// The part of the log's bytes that the records of sessions may take.
const SESSIONS_PART: u64 = 4;

/// The failed requests in a row after which another server is tried.
const FAILURES_MAX: u32 = 3;

/// The interval at which the head of the log is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// The time for which one request for entries stands.
const EXPIRES: Duration = Duration::from_secs(10);

/// The entries that are asked for at once.
const BATCH: usize = 1_000;

/// Works with one server after another until the task is aborted.
pub(super) async fn run(inner: Arc<Inner>, mut ring: ServerRing) {
    let mut consumers = 0;
    loop {
        let problem = match servers::connect_next(&inner.settings, &mut ring).await {
            Ok(connection) => {
                ring.discover(&connection.client.server_info().connect_urls);
                let context = ContextBuilder::new()
                    .timeout(REQUEST_TIMEOUT)
                    .build(connection.client.clone());
                consumers += 1;
                let name = format!("{}-{:08x}-v{consumers}", inner.settings.node_name(), inner.boot);
                let problem = tokio::select! {
                    problem = follow(&inner, &context, &name) => problem,
                    problem = failing(&inner) => problem,
                    () = connection.lost.notified() => "the connection is lost".to_owned(),
                };
                format!("{}: {problem}", servers::shown(&connection.server))
            }
            Err(error) => error.to_string(),
        };
        // Requests wait for the next server from now on.
        inner.context.send_replace(None);
        tracing::debug!(%problem, "the state of the cluster is asked at another server");
        tokio::time::sleep(spread(100, 1_000)).await;
    }
}

/// Returns when too many requests in a row failed.
async fn failing(inner: &Inner) -> String {
    inner.failures.store(0, Ordering::Relaxed);
    loop {
        inner.failed.notified().await;
        if inner.failures.load(Ordering::Relaxed) >= FAILURES_MAX {
            return "it does not answer".to_owned();
        }
    }
}

/// Opens the stream and hears its entries. Returns the problem that ended it.
async fn follow(inner: &Inner, context: &Context, name: &str) -> String {
    if let Err(problem) = open(inner, context).await {
        return problem;
    }
    inner.context.send_replace(Some(context.clone()));
    let beside = async {
        match inner.stream {
            StateStream::Nodes => tokio::select! {
                ended = look(inner, context) => ended,
                ended = questions::serve(inner, context) => ended,
            },
            StateStream::Sessions => questions::serve(inner, context).await,
        }
    };
    let ended = tokio::select! {
        ended = hear(inner, context, name) => ended,
        ended = beside => ended,
    };
    match ended {
        Ok(never) => match never {},
        Err(problem) => problem,
    }
}

/// Finds the stream, or makes it.
async fn open(inner: &Inner, context: &Context) -> Result<(), String> {
    let wanted = Config {
        name: inner.names.stream.clone(),
        description: Some(match inner.stream {
            StateStream::Nodes => "the nodes of a cluster of Tidings, and their tasks".to_owned(),
            StateStream::Sessions => "the sessions of a cluster of Tidings".to_owned(),
        }),
        subjects: vec![inner.names.all()],
        storage: StorageType::File,
        num_replicas: inner.settings.replicas,
        max_messages_per_subject: 1,
        max_bytes: i64::try_from(bytes_max(inner)).unwrap_or(i64::MAX),
        // A full stream must not forget who does a task.
        discard: DiscardPolicy::New,
        allow_direct: true,
        allow_message_ttl: true,
        metadata: HashMap::from([(FORMAT_KEY.to_owned(), FORMAT.to_owned())]),
        ..Config::default()
    };
    let found = match context.get_stream(&wanted.name).await {
        Ok(stream) => stream.cached_info().config.clone(),
        Err(error) if is_missing(&error.kind()) => match context.create_stream(wanted.clone()).await {
            Ok(stream) => stream.cached_info().config.clone(),
            Err(error) => return Err(format!("its stream cannot be made: {error}")),
        },
        Err(error) => return Err(format!("its stream is not found: {error}")),
    };
    let is_fit = found.max_messages_per_subject == 1
        && found.allow_message_ttl
        && found.metadata.get(FORMAT_KEY).map(String::as_str) == Some(FORMAT);
    if !is_fit {
        let stream = &wanted.name;
        tracing::error!(
            %stream,
            "the stream is not as the state of a cluster needs it (max_msgs_per_subject 1, allow_msg_ttl, \
             tidings.format {FORMAT}); edit it, or set another cluster.namespace"
        );
        return Err("its stream has other settings".to_owned());
    }
    Ok(())
}

fn bytes_max(inner: &Inner) -> u64 {
    match inner.stream {
        StateStream::Nodes => NODES_BYTES_MAX,
        StateStream::Sessions => inner.settings.max_bytes / SESSIONS_PART,
    }
}

pub(super) fn is_missing(kind: &GetStreamErrorKind) -> bool {
    match kind {
        GetStreamErrorKind::JetStream(error) => {
            error.error_code() == async_nats::jetstream::ErrorCode::STREAM_NOT_FOUND
        }
        _ => false,
    }
}

/// Hears the newest entry of each key, and every further one.
async fn hear(inner: &Inner, context: &Context, name: &str) -> Result<std::convert::Infallible, String> {
    let config = pull::Config {
        name: Some(name.to_owned()),
        // What was heard before is heard again, and known by its revision.
        deliver_policy: DeliverPolicy::LastPerSubject,
        filter_subjects: match inner.stream {
            StateStream::Nodes => vec![
                inner.names.of_kind(StateKind::Presence),
                inner.names.of_kind(StateKind::Lease),
                inner.names.of_kind(StateKind::Cursor),
            ],
            StateStream::Sessions => vec![inner.names.notes_for(inner.boot)],
        },
        // Nothing is lost with the consumer, since another one begins anew.
        ack_policy: AckPolicy::None,
        memory_storage: true,
        num_replicas: 1,
        inactive_threshold: EXPIRES,
        ..pull::Config::default()
    };
    let consumer = context
        .create_consumer_on_stream(config, &inner.names.stream)
        .await;
    let consumer = consumer.map_err(|error| format!("a consumer cannot be made: {error}"))?;
    let messages = consumer
        .stream()
        .max_messages_per_batch(BATCH)
        .expires(EXPIRES)
        .heartbeat(inner.settings.heartbeat)
        .messages()
        .await;
    let mut messages = messages.map_err(|error| format!("entries cannot be asked for: {error}"))?;
    let mut deliveries = 0;
    while let Some(message) = messages.next().await {
        let message = message.map_err(|error| format!("the deliveries ended: {error}"))?;
        deliveries += 1;
        let delivery = take(inner, &message)?;
        if delivery != deliveries {
            return Err(format!("delivery {delivery} came instead of {deliveries}"));
        }
    }
    Err("the deliveries ended".to_owned())
}

/// Takes an entry, and returns the number of its delivery.
fn take(inner: &Inner, message: &Message) -> Result<u64, String> {
    let info = message
        .info()
        .map_err(|error| format!("a delivery has no number: {error}"))?;
    if let Some(key) = inner.names.key(&message.subject) {
        let entry = SharedEntry {
            value: message.payload.clone(),
            revision: info.stream_sequence,
        };
        if inner.entries().take(key, entry, Instant::now()) {
            inner.changes.send_modify(|changes| *changes += 1);
        }
    }
    Ok(info.consumer_sequence)
}

/// Looks at the head of the log from time to time.
async fn look(inner: &Inner, context: &Context) -> Result<std::convert::Infallible, String> {
    let stream = LogNames::new(&inner.settings.namespace).records;
    loop {
        // The log itself may not be made yet, or its leader may be missing, which another part tells.
        if let Ok(log) = context.get_stream(&stream).await {
            inner
                .head
                .send_replace(Some(log.cached_info().state.last_sequence));
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
