//! One connection to a server: the strategies it offers, the requests of a watcher, and its subscriptions.
//!
//! A link never reconnects and keeps no versions. Notifications go to its [`Inbox`].

mod etag_tool;
mod listed;
mod pump;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientRequest, GetMeta, PingRequest, ReadResourceRequestParams, ReadResourceResponse,
    SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams,
};
use rmcp::service::{Peer, RunningService, RunningServiceCancellationToken, Service, ServiceError};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::error::{reason, refusal};
use super::inbox::Inbox;
use super::known_etags::{HeldEtags, ListenEtags, current_etag};
use super::strategy::WatchStrategy;
use super::version::{ETAG_KEY, Version, version_of};
pub(super) use etag_tool::{EtagTools, ITEMS_MAX, ItemVersion};
use pump::pump;

/// The time a handshake or a request may take before the connection counts as lost.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The time that closing may take. A program that we started gets most of it to end by itself.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);

/// The buffer of a listen stream in rmcp. It is emptied as fast as notifications arrive.
const LISTEN_BUFFER: NonZeroUsize = NonZeroUsize::new(1024).expect("1024 is not 0");

/// The time that a listen stream lives on beside its successor: a server may acknowledge a stream a moment
/// before it sends notifications on it.
const LISTEN_OVERLAP: Duration = Duration::from_secs(1);

/// The connection is lost, for this reason.
#[derive(Debug)]
pub(super) struct Lost(pub(super) String);

/// The error of a request.
#[derive(Debug)]
pub(super) enum LinkError {
    /// The server refused the request, with this message.
    Refused(String),
    /// The connection cannot be used any more.
    Lost(Lost),
}

impl From<ServiceError> for LinkError {
    fn from(error: ServiceError) -> LinkError {
        match error {
            ServiceError::McpError(error) => LinkError::Refused(error.message.into_owned()),
            ServiceError::TransportSend(error) => match refusal(error.error.as_ref()) {
                // The client is known and may do other things; a 401 ends the whole connection.
                Some(refusal) if refusal.status == 403 => LinkError::Refused(refusal.to_string()),
                Some(refusal) => LinkError::Lost(Lost(refusal.to_string())),
                None => LinkError::Lost(Lost(reason(error.error.as_ref()))),
            },
            other => LinkError::Lost(Lost(reason(&other))),
        }
    }
}

/// A resource that cannot be watched, and the reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RefusedResource {
    pub(super) uri: String,
    pub(super) reason: String,
}

impl RefusedResource {
    pub(super) fn new(uri: &str, reason: impl Into<String>) -> RefusedResource {
        RefusedResource {
            uri: uri.to_owned(),
            reason: reason.into(),
        }
    }
}

/// Separates a refusal, which concerns `uri` alone, from the loss of the connection.
fn or_refusal<T>(uri: &str, outcome: Result<T, LinkError>) -> Result<Result<T, RefusedResource>, Lost> {
    match outcome {
        Ok(value) => Ok(Ok(value)),
        Err(LinkError::Refused(reason)) => Ok(Err(RefusedResource::new(uri, reason))),
        Err(LinkError::Lost(lost)) => Err(lost),
    }
}

/// Accepts a refusal where it makes no difference.
fn unless_lost<T>(outcome: Result<T, LinkError>) -> Result<(), Lost> {
    match outcome {
        Ok(_) | Err(LinkError::Refused(_)) => Ok(()),
        Err(LinkError::Lost(lost)) => Err(lost),
    }
}

/// The channels between a connection's transport and its link.
pub(super) struct LinkSignals {
    pub(super) inbox: Arc<Inbox>,
    pub(super) etags: Arc<ListenEtags>,
}

/// One connection.
pub(super) struct Link {
    /// The push strategy that the server offers, if any.
    pub(super) push: Option<WatchStrategy>,
    /// The etag tools of the server, if it has any.
    pub(super) tools: Option<EtagTools>,
    /// True if there is a session, which the server may end when it is idle.
    pub(super) session: bool,
    /// The negotiated protocol revision.
    pub(super) revision: String,
    pub(super) inbox: Arc<Inbox>,
    /// True if listen streams ask for changes of lists, too.
    pub(super) lists: bool,
    /// True once the server has answered a subscription with a current etag: it compares ours, and holds
    /// subscriptions to resources that do not exist yet.
    pub(super) compares_etags: bool,
    etags: Arc<ListenEtags>,
    peer: Peer<RoleClient>,
    stop: RunningServiceCancellationToken,
    ended: JoinHandle<()>,
    listening: Option<ListenTask>,
}

/// A listen stream and the task that reads it. Dropping this ends both.
struct ListenTask {
    _stop: oneshot::Sender<()>,
}

impl Link {
    /// Wraps the connection that `running` serves, and watches for its end.
    pub(super) fn new<S>(
        running: RunningService<RoleClient, S>,
        push: Option<WatchStrategy>,
        session: bool,
        revision: String,
        LinkSignals { inbox, etags }: LinkSignals,
    ) -> Link
    where
        S: Service<RoleClient>,
    {
        let peer = running.peer().clone();
        let stop = running.cancellation_token();
        let signals = inbox.clone();
        // Only `waiting` returns the reason of the end, and it consumes the service, so a task waits for it.
        let ended = tokio::spawn(async move {
            let reason = match running.waiting().await {
                Ok(_) => "the server closed the connection".to_owned(),
                Err(error) => error.to_string(),
            };
            signals.lost(reason);
        });
        Link {
            push,
            tools: None,
            session,
            revision,
            inbox,
            lists: false,
            compares_etags: false,
            etags,
            peer,
            stop,
            ended,
            listening: None,
        }
    }

    /// Returns true if the server offers `strategy` on this connection. Reading is always worth a try.
    pub(super) fn offers(&self, strategy: WatchStrategy) -> bool {
        match strategy {
            WatchStrategy::Listen | WatchStrategy::Subscribe => self.push == Some(strategy),
            WatchStrategy::EtagTool => self.tools.is_some(),
            WatchStrategy::ReadAndHash => true,
        }
    }

    /// Subscribes to `new`, in addition to `held`, whose etags are known. Returns the current etag of each
    /// new one if the server answers it, or its refusal.
    pub(super) async fn watch(
        &mut self,
        held: &HeldEtags,
        new: &HeldEtags,
    ) -> Result<Vec<Result<Option<String>, RefusedResource>>, Lost> {
        // Before the request: a notification may arrive before the answer.
        for uri in new.keys() {
            self.inbox.watch(uri);
        }
        let answers = match self.push {
            Some(WatchStrategy::Listen) => self.listen_to(held, new).await?,
            _ => self.subscribe(new).await?,
        };
        for answer in &answers {
            match answer {
                Ok(current) => self.compares_etags |= current.is_some(),
                Err(refusal) => self.inbox.unwatch(&refusal.uri),
            }
        }
        Ok(answers)
    }

    /// Unsubscribes from `gone`; `held` stays subscribed.
    pub(super) async fn unwatch(&mut self, held: &HeldEtags, gone: &[String]) -> Result<(), Lost> {
        for uri in gone {
            self.inbox.unwatch(uri);
        }
        match self.push {
            // After a refusal the old stream goes on; the inbox drops its notifications of `gone`.
            Some(WatchStrategy::Listen) => unless_lost(self.listen(held).await),
            _ => self.unsubscribe(gone).await,
        }
    }

    #[expect(deprecated, reason = "the older revisions have no other way")]
    async fn subscribe(
        &self,
        uris: &HeldEtags,
    ) -> Result<Vec<Result<Option<String>, RefusedResource>>, Lost> {
        let mut answers = Vec::with_capacity(uris.len());
        for (uri, etag) in uris {
            let mut request = ClientRequest::SubscribeRequest(rmcp::model::SubscribeRequest::new(
                SubscribeRequestParams::new(uri),
            ));
            let meta = request.get_meta_mut();
            meta.insert(ETAG_KEY.to_owned(), etag.clone().into());
            // Not rmcp's own call of this method, which takes no result but the empty one.
            let answer = within(self.peer.send_request(request)).await;
            let answer = or_refusal(uri, answer)?;
            answers.push(answer.map(|result| current_etag(&result)));
        }
        Ok(answers)
    }

    #[expect(deprecated, reason = "the older revisions have no other way")]
    async fn unsubscribe(&self, uris: &[String]) -> Result<(), Lost> {
        for uri in uris {
            unless_lost(within(self.peer.unsubscribe(UnsubscribeRequestParams::new(uri))).await)?;
        }
        Ok(())
    }

    /// Listens to `held` and `new`. Returns the answer about each of `new`.
    async fn listen_to(
        &mut self,
        held: &HeldEtags,
        new: &HeldEtags,
    ) -> Result<Vec<Result<Option<String>, RefusedResource>>, Lost> {
        let mut answers = Vec::with_capacity(new.len());
        let mut all = held.clone();
        all.extend(new.clone());
        match self.listen(&all).await {
            Ok(accepted) => {
                for uri in new.keys() {
                    answers.push(if accepted.contains(uri) {
                        Ok(self.etags.current(uri))
                    } else {
                        let reason = "the server does not have it or does not let it be watched";
                        Err(RefusedResource::new(uri, reason))
                    });
                }
            }
            Err(LinkError::Lost(lost)) => return Err(lost),
            Err(LinkError::Refused(reason)) if new.len() <= 1 => {
                for uri in new.keys() {
                    answers.push(Err(RefusedResource::new(uri, &*reason)));
                }
            }
            Err(LinkError::Refused(_)) => return self.listen_one_by_one(held, new).await,
        }
        Ok(answers)
    }

    /// Adds the URIs of `new` one at a time, for servers that refuse a whole list because of one URI.
    async fn listen_one_by_one(
        &mut self,
        held: &HeldEtags,
        new: &HeldEtags,
    ) -> Result<Vec<Result<Option<String>, RefusedResource>>, Lost> {
        let mut held = held.clone();
        let mut answers = Vec::with_capacity(new.len());
        for (uri, etag) in new {
            let one = HeldEtags::from([(uri.clone(), etag.clone())]);
            // Boxed, since `listen_to` calls this function.
            let answer = Box::pin(self.listen_to(&held, &one)).await?;
            if answer.iter().all(Result::is_ok) {
                held.extend(one);
            }
            answers.extend(answer);
        }
        Ok(answers)
    }

    /// Opens a stream for `uris` in place of the current one. Returns the URIs that the server accepted.
    ///
    /// The old stream ends [`LISTEN_OVERLAP`] later, so that no notification is missed in between.
    async fn listen(&mut self, uris: &HeldEtags) -> Result<Vec<String>, LinkError> {
        if uris.is_empty() && !self.lists {
            self.listening = None;
            return Ok(Vec::new());
        }
        self.etags.hand_over(uris);
        let mut filter = SubscriptionFilter::new();
        filter.resource_subscriptions = Some(uris.keys().cloned().collect());
        if self.lists {
            filter.resources_list_changed = Some(true);
            filter.tools_list_changed = Some(true);
            filter.prompts_list_changed = Some(true);
        }
        let subscription = within(self.peer.listen_with_capacity(filter, LISTEN_BUFFER)).await?;
        let accepted = subscription.acknowledged().resource_subscriptions.clone();
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(pump(subscription, self.inbox.clone(), stopped));
        if let Some(before) = self.listening.replace(ListenTask { _stop: stop }) {
            tokio::spawn(async move {
                tokio::time::sleep(LISTEN_OVERLAP).await;
                drop(before);
            });
        }
        Ok(accepted.unwrap_or_default())
    }

    /// Returns the current version of each of `uris`, in order, obtained as `strategy` does.
    pub(super) async fn versions(
        &self,
        uris: &[String],
        strategy: WatchStrategy,
    ) -> Result<Vec<Result<Version, RefusedResource>>, Lost> {
        let mut versions = match &self.tools {
            // An etag suffices, so no body needs to travel.
            Some(tools) if strategy != WatchStrategy::ReadAndHash => self.etags(tools, uris).await?,
            _ => uris
                .iter()
                .map(|uri| Err(RefusedResource::new(uri, "not asked")))
                .collect(),
        };
        if strategy != WatchStrategy::EtagTool {
            for version in &mut versions {
                if let Err(RefusedResource { uri, .. }) = version {
                    let read = self.read(uri).await;
                    *version = or_refusal(uri, read)?;
                }
            }
        }
        Ok(versions)
    }

    /// Returns the current version of `uri`, obtained as `strategy` does.
    pub(super) async fn version(
        &self,
        uri: &str,
        strategy: WatchStrategy,
    ) -> Result<Result<Version, RefusedResource>, Lost> {
        let mut versions = self.versions(&[uri.to_owned()], strategy).await?;
        match versions.pop() {
            Some(version) => Ok(version),
            None => Ok(Err(RefusedResource::new(uri, "no answer"))),
        }
    }

    async fn read(&self, uri: &str) -> Result<Version, LinkError> {
        let request = ReadResourceRequestParams::new(uri);
        match within(self.peer.read_resource_once(request)).await? {
            ReadResourceResponse::Complete(result) => Ok(version_of(&result)),
            _ => Err(LinkError::Refused(
                "the server wants input before it can be read".to_owned(),
            )),
        }
    }

    /// Sends a ping, which keeps the session in use and detects its loss.
    pub(super) async fn ping(&self) -> Result<(), Lost> {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        // A server that refuses the ping is there.
        unless_lost(within(self.peer.send_request(ping)).await)
    }

    /// Closes the connection: ends streams and the session at the server, and a program that we started.
    pub(super) async fn close(self) {
        drop(self.listening);
        self.stop.cancel();
        if tokio::time::timeout(CLOSE_TIMEOUT, self.ended).await.is_err() {
            tracing::warn!("the connection did not end in time");
        }
    }
}

/// Awaits an answer for up to [`ANSWER_TIMEOUT`].
async fn within<T>(request: impl Future<Output = Result<T, ServiceError>>) -> Result<T, LinkError> {
    match tokio::time::timeout(ANSWER_TIMEOUT, request).await {
        Ok(answer) => Ok(answer?),
        // A server that does not answer is as good as gone, even if its socket is open.
        Err(_) => Err(LinkError::Lost(Lost(no_answer()))),
    }
}

/// The reason of a timeout.
pub(super) fn no_answer() -> String {
    format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())
}
