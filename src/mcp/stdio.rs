//! MCP over stdin and stdout, or any pair of byte streams: rmcp carries every message, a pump feeds it from the outbox.
//!
//! Owns: the pump (one per session, one message in flight, so that conflation happens while stdout is blocked) and the
//! transport that narrows `subscriptions/listen` on its way in. Never: writes anything but MCP to the output.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, GetExtensions, NotificationMetaObject,
    PromptListChangedNotification, ResourceListChangedNotification, ResourceUpdatedNotification,
    ResourceUpdatedNotificationParam, ServerJsonRpcMessage, ServerNotification, ToolListChangedNotification,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{Peer, RoleServer, ServiceExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::convert::etag_meta;
use super::handler::{Handler, McpSession, PumpStage};
use super::listen::Listening;
use super::metered::Metered;
use super::options::McpOptions;
use crate::metrics::McpMetrics;
use crate::{Bus, Drained, Etag, ListKind, OutboxEntry, OutboxReader, ResourceUri};

/// Serves one client on `input` and `output` until the input ends or the bus stops; the service's stdin and stdout,
/// or any other pair. Lines longer than [`McpOptions::body_bytes_max`] are dropped and reported.
///
/// # Errors
/// A connection that broke before it was initialised.
pub async fn serve_stdio<R, W>(bus: Bus, options: McpOptions, input: R, output: W) -> std::io::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (line_max, stopping) = (options.body_bytes_max, bus.clone());
    let opened = Arc::new(OnceLock::new());
    // Whoever started us ends us; a reader that stalls is only reported.
    let output = Metered::new(output, None);
    let handler = Handler {
        bus,
        options: Arc::new(options),
        transport: "stdio",
        metrics: McpMetrics::new("stdio"),
        opened: Some(opened),
        flow: Some(output.flow().clone()),
    };
    let inner = AsyncRwTransport::new(input, output).with_max_line_length(line_max);
    let transport = Narrowing {
        inner,
        handler: handler.clone(),
        narrowing: None,
        open: Vec::new(),
        initialized: false,
        end_of_input: None,
    };
    let served = tokio::select! {
        served = handler.serve(transport) => served,
        _ = stopping.stopped() => return Ok(()),
    };
    match served {
        Ok(running) => {
            let end = running.cancellation_token();
            let waiting = running.waiting();
            tokio::pin!(waiting);
            let waited = tokio::select! {
                waited = &mut waiting => waited,
                _ = stopping.stopped() => {
                    // The bus has ended every stream; what rmcp still owes for them goes out before it closes.
                    end.cancel();
                    waiting.await
                }
            };
            waited.map(drop).map_err(std::io::Error::other)
        }
        // A client that goes away before it says anything is no failure of ours.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(failure) => Err(std::io::Error::other(failure)),
    }
}

/// Tells a client what its session's outbox holds, until one of them ends.
pub(crate) async fn pump(mut reader: OutboxReader, peer: Peer<RoleServer>, metrics: &McpMetrics) {
    let mut entries = Vec::new();
    loop {
        let drained = reader.drain(&mut entries).await;
        for entry in entries.drain(..) {
            if peer.send_notification(notification(&entry)).await.is_err() {
                return;
            }
            metrics.wrote(&[entry]);
        }
        if let Drained::Ended(_) = drained {
            return;
        }
    }
}

/// A resource's new version as rmcp's notification.
pub(crate) fn updated(uri: &ResourceUri, etag: Etag) -> ServerNotification {
    let mut params = ResourceUpdatedNotificationParam::new(uri.as_str());
    params.meta = Some(NotificationMetaObject(etag_meta(etag)));
    ServerNotification::ResourceUpdatedNotification(ResourceUpdatedNotification::new(params))
}

/// An entry as rmcp's notification, for transports whose bytes are not ours.
pub(crate) fn notification(entry: &OutboxEntry) -> ServerNotification {
    match entry {
        OutboxEntry::Updated(notice) => updated(&notice.uri, notice.etag),
        OutboxEntry::ListChanged(ListKind::Resources) => {
            ServerNotification::ResourceListChangedNotification(ResourceListChangedNotification::default())
        }
        OutboxEntry::ListChanged(ListKind::Tools) => {
            ServerNotification::ToolListChangedNotification(ToolListChangedNotification::default())
        }
        OutboxEntry::ListChanged(ListKind::Prompts) => {
            ServerNotification::PromptListChangedNotification(PromptListChangedNotification::default())
        }
    }
}

/// A listen request as rmcp is to see it, and the stream that it opened.
type Narrowed = (ClientJsonRpcMessage, Option<Weak<Listening>>);

/// How long a client that sends nothing more may take to be told what it is owed; the output may be blocked.
const END_TIMEOUT: Duration = Duration::from_secs(2);

type Underway = std::pin::Pin<Box<dyn Future<Output = Result<Narrowed, ServerJsonRpcMessage>> + Send>>;

/// A transport whose listen requests arrive narrowed to what the bus honours.
struct Narrowing<T> {
    inner: T,
    handler: Handler,
    /// A listen request on its way in; kept here because rmcp may drop the future of `receive` and call again.
    narrowing: Option<Underway>,
    /// The streams opened over this transport; some of them may have ended.
    open: Vec<Weak<Listening>>,
    /// Whether the client has said that it can be told things.
    initialized: bool,
    /// Once the input has ended: until when what is owed may take to be told.
    end_of_input: Option<Instant>,
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Narrowing<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(narrowing) = &mut self.narrowing {
                let narrowed = narrowing.await;
                self.narrowing = None;
                match narrowed {
                    Ok((message, listening)) => {
                        self.open.retain(|open| open.strong_count() > 0);
                        self.open.extend(listening);
                        return Some(message);
                    }
                    Err(refusal) => self.inner.send(refusal).await.ok()?,
                }
            }
            if let Some(deadline) = self.end_of_input {
                self.streams_ended(deadline).await;
                let opened = self
                    .handler
                    .opened
                    .as_ref()
                    .and_then(|opened| opened.get().cloned());
                if let Some(session) = opened.filter(|_| self.initialized) {
                    session_told(&session, deadline).await;
                }
                return None;
            }
            let Some(message) = self.inner.receive().await else {
                self.end_of_input = Some(Instant::now() + END_TIMEOUT);
                continue;
            };
            self.initialized |= is_initialized(&message);
            if !is_listen(&message) {
                return Some(message);
            }
            self.narrowing = Some(Box::pin(narrow(self.handler.clone(), message)));
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

impl<T> Narrowing<T> {
    /// Ends the streams of a client that has gone, and waits until they have said so. While it waits rmcp goes on
    /// sending; after the end of the input it would hold what they owe for as long as it waits for their handlers.
    async fn streams_ended(&mut self, deadline: Instant) {
        let open: Vec<_> = self.open.iter().filter_map(Weak::upgrade).collect();
        let ended: Vec<_> = open.iter().map(|listening| listening.ended.subscribe()).collect();
        for listening in open {
            listening.session.end();
        }
        for mut ended in ended {
            // The sender is dropped with the stream, and never sends.
            let ended = ended.changed();
            if tokio::time::timeout_at(deadline, ended).await.is_err() {
                return;
            }
        }
    }
}

/// Ends the session of a client that sends nothing more, and waits until it was told what was due: a client that writes
/// its requests and reads to the end gets all of it.
async fn session_told(session: &McpSession, deadline: Instant) {
    let mut stage = session.pump.subscribe();
    let told = async {
        // The sender lives in the session: neither wait can fail.
        if stage.wait_for(|stage| *stage != PumpStage::Waiting).await.is_ok() {
            session.session.end();
            drop(stage.wait_for(|stage| *stage == PumpStage::Done).await);
        }
    };
    if tokio::time::timeout_at(deadline, told).await.is_err() {
        tracing::debug!("the client reads too slowly to be told everything before the end");
    }
}

fn is_initialized(message: &ClientJsonRpcMessage) -> bool {
    let ClientJsonRpcMessage::Notification(notification) = message else {
        return false;
    };
    matches!(
        notification.notification,
        ClientNotification::InitializedNotification(_)
    )
}

fn is_listen(message: &ClientJsonRpcMessage) -> bool {
    let ClientJsonRpcMessage::Request(request) = message else {
        return false;
    };
    matches!(request.request, ClientRequest::SubscriptionsListenRequest(_))
}

async fn narrow(
    handler: Handler,
    mut message: ClientJsonRpcMessage,
) -> Result<Narrowed, ServerJsonRpcMessage> {
    let mut opened = None;
    if let ClientJsonRpcMessage::Request(request) = &mut message
        && let ClientRequest::SubscriptionsListenRequest(listen) = &mut request.request
    {
        let listening = Listening::open(&handler, &mut listen.params.notifications, false).await;
        let listening =
            listening.map_err(|refusal| ServerJsonRpcMessage::error(refusal, Some(request.id.clone())))?;
        opened = Some(Arc::downgrade(&listening));
        request.request.extensions_mut().insert(listening);
    }
    Ok((message, opened))
}
