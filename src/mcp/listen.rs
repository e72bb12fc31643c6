//! `subscriptions/listen` (2026-07-28): what a client asks for, narrowed to what it gets, before rmcp acknowledges it.
//!
//! Owns: the narrowing and the stream's session at the bus. rmcp's own hook for narrowing is synchronous and knows no
//! client, so the request itself is rewritten on its way in; rmcp then acknowledges exactly what it reads. Never:
//! widens a request.

use std::collections::HashSet;
use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::SubscriptionFilter;
use rmcp::service::SubscriptionContext;
use tokio::sync::watch;

use super::error;
use super::handler::Handler;
use super::revision::Revision;
use super::stdio::notification;
use crate::metrics::{self, Limit, McpMetrics};
use crate::{
    Drained, EndReason, Etag, ListKind, ResourceUri, Session, SessionOptions, SubscriberKind, WriteProgress,
};

/// One open listen stream.
#[derive(Debug)]
pub(crate) struct Listening {
    /// Its session at the bus; subscribed before the acknowledgement, so nothing in between is lost.
    pub(crate) session: Session,
    /// Whether the stream's bytes are ours: rmcp then only makes its first and last message.
    pub(crate) detached: bool,
    /// Whether there is anything to listen to.
    pub(crate) honoured: bool,
    /// What it is subscribed to, with the etag at which the subscription began; empty when detached.
    pub(crate) granted: Vec<(ResourceUri, Etag)>,
    pub(crate) metrics: McpMetrics,
    /// What the far end takes, where the bytes are not ours.
    flow: Option<Arc<WriteProgress>>,
    /// Dropped with the stream, which those who hold a receiver can wait for.
    pub(crate) ended: watch::Sender<()>,
}

impl Listening {
    /// Subscribes to what `filter` asks for and leaves in it what was granted.
    ///
    /// # Errors
    /// More URIs than one stream may have; a server that is full or stopping.
    pub(crate) async fn open(
        handler: &Handler,
        filter: &mut SubscriptionFilter,
        detached: bool,
    ) -> Result<Arc<Listening>, ErrorData> {
        let max = handler.options.subscriptions_max;
        let asked = filter.resource_subscriptions.take().unwrap_or_default();
        if asked.len() > max {
            metrics::limit_reached(Limit::SubscriptionsOfStream);
            let text = format!(
                "too many resourceSubscriptions: {} of at most {max}; open several streams",
                asked.len()
            );
            return Err(error::invalid_params(text));
        }
        let mut options = SessionOptions::new(
            SubscriberKind::Stream,
            format!("{} {}", Revision::R2026_07_28.as_str(), handler.transport),
        );
        (options.protocol, options.transport) = (Revision::R2026_07_28.as_str(), handler.transport);
        options.subscriptions_max = max;
        options.lists = lists(filter);
        if detached {
            options.stall_timeout = handler.options.stall_timeout;
            options.age_max = handler.options.age_max;
        }
        let session = handler
            .bus
            .open(options)
            .await
            .map_err(|refusal| error::open(&refusal))?;

        let mut seen = HashSet::new();
        let uris: Vec<ResourceUri> = asked
            .iter()
            .filter_map(|uri| ResourceUri::new(uri).ok())
            .filter(|uri| seen.insert(uri.clone()))
            .collect();
        let answers = session.subscribe(uris.clone()).await.map_err(error::stopping)?;
        session.ready().await.map_err(error::stopping)?;
        let granted = uris
            .into_iter()
            .zip(answers)
            .filter_map(|(uri, answer)| Some((uri, answer.ok()?)));
        let mut granted: Vec<(ResourceUri, Etag)> = granted.collect();
        let honoured = !granted.is_empty() || !lists(filter).is_empty();
        let texts: Vec<String> = granted.iter().map(|(uri, _)| uri.as_str().to_owned()).collect();
        filter.resource_subscriptions = (!texts.is_empty()).then_some(texts);
        if detached {
            granted = Vec::new();
        }
        Ok(Arc::new(Listening {
            session,
            detached,
            honoured,
            granted,
            metrics: handler.metrics.clone(),
            flow: handler.flow.clone(),
            ended: watch::Sender::new(()),
        }))
    }

    /// Runs the stream inside rmcp until it ends. Returning `Ok` sends the graceful result.
    pub(crate) async fn run(&self, context: &SubscriptionContext) -> Result<(), ErrorData> {
        if self.detached || !self.honoured {
            return Ok(());
        }
        let mut reader = self.session.reader();
        if let Some(flow) = &self.flow {
            reader.counts(flow.clone());
        }
        let mut entries = Vec::new();
        loop {
            let drained = tokio::select! {
                () = context.cancelled() => return Ok(()),
                drained = reader.drain(&mut entries) => drained,
            };
            for entry in entries.drain(..) {
                // One message in flight: while stdout is blocked, what comes meanwhile is conflated in the outbox.
                if context.sink().send(notification(&entry)).await.is_err() {
                    return Ok(());
                }
                self.metrics.wrote(&[entry]);
            }
            match drained {
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

/// The lists a filter asks for.
pub(crate) fn lists(filter: &SubscriptionFilter) -> Vec<ListKind> {
    let asked = |kind: &ListKind| match kind {
        ListKind::Resources => filter.resources_list_changed == Some(true),
        ListKind::Tools => filter.tools_list_changed == Some(true),
        ListKind::Prompts => filter.prompts_list_changed == Some(true),
    };
    ListKind::ALL.into_iter().filter(asked).collect()
}
