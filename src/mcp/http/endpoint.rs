//! The MCP endpoint of a server: a tower service that answers POST, GET and DELETE of every revision.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::request::Parts;
use ::http::{Method, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use rmcp::model::Implementation;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::value::RawValue;

use super::fast_path::FastPath;
use super::headers::{self, SESSION_ID};
use super::outbox_stream::{OpenStream, StreamPermit};
use super::reply::{self, EndpointBody, Refusal};
use super::served::{BusServer, EndpointServer};
use super::sessions::Sessions;
use super::shared_sessions::{self, SessionsOfEndpoint, SharedSessions};
use crate::auth::Caller;
use crate::config::{HttpConfig, QuotaConfig};
use crate::http::{Access, Counted, Place, SharedLimits};
use crate::mcp::error;
use crate::mcp::handler::Handler;
use crate::mcp::options::McpOptions;
use crate::mcp::session::{McpContext, McpSession};
use crate::mcp::session_records::SessionRecords;
use crate::metrics::McpMetrics;
use crate::{Bus, EndReason};

/// The time between two sweeps of ended sessions out of the table.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The MCP endpoint of a server: a tower service, to be mounted at a path such as `/mcp`.
///
/// Connections that are carried on the bus's own threads ([`Bus::shards`]) are woken without crossing
/// threads; any other tokio runtime works too.
///
/// [`Wrap::endpoint`](crate::mcp::Wrap::endpoint) makes one for a server that is written with rmcp.
pub struct Endpoint<S: EndpointServer = BusServer> {
    pub(super) state: Arc<EndpointState<S>>,
}

impl<S: EndpointServer> Clone for Endpoint<S> {
    fn clone(&self) -> Endpoint<S> {
        Endpoint {
            state: self.state.clone(),
        }
    }
}

/// The parts of an endpoint that its requests share.
pub(super) struct EndpointState<S: EndpointServer> {
    pub(super) served: S,
    /// The name and version of the server, which the last message of every listen stream has.
    pub(super) implementation: Arc<Implementation>,
    pub(super) rmcp: StreamableHttpService<S::Handler, S::Sessions>,
    access: Access,
    pub(super) fast_path: FastPath,
    pub(super) server: McpContext,
    pub(super) sessions: Arc<Sessions>,
    /// The records by which other nodes know the sessions; none on a node that is alone.
    pub(super) shared: Option<SharedSessions>,
    streams: Arc<AtomicUsize>,
    pub(super) limits: SharedLimits,
}

impl Endpoint<BusServer> {
    /// Makes an endpoint that answers requests whose `Host` is a loopback name and whose `Origin`, if there
    /// is one, is too.
    pub fn new(bus: Bus, options: McpOptions) -> Endpoint {
        Endpoint::with_access(bus, options, Access::default())
    }

    /// Makes an endpoint that answers the hosts and origins of `access`, too.
    pub fn with_access(bus: Bus, options: McpOptions, access: Access) -> Endpoint {
        let limits = SharedLimits::new(&HttpConfig::default(), &options.session, &QuotaConfig::default());
        Endpoint::with_limits(bus, options, access, limits)
    }

    /// Makes an endpoint that shares `limits` with others. They replace the `per_peer_max` of `options`.
    pub fn with_limits(bus: Bus, options: McpOptions, access: Access, limits: SharedLimits) -> Endpoint {
        let server = http_context(bus, Arc::new(options), limits.clone());
        Endpoint::build(bus_server(&server), server, access, (limits, None))
    }

    /// Makes an endpoint whose sessions go on at other nodes, which share `records` with this one. The bus of
    /// each has the same shared log.
    pub fn with_records(
        bus: Bus,
        options: McpOptions,
        access: Access,
        limits: SharedLimits,
        records: Arc<dyn SessionRecords>,
    ) -> Endpoint {
        let server = http_context(bus, Arc::new(options), limits.clone());
        Endpoint::build(bus_server(&server), server, access, (limits, Some(records)))
    }
}

impl<S: EndpointServer> Endpoint<S> {
    pub(crate) fn build(
        served: S,
        server: McpContext,
        access: Access,
        (limits, records): (SharedLimits, Option<Arc<dyn SessionRecords>>),
    ) -> Endpoint<S> {
        let handlers = served.clone();
        let rmcp = StreamableHttpService::new(
            move || Ok(handlers.handler()),
            served.sessions(),
            rmcp_config(&server.options, S::KEEPS_SESSIONS),
        );
        let sessions = Arc::<Sessions>::default();
        let (shared, tasks) = match &records {
            Some(records) => {
                let (shared, tasks) = SharedSessions::new(records.clone(), &server.options);
                (Some(shared), Some(tasks))
            }
            None => (None, None),
        };
        let implementation = served.implementation();
        let state = Arc::new(EndpointState {
            rmcp,
            access,
            fast_path: FastPath::new(&server, &implementation, sessions.clone()),
            implementation: Arc::new(implementation),
            served,
            server,
            sessions,
            shared,
            streams: Arc::default(),
            limits,
        });
        sweep_sessions(&state);
        if let Some(tasks) = tasks
            && let Some(shard) = state.server.bus.shards().first()
        {
            let weak = Arc::downgrade(&state);
            shard.spawn(move || shared_sessions::keep(weak, tasks));
        }
        if let Some(records) = records {
            records.serve(Arc::new(SessionsOfEndpoint(state.clone())));
        }
        Endpoint { state }
    }

    /// Answers one request.
    pub async fn handle<B>(&self, mut request: Request<B>) -> Response<EndpointBody>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if let Err(refusal) = self.state.admit(&mut request).await {
            return *refusal;
        }
        let (parts, body) = request.into_parts();
        let answered = match parts.method {
            Method::POST => self.state.receive_post(parts, body).await,
            Method::GET => self.state.get(&parts).await,
            Method::DELETE => self.state.delete(&parts).await,
            _ => Ok(reply::method_not_allowed()),
        };
        reply::answer_or_refusal(answered)
    }
}

impl<S, B> tower_service::Service<Request<B>> for Endpoint<S>
where
    S: EndpointServer,
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

/// Makes the context of the requests over HTTP.
pub(crate) fn http_context(bus: Bus, options: Arc<McpOptions>, limits: SharedLimits) -> McpContext {
    McpContext {
        bus,
        options,
        transport: "http",
        metrics: McpMetrics::new("http"),
        write_progress: None,
        caller: Caller::unlimited(None),
        limits: Some(limits),
    }
}

fn bus_server(server: &McpContext) -> BusServer {
    BusServer::new(Handler {
        server: server.clone(),
        own_session: None,
    })
}

/// Configures rmcp's service: sessions only for handlers that need one, and no rule of hosts, since
/// [`Access`] has one.
fn rmcp_config(options: &McpOptions, keeps_sessions: bool) -> StreamableHttpServerConfig {
    let mut config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins();
    // Sessions are kept here, so rmcp takes every request for one without, unless the handler of a client
    // lives as long as its session.
    config.legacy_session_mode = keeps_sessions;
    // Clients learn it from the streams of sessions, which are not rmcp's.
    config.sse_retry = None;
    // rmcp still answers with a stream when a tool sends messages before its answer.
    config.json_response = true;
    config.max_request_body_bytes = options.body_bytes_max;
    config
}

/// Sweeps ended sessions out of the table for as long as the endpoint lives.
fn sweep_sessions<S: EndpointServer>(state: &Arc<EndpointState<S>>) {
    // Weak: the sweep would otherwise keep an endpoint alive that its server has dropped.
    let weak = Arc::downgrade(state);
    let Some(shard) = state.server.bus.shards().first() else {
        return;
    };
    shard.spawn(move || async move {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            let Some(state) = weak.upgrade() else { return };
            state.sessions.sweep();
        }
    });
}

impl<S: EndpointServer> EndpointState<S> {
    /// Lets a request in by the rule of hosts and origins, by the rate of its caller, and by its headers.
    ///
    /// # Errors
    /// The refusal of a request whose host or origin is not let in, that is one too many, or that repeats a
    /// header.
    pub(super) async fn admit<B>(&self, request: &mut Request<B>) -> Result<(), Refusal> {
        if let Err(problem) = self.limits.admit(&self.access, request).await {
            let refusal = problem.respond(request.uri().path());
            return Err(refusal.map(|body| Full::new(body).boxed()).into());
        }
        match headers::repeated(request.headers()) {
            Some(name) => Err(reply::repeated_header(name).into()),
            None => Ok(()),
        }
    }

    /// Returns the session that a request names.
    ///
    /// # Errors
    /// The refusal of a request whose session is missing or has ended.
    pub(super) async fn session(
        &self,
        parts: &Parts,
        id: Option<&RawValue>,
    ) -> Result<Arc<McpSession>, Refusal> {
        let Some(key) = headers::text(&parts.headers, &SESSION_ID) else {
            let text =
                "the Mcp-Session-Id header is missing; send initialize first, then repeat its session id";
            return Err(reply::bad_request(id, text).into());
        };
        let ended = match self.sessions.get(key, Caller::of(&parts.extensions)) {
            Ok(session) => return Ok(session),
            Err(ended) => ended,
        };
        match (&self.shared, ended) {
            // Boxed: it is rare, and its state is larger than that of the usual way.
            (Some(shared), None | Some(EndReason::Moved)) => {
                Box::pin(self.adopt(shared, key, parts, id)).await
            }
            (Some(_), Some(EndReason::Shutdown)) => {
                let text = "this node is stopping, and another one goes on with the session; connect again";
                Err(reply::session_unavailable(id, text).into())
            }
            (_, ended) => {
                let reason = ended.map(|reason| error::end_reason(reason, &self.server.options));
                Err(reply::session_not_found(id, reason.as_deref()).into())
            }
        }
    }

    /// Takes a place among the sessions and streams of the request's caller; none when they are not counted.
    ///
    /// # Errors
    /// The refusal of a caller that has as many as it may.
    pub(super) fn place_for_session(
        &self,
        parts: &Parts,
        id: Option<&RawValue>,
    ) -> Result<Option<Place>, Refusal> {
        let place = self.limits.session(&Counted::of(&parts.extensions));
        place.map_err(|exceeded| reply::too_many_requests(id, exceeded).into())
    }

    /// Takes a permit among the open streams, with the parts that every stream has.
    ///
    /// # Errors
    /// The refusal when the limit is reached.
    pub(super) fn open_stream(&self, id: Option<&RawValue>) -> Result<OpenStream, Refusal> {
        let max = self.server.options.session.streams_max;
        let Some(permit) = StreamPermit::take(&self.streams, max) else {
            return Err(reply::too_many_streams(id, max).into());
        };
        Ok(OpenStream {
            options: self.server.options.clone(),
            metrics: self.server.metrics.clone(),
            _permit: permit,
        })
    }
}
