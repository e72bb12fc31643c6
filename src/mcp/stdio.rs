//! MCP over stdin and stdout, or any pair of byte streams. rmcp answers and writes every message; the
//! transport here refuses messages that rmcp would misread, narrows listen requests on their way in, and
//! holds the end of the input back until the client has been sent everything that is pending for it.

mod lines;
mod open_streams;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, GetExtensions, GetMeta, ProtocolVersion,
    RequestMetaObject, ServerJsonRpcMessage, ServerNotification,
};
use rmcp::service::{RxJsonRpcMessage, ServerInitializeError, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{RoleServer, ServiceExt};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, Empty};
use tokio::time::Instant;

use self::lines::{InputLine, InputLines};
use self::open_streams::{OpenListen, OpenStreams};
use super::bus_handler::BusHandler;
use super::handler::Handler;
use super::listen::{AcceptedListen, ListenPump, ListenRequest, client_name};
use super::options::McpOptions;
use super::revision::{ETAG_META_KEY, Revision};
use super::session::{McpContext, McpSession, PumpStage, SessionLifetime};
use super::subscribe_result::ConnectionHandler;
use crate::auth::Caller;
use crate::http::WriteDeadline;
use crate::metrics::McpMetrics;
use crate::wire::protocol::CLIENT_INFO_META_KEY;
use crate::{Bus, WriteProgress};

/// The time in which a client that has closed its output must read its pending messages; it may have stopped
/// reading.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves one client on `input` and `output` until the input ends or the bus stops; the service's stdin and
/// stdout, or any other pair. Lines longer than [`McpOptions::body_bytes_max`] are dropped, answered with an
/// error and counted.
///
/// # Errors
/// A connection that broke before it was initialised.
pub async fn serve_stdio<R, W>(bus: Bus, options: McpOptions, input: R, output: W) -> std::io::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    serve_stdio_as(bus, options, Caller::unlimited(None), input, output).await
}

/// Serves one client like [`serve_stdio`], with the rights of `caller`, which
/// [`Border::caller`](crate::auth::Border::caller) makes of a principal.
///
/// Requests and notices are judged as over HTTP. Once the credential of the principal has ended, the streams
/// end and every request is refused; the connection stays until the program closes `input`.
///
/// # Errors
/// Those of [`serve_stdio`].
pub async fn serve_stdio_as<R, W>(
    bus: Bus,
    options: McpOptions,
    caller: Caller,
    input: R,
    output: W,
) -> std::io::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    // No write time-out: the process that started this one ends it, so a reader that stalls is only reported.
    let output = WriteDeadline::new(output, None);
    let handler = Handler::of_connection(bus, Arc::new(options), caller, output.progress().clone());
    serve_handler(handler, input, output).await
}

/// Serves one client with a handler of its own.
///
/// # Errors
/// Those of [`serve_stdio`].
pub(super) async fn serve_handler<H, R, W>(
    handler: H,
    input: R,
    output: WriteDeadline<W>,
) -> std::io::Result<()>
where
    H: BusHandler + Clone,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let server = &handler.of_bus().server;
    let line_max = server.options.body_bytes_max;
    let stopping = server.bus.clone();
    let streams = OpenStreams::default();
    let transport = NarrowingTransport {
        lines: InputLines::new(input, line_max),
        output: AsyncRwTransport::new(tokio::io::empty(), output),
        handler: handler.clone(),
        narrowing: None,
        refusing: None,
        streams: streams.clone(),
        started: false,
        initialized: false,
        end_of_input: None,
    };
    let served = tokio::select! {
        served = ConnectionHandler(handler).serve(transport) => served,
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
                    // The bus has ended every stream. Once rmcp is cancelled it reports no send back any
                    // more, so a stream that waits for the report of its acknowledgement would never send its
                    // result.
                    streams.wait_until_ended(Instant::now() + END_TIMEOUT).await;
                    end.cancel();
                    waiting.await
                }
            };
            waited.map(drop).map_err(std::io::Error::other)
        }
        // A client may leave before its first message; the server has not failed then.
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(failure) => Err(std::io::Error::other(failure)),
    }
}

impl Handler {
    /// Makes the handler of one connection.
    pub(super) fn of_connection(
        bus: Bus,
        options: Arc<McpOptions>,
        caller: Caller,
        progress: Arc<WriteProgress>,
    ) -> Handler {
        Handler {
            server: McpContext {
                bus,
                options,
                transport: "stdio",
                metrics: McpMetrics::new("stdio"),
                write_progress: Some(progress),
                caller,
                limits: None,
            },
            own_session: Some(Arc::new(OnceLock::new())),
        }
    }
}

/// A listen request as rmcp is to see it, and the stream that it opened.
type NarrowedListen = (ClientJsonRpcMessage, Option<OpenListen>);

type Narrowing = std::pin::Pin<Box<dyn Future<Output = Result<NarrowedListen, ServerJsonRpcMessage>> + Send>>;

type Refusing<E> = std::pin::Pin<Box<dyn Future<Output = Result<(), E>> + Send>>;

/// A transport whose listen requests arrive narrowed to the part that the bus honours, and whose wrong
/// requests do not arrive.
struct NarrowingTransport<H, R, W: AsyncWrite> {
    lines: InputLines<R>,
    /// Only written to.
    output: AsyncRwTransport<RoleServer, Empty, W>,
    handler: H,
    /// A listen request on its way in; kept here because rmcp may drop the future of `receive` and call
    /// again.
    narrowing: Option<Narrowing>,
    /// The refusal of a request that rmcp does not see, on its way out; kept here for the same reason.
    refusing: Option<Refusing<std::io::Error>>,
    streams: OpenStreams,
    /// rmcp has the request that decides the kind of the connection.
    started: bool,
    /// The client has said that it accepts notifications.
    initialized: bool,
    /// Once the input has ended: the deadline for the pending messages of the client.
    end_of_input: Option<Instant>,
}

impl<H, R, W> Transport<RoleServer> for NarrowingTransport<H, R, W>
where
    H: BusHandler + Clone,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = std::io::Error;

    fn send(
        &mut self,
        mut item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.add_current(&mut item);
        self.output.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(narrowing) = &mut self.narrowing {
                let narrowed = narrowing.await;
                self.narrowing = None;
                match narrowed {
                    Ok((message, stream)) => {
                        self.streams.add(stream);
                        return Some(message);
                    }
                    Err(refusal) => self.refuse(refusal),
                }
            }
            if let Some(refusing) = &mut self.refusing {
                let sent = refusing.await;
                self.refusing = None;
                sent.ok()?;
            }
            if let Some(deadline) = self.end_of_input {
                self.finish(deadline).await;
                return None;
            }
            match self.lines.next().await {
                None => self.end_of_input = Some(Instant::now() + END_TIMEOUT),
                Some(InputLine::Refused(refusal)) => self.refuse(*refusal),
                Some(InputLine::Message(message)) => {
                    if let Some(message) = self.admit(*message) {
                        return Some(message);
                    }
                }
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.output.close()
    }
}

impl<H, R, W> NarrowingTransport<H, R, W>
where
    H: BusHandler + Clone,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    /// Sends a refusal before the next line is read.
    fn refuse(&mut self, refusal: ServerJsonRpcMessage) {
        self.refusing = Some(Box::pin(self.output.send(refusal)));
    }

    /// Returns a message that rmcp may see now. A listen request comes later, when it is narrowed.
    fn admit(&mut self, message: ClientJsonRpcMessage) -> Option<ClientJsonRpcMessage> {
        if !self.started {
            let ClientJsonRpcMessage::Request(request) = &message else {
                // rmcp would end the connection, though nothing asks for an answer.
                tracing::debug!("a message on stdin came before the first request");
                return None;
            };
            self.started = starts(&request.request);
        }
        self.initialized |= is_initialized(&message);
        if !is_listen(&message) {
            return Some(message);
        }
        self.narrowing = Some(Box::pin(narrow(self.handler.clone(), message)));
        None
    }

    /// Adds the current etags to an acknowledgement, which rmcp makes without them.
    fn add_current(&self, message: &mut ServerJsonRpcMessage) {
        if let ServerJsonRpcMessage::Notification(notification) = message
            && let ServerNotification::SubscriptionsAcknowledgedNotification(_) = notification.notification
            && let Some(request) = notification.notification.get_meta().subscription_id()
            && let Some(current) = self.streams.take_current(&request)
        {
            let meta = notification.notification.get_meta_mut();
            meta.insert(ETAG_META_KEY.to_owned(), current);
        }
    }

    /// Ends everything that the client has open and waits until rmcp has sent the last messages. rmcp must
    /// not see the end of the input before: it would then hold those messages for as long as it waits for
    /// their handlers.
    async fn finish(&mut self, deadline: Instant) {
        self.streams.end();
        self.streams.wait_until_ended(deadline).await;
        // A client that never said it is ready is sent no notifications, so there is nothing to wait for.
        if self.initialized
            && let Some(session) = self.handler.of_bus().opened_session()
        {
            end_session(session, deadline).await;
        }
    }
}

/// Ends the session of a client that sends nothing more, and waits until its notifications were sent: a
/// client that writes its requests and then reads to the end receives all of them.
async fn end_session(session: &McpSession, deadline: Instant) {
    let mut stage = session.pump_stage.subscribe();
    let sent = async {
        let ready = stage.wait_for(|stage| *stage != PumpStage::Waiting).await.is_ok();
        session.session.end();
        ready && stage.wait_for(|stage| *stage == PumpStage::Done).await.is_ok()
    };
    if tokio::time::timeout_at(deadline, sent).await != Ok(true) {
        tracing::debug!("the client reads too slowly to be sent everything before the end");
    }
}

/// Returns true for the request after which rmcp no longer waits for the first one of a connection.
fn starts(request: &ClientRequest) -> bool {
    match request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => false,
        _ => {
            let meta = request.get_meta();
            let is_complete = meta
                .missing_required_keys(&ProtocolVersion::V_2026_07_28)
                .is_empty();
            match meta.protocol_version() {
                Some(version) => is_complete && Revision::parse(version.as_str()).is_some(),
                None => false,
            }
        }
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

/// Returns a value of the `_meta` of a request.
fn meta_value(message: &ClientJsonRpcMessage, key: &str) -> Option<Value> {
    match message {
        ClientJsonRpcMessage::Request(request) => request.request.get_meta().get(key).cloned(),
        _ => None,
    }
}

/// Returns the `_meta` of a request.
fn meta_of(message: &ClientJsonRpcMessage) -> Option<RequestMetaObject> {
    match message {
        ClientJsonRpcMessage::Request(request) => Some(request.request.get_meta().clone()),
        _ => None,
    }
}

/// Opens the subscriptions of a listen request, and leaves the accepted part in the request. rmcp then
/// acknowledges exactly the filter that it reads.
async fn narrow<H: BusHandler>(
    handler: H,
    mut message: ClientJsonRpcMessage,
) -> Result<NarrowedListen, ServerJsonRpcMessage> {
    let mut opened = None;
    let etags = meta_value(&message, ETAG_META_KEY);
    let client = client_name(meta_value(&message, CLIENT_INFO_META_KEY).as_ref());
    let meta = meta_of(&message);
    if let ClientJsonRpcMessage::Request(request) = &mut message
        && let ClientRequest::SubscriptionsListenRequest(listen) = &mut request.request
    {
        let filter = std::mem::take(&mut listen.params.notifications);
        let mut requested = ListenRequest {
            filter,
            etags,
            client,
        };
        let server = &handler.of_bus().server;
        let caller = server.caller.next_request();
        let accepted = async {
            requested.narrow(server, &caller)?;
            let meta = meta.unwrap_or_default();
            handler.before_listen(&requested.filter, meta).await?;
            AcceptedListen::open(server, requested, SessionLifetime::Connection, &caller).await
        };
        let mut accepted = accepted
            .await
            .map_err(|refusal| ServerJsonRpcMessage::error(refusal, Some(request.id.clone())))?;
        listen.params.notifications.clone_from(&accepted.filter);
        let current = accepted.current.take();
        let stream = Arc::new(ListenPump::new(server, accepted));
        opened = Some(OpenListen {
            request: request.id.clone(),
            current,
            pump: Arc::downgrade(&stream),
        });
        request.request.extensions_mut().insert(stream);
    }
    Ok((message, opened))
}
