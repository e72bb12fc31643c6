//! The paths of the service: the MCP endpoint, the HTTP API, and the routers of the transports beside them.
//! The rule of hosts and origins stands before all of them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Method, header};
use http_body_util::{Either, Full};
use hyper::{Request, Response};
use tower_service::Service;

use crate::auth::ProtectedResource;
use crate::gateway::GatewayServer;
use crate::http::api::{self, Api, ClusterView};
use crate::http::problem::Problem;
use crate::http::{Access, Page, RequestBody, ServiceRoute, SharedLimits, may_change};
use crate::mcp::{Endpoint, EndpointBody, WrappedServers};
use crate::metrics;

/// The path of the MCP endpoint.
pub(super) const MCP_PATH: &str = ServiceRoute::Mcp.template();

/// The body of an answer: of the endpoint, of the API, or of a router.
type AnswerBody = Either<EndpointBody, Either<Full<Bytes>, Body>>;

/// Routers, each at one route of the table. No other path of theirs can be reached, so a route that is served
/// is one that the OpenAPI document has.
#[derive(Clone, Default)]
pub(super) struct Mounted(Router);

impl Mounted {
    /// Mounts `router` at the path of `route` alone.
    #[must_use]
    pub(super) fn with(self, route: ServiceRoute, router: Router) -> Mounted {
        Mounted(self.0.route_service(route.template(), OfOnePath(router)))
    }

    /// Adds the routes of `others`.
    #[must_use]
    pub(super) fn merge(self, others: Mounted) -> Mounted {
        Mounted(self.0.merge(others.0))
    }
}

/// A router as a service that another router takes, as it takes no routers.
#[derive(Clone)]
struct OfOnePath(Router);

impl Service<Request<Body>> for OfOnePath {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = <Router as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.call(request)
    }
}

/// The endpoint at `/mcp`: of the bus, or of the server behind a gateway.
#[derive(Clone)]
pub(super) enum McpEndpoint {
    Bus(Endpoint),
    Gateway(Endpoint<WrappedServers<GatewayServer>>),
}

impl McpEndpoint {
    async fn handle(&self, request: Request<RequestBody>) -> Response<EndpointBody> {
        match self {
            McpEndpoint::Bus(endpoint) => endpoint.handle(request).await,
            McpEndpoint::Gateway(endpoint) => endpoint.handle(request).await,
        }
    }
}

/// A service that answers every path.
#[derive(Clone)]
pub(super) struct Routes {
    access: Arc<Access>,
    limits: SharedLimits,
    endpoint: Option<McpEndpoint>,
    api: Option<Api>,
    /// Answers the paths that are neither the endpoint's nor the API's.
    others: Router,
    metadata: Option<Arc<ProtectedResource>>,
    page: Option<Page>,
    cluster: Option<ClusterView>,
}

impl Routes {
    /// Answers the paths of the metadata, without credentials.
    #[must_use]
    pub(super) fn with_metadata(mut self, metadata: Option<ProtectedResource>) -> Routes {
        self.metadata = metadata.map(Arc::new);
        self
    }

    /// Answers the paths of the page, without credentials, and lets in those who have logged in there.
    #[must_use]
    pub(super) fn with_page(mut self, page: Option<Page>) -> Routes {
        self.page = page;
        self
    }

    /// Answers 503 until the node has caught up with its cluster.
    #[must_use]
    pub(super) fn with_cluster(mut self, cluster: Option<ClusterView>) -> Routes {
        self.cluster = cluster;
        self
    }

    /// Makes a service that answers `/mcp` with `endpoint`, the paths of `others`, and every other path with
    /// `api`.
    pub(super) fn new(
        access: Access,
        limits: SharedLimits,
        endpoint: McpEndpoint,
        api: Api,
        others: Mounted,
    ) -> Routes {
        Routes {
            access: Arc::new(access),
            limits,
            endpoint: Some(endpoint),
            api: Some(api.clone()),
            others: others.0.fallback_service(api),
            metadata: None,
            page: None,
            cluster: None,
        }
    }

    /// Makes a service that answers the paths of `others` alone.
    pub(super) fn only(access: Access, limits: SharedLimits, others: Mounted) -> Routes {
        Routes {
            access: Arc::new(access),
            limits,
            endpoint: None,
            api: None,
            others: others.0,
            metadata: None,
            page: None,
            cluster: None,
        }
    }
}

/// The part of the service that answers a path.
enum Route {
    Mcp(McpEndpoint),
    Api(Api),
    Other,
}

impl Routes {
    fn route(&self, path: &str) -> Route {
        // The API's busiest paths pass the router by, which costs more than their answers.
        let is_api = api::is_open(path) || path.starts_with("/v1/resources");
        match (&self.endpoint, &self.api) {
            (Some(endpoint), _) if path == MCP_PATH => Route::Mcp(endpoint.clone()),
            (_, Some(api)) if is_api => Route::Api(api.clone()),
            _ => Route::Other,
        }
    }
}

impl Service<Request<RequestBody>> for Routes {
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        let path = request.uri().path();
        if let Some(metadata) = &self.metadata
            && metadata.is_at(path)
        {
            let answer = answer_metadata(&self.access, metadata, &request);
            return Box::pin(async move { Ok(answer) });
        }
        if let Some(page) = &self.page {
            if page.is_at(path) {
                let page = page.clone();
                return Box::pin(async move { Ok(page.handle(request).await.map(api_body)) });
            }
            if let Err(problem) = page.identify(&mut request) {
                let answer = refusal(&request, &problem);
                return Box::pin(async move { Ok(answer) });
            }
        }
        let path = request.uri().path();
        let is_open = api::is_open(path);
        if let Some(cluster) = &self.cluster
            && !is_open
            && let Err(problem) = cluster.admit(path)
        {
            let answer = refusal(&request, &problem);
            return Box::pin(async move { Ok(answer) });
        }
        let route = self.route(path);
        let access = self.access.clone();
        let limits = self.limits.clone();
        let mut others = self.others.clone();
        Box::pin(async move {
            if !is_open && let Err(problem) = limits.admit(&access, &mut request).await {
                return Ok(refusal(&request, &problem));
            }
            match route {
                Route::Mcp(endpoint) => Ok(endpoint.handle(request).await.map(Either::Left)),
                Route::Api(api) => {
                    let response = api.handle(request).await;
                    Ok(response.map(api_body))
                }
                Route::Other => {
                    // The body is boxed only for axum; the services above take the library's own type.
                    let answered = others.call(request.map(Body::new)).await?;
                    Ok(answered.map(|body| Either::Right(Either::Right(body))))
                }
            }
        })
    }
}

fn api_body(body: Full<Bytes>) -> AnswerBody {
    Either::Right(Either::Left(body))
}

/// Answers a request for the metadata, by the rule of hosts and origins alone.
fn answer_metadata(
    access: &Access,
    metadata: &ProtectedResource,
    request: &Request<RequestBody>,
) -> Response<AnswerBody> {
    if let Err(problem) = access.check(request) {
        return refusal(request, &problem);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return refusal(request, &Problem::wrong_method(request.method(), "GET,HEAD"));
    }
    let text = Bytes::from(metadata.text.clone());
    let mut response = Response::new(Either::Right(Either::Left(Full::new(text))));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Answers a request that was not let in.
fn refusal(request: &Request<RequestBody>, problem: &Problem) -> Response<AnswerBody> {
    let path = request.uri().path();
    // A POST to MCP is a question more often than a change, so it counts as no failed source.
    if path != MCP_PATH && may_change(request.method()) {
        metrics::source_failed(metrics::Source::Http);
    }
    let refusal = problem.respond(path);
    refusal.map(|body| Either::Right(Either::Left(Full::new(body))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use http::StatusCode;

    #[tokio::test]
    async fn router_is_reached_at_its_route_alone() {
        let router = Router::new()
            .route("/metrics", get(async || "figures"))
            .route("/metrics/more", get(async || "not described"));
        let mounted = Mounted::default().with(ServiceRoute::Metrics, router);
        for (path, status) in [
            ("/metrics", StatusCode::OK),
            ("/metrics/more", StatusCode::NOT_FOUND),
            ("/metrics/", StatusCode::NOT_FOUND),
        ] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let answer = mounted.0.clone().call(request).await.unwrap();
            assert_eq!(answer.status(), status, "{path}");
        }
    }
}
