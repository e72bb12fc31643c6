//! One connection to a server: the requests a watcher needs, and the subscriptions made on it.
//!
//! Owns the strategies that the server offers on it, and what lives as long as one connection: rmcp's tasks, the listen stream, the inbox. It answers requests of the
//! task and puts into the inbox what the server says. It never connects again, remembers no etags and reports to
//! nobody else: when the connection is lost, the task makes another one.

mod etag_tool;

use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientRequest, GetMeta, PingRequest, ReadResourceRequestParams, ReadResourceResponse, ServerNotification,
    SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams,
};
use rmcp::service::{
    Peer, RunningService, RunningServiceCancellationToken, Service, ServiceError, Subscription,
    SubscriptionEnd,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::error::reason;
use super::inbox::Inbox;
use super::strategy::WatchStrategy;
use super::version::{Version, etag_of, version_of};
pub(super) use etag_tool::{EtagTools, ITEMS_MAX};

/// How long a handshake or a request may take before the connection counts as lost.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the farewell may take; a program that was started for us gets time to end by itself.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);

/// How many notifications rmcp may hold for a listen stream; they are taken out at once.
const LISTEN_BUFFER: NonZeroUsize = NonZeroUsize::new(1024).expect("1024 is not 0");

/// How long a listen stream is kept beside the one that takes its place: a server may acknowledge a stream a moment
/// before it tells anything on it.
const LISTEN_OVERLAP: Duration = Duration::from_secs(1);

/// Why a request has no result.
#[derive(Debug)]
pub(super) enum LinkError {
    /// The server said no.
    Refused(String),
    /// The connection cannot be used any more.
    Lost(String),
}

impl From<ServiceError> for LinkError {
    fn from(error: ServiceError) -> LinkError {
        match error {
            ServiceError::McpError(error) => LinkError::Refused(error.message.into_owned()),
            ServiceError::TransportSend(error) => LinkError::Lost(reason(error.error.as_ref())),
            other => LinkError::Lost(reason(&other)),
        }
    }
}

/// A resource that cannot be watched, and why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) uri: String,
    pub(super) reason: String,
}

impl Refusal {
    pub(super) fn new(uri: &str, reason: impl Into<String>) -> Refusal {
        Refusal {
            uri: uri.to_owned(),
            reason: reason.into(),
        }
    }
}

/// The outcome of a request about `uri`, unless the connection was lost.
fn or_refusal<T>(uri: &str, outcome: Result<T, LinkError>) -> Result<Result<T, Refusal>, String> {
    match outcome {
        Ok(value) => Ok(Ok(value)),
        Err(LinkError::Refused(reason)) => Ok(Err(Refusal::new(uri, reason))),
        Err(LinkError::Lost(reason)) => Err(reason),
    }
}

/// One connection.
pub(super) struct Link {
    /// The strategy on which the server speaks first, if it offers one.
    pub(super) push: Option<WatchStrategy>,
    /// Its etag tools, if it has any.
    pub(super) tools: Option<EtagTools>,
    /// Whether there is a session that may end as idle.
    pub(super) session: bool,
    pub(super) revision: String,
    pub(super) inbox: Arc<Inbox>,
    peer: Peer<RoleClient>,
    stop: RunningServiceCancellationToken,
    ended: JoinHandle<()>,
    listening: Option<Listening>,
}

/// A listen stream and the task that empties it. Dropping it ends the stream.
struct Listening {
    _stop: oneshot::Sender<()>,
}

impl Link {
    /// The connection that `running` serves.
    pub(super) fn new<S>(
        running: RunningService<RoleClient, S>,
        push: Option<WatchStrategy>,
        session: bool,
        revision: String,
        inbox: Arc<Inbox>,
    ) -> Link
    where
        S: Service<RoleClient>,
    {
        let (peer, stop) = (running.peer().clone(), running.cancellation_token());
        let heard = inbox.clone();
        let ended = tokio::spawn(async move {
            let why = match running.waiting().await {
                Ok(_) => "the server closed the connection".to_owned(),
                Err(error) => error.to_string(),
            };
            heard.lost(why);
        });
        Link {
            push,
            tools: None,
            session,
            revision,
            inbox,
            peer,
            stop,
            ended,
            listening: None,
        }
    }

    /// Whether the server offers `strategy` on this connection. Reading is always worth a try.
    pub(super) fn offers(&self, strategy: WatchStrategy) -> bool {
        match strategy {
            WatchStrategy::Listen | WatchStrategy::Subscribe => self.push == Some(strategy),
            WatchStrategy::EtagTool => self.tools.is_some(),
            WatchStrategy::ReadAndHash => true,
        }
    }

    /// Has the server tell of `new` besides `held`, which it tells of already. Answers those it refused.
    pub(super) async fn watch(&mut self, held: &[String], new: &[String]) -> Result<Vec<Refusal>, String> {
        new.iter().for_each(|uri| self.inbox.watch(uri));
        let refusals = match self.push {
            Some(WatchStrategy::Listen) => self.listen_to(held, new).await?,
            _ => self.subscribe(new).await?,
        };
        refusals
            .iter()
            .for_each(|refusal| self.inbox.unwatch(&refusal.uri));
        Ok(refusals)
    }

    /// Has the server tell no longer of `gone`, but still of `held`.
    pub(super) async fn unwatch(&mut self, held: &[String], gone: &[String]) -> Result<(), String> {
        gone.iter().for_each(|uri| self.inbox.unwatch(uri));
        match self.push {
            Some(WatchStrategy::Listen) => match self.listen(held.to_vec()).await {
                Ok(_) => Ok(()),
                // The old stream still tells of everything that is wanted, and what is not is dropped on arrival.
                Err(LinkError::Refused(_)) => Ok(()),
                Err(LinkError::Lost(reason)) => Err(reason),
            },
            _ => self.unsubscribe(gone).await,
        }
    }

    #[expect(deprecated, reason = "it is how older revisions are spoken")]
    async fn subscribe(&self, uris: &[String]) -> Result<Vec<Refusal>, String> {
        let mut refusals = Vec::new();
        for uri in uris {
            let answer = within(self.peer.subscribe(SubscribeRequestParams::new(uri))).await;
            refusals.extend(or_refusal(uri, answer)?.err());
        }
        Ok(refusals)
    }

    #[expect(deprecated, reason = "it is how older revisions are spoken")]
    async fn unsubscribe(&self, uris: &[String]) -> Result<(), String> {
        for uri in uris {
            match within(self.peer.unsubscribe(UnsubscribeRequestParams::new(uri))).await {
                Ok(()) | Err(LinkError::Refused(_)) => {}
                Err(LinkError::Lost(reason)) => return Err(reason),
            }
        }
        Ok(())
    }

    async fn listen_to(&mut self, held: &[String], new: &[String]) -> Result<Vec<Refusal>, String> {
        match self.listen([held, new].concat()).await {
            Ok(accepted) => {
                let left_out = new.iter().filter(|uri| !accepted.contains(uri));
                let reason = "the server does not have it or does not let it be watched";
                Ok(left_out.map(|uri| Refusal::new(uri, reason)).collect())
            }
            Err(LinkError::Lost(reason)) => Err(reason),
            Err(LinkError::Refused(reason)) if new.len() <= 1 => {
                Ok(new.iter().map(|uri| Refusal::new(uri, &*reason)).collect())
            }
            Err(LinkError::Refused(_)) => self.listen_one_by_one(held, new).await,
        }
    }

    /// For servers that refuse all of a list because of one of it.
    async fn listen_one_by_one(&mut self, held: &[String], new: &[String]) -> Result<Vec<Refusal>, String> {
        let mut held = held.to_vec();
        let mut refusals = Vec::new();
        for uri in new {
            let refused = Box::pin(self.listen_to(&held, std::slice::from_ref(uri))).await?;
            if refused.is_empty() {
                held.push(uri.clone());
            }
            refusals.extend(refused);
        }
        Ok(refusals)
    }

    /// Opens a stream for `uris` in place of the one before; answers those the server accepted. The old one ends only
    /// a while after the new one is there, so that nothing is missed between.
    async fn listen(&mut self, uris: Vec<String>) -> Result<Vec<String>, LinkError> {
        if uris.is_empty() {
            self.listening = None;
            return Ok(uris);
        }
        let mut filter = SubscriptionFilter::new();
        filter.resource_subscriptions = Some(uris);
        let subscription = within(self.peer.listen_with_capacity(filter, LISTEN_BUFFER)).await?;
        let accepted = subscription
            .acknowledged()
            .resource_subscriptions
            .clone()
            .unwrap_or_default();
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(pump(subscription, self.inbox.clone(), stopped));
        if let Some(before) = self.listening.replace(Listening { _stop: stop }) {
            tokio::spawn(async move {
                tokio::time::sleep(LISTEN_OVERLAP).await;
                drop(before);
            });
        }
        Ok(accepted)
    }

    /// Which versions of `uris` the server has now, in order, or why it does not say; asked as fits `strategy`.
    pub(super) async fn versions(
        &self,
        uris: &[String],
        strategy: WatchStrategy,
    ) -> Result<Vec<Result<Version, Refusal>>, String> {
        let mut versions = match &self.tools {
            // An etag is all that is wanted, so no body need travel.
            Some(tools) if strategy != WatchStrategy::ReadAndHash => self.etags(tools, uris).await?,
            _ => uris
                .iter()
                .map(|uri| Err(Refusal::new(uri, "not asked")))
                .collect(),
        };
        if strategy != WatchStrategy::EtagTool {
            for version in &mut versions {
                if let Err(Refusal { uri, .. }) = version {
                    let read = self.read(uri).await;
                    *version = or_refusal(uri, read)?;
                }
            }
        }
        Ok(versions)
    }

    /// Which version of `uri` the server has now.
    async fn read(&self, uri: &str) -> Result<Version, LinkError> {
        let request = ReadResourceRequestParams::new(uri);
        match within(self.peer.read_resource_once(request)).await? {
            ReadResourceResponse::Complete(result) => Ok(version_of(&result)),
            _ => Err(LinkError::Refused(
                "the server wants input before it can be read".to_owned(),
            )),
        }
    }

    /// Shows the server that its session is in use, and us that it still is one.
    pub(super) async fn ping(&self) -> Result<(), String> {
        let ping = self
            .peer
            .send_request(ClientRequest::PingRequest(PingRequest::default()));
        match within(ping).await {
            // A server that refuses is there.
            Ok(_) | Err(LinkError::Refused(_)) => Ok(()),
            Err(LinkError::Lost(reason)) => Err(reason),
        }
    }

    /// Ends the connection: streams and sessions are ended at the server, a program that was started for us too.
    pub(super) async fn close(self) {
        drop(self.listening);
        self.stop.cancel();
        if tokio::time::timeout(CLOSE_TIMEOUT, self.ended).await.is_err() {
            tracing::warn!("the connection did not end in time");
        }
    }
}

/// Awaits an answer, for a while.
async fn within<T>(request: impl Future<Output = Result<T, ServiceError>>) -> Result<T, LinkError> {
    match tokio::time::timeout(ANSWER_TIMEOUT, request).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(LinkError::Lost(format!(
            "no answer within {} s",
            ANSWER_TIMEOUT.as_secs()
        ))),
    }
}

/// Puts what a listen stream says into the inbox, until it ends or is stopped.
async fn pump(mut subscription: Subscription, inbox: Arc<Inbox>, mut stopped: oneshot::Receiver<()>) {
    loop {
        let next = tokio::select! {
            biased;
            _ = &mut stopped => {
                if let Err(error) = subscription.cancel().await {
                    tracing::debug!(%error, "a listen stream could not be cancelled");
                }
                return;
            }
            next = subscription.next() => next,
        };
        match next {
            Ok(Some(notification)) => {
                let etag = etag_of(notification.get_meta());
                if let ServerNotification::ResourceUpdatedNotification(update) = notification {
                    inbox.updated(&update.params.uri, etag);
                }
            }
            Ok(None) => return inbox.lost(farewell(subscription.end())),
            Err(error) => return inbox.lost(reason(&error)),
        }
    }
}

fn farewell(end: Option<&SubscriptionEnd>) -> &'static str {
    match end {
        Some(SubscriptionEnd::Graceful(_)) => "the server ended the stream",
        Some(SubscriptionEnd::Cancelled) => "the server cancelled the stream",
        Some(SubscriptionEnd::Lagged { .. }) => "notifications came faster than they were taken",
        _ => "the stream broke off",
    }
}
