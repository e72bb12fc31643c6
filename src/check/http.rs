//! The wire over streamable HTTP, in both eras.
//!
//! Owns the headers, the session's id and the tasks that read streams; they end with it. Answers go back to whoever
//! asked, everything else into the log. It decides nothing.

use std::sync::{Arc, Mutex, MutexGuard};

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{Duration, Instant, timeout_at};

use super::MODERN;
use super::log::{Log, Via};
use super::sse::Sse;
use super::wire::{Answer, MESSAGE_BYTES_MAX, Trouble, reply};
use crate::http_client;
use crate::wire::dialect::header_value;

const SESSION: &str = "mcp-session-id";
const REVISION: &str = "mcp-protocol-version";

/// A server may close the session's stream at will; so often it is opened again, and after this pause.
const REOPENED_MAX: usize = 50;
const REOPEN_AFTER: Duration = Duration::from_millis(200);

/// Whose requests they are.
#[derive(Debug, Clone, Default)]
struct Dialect {
    revision: Option<String>,
    session: Option<String>,
}

#[derive(Debug)]
struct Shared {
    client: reqwest::Client,
    url: String,
    log: Arc<Log>,
    limit: Duration,
    dialect: Mutex<Dialect>,
}

pub(super) struct HttpWire {
    shared: Arc<Shared>,
    streams: Mutex<Vec<JoinHandle<()>>>,
}

impl HttpWire {
    pub(super) fn new(url: &str, log: Arc<Log>, limit: Duration) -> Result<HttpWire, Trouble> {
        let client = http_client::builder(url)
            .connect_timeout(limit)
            // A redirect would turn a POST into a GET.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| Trouble::Broken(reason(&error)))?;
        let shared = Shared {
            client,
            url: url.to_owned(),
            log,
            limit,
            dialect: Mutex::default(),
        };
        Ok(HttpWire {
            shared: Arc::new(shared),
            streams: Mutex::default(),
        })
    }

    pub(super) fn settle(&self, revision: &str) {
        self.shared.dialect().revision = Some(revision.to_owned());
    }

    pub(super) fn session(&self) -> Option<String> {
        self.shared.dialect().session.clone()
    }

    pub(super) async fn request(&self, message: &Value) -> Result<Answer, Trouble> {
        let until = Instant::now() + self.shared.limit;
        let asked = self.shared.ask(message);
        timeout_at(until, asked)
            .await
            .unwrap_or(Err(Trouble::Late(self.shared.limit)))
    }

    pub(super) async fn send(&self, message: &Value) -> Result<(), Trouble> {
        self.shared.send(message).await
    }

    pub(super) async fn listen(&self, message: &Value) -> Result<(), Trouble> {
        let shared = self.shared.clone();
        let response = shared.within(shared.post(message).send()).await?;
        let via = Via::Listen(message["id"].clone());
        if is_stream(&response) {
            let task = async move {
                // How a stream ends is seen by what it did not say.
                shared.follow(response, &via, None).await;
            };
            self.keep(tokio::spawn(task));
        } else {
            let read = tokio::time::timeout(shared.limit, body(response)).await;
            let message = read.map_err(|_| Trouble::Late(shared.limit))??;
            shared.log.push(via, message);
        }
        Ok(())
    }

    pub(super) async fn open_stream(&self) -> Result<Option<u16>, Trouble> {
        let shared = self.shared.clone();
        let response = shared.within(shared.stream(None).send()).await?;
        if !is_stream(&response) {
            return Ok(Some(response.status().as_u16()));
        }
        self.keep(tokio::spawn(async move { shared.follow_session(response).await }));
        Ok(None)
    }

    /// Ends the session; answers the status.
    pub(super) async fn delete(&self) -> Result<u16, Trouble> {
        let request = self.shared.headed(Method::DELETE);
        let response = self.shared.within(request.send()).await?;
        Ok(response.status().as_u16())
    }

    fn keep(&self, task: JoinHandle<()>) {
        self.streams
            .lock()
            .expect("nothing panics while it holds the tasks")
            .push(task);
    }
}

impl Drop for HttpWire {
    fn drop(&mut self) {
        let streams = self.streams.get_mut().map(std::mem::take).unwrap_or_default();
        for task in streams {
            task.abort();
        }
    }
}

impl Shared {
    fn dialect(&self) -> MutexGuard<'_, Dialect> {
        self.dialect
            .lock()
            .expect("nothing panics while it holds the dialect")
    }

    fn headed(&self, method: Method) -> RequestBuilder {
        let Dialect { revision, session } = self.dialect().clone();
        let mut request = self.client.request(method, &self.url);
        if let Some(session) = session {
            request = request.header(SESSION, session);
        }
        match revision {
            Some(revision) => request.header(REVISION, revision),
            None => request,
        }
    }

    fn post(&self, message: &Value) -> RequestBuilder {
        let mut request = self
            .headed(Method::POST)
            .header(ACCEPT, "application/json, text/event-stream")
            .json(message);
        if self.dialect().revision.as_deref() == Some(MODERN) {
            if let Some(method) = message["method"].as_str() {
                request = request.header("mcp-method", method);
            }
            if message["method"] == "resources/read" {
                let uri = message["params"]["uri"].as_str().unwrap_or_default();
                request = request.header("mcp-name", header_value(uri));
            }
        }
        request
    }

    fn stream(&self, last: Option<&str>) -> RequestBuilder {
        let request = self.headed(Method::GET).header(ACCEPT, "text/event-stream");
        match last {
            Some(id) => request.header("last-event-id", id),
            None => request,
        }
    }

    async fn within(
        &self,
        sent: impl Future<Output = Result<Response, reqwest::Error>>,
    ) -> Result<Response, Trouble> {
        let sent = tokio::time::timeout(self.limit, sent).await;
        sent.map_err(|_| Trouble::Late(self.limit))?
            .map_err(|error| trouble(&error))
    }

    async fn send(&self, message: &Value) -> Result<(), Trouble> {
        let response = self.within(self.post(message).send()).await?;
        if response.status().is_success() {
            return Ok(());
        }
        let method = message["method"].as_str().unwrap_or("a response");
        Err(Trouble::Broken(format!(
            "{method} was answered with HTTP status {}",
            response.status()
        )))
    }

    async fn ask(&self, message: &Value) -> Result<Answer, Trouble> {
        let response = self.post(message).send().await.map_err(|error| trouble(&error))?;
        let status = response.status();
        if message["method"] == "initialize" {
            let session = response.headers().get(SESSION);
            let session = session.and_then(|session| session.to_str().ok());
            self.dialect().session = session.map(str::to_owned);
        }
        let message = if is_stream(&response) {
            let answer = self.follow(response, &Via::Request, message.get("id")).await;
            answer
                .0
                .ok_or_else(|| Trouble::Broken("a stream ended before its answer".to_owned()))?
        } else {
            body(response).await?
        };
        Ok(Answer {
            status: Some(status.as_u16()),
            message,
        })
    }

    /// Reads a stream to its end, or to the answer of the request `id`; also says the last event's id.
    async fn follow(
        &self,
        mut response: Response,
        via: &Via,
        id: Option<&Value>,
    ) -> (Option<Value>, Option<String>) {
        let mut sse = Sse::new(MESSAGE_BYTES_MAX);
        while let Ok(Some(bytes)) = response.chunk().await {
            let Ok(frames) = sse.push(&bytes) else { break };
            for frame in frames {
                if *via != Via::Request {
                    self.log.sign();
                }
                let Ok(message) = serde_json::from_str::<Value>(&frame.data) else {
                    continue;
                };
                if id.is_some() && message.get("id") == id && message.get("method").is_none() {
                    return (Some(message), None);
                }
                self.hear(via, message).await;
            }
        }
        (None, sse.last_id().map(str::to_owned))
    }

    async fn follow_session(&self, mut response: Response) {
        for _ in 0..REOPENED_MAX {
            let (_, last) = self.follow(response, &Via::Session, None).await;
            tokio::time::sleep(REOPEN_AFTER).await;
            match self.within(self.stream(last.as_deref()).send()).await {
                Ok(again) if is_stream(&again) => response = again,
                _ => return,
            }
        }
    }

    async fn hear(&self, via: &Via, message: Value) {
        let due = reply(&message);
        self.log.push(via.clone(), message);
        if let Some(due) = due {
            // A server that does not take the answer to its own request harms only itself.
            self.send(&due).await.unwrap_or_default();
        }
    }
}

fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    response.status() == StatusCode::OK && kind.starts_with("text/event-stream")
}

/// The message in the body; null when there is none.
async fn body(mut response: Response) -> Result<Value, Trouble> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| trouble(&error))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(Trouble::Broken(format!(
                "an answer is larger than {MESSAGE_BYTES_MAX} bytes"
            )));
        }
    }
    Ok(serde_json::from_slice(&bytes).unwrap_or_default())
}

fn trouble(error: &reqwest::Error) -> Trouble {
    let text = reason(error);
    if error.is_connect() {
        Trouble::Unreachable(text)
    } else {
        Trouble::Broken(text)
    }
}

fn reason(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_header_can_carry_is_encoded() {
        assert_eq!(header_value("demo://a"), "demo://a");
        assert_eq!(header_value("demo://ä"), "=?base64?ZGVtbzovL8Ok?=");
        assert!(header_value("=?base64?x?=").starts_with("=?base64?PT9"));
    }
}
