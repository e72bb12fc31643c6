//! The twin of a node: a stream like that of a cluster, written to by compare-and-swap with the client of
//! NATS alone.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::pull::MessagesErrorKind;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, StreamError, pull};
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use async_nats::{Client, ConnectOptions};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::runtime::Runtime;

/// The bytes of a record.
const RECORD_BYTES: usize = 200;

/// The time that new servers have to choose a leader and make a stream.
const MADE_MAX: Duration = Duration::from_secs(30);

/// The time for which an answer is waited for, as a node does.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause before a consumer is asked again that its server does not know yet.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// A stream without nodes.
pub(super) struct RawLog {
    context: Context,
    name: String,
    /// The sequence number of the newest record of each subject.
    newest: Vec<Cell<u64>>,
    records: Cell<u64>,
}

impl RawLog {
    /// Makes a stream for records of so many subjects.
    pub(super) async fn open(urls: &[String], name: &str, subjects: usize) -> anyhow::Result<RawLog> {
        let client = connect(urls).await?;
        let context = ContextBuilder::new().timeout(REQUEST_TIMEOUT).build(client);
        let config = Config {
            name: name.to_owned(),
            subjects: vec![format!("{name}.r.*")],
            storage: StorageType::File,
            num_replicas: 3,
            max_messages_per_subject: 1,
            max_bytes: 1 << 30,
            discard: DiscardPolicy::New,
            allow_direct: true,
            deny_delete: true,
            duplicate_window: Duration::from_secs(120),
            ..Config::default()
        };
        let until = Instant::now() + MADE_MAX;
        while let Err(error) = context.create_stream(config.clone()).await {
            if Instant::now() > until {
                return Err(anyhow!("the stream {name} cannot be made: {error}"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(RawLog {
            context,
            name: name.to_owned(),
            newest: vec![Cell::new(0); subjects],
            records: Cell::new(0),
        })
    }

    /// The version of the servers.
    pub(super) fn version(&self) -> String {
        self.context.client().server_info().version
    }

    /// Replaces the record of a subject, and waits until the servers have it.
    pub(super) async fn publish(&self, subject: usize) -> anyhow::Result<()> {
        self.publish_record(subject).await?;
        Ok(())
    }

    /// Does the same, and returns the place of the record in the stream.
    pub(super) async fn publish_record(&self, subject: usize) -> anyhow::Result<u64> {
        let number = self.records.get() + 1;
        self.records.set(number);
        let newest = &self.newest[subject];
        let record = format!("{number:0>RECORD_BYTES$}");
        let message = PublishMessage::build()
            .payload(Bytes::from(record))
            .message_id(format!("{:016x}-{number}", 7))
            .expected_last_subject_sequence(newest.get());
        let subject = format!("{}.r.{subject:032x}", self.name);
        let sent = self.context.send_publish(subject, message).await?;
        let sequence = sent.await?.sequence;
        newest.set(sequence);
        Ok(sequence)
    }
}

/// A record that a consumer was given.
pub(super) struct Delivery {
    /// The place of the record in its stream.
    pub(super) sequence: u64,
    pub(super) at: Instant,
}

type Deliveries = Arc<Mutex<Vec<Delivery>>>;

/// Consumers of a stream, each with a connection of its own to another server.
pub(super) struct RawReaders {
    /// Those of each consumer.
    deliveries: Vec<Deliveries>,
    runtime: Option<Runtime>,
}

impl RawReaders {
    /// Begins to read the stream with a consumer on each server.
    pub(super) fn start(urls: &[String], stream: &str) -> anyhow::Result<RawReaders> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let mut all = Vec::new();
        for url in urls {
            let deliveries = Deliveries::default();
            let reader = read_all(url.clone(), stream.to_owned(), deliveries.clone());
            all.push(deliveries);
            runtime.spawn(async {
                if let Err(error) = reader.await {
                    eprintln!("a reader of the twin ended: {error:#}");
                }
            });
        }
        Ok(RawReaders {
            deliveries: all,
            runtime: Some(runtime),
        })
    }

    /// Takes what each consumer was given since the last call.
    pub(super) fn take(&self) -> Vec<Vec<Delivery>> {
        let take = |deliveries: &Deliveries| {
            std::mem::take(&mut *deliveries.lock().unwrap_or_else(PoisonError::into_inner))
        };
        self.deliveries.iter().map(take).collect()
    }
}

impl Drop for RawReaders {
    fn drop(&mut self) {
        // The benches are inside of a runtime, in which another one must not block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Reads a stream as a node does.
async fn read_all(url: String, stream: String, deliveries: Deliveries) -> anyhow::Result<()> {
    let context = async_nats::jetstream::new(connect(&[url]).await?);
    let config = pull::Config {
        ack_policy: AckPolicy::None,
        memory_storage: true,
        num_replicas: 1,
        inactive_threshold: Duration::from_secs(10),
        ..pull::Config::default()
    };
    let consumer = context.create_consumer_on_stream(config, &stream).await?;
    let mut messages = ask(&consumer).await?;
    let mut count = 0;
    while let Some(message) = messages.next().await {
        let message = match message {
            // The server of this connection may not know of the new consumer yet.
            Err(error) if count == 0 && error.kind() == MessagesErrorKind::NoResponders => {
                tokio::time::sleep(ASK_AGAIN).await;
                messages = ask(&consumer).await?;
                continue;
            }
            message => message?,
        };
        count += 1;
        let info = message
            .info()
            .map_err(|error| anyhow!("a delivery has no place: {error}"))?;
        let delivery = Delivery {
            sequence: info.stream_sequence,
            at: Instant::now(),
        };
        deliveries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(delivery);
    }
    Ok(())
}

/// Asks for records as a node does.
async fn ask(consumer: &PullConsumer) -> Result<pull::Stream, StreamError> {
    consumer
        .stream()
        .max_messages_per_batch(1_000)
        .max_bytes_per_batch(16 << 20)
        .expires(Duration::from_secs(10))
        .heartbeat(Duration::from_millis(500))
        .messages()
        .await
}

async fn connect(urls: &[String]) -> anyhow::Result<Client> {
    let options = ConnectOptions::new()
        .name("bench")
        .request_timeout(Some(REQUEST_TIMEOUT))
        .ping_interval(Duration::from_secs(2));
    let client = options.connect(urls).await;
    client.with_context(|| format!("cannot connect to {}", urls.join(", ")))
}
