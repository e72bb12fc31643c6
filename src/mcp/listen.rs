//! `subscriptions/listen` (2026-07-28): the part of a request that the bus honours, and the streams that rmcp
//! writes.
//!
//! A client is subscribed before its request is acknowledged, so that no change falls between the two. rmcp's
//! own hook for narrowing a request is synchronous and does not know the client, so the request is narrowed
//! before rmcp sees it.

use std::collections::HashSet;
use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::SubscriptionFilter;
use rmcp::service::SubscriptionContext;
use serde_json::Value;
use tokio::sync::watch;

use super::error;
use super::frames::notification;
use super::known::KnownEtags;
use super::revision::Revision;
use super::session::{McpContext, SessionLifetime, session_options};
use crate::auth::{Caller, Grant, Object, Right};
use crate::metrics::{self, Limit, McpMetrics};
use crate::rights::Viewer;
use crate::{
    Drained, EndReason, Etag, ListKind, ResourceUri, Session, SubscribeError, SubscriberKind,
    SubscriptionRequest, WriteProgress,
};

/// Marks a listen request that rmcp only validates, since the endpoint writes the stream itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListenCheck;

/// A listen request.
pub(crate) struct ListenRequest {
    pub(crate) filter: SubscriptionFilter,
    /// The etags that the client holds, as its `_meta` has them.
    pub(crate) etags: Option<Value>,
    /// The name that the client gives itself.
    pub(crate) client: Option<Arc<str>>,
}

impl ListenRequest {
    /// Leaves out the URIs that the caller may not subscribe to, before anything else looks at them.
    ///
    /// # Errors
    /// More URIs than one stream may have.
    pub(crate) fn narrow(&mut self, server: &McpContext, caller: &Caller) -> Result<(), ErrorData> {
        let Some(requested) = &mut self.filter.resource_subscriptions else {
            return Ok(());
        };
        let max = server.options.session.subscriptions_max;
        if requested.len() > max {
            metrics::limit_reached(Limit::SubscriptionsOfStream);
            let text = format!(
                "too many resourceSubscriptions: {} of at most {max}; open several streams",
                requested.len()
            );
            return Err(error::invalid_params(text));
        }
        requested.retain(|uri| caller.may(Right::Subscribe, Object::Resource(uri)).is_ok());
        Ok(())
    }
}

/// Returns the name in a `clientInfo`.
pub(crate) fn client_name(info: Option<&Value>) -> Option<Arc<str>> {
    Some(info?.get("name")?.as_str()?.into())
}

/// The part of a listen request that the bus honours.
#[derive(Debug)]
pub(crate) struct AcceptedListen {
    /// The stream's session at the bus, which is subscribed already.
    pub(crate) session: Arc<Session>,
    /// The accepted part of the request, for the acknowledgement.
    pub(crate) filter: SubscriptionFilter,
    /// The subscribed resources with the etags at which the subscriptions began.
    pub(crate) subscribed: Vec<(ResourceUri, Etag)>,
    /// The etags for the `_meta` of the acknowledgement, for a client that said which ones it holds.
    pub(crate) current: Option<Value>,
}

impl AcceptedListen {
    /// Subscribes to everything in the [narrowed](ListenRequest::narrow) `request` that exists, or may be
    /// waited for.
    ///
    /// # Errors
    /// More URIs than one client may have; etags of another form; a server that is full or stopping.
    pub(crate) async fn open(
        server: &McpContext,
        request: ListenRequest,
        lifetime: SessionLifetime,
        caller: &Caller,
    ) -> Result<AcceptedListen, ErrorData> {
        let requested = request.filter;
        let known = KnownEtags::parse(request.etags)?;
        let lists = requested_lists(&requested);
        let requested = requested.resource_subscriptions.unwrap_or_default();
        // No idle time-out: the stream lives as long as the request that opened it.
        let mut options = session_options(SubscriberKind::Stream, Revision::STATELESS, server.transport);
        options.client = request.client;
        options.subscriptions_max = server.options.session.subscriptions_max;
        options.pending_subscriptions = server.options.session.pending_subscriptions;
        options.allowance = server.allowance(caller);
        options.lists.clone_from(&lists);
        if lifetime == SessionLifetime::Limited {
            options.stall_timeout = server.options.session.stall_timeout;
            options.age_max = server.options.session.age_max;
        }
        let grant = Grant::of(caller);
        options.viewer = grant.clone().map(|grant| grant as Arc<dyn Viewer>);
        let opened = server.bus.open(options).await;
        let session = Arc::new(opened.map_err(|refusal| error::open(&refusal))?);
        if let Some(grant) = &grant {
            grant.end_streams_at_expiry(&session);
        }
        let subscribed = subscribe(&session, &requested, &known).await?;
        // The subscriptions stand, so list changes may come too from here on.
        session.ready().await.map_err(error::stopping)?;
        Ok(AcceptedListen {
            session,
            filter: accepted_filter(&lists, &subscribed),
            current: known.answer(&subscribed),
            subscribed,
        })
    }

    /// Returns true when no part of the request was accepted: the stream then ends with its acknowledgement.
    pub(crate) fn is_empty(&self) -> bool {
        self.subscribed.is_empty() && requested_lists(&self.filter).is_empty()
    }
}

/// Subscribes to each valid URI once, in the order of the request. Refused URIs are left out: the
/// acknowledgement tells the client which ones it got.
///
/// # Errors
/// A limit is reached. The whole request is refused then, since an acknowledgement has no place for a reason,
/// and the client would take the resource for one that does not exist.
async fn subscribe(
    session: &Session,
    requested: &[String],
    known: &KnownEtags,
) -> Result<Vec<(ResourceUri, Etag)>, ErrorData> {
    let mut seen = HashSet::new();
    let mut uris = Vec::new();
    let mut requests = Vec::new();
    for text in requested {
        if let Ok(uri) = ResourceUri::new(text)
            && seen.insert(uri.clone())
        {
            uris.push(uri.clone());
            let known = known.of(text);
            requests.push(SubscriptionRequest { uri, known });
        }
    }
    let answers = session.subscribe_from(requests).await.map_err(error::stopping)?;
    let mut subscribed = Vec::new();
    for (index, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok(etag) => subscribed.push((uris[index].clone(), etag)),
            Err(refused @ (SubscribeError::TooMany(_) | SubscribeError::AllowanceUsed(_))) => {
                return Err(error::subscribe(&refused));
            }
            Err(_) => {}
        }
    }
    Ok(subscribed)
}

/// Returns the lists that a filter asks for.
pub(crate) fn requested_lists(filter: &SubscriptionFilter) -> Vec<ListKind> {
    let mut lists = ListKind::ALL.to_vec();
    lists.retain(|kind| match kind {
        ListKind::Resources => filter.resources_list_changed == Some(true),
        ListKind::Tools => filter.tools_list_changed == Some(true),
        ListKind::Prompts => filter.prompts_list_changed == Some(true),
    });
    lists
}

/// Returns the filter of an acknowledgement: only accepted parts appear in it.
fn accepted_filter(lists: &[ListKind], subscribed: &[(ResourceUri, Etag)]) -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::default();
    for kind in lists {
        match kind {
            ListKind::Resources => filter.resources_list_changed = Some(true),
            ListKind::Tools => filter.tools_list_changed = Some(true),
            ListKind::Prompts => filter.prompts_list_changed = Some(true),
        }
    }
    if !subscribed.is_empty() {
        let texts = subscribed.iter().map(|(uri, _)| uri.as_str().to_owned());
        filter.resource_subscriptions = Some(texts.collect());
    }
    filter
}

/// Moves the notifications of a listen stream from the outbox to rmcp, which writes them: on stdio, and on
/// the transports of wrapped servers.
#[derive(Debug)]
pub(crate) struct ListenPump {
    /// The stream's session at the bus.
    pub(crate) session: Arc<Session>,
    /// No part of the request was accepted.
    is_empty: bool,
    metrics: McpMetrics,
    /// The write progress of the connection, where it is known.
    write_progress: Option<Arc<WriteProgress>>,
    /// Dropped with the stream; a receiver can wait for that.
    pub(crate) ended: watch::Sender<()>,
}

impl ListenPump {
    /// Makes the pump of an accepted request.
    pub(crate) fn new(server: &McpContext, accepted: AcceptedListen) -> ListenPump {
        ListenPump {
            is_empty: accepted.is_empty(),
            session: accepted.session,
            metrics: server.metrics.clone(),
            write_progress: server.write_progress.clone(),
            ended: watch::Sender::new(()),
        }
    }

    /// Runs the stream inside rmcp until it ends. After `Ok` rmcp sends the graceful result.
    ///
    /// # Errors
    /// A session that failed inside the bus.
    pub(crate) async fn run(&self, context: &SubscriptionContext) -> Result<(), ErrorData> {
        if self.is_empty {
            return Ok(());
        }
        let mut reader = self.session.reader();
        if let Some(progress) = &self.write_progress {
            reader.count_bytes_of(progress.clone());
        }
        let mut entries = Vec::new();
        loop {
            let drained = tokio::select! {
                () = context.cancelled() => return Ok(()),
                drained = reader.drain(&mut entries) => drained,
            };
            for entry in entries.drain(..) {
                // One message in flight: while the output is blocked, later changes are conflated in the
                // outbox.
                if context.sink().send(notification(&entry)).await.is_err() {
                    // The client is gone, so no result can reach it either.
                    return Ok(());
                }
                self.metrics.wrote(&[entry]);
            }
            match drained {
                // An error in place of the result tells the client that it missed something.
                Drained::Ended(EndReason::Failed) => {
                    return Err(ErrorData::internal_error(
                        "the stream's session died; listen again",
                        None,
                    ));
                }
                Drained::Ended(_) => return Ok(()),
                Drained::Entries(_) | Drained::KeepAlive => {}
            }
        }
    }
}
