//! rmcp's HTTP client, with an eye on the stream on which older revisions tell of changes.
//!
//! Owns nothing of the protocol: every call goes through unchanged. It says in the inbox what rmcp keeps to itself:
//! that the GET stream was opened again (something may have been missed) or cannot be had any more (the session is
//! lost, though requests might still be answered). A stream that never was is no loss: there are other strategies.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use tokio::sync::watch;

use super::error::reason;
use super::inbox::Inbox;
use crate::http_client;

type Headers = HashMap<HeaderName, HeaderValue>;
type Outcome<T> = Result<T, StreamableHttpError<reqwest::Error>>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How often the kernel asks a silent peer whether it is there, so that a stream of a machine that vanished ends.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// What became of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// Not opened yet.
    Awaited,
    /// Open, or open once.
    Opened,
    /// The server has none.
    Unsupported,
}

#[derive(Clone)]
pub(super) struct MonitoredClient {
    client: reqwest::Client,
    inbox: Arc<Inbox>,
    stream: watch::Sender<Stream>,
}

impl MonitoredClient {
    pub(super) fn new(url: &str, inbox: Arc<Inbox>) -> Result<MonitoredClient, reqwest::Error> {
        let client = http_client::builder(url)
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            // A redirect would turn a POST into a GET; the address that is meant is the one that was given.
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        let (stream, _) = watch::channel(Stream::Awaited);
        Ok(MonitoredClient {
            client,
            inbox,
            stream,
        })
    }

    pub(super) fn stream(&self) -> watch::Receiver<Stream> {
        self.stream.subscribe()
    }

    fn note<T>(&self, outcome: &Outcome<T>) {
        match outcome {
            Ok(_) => {
                if self.stream.send_replace(Stream::Opened) == Stream::Opened {
                    self.inbox.gap();
                }
            }
            Err(StreamableHttpError::ServerDoesNotSupportSse) => {
                self.stream.send_replace(Stream::Unsupported);
            }
            Err(error) if *self.stream.borrow() == Stream::Opened => self.inbox.lost(reason(error)),
            Err(error) => {
                tracing::debug!(%error, "the server opens no stream");
                self.stream.send_replace(Stream::Unsupported);
            }
        }
    }
}

impl StreamableHttpClient for MonitoredClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Outcome<StreamableHttpPostResponse> {
        self.client
            .post_message(uri, message, session_id, auth_header, custom_headers)
            .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
        max: usize,
    ) -> Outcome<StreamableHttpPostResponse> {
        self.client
            .post_message_with_max_sse_event_size(uri, message, session_id, auth_header, custom_headers, max)
            .await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Outcome<()> {
        self.client
            .delete_session(uri, session_id, auth_header, custom_headers)
            .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Outcome<BoxedSseResponse> {
        let got = self
            .client
            .get_stream(uri, session_id, last_event_id, auth_header, custom_headers)
            .await;
        self.note(&got);
        got
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
        max: usize,
    ) -> Outcome<BoxedSseResponse> {
        let client = &self.client;
        let got = client
            .get_stream_with_max_sse_event_size(
                uri,
                session_id,
                last_event_id,
                auth_header,
                custom_headers,
                max,
            )
            .await;
        self.note(&got);
        got
    }
}
