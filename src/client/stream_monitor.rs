//! rmcp's HTTP client with credentials, and with a monitor on the GET stream, on which older revisions send
//! notifications.
//!
//! Every call gets the headers of the credentials, and is made again once they are renewed. The monitor
//! reports to the inbox two events that rmcp keeps to itself: the stream was opened again, so notifications
//! may have been missed, or it cannot be opened any more, so the session is lost.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, RequestId};
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use tokio::sync::watch;

use super::error::{carried, reason, refusal};
use super::inbox::Inbox;
use super::missing_answers::{MissingAnswers, answered, answering};
use crate::credentials::{Credentials, RENEWALS_MAX};
use crate::http_client;

type Headers = HashMap<HeaderName, HeaderValue>;
type Outcome<T> = Result<T, StreamableHttpError<reqwest::Error>>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval of TCP keep-alive probes, which end the stream of a machine that vanished.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The state of the GET stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamState {
    /// Not opened yet.
    Pending,
    /// Open now, or opened before.
    Opened,
    /// The server offers none.
    Unsupported,
}

/// An HTTP client that reports the fate of the GET stream to an inbox.
#[derive(Clone)]
pub(crate) struct MonitoredClient {
    client: reqwest::Client,
    credentials: Credentials,
    inbox: Arc<Inbox>,
    stream: watch::Sender<StreamState>,
    /// The answers to requests whose streams have none; without them rmcp ends the connection.
    answers: Option<Arc<MissingAnswers>>,
}

impl MonitoredClient {
    pub(super) fn new(url: &str, inbox: Arc<Inbox>, credentials: &Credentials) -> Outcome<MonitoredClient> {
        let client = http_client::builder_with(url, credentials)
            .map_err(carried)?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            // A redirect would turn a POST into a GET, and could lead the credentials elsewhere.
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        let (stream, _) = watch::channel(StreamState::Pending);
        Ok(MonitoredClient {
            client,
            credentials: credentials.clone(),
            inbox,
            stream,
            answers: None,
        })
    }

    /// Has requests answered whose streams have no answer.
    #[cfg(feature = "service")]
    pub(super) fn answering(self, answers: MissingAnswers) -> MonitoredClient {
        MonitoredClient {
            answers: Some(Arc::new(answers)),
            ..self
        }
    }

    /// Returns the state of the stream as it changes.
    pub(super) fn stream(&self) -> watch::Receiver<StreamState> {
        self.stream.subscribe()
    }

    /// Takes note of an attempt to open the stream.
    fn opened<T>(&self, outcome: &Outcome<T>) {
        let before = *self.stream.borrow();
        match outcome {
            Ok(_) => {
                self.stream.send_replace(StreamState::Opened);
                if before == StreamState::Opened {
                    self.inbox.gap();
                }
            }
            // Requests might still be answered, but without the stream no change would be noticed.
            Err(error)
                if before == StreamState::Opened
                    && !matches!(error, StreamableHttpError::ServerDoesNotSupportSse) =>
            {
                self.inbox.lost(reason(error));
            }
            // A stream that never was is no loss: another strategy is used.
            Err(error) => {
                tracing::debug!(%error, "the server opens no stream");
                self.stream.send_replace(StreamState::Unsupported);
            }
        }
    }
}

impl MonitoredClient {
    /// Makes a call with the headers of the credentials, and again with new ones while the server refuses it
    /// and there are some.
    async fn authorized<T, F, A>(&self, headers: Headers, call: F) -> Outcome<T>
    where
        F: Fn(Headers) -> A,
        A: Future<Output = Outcome<T>>,
    {
        let mut renewals = 0;
        loop {
            let sent = self.credentials.headers().await.map_err(carried)?;
            let mut all = headers.clone();
            all.extend(sent.iter().cloned());
            let outcome = call(all).await;
            let Err(error) = &outcome else { return outcome };
            let Some(refusal) = refusal(error) else {
                return outcome;
            };
            if renewals == RENEWALS_MAX || !self.credentials.renew(&sent, &refusal).await.map_err(carried)? {
                return outcome;
            }
            renewals += 1;
        }
    }
}

/// Returns the response to a request as one that answers it in any case.
fn answered_response(
    response: Outcome<StreamableHttpPostResponse>,
    request: &RequestId,
    answers: &Arc<MissingAnswers>,
) -> Outcome<StreamableHttpPostResponse> {
    match response {
        Ok(StreamableHttpPostResponse::Sse(stream, session)) => {
            let stream = answered(stream, Some(request.clone()), answers.clone());
            Ok(StreamableHttpPostResponse::Sse(stream, session))
        }
        Ok(StreamableHttpPostResponse::Json(message, session)) => {
            let message = answering(message, request, answers);
            Ok(StreamableHttpPostResponse::Json(message, session))
        }
        Err(error @ StreamableHttpError::ResponseBodyTooLarge { .. }) => {
            answers.long.increment(1);
            Err(error)
        }
        other => other,
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
        self.authorized(custom_headers, |headers| {
            self.client.post_message(
                uri.clone(),
                message.clone(),
                session_id.clone(),
                auth_header.clone(),
                headers,
            )
        })
        .await
    }

    // Overridden, as is the one below, because the default drops the limit of the event size.
    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
        max: usize,
    ) -> Outcome<StreamableHttpPostResponse> {
        let response = self.authorized(custom_headers, |headers| {
            self.client.post_message_with_max_sse_event_size(
                uri.clone(),
                message.clone(),
                session_id.clone(),
                auth_header.clone(),
                headers,
                max,
            )
        });
        let response = response.await;
        match (&message, &self.answers) {
            (ClientJsonRpcMessage::Request(request), Some(answers)) => {
                answered_response(response, &request.id, answers)
            }
            _ => response,
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Outcome<()> {
        self.authorized(custom_headers, |headers| {
            self.client
                .delete_session(uri.clone(), session_id.clone(), auth_header.clone(), headers)
        })
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
        let outcome = self
            .authorized(custom_headers, |headers| {
                self.client.get_stream(
                    uri.clone(),
                    session_id.clone(),
                    last_event_id.clone(),
                    auth_header.clone(),
                    headers,
                )
            })
            .await;
        self.opened(&outcome);
        outcome
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
        let outcome = self
            .authorized(custom_headers, |headers| {
                self.client.get_stream_with_max_sse_event_size(
                    uri.clone(),
                    session_id.clone(),
                    last_event_id.clone(),
                    auth_header.clone(),
                    headers,
                    max,
                )
            })
            .await;
        self.opened(&outcome);
        match &self.answers {
            Some(answers) => outcome.map(|stream| answered(stream, None, answers.clone())),
            None => outcome,
        }
    }
}
