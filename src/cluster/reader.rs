//! Reads the log in its order through a consumer of its own, or directly before there is one, and tells the
//! node each record.
//!
//! A consumer costs little, so anything unusual ends it, and another one goes on from the last record heard.

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use async_nats::jetstream::{Context, Message};
use futures_util::{FutureExt, StreamExt};
use tidings_actors::shared_log::{Heard, LogEntry};

use super::bodies::{self, LostBody};
use super::consumer;
use super::direct::{Delivery, DirectReader};
use super::node_state::{NodeState, Stopped};
use super::record::{self, LogRecord};

/// The records that are asked for at once.
const BATCH: usize = 1_000;

/// The bytes of records that are asked for at once.
const BATCH_BYTES: usize = 16 << 20;

/// The time for which one request for records stands, at least.
const EXPIRES: Duration = Duration::from_secs(10);

/// The pause between two looks at the log while there is no consumer.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The most requests of one such look.
const LOOK_REQUESTS: usize = 16;

/// The time for which the end of a consumer is waited for; the server ends it in any case.
const DELETE_TIMEOUT: Duration = Duration::from_millis(300);

/// The end of a consumer.
#[derive(Debug)]
pub(super) enum ReadEnd {
    /// The node has ended.
    Stopped,
    /// The server failed, or a delivery is missing.
    Broken(String),
    /// A record cannot be read, so no record after it can be applied either.
    Unreadable(String),
}

impl From<Stopped> for ReadEnd {
    fn from(_: Stopped) -> ReadEnd {
        ReadEnd::Stopped
    }
}

/// A record that was read, and is not told yet.
struct ReadRecord {
    sequence: u64,
    /// None if it is told already, or was replaced before its body could be read.
    record: Option<LogRecord>,
    /// True if the log had no record after it.
    is_newest: bool,
}

/// One consumer of the log, and what is read before it is made.
pub(super) struct LogReader<'n> {
    node: &'n NodeState,
    context: &'n Context,
    /// The newest sequence number when the log was opened.
    head: u64,
    /// The deliveries of this consumer so far.
    deliveries: u64,
    /// True once a record was read.
    pub(super) has_read: bool,
}

impl<'n> LogReader<'n> {
    pub(super) fn new(node: &'n NodeState, context: &'n Context, head: u64) -> LogReader<'n> {
        LogReader {
            node,
            context,
            head,
            deliveries: 0,
            has_read: false,
        }
    }

    /// Tells the node all records from the last one heard on, until the consumer breaks.
    pub(super) async fn read(&mut self) -> ReadEnd {
        let consumer = match self.until_consumer().await {
            Ok(consumer) => consumer,
            Err(end) => return end,
        };
        let name = consumer.cached_info().name.clone();
        let end = match self.read_from(&consumer).await {
            Ok(never) => match never {},
            Err(end) => end,
        };
        let deleted = self
            .context
            .delete_consumer_from_stream(&name, &self.node.names.records);
        if tokio::time::timeout(DELETE_TIMEOUT, deleted).await.is_err() {
            tracing::debug!(consumer = %name, "the server did not answer to the end of a consumer");
        }
        end
    }

    /// Makes a consumer, and tells the node the records that can be read before there is one.
    async fn until_consumer(&mut self) -> Result<PullConsumer, ReadEnd> {
        let node = self.node;
        let context = self.context;
        let mut direct = None;
        let mut asked = std::pin::pin!(consumer::make(node, context));
        loop {
            let made = tokio::time::timeout(LOOK_AGAIN, asked.as_mut()).await;
            let problem = match made {
                Ok(Ok(consumer)) => return Ok(consumer),
                Ok(Err(error)) => Some(error),
                Err(_not_yet) => None,
            };
            // Not beside the request, so that nothing is left half told.
            let count = self.read_directly(&mut direct).await?;
            match problem {
                // The log goes on without one.
                Some(_) if count > 0 => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                    asked.set(consumer::make(node, context));
                }
                Some(error) => return Err(broken("a consumer cannot be made", &error)),
                None => {}
            }
        }
    }

    /// Tells the node the records that the log has now, without a consumer, and returns their number.
    async fn read_directly(&mut self, direct: &mut Option<DirectReader>) -> Result<usize, ReadEnd> {
        let direct = match direct {
            Some(direct) => direct,
            None => {
                let started = DirectReader::start(self.context.client(), &self.node.names.records);
                let started = started
                    .await
                    .map_err(|error| broken("no answer can come", &error))?;
                direct.insert(started)
            }
        };
        let max = self.node.told_at_once_max();
        let mut count = 0;
        for _ in 0..LOOK_REQUESTS {
            let deliveries = direct.next(consumer::heard(self.node), max).await;
            let is_all = deliveries.len() < max;
            count += deliveries.len();
            let mut read = Vec::with_capacity(deliveries.len());
            let mut end = None;
            for delivery in deliveries {
                match self.take(delivery).await {
                    Ok(record) => read.push(record),
                    Err(unread) => {
                        end = Some(unread);
                        break;
                    }
                }
            }
            self.tell(&mut read, end).await?;
            if is_all {
                break;
            }
        }
        Ok(count)
    }

    async fn read_from(&mut self, consumer: &PullConsumer) -> Result<Infallible, ReadEnd> {
        if consumer.cached_info().num_pending == 0 {
            self.caught_up().await?;
        }
        let heartbeat = self.node.settings.heartbeat;
        let messages = consumer
            .stream()
            .max_messages_per_batch(BATCH)
            .max_bytes_per_batch(BATCH_BYTES)
            .expires(EXPIRES.max(4 * heartbeat))
            .heartbeat(heartbeat)
            .messages()
            .await
            .map_err(|error| broken("records cannot be asked for", &error))?;
        self.tell_all(messages).await
    }

    /// Tells the node every record that is delivered.
    async fn tell_all(&mut self, mut messages: pull::Stream) -> Result<Infallible, ReadEnd> {
        let max = self.node.told_at_once_max();
        let mut read = Vec::with_capacity(max);
        loop {
            let mut next = messages.next().await;
            // Those that have come meanwhile, too: handing each over would wake the node for each.
            let end = loop {
                let taken = match &next {
                    Some(Ok(message)) => match self.delivery(message) {
                        Ok(delivery) => self.take(delivery).await,
                        Err(end) => Err(end),
                    },
                    Some(Err(error)) => Err(broken("the deliveries ended", error)),
                    None => Err(ReadEnd::Broken("the deliveries ended".to_owned())),
                };
                match taken {
                    Ok(record) => read.push(record),
                    Err(end) => break Some(end),
                }
                if read.len() == max {
                    break None;
                }
                match messages.next().now_or_never() {
                    Some(more) => next = more,
                    None => break None,
                }
            };
            self.tell(&mut read, end).await?;
        }
    }

    /// Tells the node the records that were read, and then returns the end of the reading if there is one.
    async fn tell(&self, read: &mut Vec<ReadRecord>, end: Option<ReadEnd>) -> Result<(), ReadEnd> {
        let is_caught_up = read.iter().any(|record| record.is_newest);
        let records = read.drain(..).map(|read| (read.sequence, read.record));
        self.node.tell_records(records).await?;
        if is_caught_up {
            self.caught_up().await?;
        }
        match end {
            Some(end) => Err(end),
            None => Ok(()),
        }
    }

    /// Reads a delivery of the consumer.
    fn delivery(&mut self, message: &Message) -> Result<Delivery, ReadEnd> {
        let info = message
            .info()
            .map_err(|error| broken("a delivery has no number", &error))?;
        self.deliveries += 1;
        // A client drops deliveries that it has no room for, and the caller does not see it.
        if info.consumer_sequence != self.deliveries {
            self.node.metrics.gaps.increment(1);
            let expected = self.deliveries;
            let came = info.consumer_sequence;
            return Err(ReadEnd::Broken(format!(
                "delivery {came} came instead of {expected}"
            )));
        }
        Ok(Delivery {
            sequence: info.stream_sequence,
            subject: message.subject.clone(),
            payload: message.payload.clone(),
            published: info.published.into(),
            pending: info.pending,
        })
    }

    async fn take(&mut self, delivery: Delivery) -> Result<ReadRecord, ReadEnd> {
        let sequence = delivery.sequence;
        let record = self.read_record(&delivery).await?;
        self.has_read = true;
        let delivered = self.node.delivered.get();
        self.node.delivered.set(sequence.max(delivered));
        if self.node.is_caught_up.get() {
            // Clocks of two machines may differ by more than the time that a record takes.
            let lag = SystemTime::now().duration_since(delivery.published);
            self.node
                .metrics
                .lag
                .record(lag.unwrap_or_default().as_secs_f64());
        }
        if let Some(record) = &record {
            self.check_floor(sequence, &record.entry)?;
        }
        Ok(ReadRecord {
            sequence,
            record,
            // The record at the head may be gone by now, and under load there is always one pending.
            is_newest: sequence >= self.head || delivery.pending == 0,
        })
    }

    /// Returns the record of a delivery; none if it is told, or was replaced before its body could be read.
    async fn read_record(&self, delivery: &Delivery) -> Result<Option<LogRecord>, ReadEnd> {
        let named = &self.node.named;
        let sequence = delivery.sequence;
        let subject = &delivery.subject;
        if self.node.is_told(sequence) {
            // Told when the servers had stored it, which is done with records without a body apart alone.
            // Others were delivered before, without a consumer.
            if sequence > self.node.delivered.get() {
                named.note(sequence, subject, None);
            }
            return Ok(None);
        }
        let record = self.decode(delivery)?;
        let body = record.detached.as_ref().map(|detached| detached.hash);
        let record = self.attach(sequence, record, subject).await?;
        named.note(sequence, subject, body);
        Ok(record)
    }

    /// Puts the body into a record whose body is kept apart. Returns none if the record was replaced before
    /// its body could be read.
    async fn attach(
        &self,
        sequence: u64,
        record: LogRecord,
        subject: &str,
    ) -> Result<Option<LogRecord>, ReadEnd> {
        let Some(detached) = &record.detached else {
            return Ok(Some(record));
        };
        let own = self.node.in_flight.borrow().body_of(record.operation);
        if let Some(body) = own {
            return Ok(Some(record.attach(body)));
        }
        let names = &self.node.names;
        let fetch = || bodies::fetch(self.context, names, &detached.hash, detached.len);
        let mut fetched = fetch().await.map_err(ReadEnd::Broken)?;
        if fetched.is_none() {
            if self.is_replaced(sequence, subject).await? {
                return Ok(None);
            }
            if let LogEntry::Resource(logged) = &record.entry
                && LostBody::new(detached.hash, logged.uri.clone())
                    .ask(self.context, names)
                    .await
            {
                fetched = fetch().await.map_err(ReadEnd::Broken)?;
            }
        }
        let problem = match fetched {
            Some(bytes) => match detached.to_body(bytes) {
                Some(body) => return Ok(Some(record.attach(body))),
                None => "its text is not UTF-8".to_owned(),
            },
            None => format!(
                "its body is missing in the stream {}, and no other node holds it; restore that stream",
                names.bodies
            ),
        };
        Err(self.unreadable(sequence, subject, &problem))
    }

    /// Ends the reading if a floor was replaced before it was heard. The records that it named are gone, and
    /// this node may have what they removed, so it compares everything.
    fn check_floor(&self, sequence: u64, entry: &LogEntry) -> Result<(), ReadEnd> {
        let LogEntry::Floor { previous, .. } = entry else {
            return Ok(());
        };
        let heard = self.node.floor.replace(sequence);
        // One that was read but not told before the consumer broke is read again.
        let is_again = heard == sequence;
        // Those from before the reading began had their effect on what was there to read.
        if is_again || *previous == heard || *previous <= self.node.began_at.get() {
            return Ok(());
        }
        self.node.must_read_all.set(true);
        Err(ReadEnd::Broken(format!("the floor {previous} was not heard")))
    }

    /// True if the log has no record at this place any more.
    async fn is_replaced(&self, sequence: u64, subject: &str) -> Result<bool, ReadEnd> {
        let stream = self.context.get_stream_no_info(&self.node.names.records).await;
        let stream = stream.map_err(|error| broken("the log is not found", &error))?;
        match stream.get_last_raw_message_by_subject(subject).await {
            Ok(newest) => Ok(newest.sequence > sequence),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(true),
            Err(error) => Err(broken("a record cannot be read again", &error)),
        }
    }

    fn unreadable(&self, sequence: u64, subject: &str, problem: &str) -> ReadEnd {
        let stream = &self.node.names.records;
        ReadEnd::Unreadable(format!(
            "record {sequence} of the stream {stream}, subject {subject}, cannot be read: {problem}"
        ))
    }

    fn decode(&self, delivery: &Delivery) -> Result<LogRecord, ReadEnd> {
        let problem = match record::decode(&delivery.payload) {
            Ok(record) => match self.is_at_its_place(&record, &delivery.subject) {
                true => return Ok(record),
                false => "its subject is that of another URI".to_owned(),
            },
            Err(unreadable) => unreadable.to_string(),
        };
        Err(self.unreadable(delivery.sequence, &delivery.subject, &problem))
    }

    /// True if the record stands under the subject of its entry. The condition of a change covers the subject
    /// alone, so a record of another URI there would break the order of versions.
    fn is_at_its_place(&self, record: &LogRecord, subject: &str) -> bool {
        let names = &self.node.names;
        match &record.entry {
            LogEntry::Resource(logged) => names.resource(&logged.uri) == subject,
            LogEntry::ResourceList => names.list() == subject,
            LogEntry::Floor { .. } => names.floor() == subject,
        }
    }

    async fn caught_up(&self) -> Result<(), Stopped> {
        self.node.named.set_whole();
        if self.node.is_caught_up.replace(true) {
            return Ok(());
        }
        self.node.tell(Heard::CaughtUp).await
    }
}

fn broken(what: &str, error: &dyn std::fmt::Display) -> ReadEnd {
    ReadEnd::Broken(format!("{what}: {error}"))
}
