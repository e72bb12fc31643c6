//! One signed request: it follows no redirect, uses no proxy, and keeps only the status of the answer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, Response, Url};
use standardwebhooks::{HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP};
use tokio::runtime::Runtime;

use super::address::PublicOnly;
use super::retry::ReceiverAnswer;
use super::{Secret, WebhookOptions};
use crate::http_client;

const USER_AGENT: &str = concat!("tidings/", env!("CARGO_PKG_VERSION"));

/// The part of an answer that is read so that its connection can be used again.
const ANSWER_MAX: usize = 16 << 10;

/// Sends requests to one receiver, on the sink's own thread.
#[derive(Debug)]
pub(super) struct Sender {
    url: Url,
    client: Client,
    /// `None` only while the sender is dropped.
    runtime: Option<Runtime>,
}

impl Sender {
    pub(super) fn new(options: &WebhookOptions, url: Url) -> Result<Sender, String> {
        let builder = http_client::builder(url.as_str())
            .user_agent(USER_AGENT)
            .timeout(options.timeout)
            // Requests are sent one after the other.
            .pool_max_idle_per_host(1)
            // A proxy would make the connection, past the check of addresses.
            .no_proxy()
            // A redirect to an IP address would bypass the resolver, and with it the check.
            .redirect(reqwest::redirect::Policy::none());
        let builder = if options.allow_private {
            builder
        } else {
            builder.dns_resolver(PublicOnly)
        };
        let client = builder.build().map_err(reason)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Sender {
            url,
            client,
            runtime: Some(runtime),
        })
    }

    /// Sends `body` once, signed with each of `secrets`, and blocks until the answer or the timeout.
    pub(super) fn send(&self, id: &str, body: &str, secrets: &[Secret]) -> ReceiverAnswer {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let timestamp = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let signatures: Vec<_> = secrets
            .iter()
            .map(|secret| secret.sign(id, timestamp, body))
            .collect();
        let request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(HEADER_WEBHOOK_ID, id)
            .header(HEADER_WEBHOOK_TIMESTAMP, timestamp)
            .header(HEADER_WEBHOOK_SIGNATURE, signatures.join(" "))
            .body(body.to_owned());
        let runtime = self.runtime.as_ref().expect("it is taken only on drop");
        runtime.block_on(async {
            match request.send().await {
                Ok(response) => {
                    let answer =
                        ReceiverAnswer::Status(response.status().as_u16(), retry_after(response.headers()));
                    drain(response).await;
                    answer
                }
                Err(error) => ReceiverAnswer::None(reason(error)),
            }
        })
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // Dropping a runtime waits for its blocking tasks, and a name look-up may hang for minutes.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Returns the value of `Retry-After` if it is a number of seconds; dates are not supported.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

/// Reads the body, so that the connection can be used again.
async fn drain(mut response: Response) {
    let mut read = 0;
    while let Ok(Some(chunk)) = response.chunk().await {
        read += chunk.len();
        if read > ANSWER_MAX {
            return;
        }
    }
}

/// Returns the innermost cause, without the URL, which may contain a token of the receiver.
fn reason(error: reqwest::Error) -> String {
    if error.is_timeout() {
        return "the receiver did not answer in time".to_owned();
    }
    let summary = if error.is_connect() {
        "no connection to the receiver"
    } else {
        "the request failed"
    };
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    format!("{summary}: {cause}")
}
