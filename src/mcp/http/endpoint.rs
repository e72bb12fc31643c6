//! The MCP endpoint over HTTP.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::request::Parts;
use ::http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use bytes::Bytes;
use http_body::Body;
use http_body_util::{BodyExt, Empty, Full, LengthLimitError, Limited};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;
use serde_json::value::RawValue;

use super::event_stream::{self, EventStream, Held, OpenStream, StreamPlace};
use super::fast_path::FastPath;
use super::hosts::Hosts;
use super::peek::Peek;
use super::peers::{PeerAddress, PeerPlace, Peers};
use super::reply;
use super::sessions::Sessions;
use crate::mcp::ending;
use crate::mcp::frames::Wire;
use crate::mcp::handler::{Handler, McpSession, Opened};
use crate::mcp::listen::Listening;
use crate::mcp::options::McpOptions;
use crate::mcp::revision::Revision;
use crate::metrics::{self, Limit, McpMetrics};
use crate::{Bus, OutboxReader, Position, WriteProgress};

/// The body of an answer.
pub type EndpointBody = http_body_util::combinators::BoxBody<Bytes, Infallible>;

pub(super) type Answer = Response<EndpointBody>;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Streams one session may have open at once; a further GET is answered 409.
const STREAMS_PER_SESSION_MAX: usize = 4;

/// How often sessions that ended are swept out of the table.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The MCP endpoint of a server: a tower service, to be mounted at a path such as `/mcp`.
///
/// Connections that are carried on the bus's own threads ([`Bus::shards`]) are woken without crossing threads; any
/// other tokio runtime works too.
#[derive(Clone)]
pub struct Endpoint {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    rmcp: StreamableHttpService<Handler, NeverSessionManager>,
    hosts: Hosts,
    pub(super) fast_path: FastPath,
    pub(super) handler: Handler,
    pub(super) sessions: Sessions,
    streams: Arc<AtomicUsize>,
    peers: Peers,
}

impl Endpoint {
    /// An endpoint that answers requests whose `Host` is a loopback name and whose `Origin`, if there is one, is too.
    pub fn new(bus: Bus, options: McpOptions) -> Endpoint {
        Endpoint::with_hosts(bus, options, &[], &[])
    }

    /// An endpoint that answers these hosts and origins besides those of loopback. Hosts are names with or without a
    /// port, origins `scheme://host[:port]`.
    pub fn with_hosts(bus: Bus, options: McpOptions, hosts: &[String], origins: &[String]) -> Endpoint {
        let loopback_hosts = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let loopback_origins = ["localhost", "127.0.0.1", "[::1]"]
            .into_iter()
            .flat_map(|host| ["http", "https"].map(|scheme| format!("{scheme}://{host}:*")));
        let origins = origins.iter().map(|origin| with_port(origin));
        let mut config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(loopback_hosts.into_iter().chain(hosts.iter().cloned()))
            .with_allowed_origins(loopback_origins.chain(origins));
        config.legacy_session_mode = false;
        config.json_response = true;
        config.max_request_body_bytes = options.body_bytes_max;
        let handler = Handler {
            bus,
            options: Arc::new(options),
            transport: "http",
            metrics: McpMetrics::new("http"),
            opened: None,
            flow: None,
        };
        let factory = {
            let handler = handler.clone();
            move || Ok(handler.clone())
        };
        let rmcp = StreamableHttpService::new(factory, Arc::new(NeverSessionManager::default()), config);
        let inner = Arc::new(Inner {
            rmcp,
            hosts: Hosts::default(),
            fast_path: FastPath::new(&handler),
            handler,
            sessions: Sessions::default(),
            streams: Arc::default(),
            peers: Peers::default(),
        });
        Inner::sweep(&inner);
        Endpoint { inner }
    }

    /// Answers one request.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<EndpointBody>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        if let Some(refusal) = self.inner.refusal(&parts).await {
            return refusal;
        }
        match parts.method {
            Method::POST => {
                let limit = self.inner.handler.options.body_bytes_max;
                match Limited::new(body, limit).collect().await {
                    Ok(body) => self.inner.post(parts, body.to_bytes()).await,
                    Err(error) if error.is::<LengthLimitError>() => {
                        metrics::limit_reached(Limit::HttpBodyBytes);
                        reply::too_large(limit)
                    }
                    Err(error) => reply::bad_request(None, &format!("the body could not be read: {error}")),
                }
            }
            Method::GET => self.inner.get(&parts),
            Method::DELETE => self.inner.delete(&parts),
            _ => reply::method_not_allowed(),
        }
    }
}

impl<B> tower_service::Service<Request<B>> for Endpoint
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Display,
{
    type Response = Response<EndpointBody>;
    type Error = Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let endpoint = self.clone();
        Box::pin(async move { Ok(endpoint.handle(request).await) })
    }
}

impl Inner {
    /// Sweeps out sessions that ended, as long as the endpoint lives.
    fn sweep(inner: &Arc<Inner>) {
        let weak = Arc::downgrade(inner);
        let bus = inner.handler.bus.clone();
        let Some(shard) = bus.shards().first() else { return };
        shard.spawn(move || async move {
            loop {
                tokio::time::sleep(SWEEP_INTERVAL).await;
                let Some(inner) = weak.upgrade() else { return };
                inner.sessions.sweep();
            }
        });
    }

    /// The answer to a request whose Host or Origin is not allowed. The rule is rmcp's own: it checks both before the
    /// method, and GET is a method that it does not serve in this form.
    async fn refusal(&self, parts: &Parts) -> Option<Answer> {
        if self.hosts.passed(&parts.headers) {
            return None;
        }
        let refusal = self.refusal_of_rmcp(parts).await;
        if refusal.is_none() {
            self.hosts.remember(&parts.headers);
        }
        refusal
    }

    pub(super) async fn refusal_of_rmcp(&self, parts: &Parts) -> Option<Answer> {
        let mut probe = Request::new(Empty::<Bytes>::new());
        *probe.uri_mut() = parts.uri.clone();
        *probe.headers_mut() = parts.headers.clone();
        let answer = Box::pin(self.rmcp.handle(probe)).await;
        (answer.status() != StatusCode::METHOD_NOT_ALLOWED).then_some(answer)
    }

    async fn post(&self, parts: Parts, body: Bytes) -> Answer {
        if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            return Box::pin(self.batch(parts, &body)).await;
        }
        if let Some(answer) = self.answer_poll(&parts.headers, &body).await {
            return answer;
        }
        // On its own: rmcp's part is kilobytes of state, which every request would carry along however it is answered.
        Box::pin(self.message(parts, body)).await
    }

    /// Answers a POST of one message.
    pub(super) async fn message(&self, mut parts: Parts, body: Bytes) -> Answer {
        let peek = match Peek::of(&body) {
            Ok(peek) => peek,
            Err(error) => return reply::parse_error(&error),
        };
        if peek.is_initialize() {
            return self.initialize(parts, body).await;
        }
        if peek.is_stateless(header(&parts, &PROTOCOL_VERSION)) {
            if peek.is_listen() {
                return self.listen(parts, &body).await;
            }
            if let Some(method) = peek.notification()
                && !parts.headers.contains_key(MCP_METHOD)
                && let Ok(method) = HeaderValue::from_str(method)
            {
                // The specification asks this header of requests only; rmcp asks it of notifications too, which the
                // official TypeScript client does not send with its cancellations.
                parts.headers.insert(MCP_METHOD, method);
            }
            return self.pass(parts, body).await;
        }
        let session = match self.session(&parts, peek.id()) {
            Ok(session) => session,
            Err(refusal) => return refusal,
        };
        session.session.active();
        match peek.notification() {
            Some("notifications/initialized") => {
                // A client that is told nothing afterwards has lost its session, which its next request will say.
                session.session.ready().await.unwrap_or_default();
                reply::accepted()
            }
            Some(_) => self.pass(parts, body).await,
            None if peek.is_response() => reply::accepted(),
            None => {
                let version = HeaderValue::from_static(session.revision.as_str());
                parts.headers.entry(PROTOCOL_VERSION).or_insert(version);
                parts.extensions.insert(session);
                self.pass(parts, body).await
            }
        }
    }

    /// Has rmcp validate and answer a request.
    async fn pass(&self, parts: Parts, body: Bytes) -> Answer {
        self.rmcp
            .handle(Request::from_parts(parts, Full::new(body)))
            .await
    }

    /// A place among the sessions of the request's peer; none when they are not counted.
    ///
    /// # Errors
    /// The refusal, when that peer has as many as it may have.
    #[expect(
        clippy::result_large_err,
        reason = "the refusal is handed on at once, not carried far"
    )]
    fn peer_place(&self, parts: &Parts, id: Option<&RawValue>) -> Result<Option<PeerPlace>, Answer> {
        let peer = parts.extensions.get::<PeerAddress>();
        let Some((max, peer)) = self.handler.options.per_peer_max.zip(peer) else {
            return Ok(None);
        };
        let place = self.peers.take(*peer, max);
        place.map(Some).ok_or_else(|| {
            metrics::limit_reached(Limit::SessionsOfPeer);
            reply::too_many_sessions_of_peer(id, max)
        })
    }

    async fn initialize(&self, mut parts: Parts, body: Bytes) -> Answer {
        let id = Peek::of(&body)
            .ok()
            .and_then(|peek| peek.id().map(ToOwned::to_owned));
        let place = match self.peer_place(&parts, id.as_deref()) {
            Ok(place) => place,
            Err(refusal) => return refusal,
        };
        let opened: Opened = Arc::new(OnceLock::new());
        parts.extensions.insert(opened.clone());
        parts.headers.remove(SESSION_ID);
        let mut answer = self.pass(parts, body).await;
        match opened.get() {
            Some(session) => match self.sessions.insert(session.clone(), place) {
                Ok(key) => drop(answer.headers_mut().insert(SESSION_ID, key)),
                Err(error) => return reply::internal_error(&format!("no session id could be made: {error}")),
            },
            None => answer = reply::unavailable_if_full(answer).await,
        }
        answer
    }

    /// The session that a request names.
    #[expect(
        clippy::result_large_err,
        reason = "the refusal is handed on at once, not carried far"
    )]
    pub(super) fn session(&self, parts: &Parts, id: Option<&RawValue>) -> Result<Arc<McpSession>, Answer> {
        let Some(key) = header(parts, &SESSION_ID) else {
            let text =
                "the Mcp-Session-Id header is missing; send initialize first, then repeat its session id";
            return Err(reply::bad_request(id, text));
        };
        self.sessions.get(key).map_err(|ended| {
            let why = ended.map(|reason| ending::words(reason, &self.handler.options));
            reply::session_not_found(id, why.as_deref())
        })
    }

    /// Opens the stream of a session.
    fn get(&self, parts: &Parts) -> Answer {
        if let Some(refusal) = refused_version(parts) {
            return refusal;
        }
        let accepts = header(parts, &::http::header::ACCEPT).unwrap_or_default();
        if !accepts.contains("text/event-stream") && !accepts.contains("*/*") {
            return reply::not_acceptable();
        }
        let session = match self.session(parts, None) {
            Ok(session) => session,
            Err(refusal) => return refusal,
        };
        if session.session.readers() >= STREAMS_PER_SESSION_MAX {
            metrics::limit_reached(Limit::StreamsOfSession);
            return reply::too_many_streams_of_session(STREAMS_PER_SESSION_MAX);
        }
        let Some(place) = StreamPlace::take(&self.streams, self.handler.options.streams_max) else {
            return reply::too_many_streams(None, self.handler.options.streams_max);
        };
        let reader = session.session.reader();
        if let Some(position) = header(parts, &LAST_EVENT_ID) {
            // An id that we never sent proves nothing, so everything is told again.
            let unknown = Position { epoch: 0, offset: 0 };
            reader.resume_after(position.parse().unwrap_or(unknown));
        }
        meter(&reader, parts);
        let wire = Wire::Session(session.revision);
        let hello = wire.hello(reader.position());
        let (held, open) = (Held::Session(session), self.open_stream(place));
        let stream = EventStream::new(reader, wire, hello, held, open);
        reply::events(stream, parts.extensions.get())
    }

    /// What every stream has.
    fn open_stream(&self, place: StreamPlace) -> OpenStream {
        OpenStream {
            options: self.handler.options.clone(),
            _place: place,
        }
    }

    /// Ends a session.
    fn delete(&self, parts: &Parts) -> Answer {
        if let Some(refusal) = refused_version(parts) {
            return refusal;
        }
        match self.session(parts, None) {
            Ok(session) => {
                session.session.end();
                if let Some(key) = header(parts, &SESSION_ID) {
                    self.sessions.remove(key);
                }
                reply::no_content()
            }
            Err(refusal) => refusal,
        }
    }

    /// Opens a listen stream: subscribes, has rmcp validate the request and make the first and the last message, and
    /// goes on from the outbox.
    async fn listen(&self, mut parts: Parts, body: &Bytes) -> Answer {
        let Ok(mut request) = serde_json::from_slice::<Value>(body) else {
            return reply::bad_request(None, "the body is no JSON-RPC request");
        };
        // The id is kept as it was written: the stream is tagged with it in its own JSON type.
        let id = Peek::of(body)
            .ok()
            .and_then(|peek| peek.id().map(ToOwned::to_owned));
        let Some(id) = id else {
            return reply::bad_request(None, "subscriptions/listen needs an id");
        };
        let filter = request
            .pointer("/params/notifications")
            .cloned()
            .unwrap_or_default();
        let Ok(mut filter) = serde_json::from_value(filter) else {
            let text =
                "subscriptions/listen needs params.notifications, an object of the notifications to send";
            return reply::invalid_params(Some(&id), text);
        };
        let Some(place) = StreamPlace::take(&self.streams, self.handler.options.streams_max) else {
            return reply::too_many_streams(Some(&id), self.handler.options.streams_max);
        };
        let peer_place = match self.peer_place(&parts, Some(&id)) {
            Ok(place) => place,
            Err(refusal) => return refusal,
        };
        let flow = parts.extensions.get::<Arc<WriteProgress>>().cloned();
        let listening = match Listening::open(&self.handler, &mut filter, true).await {
            Ok(listening) => listening,
            Err(refusal) => return reply::refused_stream(&id, &refusal),
        };
        if let (Some(slot), Ok(filter)) = (
            request.pointer_mut("/params/notifications"),
            serde_json::to_value(&filter),
        ) {
            *slot = filter;
        }
        let carrier = parts.extensions.remove();
        parts.extensions.insert(listening.clone());
        parts.headers.remove(::http::header::CONTENT_LENGTH);
        let answer = self.pass(parts, Bytes::from(request.to_string())).await;
        if answer.status() != StatusCode::OK {
            return answer;
        }
        let Some((acknowledged, result)) = event_stream::first_and_last(answer.into_body()).await else {
            return reply::internal_error("the acknowledgement could not be made");
        };
        if !listening.honoured {
            return reply::finished(acknowledged, result);
        }
        let reader = listening.session.reader();
        if let Some(flow) = flow {
            reader.flows_through(flow);
        }
        let held = Held::Listening {
            listening,
            _place: peer_place,
            result,
        };
        let (wire, open) = (Wire::Listen(id), self.open_stream(place));
        let stream = EventStream::new(reader, wire, acknowledged, held, open);
        reply::events(stream, carrier.as_ref())
    }
}

/// Has a reader go by what the request's connection takes, if whoever carries it says.
fn meter(reader: &OutboxReader, parts: &Parts) {
    if let Some(flow) = parts.extensions.get::<Arc<WriteProgress>>() {
        reader.flows_through(flow.clone());
    }
}

/// An origin with its port: rmcp takes one that names none for one that allows any.
fn with_port(origin: &str) -> String {
    let named = origin
        .rsplit_once(']')
        .map_or(origin, |(_, after)| after)
        .rsplit_once(':');
    let has_port = named.is_some_and(|(_, port)| port == "*" || port.parse::<u16>().is_ok());
    match origin.split_once("://") {
        Some(("http", _)) if !has_port => format!("{origin}:80"),
        Some(("https", _)) if !has_port => format!("{origin}:443"),
        _ => origin.to_owned(),
    }
}

/// The answer to a GET or DELETE whose version has neither, or is none that we know.
fn refused_version(parts: &Parts) -> Option<Answer> {
    let version = parts.headers.get(&PROTOCOL_VERSION)?.to_str().unwrap_or_default();
    match Revision::parse(version.trim()) {
        Some(revision) => revision.is_stateless().then(reply::post_only),
        None => Some(reply::unknown_version(version)),
    }
}

/// A header's text, without the white space around it.
fn header<'a>(parts: &'a Parts, name: &HeaderName) -> Option<&'a str> {
    parts
        .headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_without_a_port_means_that_of_its_scheme() {
        for (written, meant) in [
            ("https://app.example", "https://app.example:443"),
            ("http://app.example", "http://app.example:80"),
            ("http://app.example:8080", "http://app.example:8080"),
            ("http://app.example:*", "http://app.example:*"),
            ("https://[2001:db8::1]", "https://[2001:db8::1]:443"),
            ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
        ] {
            assert_eq!(with_port(written), meant);
        }
    }
}
