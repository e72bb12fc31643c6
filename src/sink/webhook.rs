//! A webhook: each notice as one POST request, signed as Standard Webhooks says.
//!
//! Owns: the message, how often it is tried, and the dead letters. Never: makes anybody wait but itself. A failure is
//! told to the bus, which keeps the notice and hands it over again when the pause is over; so a receiver that is down
//! shows as a failing subscriber, and what comes meanwhile waits in its queue.
//! Receives deliveries from the bus; sends requests, and writes what it gave up to a file.

mod address;
mod secret;
mod retry;
mod sender;

use std::time::{Duration, Instant};

use reqwest::Url;
use serde::Serialize;
use tidings_actors::NoticeKind;
use tidings_actors::attach::{Delivery, Subscriber, SubscriberError};

use crate::http_client;

use super::append_file::{AppendFile, FileOptions};
use super::json_lines::failed;
use super::record::{GAP, Record, line};

use retry::{AttemptOutcome, RetryPolicy};
pub use secret::{InvalidSecret, Secret, SecretSource};
use sender::Sender;

/// Where a webhook goes, and how hard it tries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookOptions {
    /// Where to: http or https.
    pub url: String,
    /// What requests are signed with.
    pub secret: SecretSource,
    /// Time of one request, from the look-up of the name to the end of the answer (default 10 s).
    pub timeout: Duration,
    /// Requests for one notice (default 10); then it is given up.
    pub attempts: usize,
    /// Time for all of them (default 15 min); then it is given up.
    pub retry_for: Duration,
    /// Longest pause between two of them (default 1 min).
    pub backoff_max: Duration,
    /// Where notices go that were given up; without it they are only counted.
    pub dead_letters: Option<FileOptions>,
    /// Whether it may go to a loopback, private, link-local or otherwise special address (default: no).
    pub allow_private: bool,
}

impl WebhookOptions {
    /// A webhook to `url`, with the defaults.
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

    /// Checks what can be checked without a connection.
    ///
    /// # Errors
    /// An address that is none or may not be reached, and a secret that cannot be read; never with the secret in it.
    pub fn check(&self) -> Result<(), String> {
        self.target()?;
        self.secret.read().map(drop).map_err(|error| error.to_string())
    }

    fn target(&self) -> Result<Url, String> {
        let url = Url::parse(&self.url).map_err(|error| format!("the webhook's address is none: {error}"))?;
        http_client::accept(url.scheme())
            .map_err(|reason| format!("webhooks cannot be sent to {} addresses; {reason}", url.scheme()))?;
        if !self.allow_private && address::names_private(&url) {
            let host = url.host_str().unwrap_or_default();
            return Err(format!(
                "{host} is no public address; set allow_private to send webhooks there"
            ));
        }
        Ok(url)
    }
}

/// Sends each delivery to a receiver.
#[derive(Debug)]
pub struct Webhook {
    secret: SecretSource,
    retry: RetryPolicy,
    sender: Sender,
    dead_letters: Option<AppendFile>,
    /// What ids of this life begin with.
    life: u64,
    seq: u64,
    /// The message that is handed over again.
    held: Option<Message>,
    /// Losses that the receiver could not be told of.
    owed: u64,
    /// Why nothing is delivered: the receiver wants nothing more, or the last notice was given up.
    trouble: Option<Trouble>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Trouble {
    Gone,
    GivenUp(String),
}

/// A message, the same for every request.
#[derive(Debug)]
struct Message {
    id: String,
    body: String,
    record: Record,
    attempts: usize,
    since: Instant,
}

/// The body, in the shape that Standard Webhooks recommends.
#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    timestamp: &'a str,
    data: &'a Record,
}

/// A line of the dead letters.
#[derive(Serialize)]
struct DeadLetter<'a> {
    #[serde(flatten)]
    record: &'a Record,
    id: &'a str,
    attempts: usize,
    error: &'a str,
}

impl Webhook {
    /// Reads the secret, opens the dead letters and gets ready to send.
    ///
    /// # Errors
    /// [`SubscriberError::Again`] when something of that fails, so that the bus tries again.
    pub fn open(options: &WebhookOptions) -> Result<Webhook, SubscriberError> {
        options.check().map_err(SubscriberError::Again)?;
        let url = options.target().map_err(SubscriberError::Again)?;
        let open = |file: &FileOptions| {
            AppendFile::open(file.clone()).map_err(|error| failed(&file.path, "opened", &error))
        };
        let dead_letters = options.dead_letters.as_ref().map(open).transpose()?;
        Ok(Webhook {
            secret: options.secret.clone(),
            retry: RetryPolicy {
                attempts: options.attempts.max(1),
                retry_for: options.retry_for,
                backoff_max: options.backoff_max,
            },
            sender: Sender::new(options, url).map_err(SubscriberError::Again)?,
            dead_letters,
            life: random()?,
            seq: 0,
            held: None,
            owed: 0,
            trouble: None,
        })
    }

    fn message(&mut self, delivery: &Delivery) -> Option<Message> {
        if let Some(message) = self.held.take() {
            return Some(message);
        }
        let mut record = Record::of(delivery, self.seq + 1)?;
        self.seq += 1;
        if let Some(lost) = &mut record.lost {
            *lost += std::mem::take(&mut self.owed);
        }
        let body = Body {
            r#type: delivery.kind().map_or(GAP, type_name),
            timestamp: &record.time,
            data: &record,
        };
        Some(Message {
            id: format!("msg_{:016x}_{}", self.life, record.seq),
            body: serde_json::to_string(&body).expect("records hold texts and numbers alone"),
            record,
            attempts: 0,
            since: Instant::now(),
        })
    }

    fn send(&mut self, mut message: Message) -> Result<(), SubscriberError> {
        let verdict = match self.secret.read() {
            Ok(secrets) => self.sender.send(&message.id, &message.body, &secrets).judge(),
            Err(error) => AttemptOutcome::Failed(error.to_string(), None),
        };
        message.attempts += 1;
        match verdict {
            AttemptOutcome::Delivered => {
                self.trouble = None;
                Ok(())
            }
            AttemptOutcome::Gone => {
                tracing::warn!(
                    "a webhook's receiver answered 410; nothing more is sent to it until it is attached anew"
                );
                self.trouble = Some(Trouble::Gone);
                self.refuse()
            }
            AttemptOutcome::Failed(reason, asked) => self.failed(message, reason, asked),
        }
    }

    fn failed(
        &mut self,
        message: Message,
        reason: String,
        asked: Option<Duration>,
    ) -> Result<(), SubscriberError> {
        if let Some(lost) = message.record.lost {
            // A receiver that is down is not told twice that it was down.
            self.owed += lost;
            return Ok(());
        }
        let random = (random()? >> 32) as u32;
        let attempts = message.attempts;
        let pause = self.retry.pause(attempts, message.since.elapsed(), asked, random);
        if let Some(after) = pause {
            self.held = Some(message);
            return Err(SubscriberError::Later { after, reason });
        }
        self.bury(message, &reason)?;
        self.trouble = Some(Trouble::GivenUp(format!(
            "{reason}; given up after {attempts} requests"
        )));
        self.refuse()
    }

    /// Writes a message that was given up to the dead letters. Where that fails, it is kept.
    fn bury(&mut self, message: Message, error: &str) -> Result<(), SubscriberError> {
        let Some(file) = &mut self.dead_letters else {
            return Ok(());
        };
        let letter = line(&DeadLetter {
            record: &message.record,
            id: &message.id,
            attempts: message.attempts,
            error,
        });
        match file.append(&letter) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.held = Some(message);
                Err(failed(file.path(), "written", &error))
            }
        }
    }

    fn refuse(&self) -> Result<(), SubscriberError> {
        match &self.trouble {
            None => Ok(()),
            Some(Trouble::Gone) => Err(SubscriberError::Refused(
                "the receiver answered 410, so nothing more is sent to it".to_owned(),
            )),
            Some(Trouble::GivenUp(reason)) => Err(SubscriberError::Refused(reason.clone())),
        }
    }
}

impl Subscriber for Webhook {
    fn take(&mut self, delivery: &Delivery) -> Result<(), SubscriberError> {
        if self.trouble == Some(Trouble::Gone) {
            return self.refuse();
        }
        match self.message(delivery) {
            Some(message) => self.send(message),
            None => Ok(()),
        }
    }

    fn idle(&mut self) -> Result<(), SubscriberError> {
        if let Some(file) = &mut self.dead_letters
            && let Err(error) = file.sync_if_due()
        {
            return Err(failed(file.path(), "brought to the disk", &error));
        }
        // As long as nothing was delivered since, it is not well.
        self.refuse()
    }

    fn close(&mut self) -> Result<(), SubscriberError> {
        match &mut self.dead_letters {
            Some(file) => {
                let synced = file.sync();
                synced.map_err(|error| failed(file.path(), "brought to the disk", &error))
            }
            None => Ok(()),
        }
    }
}

/// What happened, as the `type` of a message has it.
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

    fn options(url: &str) -> WebhookOptions {
        WebhookOptions::new(url, SecretSource::Text(SECRET.to_owned()))
    }

    #[test]
    fn addresses_are_checked_before_anything_is_sent() {
        for (url, word) in [
            ("http://127.0.0.1:1/", "127.0.0.1 is no public address"),
            ("http://[::1]/", "[::1] is no public address"),
            ("ftp://a.example/", "starts with http://"),
            ("nonsense", "is none"),
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
    fn a_name_that_leads_inside_gets_no_request() {
        let options = WebhookOptions {
            attempts: 1,
            ..options("http://localhost:9/")
        };
        let sender = Sender::new(&options, options.target().unwrap()).unwrap();
        let retry::Answer::None(reason) = sender.send("msg", "{}", &[]) else {
            panic!("it was answered")
        };
        assert!(reason.contains("localhost has no public address"), "{reason}");
    }
}
