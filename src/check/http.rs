//! The transport over streamable HTTP, in both eras.
//!
//! Answers go back to the caller, every other message to the transcript. The tasks that read streams end with
//! it.

use std::sync::{Arc, Mutex, MutexGuard};

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Duration, timeout};
use tracing::debug;

use super::answer::{Answer, MESSAGE_BYTES_MAX, TransportError};
use super::options::Options;
use super::transcript::{MessageOrigin, Transcript};
use crate::client::Credentials;
use crate::http_client::{self, SendError};
use crate::wire::dialect::{ACCEPT_BOTH, Dialect, Revision, SESSION_HEADER};
use crate::wire::jsonrpc::reply;
use crate::wire::sse::EventReader;

/// A server may close the stream of a session at will, so it is opened again this often, after this pause.
const REOPENED_MAX: usize = 50;
const REOPEN_AFTER: Duration = Duration::from_millis(200);

/// A transport to the server at one URL.
///
/// It uses reqwest rather than `wire::connection`, since the server may be reached over TLS only.
pub(super) struct HttpTransport {
    shared: Arc<HttpClient>,
    /// The tasks that read streams.
    streams: Mutex<JoinSet<()>>,
}

/// The part of the transport that the reading tasks share.
#[derive(Debug)]
struct HttpClient {
    client: reqwest::Client,
    credentials: Credentials,
    url: String,
    transcript: Arc<Transcript>,
    answer_max: Duration,
    dialect: Mutex<Dialect>,
}

impl HttpTransport {
    /// Makes a transport; it connects with its first request.
    pub(super) fn new(
        url: &str,
        options: &Options,
        dialect: Dialect,
        transcript: Arc<Transcript>,
    ) -> Result<HttpTransport, TransportError> {
        let client = http_client::builder_with(url, &options.credentials)
            .map_err(TransportError::Credentials)?
            .connect_timeout(options.answer_timeout)
            // A redirect would turn a POST into a GET, and could lead the credentials elsewhere.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| TransportError::Broken(describe(&error)))?;
        let shared = HttpClient {
            client,
            credentials: options.credentials.clone(),
            url: url.to_owned(),
            transcript,
            answer_max: options.answer_timeout,
            dialect: Mutex::new(dialect),
        };
        Ok(HttpTransport {
            shared: Arc::new(shared),
            streams: Mutex::default(),
        })
    }

    /// Writes further requests in this revision.
    pub(super) fn set_revision(&self, revision: Revision) {
        self.shared.dialect().revision = revision;
    }

    /// Returns true if the server gave the session an id.
    pub(super) fn has_session(&self) -> bool {
        self.shared.dialect().session.is_some()
    }

    /// Sends a request and returns its answer, which has to come within `limit`.
    pub(super) async fn request(&self, message: &Value, limit: Duration) -> Result<Answer, TransportError> {
        match timeout(limit, self.shared.request(message)).await {
            Ok(answer) => answer,
            Err(_) => Err(TransportError::Timeout(limit)),
        }
    }

    /// Sends a message that has no answer.
    pub(super) async fn send(&self, message: &Value) -> Result<(), TransportError> {
        self.shared.send(message).await
    }

    /// Sends a listen request. Everything it is answered with goes to the transcript.
    pub(super) async fn listen(&self, message: &Value) -> Result<(), TransportError> {
        let shared = self.shared.clone();
        let response = shared.response(shared.post(message)).await?;
        let origin = MessageOrigin::Listen(message["id"].clone());
        if is_stream(&response) {
            self.spawn(async move {
                // The end of the stream needs no report: the checks find the messages that are missing.
                shared.read_stream(response, &origin, None).await;
            });
            return Ok(());
        }
        let Ok(body) = timeout(shared.answer_max, read_body(response)).await else {
            return Err(TransportError::Timeout(shared.answer_max));
        };
        shared.transcript.push(origin, body?);
        Ok(())
    }

    /// Opens the stream of the session.
    pub(super) async fn open_stream(&self) -> Result<(), TransportError> {
        let shared = self.shared.clone();
        let response = shared.response(shared.get_stream(None)).await?;
        if !is_stream(&response) {
            return Err(TransportError::Refused(response.status().as_u16()));
        }
        self.spawn(async move { shared.read_session_stream(response).await });
        Ok(())
    }

    /// Asks the server to end the session; returns the HTTP status of its answer.
    pub(super) async fn delete_session(&self) -> Result<u16, TransportError> {
        let headers = self.shared.dialect().session_headers();
        let request = self.shared.begin(Method::DELETE, headers);
        let response = self.shared.response(request).await?;
        Ok(response.status().as_u16())
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let streams = self.streams.lock();
        streams
            .expect("no code panics while it holds the tasks")
            .spawn(task);
    }
}

impl HttpClient {
    fn dialect(&self) -> MutexGuard<'_, Dialect> {
        self.dialect
            .lock()
            .expect("no code panics while it holds the dialect")
    }

    fn begin(&self, method: Method, headers: Vec<(&'static str, String)>) -> RequestBuilder {
        let request = self.client.request(method, &self.url);
        headers
            .into_iter()
            .fold(request, |request, (name, value)| request.header(name, value))
    }

    fn post(&self, message: &Value) -> RequestBuilder {
        let headers = self.dialect().message_headers(message);
        self.begin(Method::POST, headers)
            .header(ACCEPT, ACCEPT_BOTH)
            .json(message)
    }

    fn get_stream(&self, last_id: Option<&str>) -> RequestBuilder {
        let headers = self.dialect().session_headers();
        let request = self
            .begin(Method::GET, headers)
            .header(ACCEPT, "text/event-stream");
        match last_id {
            Some(id) => request.header("last-event-id", id),
            None => request,
        }
    }

    /// Sends a request and waits for the head of its response.
    async fn response(&self, request: RequestBuilder) -> Result<Response, TransportError> {
        match timeout(self.answer_max, self.head(request)).await {
            Ok(response) => response,
            Err(_) => Err(TransportError::Timeout(self.answer_max)),
        }
    }

    async fn head(&self, request: RequestBuilder) -> Result<Response, TransportError> {
        match http_client::send(request, &self.credentials).await {
            Ok(response) => Ok(response),
            Err(SendError::Http(error)) => Err(transport_error(&error)),
            Err(SendError::Credentials(error)) => Err(TransportError::Credentials(error)),
        }
    }

    async fn send(&self, message: &Value) -> Result<(), TransportError> {
        let response = self.response(self.post(message)).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let method = message["method"].as_str().unwrap_or("a response");
        let problem = format!("{method} was answered with HTTP status {status}");
        Err(TransportError::Broken(problem))
    }

    async fn request(&self, message: &Value) -> Result<Answer, TransportError> {
        let response = self.head(self.post(message)).await?;
        let opens = matches!(message["method"].as_str(), Some("initialize" | "server/discover"));
        // Later, a 403 is an answer like others: it is about one request.
        if let Some(challenge) = http_client::challenge(&response)
            && (opens || challenge.status == 401)
        {
            return Err(TransportError::Denied(challenge));
        }
        let status = Some(response.status().as_u16());
        if message["method"] == "initialize" {
            // A server without sessions gives no id, and no later request has one.
            self.dialect().session = header(&response, SESSION_HEADER);
        }
        let message = if is_stream(&response) {
            let (answer, _) = self
                .read_stream(response, &MessageOrigin::Response, message.get("id"))
                .await;
            match answer {
                Some(answer) => answer,
                None => {
                    let problem = "a stream ended before its answer".to_owned();
                    return Err(TransportError::Broken(problem));
                }
            }
        } else {
            read_body(response).await?
        };
        Ok(Answer { status, message })
    }

    /// Reads a stream up to the answer to the request `id`, or to its end.
    ///
    /// Returns the answer, and the id of the last event, after which the stream can be resumed.
    async fn read_stream(
        &self,
        mut response: Response,
        origin: &MessageOrigin,
        id: Option<&Value>,
    ) -> (Option<Value>, Option<String>) {
        let mut events = EventReader::with_limit(MESSAGE_BYTES_MAX);
        while let Ok(Some(bytes)) = response.chunk().await {
            let mut messages = Vec::new();
            let split = events.read(&bytes, |event| {
                // Only streams that may fall silent are checked for keep-alives.
                if *origin != MessageOrigin::Response {
                    self.transcript.record_activity();
                }
                messages.extend(serde_json::from_slice::<Value>(event.data));
            });
            // Handled after the split, since a reply waits for the server and the callback above cannot.
            for message in messages {
                if id.is_some() && message.get("id") == id && message.get("method").is_none() {
                    return (Some(message), None);
                }
                self.receive(origin, message).await;
            }
            if split.is_err() {
                break;
            }
        }
        (None, events.last_id().map(str::to_owned))
    }

    async fn read_session_stream(&self, mut response: Response) {
        for _ in 0..REOPENED_MAX {
            let (_, last_id) = self.read_stream(response, &MessageOrigin::Session, None).await;
            tokio::time::sleep(REOPEN_AFTER).await;
            match self.response(self.get_stream(last_id.as_deref())).await {
                Ok(reopened) if is_stream(&reopened) => response = reopened,
                _ => return,
            }
        }
    }

    async fn receive(&self, origin: &MessageOrigin, message: Value) {
        let reply = reply(&message);
        self.transcript.push(origin.clone(), message);
        if let Some(reply) = reply
            && let Err(error) = self.send(&reply).await
        {
            // No rule that is checked depends on the server taking the answer to its own request.
            debug!(%error, "the server did not take the answer to its request");
        }
    }
}

fn header(response: &Response, name: &str) -> Option<String> {
    let value = response.headers().get(name)?;
    Some(value.to_str().ok()?.to_owned())
}

fn is_stream(response: &Response) -> bool {
    let content_type = header(response, CONTENT_TYPE.as_str()).unwrap_or_default();
    response.status() == StatusCode::OK && content_type.starts_with("text/event-stream")
}

/// Returns the message in the body; null when there is none.
async fn read_body(mut response: Response) -> Result<Value, TransportError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| transport_error(&error))? {
        body.extend_from_slice(&chunk);
        if body.len() > MESSAGE_BYTES_MAX {
            let problem = format!("an answer is larger than {MESSAGE_BYTES_MAX} bytes");
            return Err(TransportError::Broken(problem));
        }
    }
    // A body that is no JSON counts as an answer without a message: each check reports it in its own terms.
    Ok(serde_json::from_slice(&body).unwrap_or(Value::Null))
}

fn transport_error(error: &reqwest::Error) -> TransportError {
    match error.is_connect() {
        true => TransportError::Unreachable(describe(error)),
        false => TransportError::Broken(describe(error)),
    }
}

/// Joins the texts of an error and of its sources: reqwest leaves the cause, such as a refused connection, to
/// them.
fn describe(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}
