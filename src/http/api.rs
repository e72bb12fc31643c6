//! The HTTP API: resources as HTTP resources, with the etag of the bus as their `ETag` (RFC 9110).
//!
//! It is a service of its own rather than a set of axum handlers: a router and its extractors cost more per
//! request than the whole answer from the bus.
//!
//! `GET`, `HEAD`, `PUT`, `POST` and `DELETE` on `/v1/resources/{uri}`, where `{uri}` is the resource's URI
//! percent-encoded as one segment; `POST …/touch`, `GET …/subscribers`, `GET` and `POST` on `/v1/resources`,
//! `GET /v1/sessions`, `GET` and `DELETE` on `/v1/sessions/{id}`, `GET /v1/subscribers`, `GET /v1/cluster`,
//! `GET /v1/upstreams`, `GET /v1/stats`, `GET /v1/openapi.json`, `GET /healthz`, `GET /readyz`. Errors are
//! problem details (RFC 9457).

mod batch;
mod api_path;
mod path;
mod parameters;
mod conditions;
mod body;
mod resources;
mod resource_list;
mod sessions;
mod sinks;
mod cluster;
mod upstreams;
mod stats;
mod metrics;
mod backup;
mod openapi;

use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::request::Parts;
use ::http::{HeaderValue, Method, Request, Response, StatusCode, header};
use axum::Router;
use bytes::Bytes;
use http_body::Body;
use http_body_util::Full;
use serde::Serialize;
use tidings_actors::attach::Health;
use tidings_actors::{Bus, Owner, StoreState};

pub use backup::{WriteBackup, backup_router};
pub use cluster::{ClusterHealth, ClusterLease, ClusterNode, ClusterReport, ClusterView};
pub use metrics::{Render, metrics_router};
pub use stats::StatsHistory;
pub use upstreams::{UpstreamKind, UpstreamReport, UpstreamState, UpstreamView};

use api_path::ApiPath;
use resource_list::Listing;

use super::access::Access;
use super::fetch_metadata::may_change;
use super::limits::SharedLimits;
use super::problem::{Problem, ProblemKind};
use super::rights::require;
use crate::auth::{Object, Right};
use crate::config::{HttpConfig, McpConfig};
use crate::metrics as recorded;

/// A response of the API: its body is there as a whole.
type ApiResponse = Response<Full<Bytes>>;

/// The HTTP API of a bus, as a tower service. Cheap to clone.
///
/// A body that is larger than the bus accepts gets 413 and is kept no further.
#[derive(Debug, Clone)]
pub struct Api {
    bus: Bus,
    access: Arc<Access>,
    /// Set by the service once it serves everything that it is configured to serve; until then `/readyz`
    /// answers 503.
    ready: Arc<AtomicBool>,
    /// The largest batch in bytes.
    batch_bytes_max: usize,
    limits: SharedLimits,
    /// The time that the reader of a resource may take; none for no limit.
    handler_timeout: Option<Duration>,
    /// The figures of the last minutes; none where they are not taken.
    stats: Option<StatsHistory>,
    /// The cluster of this node; none where it is alone.
    cluster: Option<ClusterView>,
    /// The servers behind this gateway; none where it is no gateway.
    upstreams: Option<UpstreamView>,
    listing: Arc<Listing>,
}

/// Returns the API as a router, to be merged with others: it has no fallback outside `/v1`. Until `ready` is
/// set, `/readyz` answers 503.
pub fn router(bus: Bus, access: Access, ready: Arc<AtomicBool>) -> Router {
    let api = Api::new(bus, access, ready);
    // Several paths rather than a fallback, so that the router can be merged with one that has its own.
    let mut router = Router::new();
    for path in ["/v1", "/v1/", "/v1/{*rest}", "/healthz", "/readyz"] {
        router = router.route_service(path, api.clone());
    }
    router
}

/// Returns true for a path that is answered for any host: the health checks, which reveal nothing of the
/// resources.
pub(crate) fn is_open(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

impl Api {
    /// Makes the API of `bus`.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "it keeps a handle, only one of another owner"
    )]
    pub fn new(bus: Bus, access: Access, ready: Arc<AtomicBool>) -> Api {
        Api {
            bus: bus.owned_by(Owner::Api),
            access: Arc::new(access),
            ready,
            batch_bytes_max: HttpConfig::default().body_bytes_max,
            limits: SharedLimits::default(),
            handler_timeout: McpConfig::default().handler_timeout,
            stats: None,
            cluster: None,
            upstreams: None,
            listing: Arc::default(),
        }
    }

    /// Answers `/v1/stats` with this history. Without one, the path is answered 404.
    #[must_use]
    pub fn stats(mut self, history: Option<StatsHistory>) -> Api {
        self.stats = history;
        self
    }

    /// Answers `/v1/cluster` with this state, and `/readyz` by it. Without one, the path is answered 404.
    #[must_use]
    pub fn cluster(mut self, cluster: Option<ClusterView>) -> Api {
        self.cluster = cluster;
        self
    }

    /// Answers `/v1/upstreams` with these servers. Without them, the list is empty.
    #[must_use]
    pub fn upstreams(mut self, upstreams: Option<UpstreamView>) -> Api {
        self.upstreams = upstreams;
        self
    }

    /// Shares `limits` with other endpoints. Unless set, the API has the default ones for itself.
    #[must_use]
    pub fn limits(mut self, limits: SharedLimits) -> Api {
        self.limits = limits;
        self
    }

    /// Lets the reader of a resource take this long (`mcp.handler_timeout`, 5 minutes unless set; none for no
    /// limit). A read that takes longer is stopped and answered 504.
    #[must_use]
    pub fn handler_timeout(mut self, timeout: Option<Duration>) -> Api {
        self.handler_timeout = timeout;
        self
    }

    /// Takes batches of at most this many bytes (`http.body_bytes_max`, 4 MiB unless set); a larger one gets
    /// 413.
    #[must_use]
    pub fn batch_bytes_max(mut self, bytes: usize) -> Api {
        self.batch_bytes_max = bytes;
        self
    }

    /// Answers one request.
    pub async fn handle<B>(&self, mut request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        let admitted = match is_open(request.uri().path()) {
            true => Ok(()),
            false => self.limits.admit(&self.access, &mut request).await,
        };
        // The head is kept: a problem repeats the path, and the response depends on the method.
        let (head, body) = request.into_parts();
        let answered = match admitted {
            Ok(()) => self.route(&head, body).await,
            Err(problem) => Err(problem),
        };
        let response = match answered {
            Ok(response) => response,
            Err(problem) => {
                // A refused write is a change that did not arrive, which the metrics of sources count.
                if may_change(&head.method) {
                    recorded::source_failed(recorded::Source::Http);
                }
                problem.respond(head.uri.path()).map(Full::new)
            }
        };
        match head.method {
            Method::HEAD => without_body(response),
            _ => response,
        }
    }

    async fn route<B>(&self, head: &Parts, body: B) -> Result<ApiResponse, Problem>
    where
        B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        let text = head.uri.path();
        let Some(path) = ApiPath::parse(text) else {
            let is_ours = text == "/v1" || text.starts_with("/v1/");
            return match is_ours {
                true => Err(unknown_path(text)),
                false => Ok(empty(StatusCode::NOT_FOUND)),
            };
        };
        // Before the method is looked at: what a caller may not use tells it nothing of itself.
        if matches!(
            path,
            ApiPath::Subscribers(_)
                | ApiPath::Sessions
                | ApiPath::Session(_)
                | ApiPath::Sinks
                | ApiPath::Cluster
        ) {
            require(&head.extensions, Right::Admin, Object::Service)?;
        }
        let allow = path.allow();
        if !allow.split(',').any(|method| method == head.method.as_str()) {
            return Err(Problem::wrong_method(&head.method, allow));
        }
        match path {
            ApiPath::Resource(segment) => self.resource(segment, head, body).await,
            ApiPath::Resources if head.method == Method::POST => self.publish_batch(head, body).await,
            ApiPath::Resources => self.list_resources(head).await,
            ApiPath::Touch(segment) => self.touch(segment, head).await,
            ApiPath::Subscribers(segment) => self.subscribers(segment, head).await,
            ApiPath::Sessions => self.list_sessions(head).await,
            ApiPath::Session(id) => self.session(id, head).await,
            ApiPath::Sinks => Ok(self.list_sinks()),
            ApiPath::Cluster => self.show_cluster(),
            ApiPath::Upstreams => self.list_upstreams(head),
            ApiPath::Stats => self.show_stats(head),
            ApiPath::OpenApi => Ok(openapi::answer()),
            ApiPath::Health => self.health(),
            ApiPath::Ready => self.readiness(),
        }
    }

    /// `GET /healthz`: 200 while the bus runs. Asks no actor, so a busy bus does not look like a dead one.
    fn health(&self) -> Result<ApiResponse, Problem> {
        if !self.bus.is_running() {
            let text = "the bus has stopped; the service must be started again";
            return Err(ProblemKind::Unavailable.because(text));
        }
        let mut response = Response::new(Full::new(Bytes::from_static(b"ok")));
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        Ok(response)
    }

    /// `GET /readyz`: 200 when everything that the service is configured to serve is there, the bus runs, and
    /// its store keeps changes; in a cluster, this node has caught up and the log takes changes. Sinks that
    /// fail are named and change no status: a restart or another instance would not mend them.
    fn readiness(&self) -> Result<ApiResponse, Problem> {
        if !self.ready.load(Ordering::Acquire) {
            return Err(ProblemKind::Unavailable.because("the service is still starting; try again"));
        }
        self.check_store()?;
        if let Some(cluster) = &self.cluster {
            cluster.check_ready()?;
        }
        let mut response = self.health()?;
        let warnings = self.sink_warnings();
        if !warnings.is_empty() {
            *response.body_mut() = Full::new(Bytes::from(format!("ok{warnings}")));
        }
        Ok(response)
    }

    /// A line for each attached subscriber that fails or stalls. Their errors may hold addresses, which a
    /// path open to any host must not show.
    fn sink_warnings(&self) -> String {
        let mut warnings = String::new();
        for info in self.bus.attached() {
            if matches!(info.health, Health::Failing | Health::Stalled) {
                let health = info.health.name();
                warnings.push_str(&format!("\nwarning: {} is {health}", info.name));
            }
        }
        warnings
    }

    /// Refuses while changes are not kept, so that publishers go elsewhere.
    fn check_store(&self) -> Result<(), Problem> {
        let detail = match self.bus.store_state() {
            StoreState::Failing { reason, since, .. } => {
                let seconds = since.elapsed().as_secs();
                format!("changes are refused, since the store has failed for {seconds} s: {reason}")
            }
            StoreState::Slow { since } => {
                let seconds = since.elapsed().as_secs();
                format!("changes wait, since the store has not answered for {seconds} s")
            }
            _ => return Ok(()),
        };
        Err(ProblemKind::StoreFailed.because(detail))
    }
}

impl<B> tower_service::Service<Request<B>> for Api
where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move { Ok(api.handle(request).await) })
    }
}

fn unknown_path(path: &str) -> Problem {
    let hint = if path.starts_with(path::RESOURCES) {
        "percent-encode the resource's URI as one segment, for example /v1/resources/demo%3A%2F%2Fgreeting"
    } else {
        "see /v1/openapi.json for what is"
    };
    ProblemKind::NotFound.because(format!("nothing is served under this path; {hint}"))
}

fn empty(status: StatusCode) -> ApiResponse {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

/// Makes a response of JSON.
fn json(value: &impl Serialize) -> ApiResponse {
    let text = serde_json::to_vec(value).expect("texts, numbers and lists of them are JSON");
    let mut response = Response::new(Full::new(Bytes::from(text)));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Takes the body off a response to HEAD, but keeps its length.
fn without_body(response: ApiResponse) -> ApiResponse {
    let (mut head, body) = response.into_parts();
    if let Some(length) = body.size_hint().exact() {
        head.headers
            .entry(header::CONTENT_LENGTH)
            .or_insert(HeaderValue::from(length));
    }
    Response::from_parts(head, Full::default())
}
