//! A sink that sends each notice as a POST request, signed as Standard Webhooks requires.
//!
//! A failed request is reported to the bus, which keeps the notice and hands it over again after a pause. A
//! receiver that is down thus shows as a failing subscriber, and later notices wait in its queue.

mod address;
mod secret;
mod retry;
mod sender;

use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use reqwest::Url;
use serde::Serialize;
use tidings_actors::attach::{AttachError, AttachOptions, Attachment, Delivery, Subscriber, SubscriberError};
use tidings_actors::{Bus, NoticeKind};

use crate::config::WebhookConfig;
use crate::http_client;

use super::append_file::{AppendFile, FileOptions};
use super::configured::{ConfiguredSink, delivery_class, restrict_kinds};
use super::in_turn::{InTurn, SinkTurn};
use super::record::{GAP, Record, line};

use retry::{AttemptOutcome, RetryPolicy};
pub use secret::{InvalidSecret, Secret, SecretSource};
use sender::Sender;

/// Duration of a request after which a webhook of the configuration counts as stalled. A request takes as
/// long as its receiver, and one that hangs should show soon.
const STALL_TIMEOUT: Duration = Duration::from_secs(3);

/// The options of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookOptions {
    /// The address of the receiver: http or https.
    pub url: String,
    /// The source of the secrets that requests are signed with.
    pub secret: SecretSource,
    /// Timeout of one request, from the name look-up to the end of the answer (default 10 s).
    pub timeout: Duration,
    /// Number of requests for one notice, after which it is given up (default 10).
    pub attempts: usize,
    /// Total time for one notice, after which it is given up (default 15 min).
    pub retry_for: Duration,
    /// Longest pause between two requests (default 1 min).
    pub backoff_max: Duration,
    /// The file for notices that were given up; `None` only counts them.
    pub dead_letters: Option<FileOptions>,
    /// Allows loopback, private, link-local and other special addresses (default false).
    pub allow_private: bool,
}

impl WebhookOptions {
    /// Returns the defaults for a webhook to `url`.
    pub fn new(url: impl Into<String>, secret: SecretSource) -> WebhookOptions {
        WebhookOptions {
            url: url.into(),
            secret,
            timeout: Duration::from_secs(10),
            attempts: 10,
            retry_for: Duration::from_secs(15 * 60),
            backoff_max: Duration::from_secs(60),
            dead_letters: None,
            allow_private: false,
        }
    }

    /// Checks the options as far as that is possible without a connection.
    ///
    /// # Errors
    /// A message about an invalid or forbidden address, or an unreadable secret. It never contains the
    /// secret.
    pub fn check(&self) -> Result<(), String> {
        self.target()?;
        match self.secret.read() {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Returns the address of the receiver, if it may be used.
    fn target(&self) -> Result<Url, String> {
        let url =
            Url::parse(&self.url).map_err(|error| format!("the webhook's url is not valid: {error}"))?;
        if let Err(reason) = http_client::accept(url.scheme()) {
            let scheme = url.scheme();
            return Err(format!("webhooks cannot be sent to {scheme} addresses; {reason}"));
        }
        if !self.allow_private && address::names_private(&url) {
            let host = url.host_str().unwrap_or_default();
            return Err(format!(
                "{host} is no public address; set allow_private to send webhooks there"
            ));
        }
        Ok(url)
    }
}

/// A sink that sends each delivery to a receiver.
#[derive(Debug)]
pub struct Webhook {
    secret: SecretSource,
    retry: RetryPolicy,
    sender: Sender,
    dead_letters: Option<AppendFile>,
    /// A random number in the ids of messages without a position, so that they differ from those before a
    /// restart.
    run_id: u64,
    /// The number of the last message.
    seq: u64,
    /// The message that was not delivered; the bus hands its delivery over again.
    undelivered: Option<PendingMessage>,
    /// The gaps in a row that the receiver could not be told of.
    gap_failures: usize,
    /// The time before which no further gap is sent.
    gap_after: Option<Instant>,
    /// The reason that the sink counts as failing, until a message is delivered.
    fault: Option<DeliveryFault>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum DeliveryFault {
    /// The receiver wants no further messages.
    Gone,
    /// The last message was given up, for this reason.
    GivenUp(String),
}

/// A message, which is the same in every request for it.
#[derive(Debug)]
struct PendingMessage {
    id: String,
    body: String,
    record: Record,
    attempts: usize,
    since: Instant,
}

/// The body, in the form that Standard Webhooks recommends.
#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    timestamp: &'a str,
    data: &'a Record,
}

/// A line of the dead-letter file.
#[derive(Serialize)]
struct DeadLetter<'a> {
    #[serde(flatten)]
    record: &'a Record,
    id: &'a str,
    attempts: usize,
    error: &'a str,
}

impl Webhook {
    /// Reads the secret and opens the dead-letter file. No connection is made yet.
    ///
    /// # Errors
    /// [`SubscriberError::Again`] if one of them fails, so that the bus tries again.
    pub fn open(options: &WebhookOptions) -> Result<Webhook, SubscriberError> {
        options.check().map_err(SubscriberError::Again)?;
        let url = options.target().map_err(SubscriberError::Again)?;
        let dead_letters = match &options.dead_letters {
            Some(file) => Some(AppendFile::open(file.clone())?),
            None => None,
        };
        Ok(Webhook {
            secret: options.secret.clone(),
            retry: RetryPolicy {
                attempts: options.attempts.max(1),
                retry_for: options.retry_for,
                backoff_max: options.backoff_max,
            },
            sender: Sender::new(options, url).map_err(SubscriberError::Again)?,
            dead_letters,
            run_id: random()?,
            seq: 0,
            undelivered: None,
            gap_failures: 0,
            gap_after: None,
            fault: None,
        })
    }

    /// Returns the message of `delivery`: the undelivered one if there is one, since the bus hands over the
    /// same delivery until it succeeds.
    fn message(&mut self, delivery: &Delivery) -> Option<PendingMessage> {
        if let Some(message) = self.undelivered.take() {
            return Some(message);
        }
        let record = Record::of(delivery, self.seq + 1)?;
        self.seq += 1;
        let body = Body {
            r#type: match delivery.kind() {
                Some(kind) => type_name(kind),
                None => GAP,
            },
            timestamp: &record.time,
            data: &record,
        };
        Some(PendingMessage {
            id: self.message_id(delivery, &record),
            body: serde_json::to_string(&body).expect("records hold only texts and numbers"),
            record,
            attempts: 0,
            since: Instant::now(),
        })
    }

    /// Returns the id of a message. It is made of the position, so that a notice that is repeated after a
    /// restart has the id that it had before.
    fn message_id(&self, delivery: &Delivery, record: &Record) -> String {
        match (delivery, delivery.position()) {
            (Delivery::Notice(_), Some(position)) => format!("msg_{position}"),
            // Several of them may end at one position.
            (_, Some(position)) => format!("msg_{position}_{}", record.kind),
            (_, None) => format!("msg_{:016x}_{}", self.run_id, record.seq),
        }
    }

    /// Sends `message` once.
    fn send(&mut self, mut message: PendingMessage) -> Result<(), SubscriberError> {
        // Read before each request, so that a secret can be changed while the service runs.
        let outcome = match self.secret.read() {
            Ok(secrets) => self.sender.send(&message.id, &message.body, &secrets).judge(),
            Err(error) => AttemptOutcome::Failed(error.to_string(), None),
        };
        message.attempts += 1;
        match outcome {
            AttemptOutcome::Delivered => {
                self.fault = None;
                self.gap_failures = 0;
                self.gap_after = None;
                Ok(())
            }
            AttemptOutcome::Gone => {
                tracing::warn!(
                    "a webhook's receiver answered 410; nothing more is sent to it until it is attached anew"
                );
                self.fault = Some(DeliveryFault::Gone);
                self.health()
            }
            AttemptOutcome::Failed(reason, requested) => self.failed(message, reason, requested),
        }
    }

    /// Keeps a message for another attempt, or gives it up.
    fn failed(
        &mut self,
        message: PendingMessage,
        reason: String,
        requested: Option<Duration>,
    ) -> Result<(), SubscriberError> {
        let random = (random()? >> 32) as u32;
        if message.record.lost.is_some() {
            return self.refuse_gap(reason, requested, random);
        }
        let attempts = message.attempts;
        let pause = self
            .retry
            .pause(attempts, message.since.elapsed(), requested, random);
        if let Some(after) = pause {
            self.undelivered = Some(message);
            return Err(SubscriberError::Later { after, reason });
        }
        self.bury(message, &reason)?;
        self.fault = Some(DeliveryFault::GivenUp(format!(
            "{reason}; given up after {attempts} requests"
        )));
        self.health()
    }

    /// Refuses a gap, or it would hold up the notices behind it. The bus hands it over again, with the losses
    /// that came meanwhile.
    fn refuse_gap(
        &mut self,
        reason: String,
        requested: Option<Duration>,
        random: u32,
    ) -> Result<(), SubscriberError> {
        self.gap_failures += 1;
        let endless = RetryPolicy {
            attempts: usize::MAX,
            retry_for: Duration::MAX,
            ..self.retry
        };
        let pause = endless.pause(self.gap_failures, Duration::ZERO, requested, random);
        self.gap_after = Some(Instant::now() + pause.unwrap_or(self.retry.backoff_max));
        self.health()?;
        Err(SubscriberError::Refused(reason))
    }

    /// Returns true if the pause after a gap that could not be sent is not over.
    fn is_gap_early(&self) -> bool {
        match self.gap_after {
            Some(after) => Instant::now() < after,
            None => false,
        }
    }

    /// Writes a message that was given up to the dead-letter file. If that fails, the message is kept.
    fn bury(&mut self, message: PendingMessage, error: &str) -> Result<(), SubscriberError> {
        let Some(file) = &mut self.dead_letters else {
            return Ok(());
        };
        let letter = line(&DeadLetter {
            record: &message.record,
            id: &message.id,
            attempts: message.attempts,
            error,
        });
        let written = file.append(&letter);
        if written.is_err() {
            self.undelivered = Some(message);
        }
        Ok(written?)
    }

    /// Returns the current fault as an error, which shows the sink as failing.
    fn health(&self) -> Result<(), SubscriberError> {
        match &self.fault {
            None => Ok(()),
            Some(DeliveryFault::Gone) => Err(SubscriberError::Refused(
                "the receiver answered 410, so nothing more is sent to it".to_owned(),
            )),
            Some(DeliveryFault::GivenUp(reason)) => Err(SubscriberError::Refused(reason.clone())),
        }
    }
}

impl Subscriber for Webhook {
    fn take(&mut self, delivery: &Delivery) -> Result<(), SubscriberError> {
        if self.fault == Some(DeliveryFault::Gone) {
            return self.health();
        }
        if matches!(delivery, Delivery::Gap(_)) && self.is_gap_early() {
            self.health()?;
            let text = "the receiver has not been told of a loss yet";
            return Err(SubscriberError::Refused(text.to_owned()));
        }
        match self.message(delivery) {
            Some(message) => self.send(message),
            None => Ok(()),
        }
    }

    fn idle(&mut self) -> Result<(), SubscriberError> {
        if let Some(file) = &mut self.dead_letters {
            file.sync_if_due()?;
        }
        // The sink stays failing until a message is delivered, even if no further notice comes.
        self.health()
    }

    fn close(&mut self) -> Result<(), SubscriberError> {
        match &mut self.dead_letters {
            Some(file) => Ok(file.sync()?),
            None => Ok(()),
        }
    }
}

/// Returns the `type` of the message about a notice of this kind.
fn type_name(kind: NoticeKind) -> &'static str {
    use tidings_actors::ListKind;
    match kind {
        NoticeKind::Updated => "resource.updated",
        NoticeKind::Removed => "resource.removed",
        NoticeKind::List(ListKind::Resources) => "resources.list_changed",
        NoticeKind::List(ListKind::Tools) => "tools.list_changed",
        NoticeKind::List(ListKind::Prompts) => "prompts.list_changed",
    }
}

fn random() -> Result<u64, SubscriberError> {
    getrandom::u64().map_err(|error| SubscriberError::Again(format!("no random numbers: {error}")))
}

impl ConfiguredSink for WebhookConfig {
    fn name(&self) -> &str {
        &self.name
    }

    fn uris(&self) -> &[String] {
        &self.uris
    }

    fn check(&self) -> Result<(), String> {
        WebhookOptions::from(self).check()
    }

    fn attach<'a>(
        &'a self,
        bus: &'a Bus,
        mut options: AttachOptions,
        turn: Option<SinkTurn>,
    ) -> BoxFuture<'a, Result<Attachment, AttachError>> {
        let webhook = WebhookOptions::from(self);
        options.filter = restrict_kinds(options.filter, &self.kinds);
        options.class = delivery_class(self.class, self.overflow, self.queue);
        options.stall_timeout = STALL_TIMEOUT;
        options.resume = true;
        let class = options.class;
        bus.attach(options, move || {
            let inner = Webhook::open(&webhook)?;
            Ok(InTurn::new(inner, turn.clone(), class))
        })
        .boxed()
    }
}

impl From<&WebhookConfig> for WebhookOptions {
    fn from(config: &WebhookConfig) -> WebhookOptions {
        let secret = match (&config.secret_file, &config.secret_variable) {
            (Some(file), _) => SecretSource::File(file.clone()),
            // Loading refuses a webhook without either; if a program makes one, the empty name fails in the
            // check.
            (None, variable) => SecretSource::Variable(variable.clone().unwrap_or_default()),
        };
        WebhookOptions {
            timeout: config.timeout,
            attempts: config.attempts,
            retry_for: config.retry_for,
            backoff_max: config.backoff_max,
            dead_letters: config.dead_letters.as_ref().map(|path| FileOptions {
                bytes_max: config.dead_letter_bytes_max,
                files_max: 1,
                ..FileOptions::new(path)
            }),
            allow_private: config.allow_private,
            ..WebhookOptions::new(&config.url, secret)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

    fn options(url: &str) -> WebhookOptions {
        WebhookOptions::new(url, SecretSource::Text(SECRET.to_owned()))
    }

    #[test]
    fn check_rejects_bad_and_private_addresses() {
        for (url, word) in [
            ("http://127.0.0.1:1/", "127.0.0.1 is no public address"),
            ("http://[::1]/", "[::1] is no public address"),
            ("ftp://a.example/", "starts with http://"),
            ("nonsense", "url is not valid"),
        ] {
            let error = options(url).check().unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        let private = WebhookOptions {
            allow_private: true,
            ..options("http://127.0.0.1:1/")
        };
        assert_eq!(private.check(), Ok(()));
        let secure = options("https://hooks.example/a").check();
        assert_eq!(secure.is_ok(), cfg!(feature = "tls"), "{secure:?}");
    }

    #[test]
    fn name_of_a_private_address_gets_no_request() {
        let options = WebhookOptions {
            attempts: 1,
            ..options("http://localhost:9/")
        };
        let sender = Sender::new(&options, options.target().unwrap()).unwrap();
        let retry::ReceiverAnswer::None(reason) = sender.send("msg", "{}", &[]) else {
            panic!("it was answered")
        };
        assert!(reason.contains("localhost has no public address"), "{reason}");
    }
}
